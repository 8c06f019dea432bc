//! Throwaway database servers from Debian's packages: PostgreSQL and MariaDB on a free port of
//! 127.0.0.1, with an empty data directory, gone with their handle (also when a test panics).
//!
//! Packaged clusters are never touched. As root the servers run as the packages' own users. A
//! server that cannot be started is said loudly; with `STOCKADE_TESTS_STRICT=1` it is a failure.
//! A commit reaches the operating system and is not waited for on the disk: these tests kill
//! processes, never the power, and what a process wrote outlives it.
//! Questions are asked with the packages' own command lines (`psql`, `mariadb`), which share no
//! code with the writer.

use crate::missing::missing;
use crate::process::free_port;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// How long a server may take to start, recover or stop.
const PATIENCE: Duration = Duration::from_secs(60);
/// How often a start is tried: another program may have taken the port.
const STARTS_MAX: usize = 3;

/// Which server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Product {
    /// PostgreSQL.
    Postgres,
    /// MariaDB.
    Mariadb,
}

/// A running server of its own. Killed and deleted when its handle goes.
#[derive(Debug)]
pub struct DatabaseServer {
    product: Product,
    dir: tempfile::TempDir,
    port: u16,
    child: Option<Child>,
}

/// The user that a server runs as where the tests run as root: (uid, gid).
fn user(name: &str) -> Option<(u32, u32)> {
    let is_root = fs::metadata("/proc/self").is_ok_and(|meta| {
        use std::os::unix::fs::MetadataExt;
        meta.uid() == 0
    });
    if !is_root {
        return None;
    }
    let users = fs::read_to_string("/etc/passwd").ok()?;
    let line = users.lines().find(|line| line.starts_with(&format!("{name}:")))?;
    let fields: Vec<&str> = line.split(':').collect();
    Some((fields.get(2)?.parse().ok()?, fields.get(3)?.parse().ok()?))
}

/// Where PostgreSQL's programs are: Debian keeps them off the path.
fn postgres_programs() -> Option<PathBuf> {
    let found = fs::read_dir("/usr/lib/postgresql").ok()?.filter_map(Result::ok);
    let mut dirs: Vec<PathBuf> = found.map(|entry| entry.path().join("bin")).collect();
    dirs.retain(|dir| dir.join("initdb").is_file());
    dirs.sort();
    dirs.pop()
}

fn mariadbd() -> Option<PathBuf> {
    let dirs = ["/usr/sbin/mariadbd", "/usr/bin/mariadbd", "/usr/libexec/mariadbd"];
    dirs.map(PathBuf::from).into_iter().find(|path| path.is_file())
}

impl Product {
    const fn user_name(self) -> &'static str {
        match self {
            Self::Postgres => "postgres",
            Self::Mariadb => "mysql",
        }
    }

    fn is_installed(self) -> bool {
        match self {
            Self::Postgres => postgres_programs().is_some(),
            Self::Mariadb => mariadbd().is_some(),
        }
    }

    /// A command that runs as the server's user, in a directory that it can enter.
    fn command(self, program: impl AsRef<Path>) -> Command {
        let mut command = Command::new(program.as_ref());
        command.current_dir("/").stdin(Stdio::null());
        if let Some((uid, gid)) = user(self.user_name()) {
            command.uid(uid).gid(gid);
        }
        command
    }
}

fn succeed(command: &mut Command) -> Result<(), String> {
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let (out, error) = (&output.stdout, &output.stderr);
    let words = [String::from_utf8_lossy(out), String::from_utf8_lossy(error)].concat();
    Err(format!("{command:?}: {}: {words}", output.status))
}

impl DatabaseServer {
    /// A fresh server; `None` where the package is missing, which is said loudly.
    ///
    /// # Panics
    /// It is installed and does not start; or it is missing and `STOCKADE_TESTS_STRICT` is 1.
    pub fn start(product: Product) -> Option<Self> {
        if !product.is_installed() {
            missing(&format!("{product:?} (tests/run.sh installs it)"));
            return None;
        }
        let dir = private_dir(product);
        let data = dir.path().join("data");
        let made = match product {
            Product::Postgres => {
                let initdb = postgres_programs().expect("it is installed").join("initdb");
                let mut command = product.command(initdb);
                command.args(["-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C"]);
                succeed(command.args(["--no-sync", "-D"]).arg(&data))
            }
            Product::Mariadb => {
                let mut command = product.command("/usr/bin/mariadb-install-db");
                command.args(["--no-defaults", "--auth-root-authentication-method=normal"]);
                command.args(["--skip-test-db", "--skip-name-resolve"]);
                // Servers that share a temporary directory clean up behind each other.
                command.env("TMPDIR", dir.path());
                succeed(command.arg(format!("--datadir={}", data.display())))
            }
        };
        made.unwrap_or_else(|error| panic!("{error}"));
        let mut server = Self { product, dir, port: 0, child: None };
        for _ in 0..STARTS_MAX {
            server.port = free_port();
            if server.launch().is_ok() {
                return Some(server);
            }
        }
        panic!("{product:?} does not start: {}", server.log());
    }

