//! SQLite's result codes, in the writer's classes.

use crate::sink::error::SinkError;
use rusqlite::ErrorCode;

/// A duplicate in a primary key or rowid: the cursor is broken, or two engines write here. Not a
/// customer.
const DUPLICATE_KEYS: [i32; 2] =
    [rusqlite::ffi::SQLITE_CONSTRAINT_PRIMARYKEY, rusqlite::ffi::SQLITE_CONSTRAINT_ROWID];

/// The class of an error.
pub fn classify(error: rusqlite::Error) -> SinkError {
    let message = error.to_string();
    let rusqlite::Error::SqliteFailure(failure, _) = &error else {
        return SinkError::Bug { code: "rusqlite".into(), message };
    };
    let code = format!("SQLITE_{}", failure.extended_code);
    match failure.code {
        _ if DUPLICATE_KEYS.contains(&failure.extended_code) => SinkError::Bug { code, message },
        ErrorCode::ConstraintViolation | ErrorCode::TypeMismatch | ErrorCode::TooBig => {
            SinkError::Refused { at: None, code, message }
        }
        ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked => SinkError::Retry { code, message },
        ErrorCode::SystemIoFailure
        | ErrorCode::DiskFull
        | ErrorCode::CannotOpen
        | ErrorCode::ReadOnly
        | ErrorCode::OutOfMemory
        | ErrorCode::OperationInterrupted
        | ErrorCode::FileLockingProtocolFailed => SinkError::Away { code, message },
        _ => SinkError::Bug { code, message },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_result_code_has_its_class() {
        let cases = [
            (275, "row refused"),  // CHECK
            (2067, "row refused"), // UNIQUE
            (1299, "row refused"), // NOT NULL
            (1811, "row refused"), // trigger
            (3091, "row refused"), // datatype of a STRICT table
            (20, "row refused"),   // mismatch
            (5, "tried again"),    // busy
            (517, "tried again"),  // busy snapshot
            (6, "tried again"),    // locked
            (10, "away"),          // I/O
            (13, "away"),          // disk full
            (14, "away"),          // cannot open
            (8, "away"),           // read only
            (1555, "SQLITE_1555"), // duplicate primary key
            (2579, "SQLITE_2579"), // duplicate rowid
            (1, "SQLITE_1:"),      // no such table
            (11, "SQLITE_11:"),    // corrupt
            (26, "SQLITE_26:"),    // not a database
        ];
        for (code, part) in cases {
            let failure = rusqlite::ffi::Error::new(code);
            let error = classify(rusqlite::Error::SqliteFailure(failure, None)).to_string();
            assert!(error.contains(part), "{code}: {error}");
        }
    }
}
