//! The client's side of the protocol as a pure machine: requests in, bytes out; bytes in, responses
//! out. No socket, no clock.

use stockade_protocol::wire::{
    BODY_BYTES_MAX, FrameError, Hello, PREFACE, PROTOCOL_VERSION, Request, Response, add_crc,
    decode_response, encode_request, split,
};

/// Largest body that a client takes: pushes of entries may be larger than requests.
const RESPONSE_BYTES_MAX: u32 = 4 * BODY_BYTES_MAX;

/// What the server sent cannot be read; the connection cannot go on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SessionError {
    /// No frame.
    #[error("a broken frame: {0}")]
    Frame(#[from] FrameError),
    /// A frame that makes no sense.
    #[error("a frame of kind {kind:#06x} that cannot be read: {why}")]
    Body {
        /// Its kind.
        kind: u16,
        /// What is wrong.
        why: stockade_protocol::le::Malformed,
    },
}

/// See the module.
#[derive(Debug, Default)]
pub struct Session {
    correlation_last: u64,
    input: Vec<u8>,
    /// Bytes of `input` that were used up.
    taken: usize,
    crc: bool,
}

impl Session {
    /// Puts a checksum on every frame it sends. (Those that come with one are always checked.)
    pub fn with_crc(mut self, crc: bool) -> Self {
        self.crc = crc;
        self
    }

    /// Two halves after the handshake: one goes on with the numbers, the other with the bytes.
    pub(crate) fn split(self) -> (Self, Self) {
        let Self { correlation_last, crc, .. } = self;
        (Self { correlation_last, crc, ..Self::default() }, self)
    }

    /// The first bytes: preface and HELLO.
    pub fn hello(&mut self, name: &str, token: &str, out: &mut Vec<u8>) {
        out.extend_from_slice(&PREFACE);
        let hello = Hello {
            version_min: PROTOCOL_VERSION,
            version_max: PROTOCOL_VERSION,
            features: 0,
            name: name.into(),
            token: token.into(),
        };
        self.send(&Request::Hello(hello), out);
    }

    /// Appends a request; gives the number that its answer will carry.
    pub fn send(&mut self, request: &Request, out: &mut Vec<u8>) -> u64 {
        self.correlation_last += 1;
        let start = out.len();
        encode_request(request, self.correlation_last, out);
        if self.crc {
            add_crc(out, start);
        }
        self.correlation_last
    }

    /// Takes bytes from the server.
    pub fn receive(&mut self, bytes: &[u8]) {
        if self.taken == self.input.len() {
            self.input.clear();
            self.taken = 0;
        } else if self.taken > 64 << 10 {
            self.input.drain(..self.taken);
            self.taken = 0;
        }
        self.input.extend_from_slice(bytes);
    }

    /// The next whole response with its number (0 for pushes); `None`: more bytes are needed.
    ///
    /// # Errors
    /// See [`SessionError`].
    pub fn next_response(&mut self) -> Result<Option<(u64, Response)>, SessionError> {
        let Some((header, body, taken)) = split(&self.input[self.taken..], RESPONSE_BYTES_MAX)?
        else {
            return Ok(None);
        };
        let kind = header.kind;
        let response =
            decode_response(&header, body).map_err(|why| SessionError::Body { kind, why })?;
        self.taken += taken;
        Ok(Some((header.correlation, response)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stockade_protocol::wire::encode_response;

    #[test]
    fn responses_come_out_whole_however_the_bytes_come_in() {
        let mut bytes = Vec::new();
        for correlation in 1..=50 {
            encode_response(&Response::Done, correlation, &mut bytes);
        }
        for step in [1, 3, 16, 17, 1000] {
            let (mut session, mut seen) = (Session::default(), Vec::new());
            for chunk in bytes.chunks(step) {
                session.receive(chunk);
                while let Some((correlation, response)) = session.next_response().unwrap() {
                    assert_eq!(response, Response::Done);
                    seen.push(correlation);
                }
            }
            assert_eq!(seen, (1..=50).collect::<Vec<_>>());
        }
    }

    #[test]
    fn what_cannot_be_read_is_an_error() {
        let mut session = Session::default();
        session.receive(&[0xff; 64]);
        assert!(matches!(session.next_response(), Err(SessionError::Frame(_))));
        let mut bytes = Vec::new();
        encode_response(&Response::Done, 1, &mut bytes);
        bytes[4..6].copy_from_slice(&0x8777u16.to_le_bytes());
        let mut session = Session::default();
        session.receive(&bytes);
        assert!(matches!(session.next_response(), Err(SessionError::Body { kind: 0x8777, .. })));
    }
}
