//! Error numbers of MariaDB and MySQL, in the writer's classes.

use crate::sink::error::SinkError;
use crate::sink::remote::classify_driver;
use sqlx::mysql::MySqlDatabaseError;

/// The class of an error.
pub fn classify(error: sqlx::Error) -> SinkError {
    let found = error.as_database_error().and_then(|e| e.try_downcast_ref::<MySqlDatabaseError>());
    let Some(found) = found else { return classify_driver(&error) };
    let (code, message) = (found.number().to_string(), found.message().to_owned());
    match class(found.number(), &message) {
        Class::Away => SinkError::Away { code, message },
        Class::Retry => SinkError::Retry { code, message },
        Class::Refused => SinkError::Refused { at: None, code, message },
        Class::Bug => SinkError::Bug { code, message },
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Class {
    Away,
    Retry,
    Refused,
    Bug,
}

fn class(number: u16, message: &str) -> Class {
    match number {
        // A duplicate primary key is a broken cursor, or two engines write here. Not a customer.
        1062 if message.ends_with("PRIMARY'") => Class::Bug,
        // Lost against another transaction: deadlock, lock wait, changed since the snapshot.
        1213 | 1205 | 1020 => Class::Retry,
        // Too many connections, shutting down, network, read only, killed, full, statement time.
        1021
        | 1040
        | 1041
        | 1053
        | 1077
        | 1079
        | 1114
        | 1129
        | 1130
        | 1152
        | 1153
        | 1158..=1161
        | 1180
        | 1184
        | 1203
        | 1226
        | 1290
        | 1317
        | 1792
        | 1836
        | 1927
        | 1969
        | 2006
        | 2013
        | 3024
        | 3100
        | 3168
        | 4031 => Class::Away,
        // NULL, duplicate, foreign key, range, length, date, type, CHECK, SIGNAL.
        1048 | 1062 | 1169 | 1216 | 1217 | 1264 | 1265 | 1292 | 1364 | 1366 | 1367 | 1406
        | 1411 | 1451 | 1452 | 1525 | 1644 | 1690 | 3819 | 4025 => Class::Refused,
        _ => Class::Bug,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_has_its_class() {
        let cases = [
            (1040, "", Class::Away),                            // too many connections
            (1053, "", Class::Away),                            // shutting down
            (1290, "", Class::Away),                            // --read-only
            (1792, "", Class::Away),                            // read-only transaction
            (1836, "", Class::Away),                            // read-only mode
            (1927, "", Class::Away),                            // killed
            (1969, "", Class::Away),                            // max_statement_time
            (1114, "", Class::Away),                            // table full
            (2013, "", Class::Away),                            // lost connection
            (1213, "", Class::Retry),                           // deadlock
            (1205, "", Class::Retry),                           // lock wait timeout
            (1020, "", Class::Retry),                           // changed since last read
            (1062, "for key 'once'", Class::Refused),           // unique
            (4025, "", Class::Refused),                         // CHECK of MariaDB
            (3819, "", Class::Refused),                         // CHECK of MySQL
            (1048, "", Class::Refused),                         // NULL
            (1452, "", Class::Refused),                         // foreign key
            (1264, "", Class::Refused),                         // out of range
            (1406, "", Class::Refused),                         // too long
            (1644, "", Class::Refused),                         // SIGNAL
            (1062, "'5' for key 'PRIMARY'", Class::Bug),        // duplicate primary key
            (1062, "'5' for key 'orders.PRIMARY'", Class::Bug), // the same of MySQL
            (1146, "", Class::Bug),                             // no such table
            (1054, "", Class::Bug),                             // no such column
            (1136, "", Class::Bug),                             // column count
            (1064, "", Class::Bug),                             // syntax
            (1142, "", Class::Bug),                             // no privilege
            (1045, "", Class::Bug),                             // wrong password
            (1049, "", Class::Bug),                             // no such database
        ];
        for (number, message, expected) in cases {
            assert_eq!(class(number, message), expected, "{number} {message}");
        }
    }
}
