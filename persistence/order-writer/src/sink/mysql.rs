//! MariaDB (10.6 and later) and MySQL 8 as a sink: multi-row INSERT as text for new orders,
//! `UPDATE ... JSON_TABLE` for changes, READ COMMITTED, one connection a lane.
//!
//! Both speak these statements; they differ in the collation that compares texts byte by byte, and
//! in whether a refused row is named. An address may name several hosts; each connection takes the
//! first that is not `read_only`. The strict SQL mode is set for every session: without it values
//! are cut silently.

mod classify;
mod ledger;
mod schema;
mod session;
mod text;

use super::error::{SetupError, SinkError};
use super::remote::{self, Address, CONNECT_MAX, READ_SECONDS_MAX, Role, away};
use super::{Database, Session};
use crate::layout::Layout;
use classify::classify;
use session::MysqlSession;
use sqlx::mysql::{MySqlConnectOptions, MySqlConnection};
use sqlx::{AssertSqlSafe, ConnectOptions, Executor};
use std::str::FromStr;
use tokio::runtime::Runtime;

/// Which of the two it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// MariaDB.
    Mariadb,
    /// MySQL.
    Mysql,
}

impl Kind {
    /// The collation without padding, byte by byte.
    const fn collation(self) -> &'static str {
        match self {
            Self::Mariadb => "utf8mb4_nopad_bin",
            Self::Mysql => "utf8mb4_0900_bin",
        }
    }
}

/// A database on one of several hosts.
#[derive(Clone, Debug)]
pub struct MysqlDatabase {
    name: String,
    hosts: Vec<MySqlConnectOptions>,
    /// Where readers go; empty: to the hosts above.
    replicas: Vec<MySqlConnectOptions>,
}

impl MysqlDatabase {
    /// The database at `mysql://...` or `mariadb://...`; nothing is connected yet.
    ///
    /// # Errors
    /// The address cannot be read.
    pub fn new(url: &str, replica: Option<&str>) -> Result<Self, SetupError> {
        let (name, hosts) = options(url)?;
        let replicas = replica.map(options).transpose()?.map_or_else(Vec::new, |(_, found)| found);
        Ok(Self { name, hosts, replicas })
    }

    /// Connects to the first host that will do.
    fn connect(&self, role: Role) -> Result<(Runtime, MySqlConnection, Kind), SinkError> {
        let runtime = remote::runtime()?;
        let replicas = role == Role::Reader && !self.replicas.is_empty();
        let hosts = if replicas { &self.replicas } else { &self.hosts };
        let mut last = away("address", "no host");
        for host in hosts {
            match remote::wait(&runtime, CONNECT_MAX, classify, open(host, role)) {
                Ok((connection, kind, false)) => return Ok((runtime, connection, kind)),
                Ok((connection, _, true)) => {
                    drop(connection);
                    let place = format!("{}:{}", host.get_host(), host.get_port());
                    last = away("1290", &format!("{place} is read only: a replica"));
                }
                Err(error @ (SinkError::Bug { .. } | SinkError::Refused { .. })) => {
                    return Err(error);
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    fn session(&self, layout: &Layout, role: Role) -> Result<Box<dyn Session>, SinkError> {
        let (runtime, connection, kind) = self.connect(role)?;
        Ok(Box::new(MysqlSession::new(runtime, connection, kind, *layout)))
    }

    fn failed(&self, source: SinkError) -> SetupError {
        SetupError::Sink { name: self.name.clone(), source }
    }
}

fn options(url: &str) -> Result<(String, Vec<MySqlConnectOptions>), SetupError> {
    let Address { name, urls } = Address::parse(url, "mysql");
    let read = |url: &String| {
        let options = MySqlConnectOptions::from_str(url)
            .map_err(|error| SetupError::Url(format!("--db {name}: {error}")))?;
        if options.get_database().is_none() {
            return Err(SetupError::Url(format!("--db {name}: name the database after the host")));
        }
        // The session's settings are made in one statement, see `settings`.
        let options = options.pipes_as_concat(false).no_engine_substitution(false);
        Ok(options.disable_statement_logging())
    };
    let hosts = urls.iter().map(read).collect::<Result<_, _>>()?;
    Ok((name, hosts))
}

/// Connects, and says what it is and whether the host refuses writes that the role needs.
async fn open(
    host: &MySqlConnectOptions,
    role: Role,
) -> Result<(MySqlConnection, Kind, bool), sqlx::Error> {
    let mut connection = host.connect().await?;
    let sql = "SELECT VERSION(), CAST(@@global.read_only AS CHAR)";
    let (version, read_only): (String, String) =
        sqlx::query_as(sql).fetch_one(&mut connection).await?;
    let kind = if version.contains("MariaDB") { Kind::Mariadb } else { Kind::Mysql };
    for statement in settings(role, kind) {
        connection.execute(sqlx::raw_sql(AssertSqlSafe(statement))).await?;
    }
    let writable = matches!(read_only.as_str(), "0" | "OFF");
    Ok((connection, kind, role != Role::Reader && !writable))
}

/// What a session of a role begins with.
fn settings(role: Role, kind: Kind) -> Vec<String> {
    let mut out = vec![
        "SET SESSION sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION,\
         ERROR_FOR_DIVISION_BY_ZERO,NO_ZERO_DATE,NO_ZERO_IN_DATE', time_zone = '+00:00', \
         innodb_lock_wait_timeout = 10, wait_timeout = 600"
            .to_owned(),
        "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED".to_owned(),
    ];
    if role == Role::Reader {
        out.push("SET SESSION TRANSACTION READ ONLY".into());
        out.push(match kind {
            Kind::Mariadb => format!("SET SESSION max_statement_time = {READ_SECONDS_MAX}"),
            Kind::Mysql => format!("SET SESSION max_execution_time = {}", READ_SECONDS_MAX * 1000),
        });
    }
    out
}

impl Database for MysqlDatabase {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn prepare(&self, layout: &Layout, index: u16) -> Result<(), SetupError> {
        let (runtime, mut connection, kind) =
            self.connect(Role::Admin).map_err(|source| self.failed(source))?;
        schema::migrate(&runtime, &mut connection, kind, layout, index, &self.name)
    }

    fn layout(&self) -> Result<Option<(Layout, u16)>, SetupError> {
        let (runtime, mut connection, _) =
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
        schema::ddl(Kind::Mariadb, layout, index)
    }
}

/// The statements that make the schema, without an address.
pub fn ddl(kind: Kind, layout: &Layout, index: u16) -> Vec<String> {
    schema::ddl(kind, layout, index)
}
