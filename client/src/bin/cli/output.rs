//! How answers are printed, and what they mean for the exit code.

use serde_json::Value;
use std::io::Write;
use std::process::ExitCode;
use stockade_client::Error;
use stockade_client::protocol::ids::TimestampMs;
use stockade_client::protocol::{Outcome, RequestId};

/// Plain text for people, or JSON for scripts.
#[derive(Clone, Copy, Debug)]
pub struct Output {
    /// JSON.
    pub json: bool,
}

impl Output {
    /// Prints an object: as JSON, or as `key value` lines, lists of objects as a table.
    pub fn object(&self, value: &Value) {
        if self.json {
            self.line(&value.to_string());
            return;
        }
        let Some(object) = value.as_object() else { return self.line(&plain(value)) };
        let width = object.keys().map(String::len).max().unwrap_or(0);
        for (key, value) in object {
            match value.as_array() {
                Some(rows) if rows.iter().all(Value::is_object) && !rows.is_empty() => {
                    self.line(&format!("{key}:"));
                    self.table(rows);
                }
                _ => self.line(&format!("{key:width$}  {}", plain(value))),
            }
        }
    }

    /// Prints objects: one JSON object a line, or a table.
    pub fn rows(&self, rows: &[Value]) {
        if self.json {
            rows.iter().for_each(|row| self.line(&row.to_string()));
        } else if rows.is_empty() {
            self.line("none");
        } else {
            self.table(rows);
        }
    }

    fn table(&self, rows: &[Value]) {
        let first = rows.first().and_then(Value::as_object);
        let keys: Vec<&String> = first.map(|row| row.keys().collect()).unwrap_or_default();
        let cell = |row: &Value, key: &str| plain(row.get(key).unwrap_or(&Value::Null));
        let widths: Vec<usize> = keys
            .iter()
            .map(|key| {
                let cells = rows.iter().map(|row| cell(row, key).chars().count());
                cells.max().unwrap_or(0).max(key.len())
            })
            .collect();
        let join = |cells: Vec<String>| {
            let padded: Vec<String> =
                cells.iter().zip(&widths).map(|(c, w)| format!("{c:w$}")).collect();
            padded.join("  ").trim_end().to_owned()
        };
        self.line(&join(keys.iter().map(|key| (*key).clone()).collect()));
        for row in rows {
            self.line(&join(keys.iter().map(|key| cell(row, key)).collect()));
        }
    }

    /// Prints a line; a reader that went away (`| head`) ends the program quietly.
    pub fn line(&self, text: &str) {
        if writeln!(std::io::stdout(), "{text}").is_err() {
            std::process::exit(0);
        }
    }
}

fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => "-".into(),
        other => other.to_string(),
    }
}

/// 0 for what was done, 1 for a rejection.
pub fn exit_of(outcome: Outcome) -> ExitCode {
    ExitCode::from(u8::from(outcome.is_rejection()))
}

/// Why a verb has no answer.
#[derive(Debug)]
pub enum Failure {
    /// A file or argument that cannot be used.
    Usage(String),
    /// An argument that the engine would refuse: the argument, and the answer in the verb's form.
    BadRequest(String, Value),
    /// Not reached, timed out or failed.
    Call(Error),
}

impl Failure {
    /// The exit code.
    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(match self {
            Self::BadRequest(..) => 1,
            Self::Usage(_) => 2,
            Self::Call(_) => 3,
        })
    }

    /// A bad request takes the form in which its verb answers.
    pub fn shaped(self, form: &Value) -> Self {
        match self {
            Self::BadRequest(what, _) => Self::BadRequest(what, form.clone()),
            other => other,
        }
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Usage(why) => f.write_str(why),
            Self::BadRequest(what, _) => write!(f, "bad_request: {what}"),
            Self::Call(error) => error.fmt(f),
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Call(error)
    }
}

/// What is malformed or out of range is what the engine calls a bad request.
pub fn good<T>(what: &str, text: &str, value: Option<T>) -> Result<T, Failure> {
    let refused = || Failure::BadRequest(format!("{what} {text:?}"), Value::Null);
    value.ok_or_else(refused)
}

/// A strict decimal: no sign, no spaces, no leading zeros.
pub fn decimal(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let plain = digits && (text == "0" || !text.starts_with('0'));
    if plain { text.parse().ok() } else { None }
}

/// A strict decimal that makes an id.
pub fn id<T>(what: &str, text: &str, make: impl Fn(u64) -> Option<T>) -> Result<T, Failure> {
    good(what, text, decimal(text).and_then(make))
}

/// A moment, ms since 1970.
pub fn moment(what: &str, text: &str) -> Result<TimestampMs, Failure> {
    id(what, text, |ms| Some(TimestampMs::new(ms)))
}

/// A request id.
pub fn request_id(text: &str) -> Result<RequestId, Failure> {
    good("request", text, RequestId::parse(text.as_bytes()).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_strict_decimals() {
        let table = [
            ("0", Some(0)),
            ("18446744073709551615", Some(u64::MAX)),
            ("18446744073709551616", None),
            ("", None),
            ("01", None),
            ("+1", None),
            ("-1", None),
            (" 1", None),
            ("1 ", None),
            ("1.0", None),
            ("\u{661}", None),
        ];
        for (text, expected) in table {
            assert_eq!(decimal(text), expected, "{text:?}");
        }
    }
}
