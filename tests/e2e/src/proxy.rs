//! A TCP proxy that cuts connections behind a COMMIT, so that its answer is lost and the commit is
//! in doubt: of those that are cut, every other one reaches the server and the rest do not.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Debug)]
struct State {
    /// Every so many COMMITs the connection is cut behind one; 0: never.
    every: AtomicU64,
    commits: AtomicU64,
    cuts: AtomicU64,
}

/// See the module. It listens until the process ends; its handle only steers it.
#[derive(Clone, Debug)]
pub struct Proxy {
    /// Where to connect to.
    pub port: u16,
    state: Arc<State>,
}

impl Proxy {
    /// A proxy to a port of 127.0.0.1 that cuts behind each `every`th COMMIT; 0: behind none.
    ///
    /// # Panics
    /// Loopback has no free port.
    pub fn start(target: u16, every: u64) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has free ports");
        let port = listener.local_addr().expect("a bound listener has an address").port();
        let state = Arc::new(State {
            every: AtomicU64::new(every),
            commits: AtomicU64::new(0),
            cuts: AtomicU64::new(0),
        });
        let proxy = Self { port, state };
        let steered = proxy.clone();
        std::thread::spawn(move || {
            for client in listener.incoming().filter_map(Result::ok) {
                let Ok(server) = TcpStream::connect(("127.0.0.1", target)) else { continue };
                steered.join(client, server);
            }
        });
        proxy
    }

    /// Cuts behind each `every`th COMMIT from now on; 0: behind none.
    pub fn cut_every(&self, every: u64) {
        self.state.every.store(every, Ordering::SeqCst);
    }

    /// How often it cut.
    pub fn cuts(&self) -> u64 {
        self.state.cuts.load(Ordering::SeqCst)
    }

    fn join(&self, client: TcpStream, server: TcpStream) {
        let copy =
            |from: &TcpStream, to: &TcpStream| Some((from.try_clone().ok()?, to.try_clone().ok()?));
        let (Some(up), Some(down)) = (copy(&client, &server), copy(&server, &client)) else {
            return;
        };
        let state = self.state.clone();
        std::thread::spawn(move || pump(up, Some(&state)));
        std::thread::spawn(move || pump(down, None));
    }
}

/// Copies until an end. With a state: the way to the server, where COMMITs are looked for.
fn pump((mut from, mut to): (TcpStream, TcpStream), state: Option<&Arc<State>>) {
    let _ = to.set_nodelay(true);
    let mut buffer = vec![0; 64 << 10];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        let cut = state.is_some_and(|state| {
            let is_commit = buffer[..count].windows(6).any(|word| word == b"COMMIT");
            let every = state.every.load(Ordering::SeqCst);
            is_commit
                && every > 0
                && (state.commits.fetch_add(1, Ordering::SeqCst) + 1).is_multiple_of(every)
        });
        let mut lost = false;
        if let Some(state) = state.filter(|_| cut) {
            // No answer reaches the client, whatever becomes of the COMMIT.
            let _ = from.shutdown(Shutdown::Both);
            lost = state.cuts.fetch_add(1, Ordering::SeqCst) % 2 == 1;
        }
        if lost || to.write_all(&buffer[..count]).is_err() || cut {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
    let _ = from.shutdown(Shutdown::Read);
}