    /// Starts it again after [`Self::kill`] or [`Self::stop`], on the same port.
    ///
    /// # Panics
    /// It does not come up.
    pub fn restart(&mut self) {
        self.launch().unwrap_or_else(|error| panic!("{error}\n{}", self.log()));
    }

    fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    fn log(&self) -> String {
        fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }

    fn launch(&mut self) -> Result<(), String> {
        let data = self.data();
        let path = self.dir.path().join("log");
        let log = fs::OpenOptions::new().create(true).append(true).open(path);
        let log = log.map_err(|error| error.to_string())?;
        let mut command = match self.product {
            Product::Postgres => {
                let programs = postgres_programs().ok_or("PostgreSQL is gone")?;
                let mut command = self.product.command(programs.join("postgres"));
                command.arg("-D").arg(&data).args(["-p", &self.port.to_string()]);
                command.args(["-k", "", "-h", "127.0.0.1", "-c", "shared_buffers=64MB"]);
                command.args(["-c", "wal_level=replica", "-c", "max_wal_senders=4"]);
                command.args(["-c", "hot_standby=on", "-c", "fsync=off"]);
                command
            }
            Product::Mariadb => {
                let mut command = self.product.command(mariadbd().ok_or("MariaDB is gone")?);
                command.arg("--no-defaults").arg(format!("--datadir={}", data.display()));
                command.arg(format!("--tmpdir={}", self.dir.path().display()));
                command.arg(format!("--port={}", self.port)).arg("--bind-address=127.0.0.1");
                command.arg(format!("--socket={}/s", data.display()));
                command.arg(format!("--pid-file={}/p", data.display()));
                command.args(["--skip-name-resolve", "--innodb-buffer-pool-size=64M"]);
                command.args(["--innodb-flush-log-at-trx-commit=2", "--log-warnings=1"]);
                command
            }
        };
        let error_log = log.try_clone().map_err(|error| error.to_string())?;
        let child = command.stdout(log).stderr(error_log).spawn();
        self.child = Some(child.map_err(|error| format!("{command:?}: {error}"))?);
        self.wait_until_ready()
    }

