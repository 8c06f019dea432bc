//! PostgreSQL's SQLSTATEs, in the writer's classes.

use crate::sink::error::SinkError;
use crate::sink::remote::classify_driver;
use sqlx::postgres::PgDatabaseError;

/// The class of an error. A row that COPY names is named.
pub fn classify(error: sqlx::Error) -> SinkError {
    let found = error.as_database_error().and_then(|e| e.try_downcast_ref::<PgDatabaseError>());
    let Some(found) = found else { return classify_driver(&error) };
    let message = match found.detail() {
        Some(detail) => format!("{} ({detail})", found.message()),
        None => found.message().to_owned(),
    };
    let class = class(found.code(), found.constraint().unwrap_or_default(), found.message());
    let at = found.r#where().and_then(copy_line).map(|line| line - 1);
    let code = found.code().to_owned();
    match class {
        Class::Away => SinkError::Away { code, message },
        Class::Retry => SinkError::Retry { code, message },
        Class::Refused => SinkError::Refused { at, code, message },
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

fn class(code: &str, constraint: &str, message: &str) -> Class {
    match code {
        // A duplicate primary key is a broken cursor, or two engines write here. Not a customer.
        "23505" if constraint.ends_with("_pkey") => Class::Bug,
        "40001" | "40P01" | "55P03" | "40003" => Class::Retry,
        // A table was changed under prepared statements.
        "0A000" if message.contains("cached plan") => Class::Retry,
        // Statement time, administrator, crash, starting up, demoted to a standby, idle too long.
        "57014" | "57P01" | "57P02" | "57P03" | "57P05" | "25006" | "25P03" => Class::Away,
        "P0001" | "44000" | "54000" => Class::Refused,
        _ => match code.get(..2) {
            Some("08" | "53" | "58" | "XX") => Class::Away,
            Some("22" | "23") => Class::Refused,
            _ => Class::Bug,
        },
    }
}

/// The line that an error's context names: `COPY orders, line 3: ...`.
fn copy_line(context: &str) -> Option<usize> {
    let line = context.lines().find(|line| line.starts_with("COPY "))?;
    let rest = line.split_once(", line ")?.1;
    let digits = rest.split(|c: char| !c.is_ascii_digit()).next()?;
    digits.parse().ok().filter(|line| *line > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_sqlstate_has_its_class() {
        let cases = [
            ("08006", "", Class::Away),                    // connection failure
            ("57P01", "", Class::Away),                    // shut down by an administrator
            ("57P02", "", Class::Away),                    // crash
            ("57P03", "", Class::Away),                    // starting up
            ("57014", "", Class::Away),                    // statement timeout
            ("53100", "", Class::Away),                    // disk full
            ("53300", "", Class::Away),                    // too many connections
            ("58030", "", Class::Away),                    // I/O error
            ("25006", "", Class::Away),                    // read only: demoted
            ("XX000", "", Class::Away),                    // internal
            ("40001", "", Class::Retry),                   // serialization
            ("40P01", "", Class::Retry),                   // deadlock
            ("55P03", "", Class::Retry),                   // lock timeout
            ("23505", "orders_once", Class::Refused),      // unique
            ("23514", "orders_qty_check", Class::Refused), // check
            ("23502", "", Class::Refused),                 // not null
            ("23503", "", Class::Refused),                 // foreign key
            ("22001", "", Class::Refused),                 // too long
            ("22003", "", Class::Refused),                 // out of range
            ("P0001", "", Class::Refused),                 // RAISE in a trigger
            ("23505", "orders_00_pkey", Class::Bug),       // duplicate primary key
            ("42P01", "", Class::Bug),                     // no such table
            ("42703", "", Class::Bug),                     // no such column
            ("42501", "", Class::Bug),                     // no privilege
            ("28P01", "", Class::Bug),                     // wrong password
            ("3D000", "", Class::Bug),                     // no such database
            ("21000", "", Class::Bug),                     // a key twice in one statement
            ("25P02", "", Class::Bug),                     // transaction is aborted
        ];
        for (code, constraint, expected) in cases {
            assert_eq!(class(code, constraint, ""), expected, "{code} {constraint}");
        }
        assert_eq!(class("0A000", "", "cached plan must not change"), Class::Retry);
    }

    #[test]
    fn copy_names_the_row() {
        let cases = [
            ("COPY orders, line 3: \"3\t9\"", Some(3)),
            ("PL/pgSQL function no() line 1 at RAISE\nCOPY order_lines_07, line 12", Some(12)),
            ("PL/pgSQL function no() line 1 at RAISE", None),
            ("COPY orders, line 0", None),
        ];
        for (context, expected) in cases {
            assert_eq!(copy_line(context), expected, "{context}");
        }
    }
}
