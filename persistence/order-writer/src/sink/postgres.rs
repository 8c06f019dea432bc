//! PostgreSQL (13 and later) as a sink: binary COPY for new orders, `UPDATE ... FROM unnest` for
//! changes, READ COMMITTED, one connection a lane.
//!
//! An address may name several hosts; each connection takes the first that accepts writes, so a
//! promoted standby is found without help. A demoted primary answers reads and refuses writes: it
//! counts as away. Session settings are made by `SET` after connecting.

mod classify;
mod copy;
mod ledger;
mod moment;
mod schema;
mod session;

use super::error::{SetupError, SinkError};
use super::remote::{self, Address, CONNECT_MAX, READ_SECONDS_MAX, Role, away};
use super::{Database, Session};
use crate::layout::Layout;
use classify::classify;
use session::PostgresSession;
use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{AssertSqlSafe, ConnectOptions, Executor};
use std::str::FromStr;
use tokio::runtime::Runtime;

/// A database on one of several hosts.
#[derive(Clone, Debug)]
pub struct PostgresDatabase {
    name: String,
    hosts: Vec<PgConnectOptions>,
    /// Where readers go; empty: to the hosts above.
    replicas: Vec<PgConnectOptions>,
}

impl PostgresDatabase {
    /// The database at `postgres://...`; nothing is connected yet.
    ///
    /// # Errors
    /// The address cannot be read.
    pub fn new(url: &str, replica: Option<&str>) -> Result<Self, SetupError> {
        let (name, hosts) = options(url)?;
        let replicas = replica.map(options).transpose()?.map_or_else(Vec::new, |(_, found)| found);
        Ok(Self { name, hosts, replicas })
    }

    /// Connects to the first host that will do.
    fn connect(&self, role: Role) -> Result<(Runtime, PgConnection), SinkError> {
        let runtime = remote::runtime()?;
        let replicas = role == Role::Reader && !self.replicas.is_empty();
        let hosts = if replicas { &self.replicas } else { &self.hosts };
        let mut last = away("address", "no host");
        for host in hosts {
            match remote::wait(&runtime, CONNECT_MAX, classify, open(host, role)) {
                Ok((connection, false)) => return Ok((runtime, connection)),
                Ok((connection, true)) => {
                    drop(connection);
                    let place = format!("{}:{}", host.get_host(), host.get_port());
                    last = away("25006", &format!("{place} is read only: a standby"));
                }
                // What waiting does not mend is told at once.
                Err(error @ (SinkError::Bug { .. } | SinkError::Refused { .. })) => {
                    return Err(error);
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    fn session(&self, layout: &Layout, role: Role) -> Result<Box<dyn Session>, SinkError> {
        let (runtime, connection) = self.connect(role)?;
        Ok(Box::new(PostgresSession::new(runtime, connection, *layout)))
    }

    fn failed(&self, source: SinkError) -> SetupError {
        SetupError::Sink { name: self.name.clone(), source }
    }
}

fn options(url: &str) -> Result<(String, Vec<PgConnectOptions>), SetupError> {
    let Address { name, urls } = Address::parse(url, "postgres");
    let read = |url: &String| {
        PgConnectOptions::from_str(url)
            .map(|options| options.disable_statement_logging())
            .map_err(|error| SetupError::Url(format!("--db {name}: {error}")))
    };
    let hosts = urls.iter().map(read).collect::<Result<_, _>>()?;
    Ok((name, hosts))
}

/// Connects, and says whether the host refuses writes that the role needs.
async fn open(host: &PgConnectOptions, role: Role) -> Result<(PgConnection, bool), sqlx::Error> {
    let options = host.clone().application_name(role.application());
    let mut connection = options.connect().await?;
    connection.execute(AssertSqlSafe(settings(role))).await?;
    if role == Role::Reader {
        return Ok((connection, false));
    }
    let sql = "SELECT pg_is_in_recovery() OR current_setting('transaction_read_only')::boolean";
    let read_only: bool = sqlx::query_scalar(sql).fetch_one(&mut connection).await?;
    Ok((connection, read_only))
}

/// What a session of a role begins with. A host that lost its peer notices within half a minute, so
/// that the locks of a writer that is gone do not hold up the next one.
fn settings(role: Role) -> String {
    let common = "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL READ COMMITTED; \
                  SET TIME ZONE 'UTC'; SET client_min_messages = warning; \
                  SET lock_timeout = '10s'; SET tcp_keepalives_idle = 10; \
                  SET tcp_keepalives_interval = 5; SET tcp_keepalives_count = 3";
    match role {
        Role::Writer => format!(
            "{common}; SET statement_timeout = '110s'; \
             SET idle_in_transaction_session_timeout = '60s'; \
             SET plan_cache_mode = force_generic_plan; \
             SELECT set_config('synchronous_commit', 'on', false) \
             WHERE current_setting('synchronous_commit') = 'off'"
        ),
        Role::Reader => format!(
            "{common}; SET statement_timeout = '{READ_SECONDS_MAX}s'; \
             SET default_transaction_read_only = on"
        ),
        Role::Admin => format!("{common}; SET statement_timeout = '{READ_SECONDS_MAX}s'"),
    }
}

impl Database for PostgresDatabase {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn prepare(&self, layout: &Layout, index: u16) -> Result<(), SetupError> {
        let (runtime, mut connection) =
            self.connect(Role::Admin).map_err(|source| self.failed(source))?;
        schema::migrate(&runtime, &mut connection, layout, index, &self.name)
    }

    fn layout(&self) -> Result<Option<(Layout, u16)>, SetupError> {
        let (runtime, mut connection) =
            self.connect(Role::Reader).map_err(|source| self.failed(source))?;
        schema::layout(&runtime, &mut connection).map_err(|source| self.failed(source))
    }

    fn open(&self, layout: &Layout) -> Result<Box<dyn Session>, SinkError> {
        self.session(layout, Role::Writer)
    }

    fn reader(&self, layout: &Layout) -> Result<Box<dyn Session>, SinkError> {
        self.session(layout, Role::Reader)
    }

    fn admin(&self, layout: &Layout) -> Result<Box<dyn Session>, SinkError> {
        self.session(layout, Role::Admin)
    }

    fn ddl(&self, layout: &Layout, index: u16) -> Vec<String> {
        schema::ddl(layout, index)
    }
}

/// The statements that make the schema, without an address.
pub fn ddl(layout: &Layout, index: u16) -> Vec<String> {
    schema::ddl(layout, index)
}
