//! The programs as child processes of their own; each is killed and waited for when its handle
//! goes.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// How long a program may take until it is ready, or until it ends.
const PATIENCE: Duration = Duration::from_secs(60);

/// A child that prints `ready ...`.
#[derive(Debug)]
pub struct Program {
    child: Child,
    name: String,
    /// Its ready line.
    pub ready: String,
}

impl Program {
    /// Starts it; what it logs goes to `log`.
    ///
    /// # Errors
    /// It ended, or was not ready in time: what it logged.
    pub fn start(command: &mut Command, log: &Path) -> Result<Self, String> {
        let name = Path::new(command.get_program());
        let name = name.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let file = std::fs::OpenOptions::new().create(true).append(true).open(log);
        let file = file.map_err(|error| format!("{}: {error}", log.display()))?;
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(file).spawn();
        let mut child = child.map_err(|error| format!("{name}: {error}"))?;
        let (line_in, line) = mpsc::channel();
        if let Some(stdout) = child.stdout.take() {
            std::thread::spawn(move || {
                let mut reader = BufReader::new(stdout);
                let mut first = String::new();
                let _ = reader.read_line(&mut first);
                let _ = line_in.send(first);
                let _ = std::io::copy(&mut reader, &mut std::io::sink());
            });
        }
        let mut program = Self { child, name, ready: String::new() };
        program.ready = line.recv_timeout(PATIENCE).unwrap_or_default().trim_end().into();
        if program.ready.starts_with("ready") {
            return Ok(program);
        }
        program.kill();
        let logged = std::fs::read_to_string(log).unwrap_or_default();
        Err(format!("{} is not ready: {}", program.name, logged.trim_end()))
    }

    /// A `key=value` word of the ready line.
    pub fn ready_value(&self, key: &str) -> &str {
        let mut words = self.ready.split_whitespace();
        words.find_map(|word| word.strip_prefix(key)?.strip_prefix('=')).unwrap_or_default()
    }

    /// The process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// kill -9, and waits.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// SIGTERM, and waits.
    ///
    /// # Errors
    /// It ended with another code than 0, or not at all.
    pub fn stop(&mut self) -> Result<(), String> {
        let pid = self.child.id().to_string();
        let _ = Command::new("kill").args(["-TERM", &pid]).status();
        let started = Instant::now();
        while started.elapsed() < PATIENCE {
            match self.child.try_wait() {
                Ok(Some(status)) if status.success() => return Ok(()),
                Ok(Some(status)) => return Err(format!("{} ended with {status}", self.name)),
                _ => std::thread::sleep(Duration::from_millis(5)),
            }
        }
        self.kill();
        Err(format!("{} did not end", self.name))
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A server that keeps its directory and ports over restarts.
#[derive(Debug)]
pub struct Server {
    binary: PathBuf,
    arguments: Vec<String>,
    log: PathBuf,
    /// Pinned to this core, if asked.
    core: Option<usize>,
    /// The process.
    pub program: Program,
}

impl Server {
    /// Starts one on a directory, on free ports.
    ///
    /// # Errors
    /// It does not start.
    pub fn start(
        binaries: &Path,
        dir: &Path,
        further: &[String],
        core: Option<usize>,
    ) -> Result<Self, String> {
        let mut arguments = vec!["--data-dir".to_owned(), dir.join("data").display().to_string()];
        for flag in ["--listen", "--resp", "--http"] {
            arguments.extend([flag.to_owned(), format!("127.0.0.1:{}", free_port()?)]);
        }
        arguments.extend(further.iter().cloned());
        let binary = binaries.join("stockade-server");
        let log = dir.join("server.log");
        let program = Program::start(&mut command(&binary, &arguments, core), &log)?;
        Ok(Self { binary, arguments, log, core, program })
    }

    /// kill -9 and start again; gives how long it took until it was ready.
    ///
    /// # Errors
    /// It does not start.
    pub fn kill_and_restart(&mut self) -> Result<Duration, String> {
        self.program.kill();
        let started = Instant::now();
        let mut command = command(&self.binary, &self.arguments, self.core);
        self.program = Program::start(&mut command, &self.log)?;
        Ok(started.elapsed())
    }

    /// The binary protocol's address.
    pub fn address(&self) -> String {
        self.program.ready_value("listen").to_owned()
    }
}

fn command(binary: &Path, arguments: &[String], core: Option<usize>) -> Command {
    let mut command = match core {
        Some(core) => {
            let mut command = Command::new("taskset");
            command.args(["-c", &core.to_string()]).arg(binary);
            command
        }
        None => Command::new(binary),
    };
    command.args(arguments).env("RUST_LOG", "warn");
    command
}

fn free_port() -> Result<u16, String> {
    let listener = TcpListener::bind("127.0.0.1:0").map_err(|error| error.to_string())?;
    listener.local_addr().map(|address| address.port()).map_err(|error| error.to_string())
}
