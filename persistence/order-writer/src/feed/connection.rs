//! One blocking connection: handshake, requests with answers, pushes in between.

use crate::source::{Run, Source, SourceError};
use std::collections::{BTreeMap, VecDeque};
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};
use stockade_protocol::text::ConsumerName;
use stockade_protocol::wire::{
    self, BODY_BYTES_MAX, ErrorCode, Hello, PREFACE, PROTOCOL_VERSION, Request, Response, Welcome,
};
use stockade_protocol::{Command, Entry, Lsn, PartitionId, Reply};

/// How long connecting may take, and any answer.
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// A connection on which nothing was heard for so long is asked whether it is there.
const SILENCE: Duration = Duration::from_secs(5);
/// One on which nothing was heard for so long is given up.
const SILENCE_MAX: Duration = Duration::from_secs(20);
/// Bytes read at once.
const READ_BYTES: usize = 256 << 10;
/// The largest body taken: the largest entry alone in a frame is a little larger than the bound.
const ANSWER_BYTES_MAX: u32 = 2 * BODY_BYTES_MAX;
/// Bytes of entries that may be under way: this bounds the memory of a lane.
pub(super) const CREDIT_BYTES: u32 = 8 << 20;
/// Credit is granted again in pieces of this size.
const GRANT_BYTES: u32 = CREDIT_BYTES / 4;

/// A run and the credit that it took.
type Pushed = (Run, u32);

/// See the module.
#[derive(Debug)]
pub(super) struct Connection {
    stream: TcpStream,
    input: Vec<u8>,
    buffer: Box<[u8]>,
    correlation: u64,
    pushed: VecDeque<Pushed>,
    /// Taken by the lane and not granted again.
    owed: u32,
    heard: Instant,
    asked: bool,
    consumer: ConsumerName,
    /// What the engine said of itself.
    pub(super) welcome: Welcome,
}

fn away(what: impl std::fmt::Display) -> SourceError {
    SourceError::Away(what.to_string())
}

impl Connection {
    /// Connects and shakes hands. `consumer` is whose cursors are read and acknowledged.
    pub(super) fn open(
        server: &str,
        token: &str,
        consumer: &ConsumerName,
    ) -> Result<Self, SourceError> {
        let stream = connect(server)?;
        let hello = Hello {
            version_min: PROTOCOL_VERSION,
            version_max: PROTOCOL_VERSION,
            features: 0,
            name: concat!("stockade-writer ", env!("CARGO_PKG_VERSION")).into(),
            token: token.into(),
        };
        let welcome = Welcome {
            version: 0,
            features: 0,
            body_bytes_max: 0,
            in_flight_max: 0,
            durability: 0,
            epoch: 0,
            server_time: stockade_protocol::ids::TimestampMs::NONE,
            partition_count: 0,
            shards: Vec::new(),
            server: String::new(),
        };
        let mut connection = Self {
            stream,
            input: Vec::new(),
            buffer: vec![0; READ_BYTES].into_boxed_slice(),
            correlation: 0,
            pushed: VecDeque::new(),
            owed: 0,
            heard: Instant::now(),
            asked: false,
            consumer: consumer.clone(),
            welcome,
        };
        connection.stream.write_all(&PREFACE).map_err(away)?;
        match connection.ask(&Request::Hello(hello))? {
            Response::Welcome(welcome) => connection.welcome = welcome,
            other => return Err(unexpected("hello", &other)),
        }
        Ok(connection)
    }

    /// Sends a request and waits for its answer; pushes in between are kept.
    pub(super) fn ask(&mut self, request: &Request) -> Result<Response, SourceError> {
        let correlation = self.send(request)?;
        let until = Instant::now() + ANSWER_MAX;
        loop {
            if let Some((of, response)) = self.frame()? {
                if of == correlation {
                    return match response {
                        Response::Error { code, message } => Err(failure(code, &message)),
                        response => Ok(response),
                    };
                }
                self.push(response)?;
                continue;
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(away("no answer in time"));
            }
            self.read(left)?;
        }
    }

    fn send(&mut self, request: &Request) -> Result<u64, SourceError> {
        self.correlation += 1;
        let mut out = Vec::new();
        wire::encode_request(request, self.correlation, &mut out);
        self.stream.write_all(&out).map_err(away)?;
        Ok(self.correlation)
    }

    /// The next whole frame of what was read.
    fn frame(&mut self) -> Result<Option<(u64, Response)>, SourceError> {
        let Some((header, body, taken)) =
            wire::split(&self.input, ANSWER_BYTES_MAX).map_err(away)?
        else {
            return Ok(None);
        };
        let response = wire::decode_response(&header, body).map_err(away)?;
        self.input.drain(..taken);
        Ok(Some((header.correlation, response)))
    }

