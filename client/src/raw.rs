//! One blocking connection with everything in the caller's hands: for load generators and for tools
//! that have no runtime. No retries, no reconnects.

use crate::session::Session;
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;
use stockade_protocol::wire::{Request, Response, Welcome};

/// See the module.
#[derive(Debug)]
pub struct RawConnection {
    stream: TcpStream,
    session: Session,
    out: Vec<u8>,
    input: Vec<u8>,
    /// What the server said of itself.
    pub welcome: Welcome,
}

impl RawConnection {
    /// Connects and shakes hands.
    ///
    /// # Errors
    /// Not reached, refused, or no answer within `timeout`.
    pub fn connect(
        address: impl ToSocketAddrs,
        name: &str,
        token: &str,
        timeout: Duration,
    ) -> io::Result<Self> {
        let mut last = io::Error::new(io::ErrorKind::NotFound, "the address names no host");
        let mut found = None;
        for address in address.to_socket_addrs()? {
            match TcpStream::connect_timeout(&address, timeout) {
                Ok(stream) => {
                    found = Some(stream);
                    break;
                }
                Err(error) => last = error,
            }
        }
        let stream = found.ok_or(last)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(timeout))?;
        let welcome = Welcome {
            version: 0,
            features: 0,
            body_bytes_max: 0,
            in_flight_max: 0,
            durability: 0,
            epoch: 0,
            server_time: Default::default(),
            partition_count: 0,
            shards: Vec::new(),
            server: String::new(),
        };
        let (out, input) = (Vec::new(), vec![0; 256 << 10]);
        let mut connection = Self { stream, session: Session::default(), out, input, welcome };
        connection.session.hello(name, token, &mut connection.out);
        connection.flush()?;
        match connection.recv()? {
            (_, Response::Welcome(welcome)) => connection.welcome = welcome,
            (_, Response::Error { message, .. }) => return Err(io::Error::other(message)),
            (_, other) => return Err(io::Error::other(format!("no welcome but {other:?}"))),
        }
        Ok(connection)
    }

    /// Puts a request into the buffer; gives the number that its answer will carry.
    pub fn send(&mut self, request: &Request) -> u64 {
        self.session.send(request, &mut self.out)
    }

    /// Bytes in the buffer.
    pub fn buffered(&self) -> usize {
        self.out.len()
    }

    /// Writes the buffer.
    ///
    /// # Errors
    /// The connection is gone.
    pub fn flush(&mut self) -> io::Result<()> {
        self.stream.write_all(&self.out)?;
        self.out.clear();
        Ok(())
    }

    /// The next response, waiting for it.
    ///
    /// # Errors
    /// The connection is gone, silent for the read timeout, or sent what cannot be read.
    pub fn recv(&mut self) -> io::Result<(u64, Response)> {
        loop {
            if let Some(found) = self.try_recv()? {
                return Ok(found);
            }
            self.fill()?;
        }
    }

    /// The next response that is here already.
    ///
    /// # Errors
    /// The server sent what cannot be read.
    pub fn try_recv(&mut self) -> io::Result<Option<(u64, Response)>> {
        let next = self.session.next_response();
        next.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
    }

    /// Reads what the socket has, waiting for at least one byte (or not at all on a non-blocking
    /// socket).
    ///
    /// # Errors
    /// The connection is gone, or silent for the read timeout.
    pub fn fill(&mut self) -> io::Result<()> {
        let count = self.stream.read(&mut self.input)?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.session.receive(&self.input[..count]);
        Ok(())
    }

    /// The socket, for polling.
    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }
}
