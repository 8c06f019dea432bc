//! kill -9 at random moments under load, over and over: P1 no oversell, P2 nothing acknowledged is
//! lost, P4 limits hold, P5 a retry finds its order, P6 one end, P8 the feed has no gap.
//!
//! Four buyers' services reserve, confirm and cancel over RESP and keep a book of what they were
//! told. What was in flight at a kill is in doubt and asked again with the same request id. At the
//! end every line of their books is held against the engine and against the feed.
//! `STOCKADE_KILL_ROUNDS` sets the rounds (default 10), `STOCKADE_SEED` the seed.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use stockade_e2e::{Resp, Rng, Server, Value};

const SKUS: u64 = 6;
const STOCK: u64 = 1500;
const LIMIT: u64 = 3;
const USERS: u64 = 4000;
const BUYERS: u64 = 4;

/// What one buyers' service was told.
#[derive(Default)]
struct Book {
    /// Request id -> (user, SKU, units, order, last acknowledged state).
    orders: HashMap<String, Told>,
    answers: BTreeMap<String, u64>,
}

#[derive(Clone)]
struct Told {
    user: String,
    sku: String,
    units: u64,
    order: String,
    state: String,
}

/// Calls until it is answered: a lost connection means in doubt, and the same call again.
fn insist(connection: &mut Option<Resp>, address: &str, arguments: &[&str]) -> Value {
    let started = Instant::now();
    loop {
        assert!(started.elapsed() < Duration::from_secs(60), "no answer to {arguments:?}");
        let answer = match connection {
            Some(resp) => resp.call(arguments),
            None => Err(io::ErrorKind::NotConnected.into()),
        };
        match answer {
            Ok(value) => return value,
            Err(_) => {
                *connection = Resp::connect(address).ok();
                if connection.is_none() {
                    std::thread::sleep(Duration::from_millis(2));
                }
            }
        }
    }
}

fn reserve(
    connection: &mut Option<Resp>,
    address: &str,
    book: &mut Book,
    request: &str,
    (user, sku, units): (u64, u64, u64),
) {
    let (user, sku) = (user.to_string(), sku.to_string());
    let units_text = units.to_string();
    let call = ["STOCK.RESERVE", "1", &user, request, &sku, &units_text];
    let answer = insist(connection, address, &call);
    let items = answer.items();
    let outcome = items[0].text().to_owned();
    *book.answers.entry(outcome.clone()).or_default() += 1;
    match outcome.as_str() {
        "held" | "confirmed" | "cancelled" => {
            let order = items[1].text().to_owned();
            let told = Told { user, sku, units, order, state: outcome };
            if let Some(before) = book.orders.insert(request.into(), told.clone()) {
                assert_eq!(before.order, told.order, "P5: {request} got a second order");
                assert_eq!(before.state, told.state, "P2: {request} changed without a word");
            }
        }
        "limit" | "sold_out" | "busy" => {
            assert!(!book.orders.contains_key(request), "P5: {request} had an order: {answer:?}");
        }
        other => panic!("unexpected {other}"),
    }
}

fn pay_or_cancel(
    connection: &mut Option<Resp>,
    address: &str,
    book: &mut Book,
    request: &str,
    pay: bool,
) {
    let told = book.orders.get_mut(request).expect("known requests only");
    let payment = format!("pay-{request}");
    let call: &[&str] = if pay {
        &["STOCK.CONFIRM", &told.order, &payment]
    } else {
        &["STOCK.CANCEL", &told.order, "changed my mind"]
    };
    let answer = insist(connection, address, call);
    let outcome = answer.items()[0].text();
    *book.answers.entry(format!("{}:{outcome}", call[0])).or_default() += 1;
    let allowed: &[&str] = match (told.state.as_str(), pay) {
        ("held", true) => &["confirmed", "already_confirmed"],
        ("held", false) => &["cancelled", "already_cancelled"],
        ("confirmed", true) => &["already_confirmed"],
        ("cancelled", false) => &["already_cancelled"],
        _ => &["too_late"],
    };
    assert!(allowed.contains(&outcome), "P6: {} after {}: {answer:?}", call[0], told.state);
    told.state = answer.items()[2].text().to_owned();
}