    /// Reads what there is, waiting at most `wait`. False if nothing came.
    fn read(&mut self, wait: Duration) -> Result<bool, SourceError> {
        // Zero would mean for ever.
        let wait = wait.max(Duration::from_millis(1));
        self.stream.set_read_timeout(Some(wait)).map_err(away)?;
        match self.stream.read(&mut self.buffer) {
            Ok(0) => Err(away("the engine closed the connection")),
            Ok(count) => {
                self.input.extend_from_slice(&self.buffer[..count]);
                self.heard = Instant::now();
                self.asked = false;
                Ok(true)
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                Ok(false)
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(false),
            Err(error) => Err(away(error)),
        }
    }

    /// Keeps a push.
    fn push(&mut self, response: Response) -> Result<(), SourceError> {
        match response {
            Response::Entries { partition, first, last, bytes } => {
                let entries = decode(partition, first, last, &bytes)?;
                self.pushed.push_back((Run::Entries(entries), bytes.len() as u32));
            }
            Response::Gap { partition, from, to } => {
                self.pushed.push_back((Run::Gap { partition, from, to }, 0));
            }
            // The connection closes soon; what it still has is taken first.
            Response::GoAway { .. } | Response::Pong { .. } => {}
            // The subscription ended.
            Response::Error { code, message } => return Err(failure(code, &message)),
            other => return Err(unexpected("a push", &other)),
        }
        Ok(())
    }

    fn take(&mut self) -> Result<Option<Run>, SourceError> {
        let Some((run, bytes)) = self.pushed.pop_front() else { return Ok(None) };
        self.owed += bytes;
        if self.owed >= GRANT_BYTES || self.pushed.is_empty() && self.owed > 0 {
            let bytes = std::mem::take(&mut self.owed);
            self.send(&Request::Credit { bytes })?;
        }
        Ok(Some(run))
    }

    /// Asks a silent engine whether it is there, and gives a dead one up.
    fn look_alive(&mut self) -> Result<(), SourceError> {
        let silence = self.heard.elapsed();
        if silence > SILENCE_MAX {
            return Err(away("nothing was heard from the engine"));
        }
        if silence > SILENCE && !self.asked {
            self.asked = true;
            self.send(&Request::Ping)?;
        }
        Ok(())
    }
}

fn connect(server: &str) -> Result<TcpStream, SourceError> {
    let addresses = server.to_socket_addrs().map_err(|e| away(format!("{server}: {e}")))?;
    let mut last = away(format!("{server}: no such address"));
    for address in addresses {
        match TcpStream::connect_timeout(&address, ANSWER_MAX) {
            Ok(stream) => {
                stream.set_nodelay(true).map_err(away)?;
                stream.set_write_timeout(Some(ANSWER_MAX)).map_err(away)?;
                return Ok(stream);
            }
            Err(error) => last = away(format!("{server}: {error}")),
        }
    }
    Err(last)
}

/// The entries of a push, which must be those that it names.
fn decode(
    partition: PartitionId,
    first: Lsn,
    last: Lsn,
    bytes: &[u8],
) -> Result<Vec<Entry>, SourceError> {
    let (mut entries, mut at, mut lsn) = (Vec::new(), 0, first);
    while at < bytes.len() {
        let (entry, taken) = Entry::decode(&bytes[at..]).map_err(|error| {
            SourceError::Wrong(format!("partition {partition}, entry {lsn}: {error}"))
        })?;
        if (entry.partition, entry.lsn) != (partition, lsn) {
            return Err(SourceError::Wrong(format!(
                "partition {partition}: entry {lsn} was due, entry {} of {} came",
                entry.lsn, entry.partition
            )));
        }
        entries.push(entry);
        at += taken;
        lsn = lsn.next();
    }
    if lsn != last.next() {
        let why = format!("partition {partition}: a run to {last} ends before {lsn}");
        return Err(SourceError::Wrong(why));
    }
    Ok(entries)
}

fn failure(code: ErrorCode, message: &str) -> SourceError {
    match code {
        ErrorCode::Handshake | ErrorCode::Authentication => {
            SourceError::Wrong(format!("the engine refuses: {message}"))
        }
        _ => away(format!("the engine says {code:?}: {message}")),
    }
}

fn unexpected(to: &str, response: &Response) -> SourceError {
    away(format!("unexpected answer to {to}: {response:?}"))
}

impl Source for Connection {
    fn next(&mut self, wait: Duration) -> Result<Option<Run>, SourceError> {
        let until = Instant::now() + wait;
        loop {
            if let Some(run) = self.take()? {
                return Ok(Some(run));
            }
            while let Some((_, response)) = self.frame()? {
                self.push(response)?;
            }
            if !self.pushed.is_empty() {
                continue;
            }
            let left = until.saturating_duration_since(Instant::now());
            if !self.read(left)? {
                self.look_alive()?;
                return Ok(None);
            }
        }
    }

    fn ack(&mut self, cursors: &[(PartitionId, Lsn)]) -> Result<(), SourceError> {
        let (consumer, cursors) = (self.consumer.clone(), cursors.to_vec());
        match self.ask(&Request::Ack { consumer, cursors })? {
            Response::Done => Ok(()),
            other => Err(unexpected("ack", &other)),
        }
    }

    fn call(&mut self, command: Command) -> Result<Reply, SourceError> {
        match self.ask(&Request::Command(command))? {
            Response::Reply(reply) => Ok(reply),
            other => Err(unexpected("a command", &other)),
        }
    }

    fn committed(&mut self) -> Result<BTreeMap<PartitionId, Lsn>, SourceError> {
        let mut committed: BTreeMap<PartitionId, Lsn> = BTreeMap::new();
        match self.ask(&Request::Consumers)? {
            Response::Consumers(infos) => {
                for (partition, _, end) in infos.into_iter().flat_map(|info| info.cursors) {
                    let highest = committed.entry(partition).or_default();
                    *highest = (*highest).max(end);
                }
                Ok(committed)
            }
            other => Err(unexpected("consumers", &other)),
        }
    }
}
