//! A plain blocking RESP2 client, written from the protocol's description and nothing of the
//! product.

use std::io::{self, BufRead, BufReader, Write};
use std::net::TcpStream;
use std::time::Duration;

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// `+text`
    Simple(String),
    /// `-text`
    Error(String),
    /// `:number`
    Integer(i64),
    /// `$text`
    Bulk(String),
    /// `$-1` or `*-1`
    Null,
    /// `*items`
    Array(Vec<Value>),
}

impl Value {
    /// The items of an array.
    pub fn items(&self) -> &[Value] {
        match self {
            Self::Array(items) => items,
            other => panic!("an array was expected, not {other:?}"),
        }
    }

    /// The text of a bulk or simple string.
    pub fn text(&self) -> &str {
        match self {
            Self::Bulk(text) | Self::Simple(text) => text,
            other => panic!("a string was expected, not {other:?}"),
        }
    }

    /// The number of an integer.
    pub fn number(&self) -> i64 {
        match self {
            Self::Integer(number) => *number,
            other => panic!("an integer was expected, not {other:?}"),
        }
    }
}

/// A connection.
#[derive(Debug)]
pub struct Resp {
    reader: BufReader<TcpStream>,
}

impl Resp {
    /// Connects; answers must come within 20 s.
    ///
    /// # Errors
    /// Not reached.
    pub fn connect(address: &str) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(20)))?;
        Ok(Self { reader: BufReader::new(stream) })
    }

    /// Sends one command.
    ///
    /// # Errors
    /// The connection is gone.
    pub fn send(&mut self, arguments: &[&str]) -> io::Result<()> {
        let mut bytes = format!("*{}\r\n", arguments.len()).into_bytes();
        for argument in arguments {
            bytes.extend_from_slice(format!("${}\r\n{argument}\r\n", argument.len()).as_bytes());
        }
        self.reader.get_mut().write_all(&bytes)
    }

    /// Reads one answer.
    ///
    /// # Errors
    /// The connection is gone, silent too long, or the bytes are no RESP.
    pub fn receive(&mut self) -> io::Result<Value> {
        let mut line = String::new();
        if self.reader.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let line = line.trim_end();
        let bad = || io::Error::new(io::ErrorKind::InvalidData, format!("not RESP: {line:?}"));
        let (kind, rest) = line.split_at_checked(1).ok_or_else(bad)?;
        let length = || rest.parse::<i64>().map_err(|_| bad());
        Ok(match kind {
            "+" => Value::Simple(rest.into()),
            "-" => Value::Error(rest.into()),
            ":" => Value::Integer(length()?),
            "$" => match length()? {
                -1 => Value::Null,
                count => {
                    let mut bytes = vec![0; usize::try_from(count).map_err(|_| bad())? + 2];
                    io::Read::read_exact(&mut self.reader, &mut bytes)?;
                    bytes.truncate(bytes.len() - 2);
                    Value::Bulk(String::from_utf8(bytes).map_err(|_| bad())?)
                }
            },
            "*" => match length()? {
                -1 => Value::Null,
                count => {
                    Value::Array((0..count).map(|_| self.receive()).collect::<Result<_, _>>()?)
                }
            },
            _ => return Err(bad()),
        })
    }

    /// One command and its answer.
    ///
    /// # Errors
    /// As [`Self::send`] and [`Self::receive`].
    pub fn call(&mut self, arguments: &[&str]) -> io::Result<Value> {
        self.send(arguments)?;
        self.receive()
    }
}