fn buyer(number: u64, seed: u64, address: &str, stop: &AtomicBool, done: &AtomicU64) -> Book {
    let mut rng = Rng::new(seed ^ (number + 1) << 40);
    let (mut connection, mut book, mut requests) = (None, Book::default(), Vec::<String>::new());
    while !stop.load(Ordering::Relaxed) {
        match rng.below(10) {
            0..=5 => {
                let request = format!("b{number}-{}", requests.len());
                let what = (1 + rng.below(USERS), 1001 + rng.below(SKUS), 1 + rng.below(2));
                reserve(&mut connection, address, &mut book, &request, what);
                requests.push(request);
            }
            6 if !book.orders.is_empty() => {
                let request = &requests[rng.below(requests.len() as u64) as usize];
                if let Some(told) = book.orders.get(request).cloned() {
                    let number = |text: &str| text.parse().expect("ids are decimal");
                    let what = (number(&told.user), number(&told.sku), told.units);
                    reserve(&mut connection, address, &mut book, request, what);
                }
            }
            roll if !requests.is_empty() => {
                let back = requests.len() as u64;
                let request = requests[(back - 1 - rng.below(back.min(50))) as usize].clone();
                if book.orders.contains_key(&request) {
                    pay_or_cancel(&mut connection, address, &mut book, &request, roll < 9);
                }
            }
            _ => {}
        }
        done.fetch_add(1, Ordering::Relaxed);
    }
    book
}

