//! The HTTP port: connections are accepted, bounded and watched here; `super::routes` answers.
//!
//! It runs on one thread and serves to the end of the process. A connection past the bound is told
//! so and closed; one whose next request does not come, or comes too slowly, is closed.

use super::routes;
use crate::session::Gateway;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

/// Connections at a time.
pub const CONNECTIONS_MAX: usize = 1_024;
/// A request's head has to be there this long after the connection, or the request before it.
const HEAD_MAX: Duration = Duration::from_secs(15);
/// Bytes of a request's head.
const HEAD_BYTES_MAX: usize = 16 << 10;
/// A pause after an accept that failed (no file descriptor left, say).
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);
/// What a client that comes when there is no room is told.
const REFUSAL: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\n\
    content-length: 0\r\nconnection: close\r\n\r\n";

/// Serves for ever; blocking, with a runtime of its own.
///
/// # Errors
/// The listener cannot be used.
pub fn serve(listener: std::net::TcpListener, gateway: Arc<dyn Gateway>) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        listener.set_nonblocking(true)?;
        accept(TcpListener::from_std(listener)?, gateway, CONNECTIONS_MAX).await
    })
}

async fn accept(
    listener: TcpListener,
    gateway: Arc<dyn Gateway>,
    connections_max: usize,
) -> io::Result<()> {
    let service = TowerToHyperService::new(routes::router(gateway));
    let room = Arc::new(Semaphore::new(connections_max));
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEAD_MAX).max_buf_size(HEAD_BYTES_MAX);
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "an HTTP connection could not be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let Ok(place) = room.clone().try_acquire_owned() else {
            refuse(stream);
            continue;
        };
        let connection = http.serve_connection(TokioIo::new(stream), service.clone());
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "an HTTP connection broke off");
            }
            drop(place);
        });
    }
}

/// Says why and closes; a fresh socket has room for it.
fn refuse(mut stream: TcpStream) {
    tokio::spawn(async move {
        let _ = stream.write_all(REFUSAL).await;
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resp::scripts::Scripts;
    use crate::session::ServerInfo;
    use std::io::{Read, Write};
    use std::net::SocketAddr;
    use stockade_protocol::ids::TimestampMs;
    use stockade_protocol::{Command, Reply};

    /// Takes every command and never answers: its shard died.
    struct Silent;

    impl Gateway for Silent {
        fn submit(&self, _command: Command, done: Box<dyn FnOnce(Reply) + Send>) {
            drop(done);
        }

        fn info(&self) -> Arc<ServerInfo> {
            Arc::new(ServerInfo {
                version: "stockade 0.1.0".into(),
                durability: "group",
                epoch: 1,
                partition_count: 64,
                shard_ports: vec![1],
                ports: [1, 2, 3],
                started_at: TimestampMs::new(1),
                tokens: Vec::new(),
                in_flight_max: 100,
                scripts: Scripts::default(),
            })
        }

        fn now(&self) -> TimestampMs {
            TimestampMs::new(1)
        }

        fn metrics(&self) -> String {
            String::new()
        }

        fn is_ready(&self) -> bool {
            true
        }
    }

    /// Serves `connections_max` connections on a free port until the test process ends.
    fn start(connections_max: usize) -> SocketAddr {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                listener.set_nonblocking(true).unwrap();
                let listener = TcpListener::from_std(listener).unwrap();
                accept(listener, Arc::new(Silent), connections_max).await
            })
        });
        address
    }

    /// One exchange; the connection is closed by the server at the end.
    fn ask(address: SocketAddr, request: &str) -> String {
        let mut stream = std::net::TcpStream::connect(address).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    #[test]
    fn what_may_have_been_decided_is_in_doubt_and_what_only_reads_is_busy() {
        let address = start(8);
        let post = |path: &str, body: &str| {
            let head = "HTTP/1.1\r\nhost: x\r\nconnection: close\r\nidempotency-key: a";
            let length = body.len();
            ask(address, &format!("POST {path} {head}\r\ncontent-length: {length}\r\n\r\n{body}"))
        };
        let lines = r#"{"user":"7","lines":[{"sku":"1","qty":1}]}"#;
        for answer in [
            post("/v1/sales/1/orders", lines),
            post("/v1/orders/7/confirm", r#"{"payment":"p"}"#),
            post("/v1/orders/7/cancel", ""),
        ] {
            assert!(answer.starts_with("HTTP/1.1 504 "), "{answer}");
            assert!(answer.contains(r#""outcome":"in_doubt""#), "{answer}");
        }
        for path in ["/v1/sales", "/v1/sales/1", "/v1/orders/7"] {
            let answer = ask(
                address,
                &format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"),
            );
            assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
            assert!(answer.contains(r#""outcome":"busy""#), "{answer}");
        }
    }

    #[test]
    fn a_connection_past_the_bound_is_refused_and_the_next_one_after_an_end_is_served() {
        let address = start(1);
        let ping = "GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
        let mut first = std::net::TcpStream::connect(address).unwrap();
        // Accepted in order: whoever comes second finds the only place taken.
        let refused = ask(address, "");
        assert!(refused.starts_with("HTTP/1.1 503 "), "{refused}");
        first.write_all(ping.as_bytes()).unwrap();
        let mut answer = String::new();
        first.read_to_string(&mut answer).unwrap();
        assert!(answer.ends_with("ok\n"), "{answer}");
        // The place is free a moment after the end; until then it is the refusal again.
        while !ask_or_refused(address, ping).ends_with("ok\n") {
            std::thread::yield_now();
        }
    }

    /// A refused peer that sends may find the connection reset instead of the refusal.
    fn ask_or_refused(address: SocketAddr, request: &str) -> String {
        let mut stream = std::net::TcpStream::connect(address).unwrap();
        let mut answer = String::new();
        let _ = stream.write_all(request.as_bytes());
        let _ = stream.read_to_string(&mut answer);
        answer
    }
}
