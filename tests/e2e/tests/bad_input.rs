//! P10: any bytes on any port give a clear error or a closed connection; nobody else is hurt.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;
use stockade_e2e::{Rng, Server, http};

const SALE: &str = r#"{"sale":1,"name":"bad","opens_at":"now","hold_ms":600000,"skus":[{"sku":1,"stock":100000}]}"#;

/// Sends bytes, reads what comes until the peer closes or is silent; never fails.
fn poke(address: &str, bytes: &[u8]) {
    let Ok(mut stream) = TcpStream::connect(address) else { panic!("the port must be open") };
    let _ = stream.set_read_timeout(Some(Duration::from_millis(20)));
    let _ = stream.write_all(bytes);
    let mut answer = vec![0; 65536];
    let _ = stream.read(&mut answer);
}

fn resident_kib(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn garbage_on_every_port_harms_nobody() {
    let seed = Rng::seed_of_run();
    let dir = tempfile::tempdir().unwrap();
    let mut server = Server::start(dir.path(), &["--shards", "2"]);
    let pid = server.program().id();
    let mut bystander = server.resp();
    bystander.call(&["STOCK.SALE.PUT", SALE]).unwrap();
    let before = resident_kib(pid);
    let mut rng = Rng::new(seed);
    let addresses =
        [server.listen(), server.resp_address(), server.http()].map(std::borrow::ToOwned::to_owned);
    let heads: [&[u8]; 8] = [
        b"\x93STK\r\n\0\x01",
        b"*3\r\n$13\r\nSTOCK.RESERVE\r\n",
        b"*1000000000\r\n",
        b"*1\r\n$536870912\r\n",
        b"POST /v1/sales/1/orders HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n",
        b"\x16\x03\x01\x02\x00",
        b"GET / HTTP/1.1\r\n",
        b"",
    ];
    let mut held = 0;
    for round in 0..300u64 {
        let mut bytes = heads[(round % 8) as usize].to_vec();
        for _ in 0..rng.below(600) {
            bytes.push(rng.next_u64() as u8);
        }
        poke(&addresses[(round % 3) as usize], &bytes);
        if round % 10 == 0 {
            let user = (round + 1).to_string();
            let answer = bystander.call(&["STOCK.RESERVE", "1", &user, "1", "1", "1"]).unwrap();
            assert_eq!(answer.items()[0].text(), "held");
            held += 1;
        }
    }
    let figures = bystander.call(&["STOCK.SKU", "1", "1"]).unwrap();
    assert_eq!(figures.items()[2].number(), held);
    let grown = resident_kib(pid).saturating_sub(before);
    assert!(grown < 64 << 10, "memory grew by {grown} KiB");
    assert!(server.program().stop().success());
}

#[test]
fn what_was_taken_is_answered_before_a_connection_ends() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path(), &["--shards", "2"]);
    server.resp().call(&["STOCK.SALE.PUT", SALE]).unwrap();
    for (user, last) in [(1, "QUIT\r\n"), (2, "*1\r\n+breach\r\n")] {
        let mut stream = TcpStream::connect(server.resp_address()).unwrap();
        let reserve = format!("STOCK.RESERVE 1 {user} 1 1 1\r\n");
        stream.write_all((reserve + last).as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("*5\r\n$4\r\nheld\r\n"), "{answer}");
        let end = if user == 1 { "+OK\r\n" } else { "-ERR Protocol error" };
        assert!(answer.contains(end), "{answer}");
    }
}

#[test]
fn silent_and_half_open_connections_do_not_stop_others() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path(), &["--shards", "2"]);
    let mut streams = Vec::new();
    for address in [server.listen(), server.resp_address(), server.http()] {
        for _ in 0..200 {
            let mut stream = TcpStream::connect(address).unwrap();
            stream.write_all(b"*2\r\n$4\r\nEC").unwrap();
            streams.push(stream);
        }
    }
    let mut resp = server.resp();
    resp.call(&["STOCK.SALE.PUT", SALE]).unwrap();
    for user in 1..=50 {
        let answer = resp.call(&["STOCK.RESERVE", "1", &user.to_string(), "1", "1", "1"]).unwrap();
        assert_eq!(answer.items()[0].text(), "held");
    }
    let health = http::request(server.http(), "GET", "/healthz", &[], "").unwrap();
    assert_eq!(health.status, 200);
}

#[test]
fn a_consumer_that_never_reads_does_not_slow_the_sale() {
    let dir = tempfile::tempdir().unwrap();
    let mut server = Server::start(dir.path(), &[]);
    let pid = server.program().id();
    let mut resp = server.resp();
    resp.call(&["STOCK.SALE.PUT", SALE]).unwrap();
    let mut deaf = TcpStream::connect(server.resp_address()).unwrap();
    let call = b"*4\r\n$10\r\nSTOCK.FEED\r\n$4\r\ndeaf\r\n$5\r\nCOUNT\r\n$5\r\n10000\r\n";
    for user in 1..=3000 {
        let answer = resp.call(&["STOCK.RESERVE", "1", &user.to_string(), "1", "1", "1"]).unwrap();
        assert_eq!(answer.items()[0].text(), "held");
        if user % 30 == 0 {
            deaf.set_nonblocking(true).unwrap();
            let _ = deaf.write(call);
        }
    }
    assert!(resident_kib(pid) < 600 << 10, "{} KiB", resident_kib(pid));
}
