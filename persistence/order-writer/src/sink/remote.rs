//! What the dialects over a network share: addresses with several hosts, a connection that blocks
//! its thread, the class of an error that is no word of the database itself.
//!
//! sqlx is async; a lane is a thread. Every session brings a runtime of its own thread and waits
//! there, with a bound: a peer that is gone without a word is away, not a hang.

use super::error::SinkError;
use std::future::Future;
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};

/// How long connecting to one host may take.
pub(super) const CONNECT_MAX: Duration = Duration::from_secs(10);
/// How long a statement of a writer may take.
pub(super) const STATEMENT_MAX: Duration = Duration::from_secs(120);
/// How long a statement of a reader may take, on the server.
pub(super) const READ_SECONDS_MAX: u32 = 300;

/// What a session is for: each kind has connections of its own, so that one cannot use up
/// another's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Role {
    /// A lane.
    Writer,
    /// Status, lists, reconciliation: read only, statements bounded.
    Reader,
    /// The schema and repairs.
    Admin,
}

impl Role {
    /// The name that the database's own list of connections shows.
    pub(super) const fn application(self) -> &'static str {
        match self {
            Self::Writer => "stockade-writer",
            Self::Reader => "stockade-writer read",
            Self::Admin => "stockade-writer admin",
        }
    }
}

/// An address with one or more hosts: `scheme://user:password@host[:port][,host...]/name`.
#[derive(Clone, Debug)]
pub(super) struct Address {
    /// For logs, without the password.
    pub(super) name: String,
    /// One address for each host, in order.
    pub(super) urls: Vec<String>,
}

impl Address {
    /// Splits an address; `scheme` is what the driver calls it.
    pub(super) fn parse(url: &str, scheme: &str) -> Self {
        let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        let (login, hosts) = match authority.rsplit_once('@') {
            Some((login, hosts)) => (format!("{login}@"), hosts),
            None => (String::new(), authority),
        };
        let user = login.split([':', '@']).next().unwrap_or_default();
        let at = if user.is_empty() { "" } else { "@" };
        let plain_path = path.split('?').next().unwrap_or_default();
        Self {
            name: format!("{scheme}://{user}{at}{hosts}{plain_path}"),
            urls: hosts.split(',').map(|host| format!("{scheme}://{login}{host}{path}")).collect(),
        }
    }
}

/// A runtime for one thread.
pub(super) fn runtime() -> Result<Runtime, SinkError> {
    Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| away("runtime", &error.to_string()))
}

/// Waits for a call of the driver.
pub(super) fn wait<T>(
    runtime: &Runtime,
    most: Duration,
    classify: fn(sqlx::Error) -> SinkError,
    work: impl Future<Output = Result<T, sqlx::Error>>,
) -> Result<T, SinkError> {
    match runtime.block_on(async { tokio::time::timeout(most, work).await }) {
        Ok(done) => done.map_err(classify),
        Err(_) => Err(away("timeout", "no answer in time")),
    }
}

/// The database is away.
pub(super) fn away(code: &str, message: &str) -> SinkError {
    SinkError::Away { code: code.into(), message: message.into() }
}

/// The class of an error that the driver found itself.
pub(super) fn classify_driver(error: &sqlx::Error) -> SinkError {
    let message = error.to_string();
    match error {
        sqlx::Error::Io(_)
        | sqlx::Error::Tls(_)
        | sqlx::Error::Protocol(_)
        | sqlx::Error::WorkerCrashed
        | sqlx::Error::PoolClosed
        | sqlx::Error::PoolTimedOut => away("connection", &message),
        _ => SinkError::Bug { code: "driver".into(), message },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_host_has_its_address_and_the_name_has_no_password() {
        let cases = [
            (
                "postgresql://shop:s3:cr@t@db1:5433,db2/orders?sslmode=disable",
                "postgres://shop@db1:5433,db2/orders",
                vec![
                    "postgres://shop:s3:cr@t@db1:5433/orders?sslmode=disable",
                    "postgres://shop:s3:cr@t@db2/orders?sslmode=disable",
                ],
            ),
            ("postgres://db", "postgres://db", vec!["postgres://db"]),
            ("postgres:///x", "postgres:///x", vec!["postgres:///x"]),
        ];
        for (url, name, urls) in cases {
            let address = Address::parse(url, "postgres");
            assert_eq!(
                (address.name.as_str(), address.urls),
                (name, urls.iter().map(|u| (*u).to_owned()).collect())
            );
        }
    }
}
