//! The listening sockets, made before any shard starts so that a port in use is told in one
//! sentence.
//!
//! The common ports are shared by all shards (SO_REUSEPORT: the kernel spreads the connections);
//! the binary protocol also has one port a shard, so that clients can go where their users are.

use socket2::{Domain, Protocol, Socket, TcpKeepalive, Type};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::time::{Duration, Instant};

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 4096;
/// How long an address in use is tried again.
const PATIENCE: Duration = Duration::from_secs(2);
/// A silent peer is asked whether it is still there after this.
const KEEPALIVE_AFTER: Duration = Duration::from_secs(60);

/// The sockets of one shard.
pub struct ShardSockets {
    /// The common binary port.
    pub common: Socket,
    /// The shard's own binary port.
    pub own: Socket,
    /// The common RESP port.
    pub resp: Socket,
}

/// All sockets, and where they are.
pub struct Sockets {
    /// By shard.
    pub shards: Vec<ShardSockets>,
    /// HTTP, in blocking mode off.
    pub http: TcpListener,
    /// Where the binary protocol is.
    pub listen_at: SocketAddr,
    /// Where RESP is.
    pub resp_at: SocketAddr,
    /// Where HTTP is.
    pub http_at: SocketAddr,
    /// The shards' own binary ports.
    pub shard_ports: Vec<u16>,
}

/// Opens everything. An error is one plain sentence.
///
/// # Errors
/// An address is in use or cannot be had.
pub fn open(
    listen: SocketAddr,
    resp: SocketAddr,
    http: SocketAddr,
    shard_count: u16,
) -> Result<Sockets, String> {
    let (common, listen_at) = patient(listen, || shared(listen, shard_count))?;
    let (resps, resp_at) = patient(resp, || shared(resp, shard_count))?;
    let (http_socket, http_at) = patient(http, || one(http))?;
    let (mut shards, mut shard_ports) = (Vec::new(), Vec::new());
    for (common, resp) in common.into_iter().zip(resps) {
        let any = SocketAddr::new(listen.ip(), 0);
        let (own, at) = one(any).map_err(|e| sentence(any, &e))?;
        shard_ports.push(at.port());
        shards.push(ShardSockets { common, own, resp });
    }
    let http: TcpListener = http_socket.into();
    Ok(Sockets { shards, http, listen_at, resp_at, http_at, shard_ports })
}

/// Tries for a moment where the address is in use: after a kill -9 the kernel takes the rings of
/// the dead server apart in the background, and until then they hold its listening sockets.
fn patient<T>(address: SocketAddr, open: impl Fn() -> io::Result<T>) -> Result<T, String> {
    let started = Instant::now();
    loop {
        match open() {
            Err(error)
                if error.kind() == io::ErrorKind::AddrInUse && started.elapsed() < PATIENCE =>
            {
                std::thread::sleep(Duration::from_millis(10));
            }
            result => return result.map_err(|error| sentence(address, &error)),
        }
    }
}

fn sentence(address: SocketAddr, error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            format!("{address} is in use by another program; stop it or choose another port")
        }
        io::ErrorKind::PermissionDenied => format!("{address} may not be used: {error}"),
        _ => format!("cannot listen on {address}: {error}"),
    }
}

/// One socket per shard on one address.
fn shared(address: SocketAddr, count: u16) -> io::Result<(Vec<Socket>, SocketAddr)> {
    if address.port() != 0 {
        // With SO_REUSEPORT alone another server of the same user would silently share the port.
        let probe = socket(address)?;
        probe.set_reuse_address(true)?;
        probe.bind(&address.into())?;
        probe.listen(1)?;
    }
    let (mut sockets, mut at) = (Vec::new(), address);
    for _ in 0..count {
        let socket = socket(at)?;
        socket.set_reuse_address(true)?;
        socket.set_reuse_port(true)?;
        at = listening(&socket, at)?;
        sockets.push(socket);
    }
    Ok((sockets, at))
}

fn one(address: SocketAddr) -> io::Result<(Socket, SocketAddr)> {
    let socket = socket(address)?;
    socket.set_reuse_address(true)?;
    let at = listening(&socket, address)?;
    Ok((socket, at))
}

fn socket(address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    // Accepted sockets inherit both.
    socket.set_tcp_nodelay(true)?;
    socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEPALIVE_AFTER))?;
    Ok(socket)
}

fn listening(socket: &Socket, address: SocketAddr) -> io::Result<SocketAddr> {
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    let at = socket.local_addr()?.as_socket();
    at.ok_or_else(|| io::Error::other("the socket has no internet address"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn any() -> SocketAddr {
        "127.0.0.1:0".parse().unwrap()
    }

    #[test]
    fn every_shard_shares_the_common_port_and_has_its_own() {
        let sockets = open(any(), any(), any(), 3).unwrap();
        assert_eq!(sockets.shards.len(), 3);
        let mut ports = sockets.shard_ports.clone();
        ports.extend([&sockets.listen_at, &sockets.resp_at, &sockets.http_at].map(|a| a.port()));
        ports.sort_unstable();
        ports.dedup();
        assert_eq!(ports.len(), 6);
    }

    #[test]
    fn a_port_in_use_is_told_in_one_sentence_even_where_it_could_be_shared() {
        let first = open(any(), any(), any(), 2).unwrap();
        for taken in [first.listen_at, first.http_at] {
            let error = open(taken, any(), any(), 2).err().unwrap();
            assert!(error.contains("in use") && !error.contains('\n'), "{error}");
        }
    }
}
