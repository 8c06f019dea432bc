//! The real programs as child processes. Every child is killed and waited for when its handle goes.

use crate::resp::Resp;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// How long a program may take to start or stop before a test fails.
const PATIENCE: Duration = Duration::from_secs(60);

/// Where a program of the workspace is.
pub fn program(name: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or(root.join("target"), PathBuf::from);
    let dir = std::env::var_os("STOCKADE_BIN_DIR").map_or(target.join("release"), PathBuf::from);
    let path = dir.join(name);
    assert!(path.is_file(), "{} is missing: run `cargo build --release --bins`", path.display());
    path
}

/// A port that was free a moment ago.
pub fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("loopback has free ports");
    listener.local_addr().expect("a bound listener has an address").port()
}

/// A running child that prints a `ready` line.
#[derive(Debug)]
pub struct Program {
    child: Child,
    /// The `ready` line.
    pub ready: String,
    stderr: mpsc::Receiver<String>,
}

impl Program {
    /// Starts it and waits for its `ready` line.
    ///
    /// # Errors
    /// It ended, or said something else first: its whole standard error.
    pub fn start(command: &mut Command) -> Result<Self, String> {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| format!("{command:?}: {error}"))?;
        let stdout = child.stdout.take().expect("stdout is piped");
        let mut stderr_pipe = child.stderr.take().expect("stderr is piped");
        let (stderr_in, stderr) = mpsc::channel();
        std::thread::spawn(move || {
            let mut text = String::new();
            let _ = stderr_pipe.read_to_string(&mut text);
            let _ = stderr_in.send(text);
        });
        let (line_in, line) = mpsc::channel();
        std::thread::spawn(move || {
            let mut reader = BufReader::new(stdout);
            let mut first = String::new();
            let _ = reader.read_line(&mut first);
            let _ = line_in.send(first);
            let _ = std::io::copy(&mut reader, &mut std::io::sink());
        });
        let mut program = Self { child, ready: String::new(), stderr };
        let first = line.recv_timeout(PATIENCE).unwrap_or_default();
        if first.starts_with("ready") {
            program.ready = first.trim_end().into();
            return Ok(program);
        }
        let _ = program.child.kill();
        let status = program.child.wait();
        Err(format!("{status:?}: {first}{}", program.take_stderr()))
    }

    /// The value of a `key=value` word of the ready line.
    pub fn ready_value(&self, key: &str) -> &str {
        let mut words = self.ready.split_whitespace();
        words
            .find_map(|word| word.strip_prefix(key)?.strip_prefix('='))
            .unwrap_or_else(|| panic!("no {key}= in {:?}", self.ready))
    }

    /// The process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// kill -9, and waits until it is gone.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Sends a signal.
    #[expect(unsafe_code)]
    pub fn signal(&self, signal: i32) {
        // SAFETY: kill(2) takes plain numbers; the pid is that of our own child, not yet waited
        // for.
        let result = unsafe { libc::kill(self.child.id() as i32, signal) };
        assert_eq!(result, 0, "the child is there");
    }

    /// SIGTERM, and the exit status.
    pub fn stop(&mut self) -> ExitStatus {
        self.signal(libc::SIGTERM);
        self.wait()
    }

    /// Waits for the end.
    pub fn wait(&mut self) -> ExitStatus {
        let started = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().expect("a child can be waited for") {
                return status;
            }
            assert!(started.elapsed() < PATIENCE, "the program does not end");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// What it wrote to standard error; after its end.
    pub fn take_stderr(&mut self) -> String {
        self.stderr.recv_timeout(PATIENCE).unwrap_or_default()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A server on a data directory, always on the same ports.
#[derive(Debug)]
pub struct Server {
    dir: PathBuf,
    arguments: Vec<String>,
    program: Program,
}

impl Server {
    /// Starts one with free ports and these further arguments.
    pub fn start(dir: &Path, arguments: &[&str]) -> Self {
        let mut all: Vec<String> = Vec::new();
        for flag in ["--listen", "--resp", "--http"] {
            all.extend([flag.into(), format!("127.0.0.1:{}", free_port())]);
        }
        all.extend(arguments.iter().map(|argument| (*argument).to_owned()));
        let program = Self::spawn(dir, &all).unwrap_or_else(|error| panic!("{error}"));
        Self { dir: dir.into(), arguments: all, program }
    }

    /// The command that starts a server on a directory, to be changed by tests.
    pub fn command(dir: &Path, arguments: &[String]) -> Command {
        let mut command = Command::new(program("stockade-server"));
        command.arg("--data-dir").arg(dir).args(arguments).env("RUST_LOG", "warn");
        command
    }

    fn spawn(dir: &Path, arguments: &[String]) -> Result<Program, String> {
        Program::start(&mut Self::command(dir, arguments))
    }

    /// The running process.
    pub fn program(&mut self) -> &mut Program {
        &mut self.program
    }

    /// kill -9 and start again on the same directory and ports.
    pub fn kill_and_restart(&mut self) {
        self.program.kill();
        self.restart();
    }

    /// Starts again after an end.
    pub fn restart(&mut self) {
        self.program =
            Self::spawn(&self.dir, &self.arguments).unwrap_or_else(|error| panic!("{error}"));
    }

    /// Replaces an argument's value for the next start.
    pub fn set_argument(&mut self, flag: &str, value: &str) {
        match self.arguments.iter().position(|argument| argument == flag) {
            Some(at) => self.arguments[at + 1] = value.into(),
            None => self.arguments.extend([flag.into(), value.into()]),
        }
    }

    /// The binary protocol's address.
    pub fn listen(&self) -> &str {
        self.program.ready_value("listen")
    }

    /// The RESP address.
    pub fn resp_address(&self) -> &str {
        self.program.ready_value("resp")
    }

    /// The HTTP address.
    pub fn http(&self) -> &str {
        self.program.ready_value("http")
    }

    /// A RESP connection.
    pub fn resp(&self) -> Resp {
        Resp::connect(self.resp_address()).expect("a ready server takes connections")
    }

    /// The data directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }
}

/// A writer that follows a server.
#[derive(Debug)]
pub struct Writer;

impl Writer {
    /// Starts `stockade-writer run`.
    pub fn start(server: &Server, urls: &[String], arguments: &[&str]) -> Program {
        let mut command = Command::new(program("stockade-writer"));
        command.args(["run", "--server", server.listen()]);
        for url in urls {
            command.args(["--db", url]);
        }
        command.args(arguments).env("RUST_LOG", "warn");
        Program::start(&mut command).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Runs another verb of the writer to its end.
    pub fn run(verb: &[&str], server: &Server, urls: &[String]) -> std::process::Output {
        let mut command = Command::new(program("stockade-writer"));
        command.args(verb).args(["--server", server.listen()]);
        for url in urls {
            command.args(["--db", url]);
        }
        command.output().expect("the writer runs")
    }
}

/// Runs `stockade-cli` against a server to its end.
pub fn cli(server: &Server, arguments: &[&str]) -> std::process::Output {
    let mut command = Command::new(program("stockade-cli"));
    command.args(["--server", server.listen()]).args(arguments);
    command.output().expect("the command line runs")
}
