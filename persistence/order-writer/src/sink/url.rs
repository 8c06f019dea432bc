//! Reads `--db` addresses.

use super::Database;
use super::error::SetupError;
use super::sqlite::SqliteDatabase;
use std::sync::Arc;

/// The database at an address: `sqlite://file`, with a path as the shell writes it.
///
/// # Errors
/// Unknown or unsupported schemes, no path.
pub fn database(url: &str) -> Result<Arc<dyn Database>, SetupError> {
    let (scheme, rest) = url.split_once("://").ok_or_else(|| {
        SetupError::Url(format!("--db {url}: not an address; write sqlite://FILE"))
    })?;
    match scheme {
        "sqlite" if rest.is_empty() => {
            Err(SetupError::Url("--db sqlite://: the file is missing".into()))
        }
        "sqlite" => Ok(Arc::new(SqliteDatabase::new(rest))),
        "postgres" | "postgresql" | "mysql" | "mariadb" => Err(SetupError::Url(format!(
            "--db {scheme}://...: this build writes SQLite only; use sqlite://FILE"
        ))),
        _ => Err(SetupError::Url(format!("--db: unknown scheme {scheme}://; write sqlite://FILE"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_databases_are_refused_in_one_sentence_without_their_passwords() {
        assert_eq!(
            database("sqlite:///a/b.db").map(|d| d.name()).ok().unwrap(),
            "sqlite:///a/b.db"
        );
        for (url, part) in [
            ("postgres://u:secret@h/d", "SQLite only"),
            ("mysql://u:secret@h/d", "SQLite only"),
            ("oracle://x", "unknown scheme"),
            ("orders.db", "not an address"),
            ("sqlite://", "missing"),
        ] {
            let error = database(url).err().unwrap().to_string();
            assert!(error.contains(part) && !error.contains("secret"), "{url}: {error}");
        }
    }
}
