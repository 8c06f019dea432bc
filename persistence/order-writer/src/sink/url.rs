//! Reads `--db` addresses.

use super::Database;
use super::error::SetupError;
use super::mysql::MysqlDatabase;
use super::postgres::PostgresDatabase;
use super::sqlite::SqliteDatabase;
use std::sync::Arc;

/// The database at an address: `sqlite://FILE`, `postgres://...` or `mysql://...`. Readers use the
/// replica, where one is named.
///
/// # Errors
/// Unknown schemes, malformed addresses, a replica of a SQLite file.
pub fn database(url: &str, replica: Option<&str>) -> Result<Arc<dyn Database>, SetupError> {
    let (scheme, rest) = url.split_once("://").ok_or_else(|| {
        SetupError::Url(
            "--db: not an address; write sqlite://FILE, postgres://... or mysql://...".into(),
        )
    })?;
    let other = |replica: &str| replica.split("://").next().map(family) != Some(family(scheme));
    if let Some(replica) = replica.filter(|replica| scheme == "sqlite" || other(replica)) {
        let found = replica.split("://").next().unwrap_or_default();
        return Err(SetupError::Url(format!("--replica {found}://... is no replica of {scheme}")));
    }
    match family(scheme) {
        "sqlite" if rest.is_empty() => {
            Err(SetupError::Url("--db sqlite://: the file is missing".into()))
        }
        "sqlite" => Ok(Arc::new(SqliteDatabase::new(rest))),
        "postgres" => Ok(Arc::new(PostgresDatabase::new(url, replica)?)),
        "mysql" => Ok(Arc::new(MysqlDatabase::new(url, replica)?)),
        _ => Err(SetupError::Url(format!(
            "--db: unknown scheme {scheme}://; write sqlite://FILE, postgres://... or mysql://..."
        ))),
    }
}

fn family(scheme: &str) -> &str {
    match scheme {
        "postgresql" => "postgres",
        "mariadb" => "mysql",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_faults_told_without_their_passwords() {
        for (url, name) in [
            ("sqlite:///a/b.db", "sqlite:///a/b.db"),
            ("postgresql://u:secret@h:5/d", "postgres://u@h:5/d"),
            ("postgres://u:secret@h1,h2:7/d?sslmode=disable", "postgres://u@h1,h2:7/d"),
            ("mariadb://u:secret@h/d", "mysql://u@h/d"),
        ] {
            assert_eq!(database(url, None).map(|d| d.name()).ok().unwrap(), name);
        }
        for (url, replica, part) in [
            ("mysql://u:secret@h", None, "name the database"),
            ("oracle://u:secret@x", None, "unknown scheme"),
            ("orders.db", None, "not an address"),
            ("sqlite://", None, "missing"),
            ("postgres://u:secret@h:port/d", None, "port"),
            ("sqlite://a", Some("sqlite://b"), "no replica"),
            ("postgres://h/d", Some("mysql://u:secret@h/d"), "no replica"),
        ] {
            let error = database(url, replica).err().unwrap().to_string();
            assert!(error.contains(part) && !error.contains("secret"), "{url}: {error}");
        }
    }
}