#[test]
fn acknowledged_orders_survive_kill_9_under_load() {
    let rounds: u64 = std::env::var("STOCKADE_KILL_ROUNDS").map_or(10, |n| n.parse().unwrap());
    let seed = Rng::seed_of_run();
    let dir = tempfile::tempdir().unwrap();
    let mut server = Server::start(dir.path(), &["--shards", "2", "--partitions", "16"]);
    let skus: Vec<String> = (0..SKUS)
        .map(|i| format!("{{\"sku\":{},\"stock\":{STOCK},\"limit_per_user\":{LIMIT}}}", 1001 + i))
        .collect();
    let put = format!(
        "{{\"sale\":1,\"name\":\"kill loop\",\"opens_at\":\"now\",\"hold_ms\":3600000,\"skus\":[{}]}}",
        skus.join(",")
    );
    let answer = server.resp().call(&["STOCK.SALE.PUT", &put]).unwrap();
    assert_eq!(answer.items()[0].text(), "created", "{answer:?}");

    let (stop, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let address = server.resp_address().to_owned();
    let buyers: Vec<_> = (0..BUYERS)
        .map(|number| {
            let (address, stop, done) = (address.clone(), stop.clone(), done.clone());
            std::thread::spawn(move || buyer(number, seed, &address, &stop, &done))
        })
        .collect();
    let mut rng = Rng::new(seed);
    for round in 0..rounds {
        let before = done.load(Ordering::Relaxed);
        let wanted = 1 + rng.below(2000);
        let started = Instant::now();
        while done.load(Ordering::Relaxed) < before + wanted {
            assert!(started.elapsed() < Duration::from_secs(60), "round {round} does not move");
            assert!(!buyers.iter().any(std::thread::JoinHandle::is_finished), "a buyer gave up");
            std::thread::sleep(Duration::from_micros(200));
        }
        if rng.below(4) == 0 {
            server.set_argument("--shards", &(1 + rng.below(3)).to_string());
        }
        server.kill_and_restart();
    }
    stop.store(true, Ordering::Relaxed);
    let books: Vec<Book> = buyers.into_iter().map(|buyer| buyer.join().unwrap()).collect();
    let mut answers = BTreeMap::<String, u64>::new();
    for (word, count) in books.iter().flat_map(|book| &book.answers) {
        *answers.entry(word.clone()).or_default() += count;
    }
    println!("{rounds} rounds, answers {answers:?}");
    assert!(answers["held"] > 0 && answers["STOCK.CONFIRM:confirmed"] > 0);
    check_books(&server, &books);
    check_feed(&server, &books);
}

/// Every line of the books, the figures of every SKU, the limits of every user.
fn check_books(server: &Server, books: &[Book]) {
    let mut resp = server.resp();
    let (mut held, mut confirmed) = (HashMap::<&str, u64>::new(), HashMap::<&str, u64>::new());
    let mut by_user = HashMap::<(&str, &str), u64>::new();
    for told in books.iter().flat_map(|book| book.orders.values()) {
        let answer = resp.call(&["STOCK.ORDER", &told.order]).unwrap();
        let items = answer.items();
        assert_eq!(items[0].text(), told.state, "P2: order {}: {answer:?}", told.order);
        assert_eq!(items[3].text(), told.user);
        let lines = [Value::Bulk(told.sku.clone()), Value::Integer(told.units as i64)];
        assert_eq!(items[6].items(), lines, "P2: order {}", told.order);
        match told.state.as_str() {
            "held" => *held.entry(&told.sku).or_default() += told.units,
            "confirmed" => *confirmed.entry(&told.sku).or_default() += told.units,
            _ => continue,
        }
        *by_user.entry((&told.user, &told.sku)).or_default() += told.units;
    }
    for (key, units) in by_user {
        assert!(units <= LIMIT, "P4: {key:?} has {units}");
    }
    for sku in 1001..1001 + SKUS {
        let sku = sku.to_string();
        let answer = resp.call(&["STOCK.SKU", "1", &sku]).unwrap();
        let numbers: Vec<u64> = answer.items()[..4].iter().map(|v| v.number() as u64).collect();
        let (total, free) = (numbers[0], numbers[1]);
        assert_eq!(total, STOCK);
        assert_eq!(free + numbers[2] + numbers[3], total, "P1: {answer:?}");
        assert_eq!(numbers[2], held.get(sku.as_str()).copied().unwrap_or(0), "P1: {answer:?}");
        assert_eq!(numbers[3], confirmed.get(sku.as_str()).copied().unwrap_or(0), "P1: {answer:?}");
    }
}

/// The feed from the beginning: gapless, and what it says of each order is what its buyer was told.
fn check_feed(server: &Server, books: &[Book]) {
    let mut resp = server.resp();
    let mut next = HashMap::<u64, u64>::new();
    let mut states = HashMap::<String, String>::new();
    loop {
        let answer = resp.call(&["STOCK.FEED", "auditor", "COUNT", "10000"]).unwrap();
        if answer.items().is_empty() {
            break;
        }
        for event in answer.items() {
            let event: serde_json::Value = serde_json::from_str(event.text()).unwrap();
            let partition = event["partition"].as_u64().unwrap();
            let expected = next.entry(partition).or_insert(1);
            assert_eq!(event["lsn"].as_u64(), Some(*expected), "P8: {event}");
            *expected += 1;
            if let Some(order) = event["order"].as_str() {
                let kind = event["kind"].as_str().unwrap();
                if kind == "late_payment" {
                    continue;
                }
                let before = states.insert(order.into(), kind.into());
                assert_eq!(before.is_none(), kind == "held", "P8: {event} after {before:?}");
            }
        }
        for (partition, lsn) in &next {
            let (partition, lsn) = (partition.to_string(), (lsn - 1).to_string());
            resp.call(&["STOCK.FEED.ACK", "auditor", &partition, &lsn]).unwrap();
        }
    }
    let told: HashMap<&str, &str> = books
        .iter()
        .flat_map(|book| book.orders.values())
        .map(|told| (told.order.as_str(), told.state.as_str()))
        .collect();
    assert_eq!(told.len(), states.len(), "P8: orders told and orders in the feed");
    for (order, state) in states {
        assert_eq!(told.get(order.as_str()), Some(&state.as_str()), "P8: order {order}");
    }
}
