//! Load on a server: closed loop (every connection keeps its pipeline full) or open loop (arrivals
//! by a Poisson schedule, latency from the *intended* start, so that a stalled server does not hide
//! its queue).
//!
//! One thread drives all connections, so that one core is enough to drive a server on another; the
//! run says how busy that thread was, and is marked invalid if it was the bottleneck.

use crate::build::programs;
use crate::machine::{cpu_time, describe, pin};
use crate::processes::Server;
use clap::{Args, ValueEnum};
use hdrhistogram::Histogram;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::{Duration, Instant};
use stockade_client::protocol::command::{Line, Reserve};
use stockade_client::protocol::reply::Reply;
use stockade_client::protocol::routing::mix;
use stockade_client::protocol::sale::{OpensAt, SkuPatch};
use stockade_client::protocol::wire::{Request, Response};
use stockade_client::protocol::{Command, Outcome, RequestId, SaleId, SalePatch, SkuId, UserId};
use stockade_client::{ClientBuilder, Session};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Above this share of its core the generator may be the bottleneck.
const GENERATOR_BUSY_MAX: f64 = 0.95;

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Workload {
    /// One SKU that never ends, every user new.
    Hot,
    /// 10,000 SKUs, every user new.
    Uniform,
    /// One SKU that is gone at once: nearly all answers are `sold_out`.
    Soldout,
    /// 5,000 users again and again: nearly all answers are `limit`.
    Duplicates,
}

/// Of `load`.
#[derive(Args, Clone, Debug)]
pub struct LoadArguments {
    /// A running server; none: one is started, pinned to core 0, and the load to core 1.
    #[arg(long)]
    server: Option<String>,
    /// Connections.
    #[arg(long, default_value_t = 50)]
    pub connections: usize,
    /// Requests in flight on each.
    #[arg(long, default_value_t = 1)]
    pub pipeline: usize,
    /// How long is measured, after one second of warm-up.
    #[arg(long, default_value_t = 5)]
    pub seconds: u64,
    /// Open loop: requests a second over all connections.
    #[arg(long)]
    pub rate: Option<f64>,
    /// What is asked.
    #[arg(long, value_enum, default_value_t = Workload::Hot)]
    pub workload: Workload,
    /// Of the server that is started.
    #[arg(long, default_value = "group")]
    pub durability: String,
}

impl LoadArguments {
    /// One hot SKU, durable, on a server that is given.
    pub fn hot(server: String, connections: usize, pipeline: usize, seconds: u64) -> Self {
        Self {
            server: Some(server),
            connections,
            pipeline,
            seconds,
            rate: None,
            workload: Workload::Hot,
            durability: "group".into(),
        }
    }
}

/// What a run measured.
#[derive(Clone, Debug)]
pub struct Measured {
    /// Answers a second.
    pub rate: f64,
    /// Microseconds.
    pub p50: u64,
    /// Microseconds.
    pub p99: u64,
    /// Microseconds.
    pub p999: u64,
    /// Answers by outcome.
    pub outcomes: BTreeMap<&'static str, u64>,
    /// Share of one core that the generator used.
    pub generator: f64,
    /// Intended starts that were more than 1 ms late (open loop).
    pub missed: u64,
}

impl Measured {
    /// The generator was not the bottleneck.
    pub fn is_valid(&self) -> bool {
        self.generator < GENERATOR_BUSY_MAX
    }

    /// Share of answers that granted nothing.
    pub fn reject_share(&self) -> f64 {
        let all: u64 = self.outcomes.values().sum();
        let granted = self.outcomes.get("held").copied().unwrap_or(0);
        if all == 0 { 0.0 } else { 1.0 - granted as f64 / all as f64 }
    }
}

/// Runs one load and prints what it measured.
///
/// # Errors
/// It could not be carried out.
pub fn run(arguments: &LoadArguments) -> Result<bool, String> {
    println!("{}", describe());
    let mut started = None;
    let dir = tempfile::tempdir().map_err(|error| error.to_string())?;
    let address = match &arguments.server {
        Some(address) => address.clone(),
        None => {
            let further =
                ["--shards", "1", "--durability", &arguments.durability].map(str::to_owned);
            let server = Server::start(&programs()?, dir.path(), &further, Some(0))?;
            pin(std::process::id(), 1)?;
            let address = server.address();
            started = Some(server);
            address
        }
    };
    let pid = started.as_ref().map(|server| server.program.id());
    let before = pid.map(cpu_time);
    let clock = Instant::now();
    let measured = measure(arguments, &address)?;
    let server_cpu = pid.zip(before).map(|(pid, before)| {
        (cpu_time(pid) - before).as_secs_f64() / clock.elapsed().as_secs_f64()
    });
    let mode = arguments.rate.map_or("closed loop".into(), |rate| format!("open loop {rate}/s"));
    println!(
        "{:?}, {mode}, {} x {}: {:.0}/s, p50 {} us, p99 {} us, p99.9 {} us, rejected {:.1} %",
        arguments.workload,
        arguments.connections,
        arguments.pipeline,
        measured.rate,
        measured.p50,
        measured.p99,
        measured.p999,
        measured.reject_share() * 100.0
    );
    let where_from = if started.is_some() { &arguments.durability } else { "as started" };
    println!(
        "durability {where_from}, answers {:?}, generator {:.2} of a core, server {}, missed {}{}",
        measured.outcomes,
        measured.generator,
        server_cpu.map_or("not known".into(), |cpu| format!("{cpu:.2} of a core")),
        measured.missed,
        if measured.is_valid() { "" } else { ", INVALID: the generator was the bottleneck" }
    );
    Ok(measured.is_valid())
}

