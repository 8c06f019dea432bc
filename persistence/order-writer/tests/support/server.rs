//! The engine of the tests behind a real socket: the binary protocol, as far as the writer speaks
//! it.

use super::engine::Engine;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;
use stockade_order_writer::source::{Connect, Run, Source};
use stockade_protocol::ids::TimestampMs;
use stockade_protocol::text::ConsumerName;
use stockade_protocol::wire::{
    self, BODY_BYTES_MAX, ConsumerInfo, FeedFrom, PREFACE, Request, Response, ShardPort, Welcome,
};
use stockade_protocol::{Lsn, PartitionId};

/// Serves the engine on a free port until the process ends; returns the address.
pub fn serve(engine: &Engine, partition_count: u16) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let engine = engine.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let engine = engine.clone();
            std::thread::spawn(move || {
                Connection::new(stream.unwrap(), engine, partition_count).run()
            });
        }
    });
    address
}

struct Connection {
    stream: TcpStream,
    engine: Engine,
    partition_count: u16,
    input: Vec<u8>,
    source: Option<Box<dyn Source>>,
    pulled: Option<(Response, i64)>,
    credit: i64,
    partitions: Vec<PartitionId>,
}

impl Connection {
    fn new(stream: TcpStream, engine: Engine, partition_count: u16) -> Self {
        stream.set_read_timeout(Some(Duration::from_millis(2))).unwrap();
        Self {
            stream,
            engine,
            partition_count,
            input: Vec::new(),
            source: None,
            pulled: None,
            credit: 0,
            partitions: Vec::new(),
        }
    }

    /// Until the peer is gone.
    fn run(mut self) {
        let mut buffer = vec![0; 64 << 10];
        let mut greeted = false;
        loop {
            match self.stream.read(&mut buffer) {
                Ok(0) => return,
                Ok(count) => self.input.extend_from_slice(&buffer[..count]),
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                Err(_) => return,
            }
            if !greeted && self.input.len() >= PREFACE.len() {
                assert_eq!(self.input[..PREFACE.len()], PREFACE);
                self.input.drain(..PREFACE.len());
                greeted = true;
            }
            while greeted && !self.input.is_empty() {
                let Some((header, body, taken)) = wire::split(&self.input, BODY_BYTES_MAX).unwrap()
                else {
                    break;
                };
                let request = wire::decode_request(&header, body).unwrap();
                self.input.drain(..taken);
                if let Some(response) = self.answer(request)
                    && self.send(&response, header.correlation).is_err()
                {
                    return;
                }
            }
            if self.push().is_err() {
                return;
            }
        }
    }

    fn send(&mut self, response: &Response, correlation: u64) -> std::io::Result<()> {
        let mut out = Vec::new();
        wire::encode_response(response, correlation, &mut out);
        self.stream.write_all(&out)
    }

    fn answer(&mut self, request: Request) -> Option<Response> {
        let mut plain = || self.engine.connect(&[]).unwrap();
        Some(match request {
            Request::Hello(_) => Response::Welcome(Welcome {
                version: 1,
                features: 0,
                body_bytes_max: BODY_BYTES_MAX,
                in_flight_max: 100,
                durability: 0,
                epoch: 1,
                server_time: TimestampMs::new(1),
                partition_count: self.partition_count,
                shards: vec![ShardPort { port: 1 }],
                server: "test".into(),
            }),
            Request::Ping => Response::Pong { server_time: TimestampMs::new(1) },
            Request::Command(command) => Response::Reply(plain().call(command).unwrap()),
            Request::Subscribe(subscribe) => {
                let FeedFrom::Lsns(from) = subscribe.from else { panic!("from its cursors") };
                assert_eq!(from.len(), subscribe.partitions.len());
                self.credit = i64::from(subscribe.credit_bytes);
                self.partitions = subscribe.partitions;
                self.source = Some(self.engine.connect(&from).unwrap());
                Response::Done
            }
            Request::Credit { bytes } => {
                self.credit += i64::from(bytes);
                return None;
            }
            Request::Ack { cursors, .. } => {
                plain().ack(&cursors).unwrap();
                Response::Done
            }
            Request::Consumers => {
                let end = plain().committed().unwrap();
                let cursor = |(partition, lsn): (PartitionId, Lsn)| (partition, Lsn::NONE, lsn);
                let cursors = end.into_iter().map(cursor).collect();
                let name = ConsumerName::new(b"order-writer").unwrap();
                Response::Consumers(vec![ConsumerInfo { name, cursors }])
            }
            other => panic!("the writer asks for {other:?}"),
        })
    }

    /// Pushes what credit allows.
    fn push(&mut self) -> std::io::Result<()> {
        loop {
            if self.pulled.is_none() {
                let Some(source) = &mut self.source else { return Ok(()) };
                let Ok(Some(run)) = source.next(Duration::ZERO) else { return Ok(()) };
                self.pulled = Some(response(&run));
            }
            let Some((response, bytes)) = self.pulled.take_if(|(_, bytes)| *bytes <= self.credit)
            else {
                return Ok(());
            };
            self.credit -= bytes;
            self.send(&response, 0)?;
        }
    }
}

fn response(run: &Run) -> (Response, i64) {
    match run {
        Run::Gap { partition, from, to } => {
            (Response::Gap { partition: *partition, from: *from, to: *to }, 0)
        }
        Run::Entries(entries) => {
            let mut bytes = Vec::new();
            entries.iter().for_each(|entry| entry.encode(&mut bytes));
            let size = bytes.len() as i64;
            let (first, last) = (&entries[0], &entries[entries.len() - 1]);
            let partition = first.partition;
            (Response::Entries { partition, first: first.lsn, last: last.lsn, bytes }, size)
        }
    }
}