    fn wait_until_ready(&mut self) -> Result<(), String> {
        let started = Instant::now();
        let maintenance = self.maintenance();
        loop {
            if self.ask(maintenance, "SELECT 1").status.success() {
                return Ok(());
            }
            let ended = self.child.as_mut().and_then(|child| child.try_wait().ok().flatten());
            if let Some(status) = ended {
                self.child = None;
                return Err(format!("the server ended: {status}"));
            }
            if started.elapsed() > PATIENCE {
                return Err("the server does not answer".into());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    const fn maintenance(&self) -> &'static str {
        match self.product {
            Product::Postgres => "postgres",
            Product::Mariadb => "mysql",
        }
    }

    /// kill -9, and waits until it is gone.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// A clean, fast stop.
    ///
    /// # Panics
    /// It does not stop.
    pub fn stop(&mut self) {
        let Some(mut child) = self.child.take() else { return };
        let signal = match self.product {
            Product::Postgres => libc::SIGINT,
            Product::Mariadb => libc::SIGTERM,
        };
        send(&child, signal);
        let started = Instant::now();
        while child.try_wait().expect("a child can be waited for").is_none() {
            assert!(started.elapsed() < PATIENCE, "{:?} does not stop", self.product);
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Freezes the server's main process (`true`), or lets it go on.
    pub fn freeze(&self, frozen: bool) {
        let signal = if frozen { libc::SIGSTOP } else { libc::SIGCONT };
        send(self.child.as_ref().expect("it runs"), signal);
    }

    /// The port.
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// The address of a database of this server, as the writer takes it.
    pub fn url(&self, database: &str) -> String {
        self.url_through(self.port, database)
    }

    /// The same through another port, of a proxy say.
    pub fn url_through(&self, port: u16, database: &str) -> String {
        match self.product {
            Product::Postgres => format!("postgres://postgres@127.0.0.1:{port}/{database}"),
            Product::Mariadb => format!("mysql://root@127.0.0.1:{port}/{database}"),
        }
    }

    /// An empty database.
    pub fn create(&self, database: &str) {
        self.run(self.maintenance(), &format!("CREATE DATABASE {database}"));
    }

    /// Makes a database empty again.
    pub fn clear(&self, database: &str) {
        match self.product {
            Product::Postgres => {
                self.run(database, "DROP SCHEMA public CASCADE; CREATE SCHEMA public");
            }
            Product::Mariadb => {
                self.run(self.maintenance(), &format!("DROP DATABASE {database}"));
                self.create(database);
            }
        }
    }

    fn ask(&self, database: &str, statement: &str) -> Output {
        let port = self.port.to_string();
        let mut command = match self.product {
            Product::Postgres => {
                let mut command = Command::new("psql");
                command.args(["-X", "-q", "-h", "127.0.0.1", "-p", &port, "-U", "postgres"]);
                command.args(["-d", database, "-v", "ON_ERROR_STOP=1", "-A", "-t"]);
                command.args(["-F", "\t", "-P", "null=NULL", "-c", statement]);
                command.env("PGTZ", "UTC").env("PGCONNECT_TIMEOUT", "5");
                // A test may turn the server read only, and back.
                command.env("PGOPTIONS", "-c default_transaction_read_only=off");
                command
            }
            Product::Mariadb => {
                let mut command = Command::new("mariadb");
                command.args(["--no-defaults", "-h", "127.0.0.1", "-P", &port, "-u", "root"]);
                command.args(["--connect-timeout=5", "-N", "-B", "--delimiter=//"]);
                command.args(["-D", database, "-e", statement]);
                command
            }
        };
        command.stdin(Stdio::null()).output().unwrap_or_else(|error| panic!("{command:?}: {error}"))
    }

    /// One statement without an answer.
    ///
    /// # Panics
    /// It fails.
    pub fn run(&self, database: &str, statement: &str) {
        drop(self.rows(database, statement));
    }

    /// The rows of a query, as text; `NULL` for NULL.
    ///
    /// # Panics
    /// It fails.
    pub fn rows(&self, database: &str, query: &str) -> Vec<Vec<String>> {
        let output = self.ask(database, query);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{query}: {error}\n{}", self.log());
        let text = String::from_utf8_lossy(&output.stdout);
        text.lines().map(|line| line.split('\t').map(str::to_owned).collect()).collect()
    }

    /// The one number of a query.
    ///
    /// # Panics
    /// It fails, or is no number.
    pub fn number(&self, database: &str, query: &str) -> i64 {
        let rows = self.rows(database, query);
        rows[0][0].parse().unwrap_or_else(|_| panic!("{query}: {rows:?}"))
    }

    /// A standby that streams from this server (PostgreSQL only), asynchronously.
    ///
    /// # Panics
    /// It does not come up.
    pub fn standby(&self) -> Self {
        assert_eq!(self.product, Product::Postgres, "only PostgreSQL streams here");
        let dir = private_dir(self.product);
        let programs = postgres_programs().expect("it is installed");
        let mut command = self.product.command(programs.join("pg_basebackup"));
        command.args(["-h", "127.0.0.1", "-U", "postgres", "-p", &self.port.to_string()]);
        command.args(["-R", "-X", "stream", "-c", "fast", "--no-sync", "-D"]);
        succeed(command.arg(dir.path().join("data"))).unwrap_or_else(|error| panic!("{error}"));
        let mut standby = Self { product: self.product, dir, port: free_port(), child: None };
        standby.restart();
        standby
    }

    /// Makes a standby the primary.
    pub fn promote(&self) {
        self.run("postgres", "SELECT pg_promote(true, 60)");
    }
}

impl Drop for DatabaseServer {
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            let log = self.log();
            let tail: Vec<&str> = log.lines().rev().take(20).collect();
            eprintln!("the end of the log of {:?}:", self.product);
            tail.iter().rev().for_each(|line| eprintln!("  {line}"));
        }
    }
}

fn private_dir(product: Product) -> tempfile::TempDir {
    let dir = tempfile::Builder::new().prefix("stockade-db-").tempdir();
    let dir = dir.expect("the temporary directory takes a directory");
    if let Some((uid, gid)) = user(product.user_name()) {
        chown(dir.path(), Some(uid), Some(gid)).expect("root may give a directory away");
    }
    let private = fs::Permissions::from_mode(0o700);
    fs::set_permissions(dir.path(), private).expect("its owner may");
    dir
}

#[expect(unsafe_code)]
fn send(child: &Child, signal: i32) {
    // SAFETY: kill(2) takes plain numbers; the pid is that of our own child, not yet waited for.
    let result = unsafe { libc::kill(child.id() as i32, signal) };
    assert_eq!(result, 0, "the child is there");
}