/// One run against a server.
///
/// # Errors
/// It could not be carried out.
pub fn measure(arguments: &LoadArguments, address: &str) -> Result<Measured, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| error.to_string())?;
    let local = tokio::task::LocalSet::new();
    local.block_on(&runtime, drive(arguments, address))
}

struct Shared {
    workload: Workload,
    sale: SaleId,
    next_user: Cell<u64>,
    measuring: Cell<bool>,
    over: Cell<bool>,
    latency: RefCell<Histogram<u64>>,
    outcomes: RefCell<BTreeMap<&'static str, u64>>,
    missed: Cell<u64>,
}

async fn drive(arguments: &LoadArguments, address: &str) -> Result<Measured, String> {
    let sale = put_sale(address, arguments.workload).await?;
    let shared = Rc::new(Shared {
        workload: arguments.workload,
        sale,
        // Every run has users of its own, so that runs on one server do not meet.
        next_user: Cell::new((mix(sale.get()) & 0xffff) << 40 | 1),
        measuring: Cell::new(false),
        over: Cell::new(false),
        latency: RefCell::new(Histogram::new_with_bounds(1, 60_000_000, 3).expect("sound bounds")),
        outcomes: RefCell::default(),
        missed: Cell::new(0),
    });
    let mut tasks = Vec::new();
    for number in 0..arguments.connections {
        let connection = Connection::open(address, shared.clone()).await?;
        let work = connection.run(arguments.clone(), number);
        tasks.push(tokio::task::spawn_local(work));
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    shared.measuring.set(true);
    let (cpu, clock) = (cpu_time(std::process::id()), Instant::now());
    tokio::time::sleep(Duration::from_secs(arguments.seconds)).await;
    shared.measuring.set(false);
    let took = clock.elapsed().as_secs_f64();
    let generator = (cpu_time(std::process::id()) - cpu).as_secs_f64() / took;
    shared.over.set(true);
    for task in tasks {
        task.await.map_err(|error| error.to_string())??;
    }
    let latency = shared.latency.borrow();
    let measured = Measured {
        rate: latency.len() as f64 / took,
        p50: latency.value_at_quantile(0.5),
        p99: latency.value_at_quantile(0.99),
        p999: latency.value_at_quantile(0.999),
        outcomes: shared.outcomes.borrow().clone(),
        generator,
        missed: shared.missed.get(),
    };
    Ok(measured)
}

async fn put_sale(address: &str, workload: Workload) -> Result<SaleId, String> {
    let client = ClientBuilder::new(address).name("load").connect().await;
    let client = client.map_err(|error| error.to_string())?;
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let number = now.map_or(1, |now| now.as_millis() as u64);
    let sale = SaleId::new(number).ok_or("the clock")?;
    let mut patch = SalePatch::new(sale);
    patch.opens_at = Some(OpensAt::Now);
    patch.hold_ms = Some(3_600_000);
    let (skus, stock) = match workload {
        Workload::Hot | Workload::Duplicates => (1, u32::MAX),
        Workload::Uniform => (10_000, 100_000_000),
        Workload::Soldout => (1, 5_000),
    };
    for sku in 1..=skus {
        patch.skus.push(SkuPatch {
            sku: SkuId::new(sku).ok_or("sku")?,
            stock: Some(stock),
            limit_per_user: Some(1),
            max_per_order: None,
            labels: None,
        });
    }
    let reply = client.sale_put(patch).await.map_err(|error| error.to_string())?;
    match reply.outcome {
        Outcome::Created => Ok(sale),
        other => Err(format!("the sale was not taken: {} {}", other.word(), reply.why)),
    }
}

impl Shared {
    fn request(&self) -> Request {
        let number = self.next_user.get();
        self.next_user.set(number + 1);
        let user = match self.workload {
            Workload::Duplicates => 1 + number % 5_000,
            _ => number,
        };
        let sku = match self.workload {
            Workload::Uniform => 1 + mix(number) % 10_000,
            _ => 1,
        };
        let line = Line { sku: SkuId::new(sku).expect("in range"), quantity: 1 };
        Request::Command(Command::Reserve(Reserve {
            sale: self.sale,
            user: UserId::new(user).expect("in range"),
            request: RequestId::from_number(number).expect("below 2^62"),
            lines: [line].into_iter().collect(),
            data: Default::default(),
            not_after: None,
        }))
    }

    fn answered(&self, response: &Response, intended: Instant) -> Result<(), String> {
        if !self.measuring.get() {
            return Ok(());
        }
        let Response::Reply(Reply::Reserve(reply)) = response else {
            return Err(format!("an unexpected answer: {response:?}"));
        };
        let micros = intended.elapsed().as_micros() as u64;
        self.latency.borrow_mut().saturating_record(micros.max(1));
        *self.outcomes.borrow_mut().entry(reply.outcome.word()).or_default() += 1;
        Ok(())
    }
}

struct Connection {
    stream: TcpStream,
    session: Session,
    out: Vec<u8>,
    input: Vec<u8>,
    /// When each request in flight was meant to start, by its number modulo the length.
    starts: Vec<Instant>,
    in_flight: usize,
    shared: Rc<Shared>,
}

impl Connection {
    async fn open(address: &str, shared: Rc<Shared>) -> Result<Self, String> {
        let text = |error: std::io::Error| error.to_string();
        let stream = TcpStream::connect(address).await.map_err(text)?;
        stream.set_nodelay(true).map_err(text)?;
        let mut connection = Self {
            stream,
            session: Session::default(),
            out: Vec::new(),
            input: vec![0; 256 << 10],
            starts: vec![Instant::now(); 1 << 16],
            in_flight: 0,
            shared,
        };
        connection.session.hello("load", "", &mut connection.out);
        connection.flush().await?;
        loop {
            match connection.session.next_response().map_err(|error| error.to_string())? {
                Some((_, Response::Welcome(_))) => return Ok(connection),
                Some((_, other)) => return Err(format!("no welcome but {other:?}")),
                None => connection.fill().await?,
            }
        }
    }

    async fn flush(&mut self) -> Result<(), String> {
        self.stream.write_all(&self.out).await.map_err(|error| error.to_string())?;
        self.out.clear();
        Ok(())
    }

    async fn fill(&mut self) -> Result<(), String> {
        let count = self.stream.read(&mut self.input).await.map_err(|error| error.to_string())?;
        if count == 0 {
            return Err("the server closed the connection".into());
        }
        self.session.receive(&self.input[..count]);
        Ok(())
    }

    fn send(&mut self, intended: Instant) {
        let request = self.shared.request();
        let number = self.session.send(&request, &mut self.out);
        let at = number as usize % self.starts.len();
        self.starts[at] = intended;
        self.in_flight += 1;
    }

    fn take_responses(&mut self) -> Result<(), String> {
        while let Some((number, response)) =
            self.session.next_response().map_err(|error| error.to_string())?
        {
            self.in_flight -= 1;
            let intended = self.starts[number as usize % self.starts.len()];
            self.shared.answered(&response, intended)?;
        }
        Ok(())
    }

    async fn run(self, arguments: LoadArguments, number: usize) -> Result<(), String> {
        match arguments.rate {
            Some(rate) => self.run_open(rate / arguments.connections as f64, number).await,
            None => self.run_closed(arguments.pipeline).await,
        }
    }

    async fn run_closed(mut self, pipeline: usize) -> Result<(), String> {
        loop {
            if !self.shared.over.get() {
                let now = Instant::now();
                while self.in_flight < pipeline {
                    self.send(now);
                }
            }
            if !self.out.is_empty() {
                self.flush().await?;
            }
            if self.in_flight == 0 {
                return Ok(());
            }
            self.fill().await?;
            self.take_responses()?;
        }
    }

    /// Arrivals of a Poisson process of its own; requests never wait for answers.
    async fn run_open(mut self, rate: f64, number: usize) -> Result<(), String> {
        let mut state = mix(number as u64 + 1);
        let mut gap = move || {
            state = mix(state.wrapping_add(0x9E37_79B9_7F4A_7C15));
            let uniform = ((state >> 11) as f64 + 1.0) / (1u64 << 53) as f64;
            Duration::from_secs_f64(-uniform.ln() / rate)
        };
        let mut next = Instant::now() + gap();
        loop {
            let now = Instant::now();
            while next <= now && !self.shared.over.get() {
                if self.shared.measuring.get() && now - next > Duration::from_millis(1) {
                    self.shared.missed.set(self.shared.missed.get() + 1);
                }
                self.send(next);
                next += gap();
            }
            if !self.out.is_empty() {
                self.flush().await?;
            }
            if self.shared.over.get() && self.in_flight == 0 {
                return Ok(());
            }
            let wake = tokio::time::sleep_until(next.min(now + Duration::from_millis(50)).into());
            tokio::select! {
                biased;
                read = self.stream.read(&mut self.input) => {
                    match read.map_err(|error| error.to_string())? {
                        0 => return Err("the server closed the connection".into()),
                        count => self.session.receive(&self.input[..count]),
                    }
                    self.take_responses()?;
                }
                () = wake => {}
            }
        }
    }
}
