//! `stockade-sim`: runs seeds of the simulator, many in a row or one again.

use clap::{Args, Parser, Subcommand};
use std::time::Instant;
use stockade_sim::faults::{Counts, Fault};
use stockade_sim::run::{report, run, shrink};
use stockade_sim::world::Plan;

#[derive(Parser)]
#[command(about = "Deterministic simulation of a Stockade engine")]
struct Cli {
    #[command(subcommand)]
    command: Work,
}

#[derive(Subcommand)]
enum Work {
    /// Run seeds.
    Run(Run),
    /// Run random seeds until one fails or the time is over.
    Night {
        /// Commands of each seed.
        #[arg(long, default_value_t = 20_000)]
        steps: u64,
        /// How long.
        #[arg(long, default_value_t = 8.0)]
        hours: f64,
        /// The first seed; random if it is not given.
        #[arg(long)]
        from: Option<u64>,
    },
}

#[derive(Args)]
struct Run {
    /// `7`, or `1..1001` (the last one is not run).
    #[arg(long, default_value = "1..101", value_parser = range)]
    seeds: (u64, u64),
    /// Commands of each seed.
    #[arg(long, default_value_t = 10_000)]
    steps: u64,
    /// Leave these commands out.
    #[arg(long, value_parser = range)]
    skip: Vec<(u64, u64)>,
    /// Faults that do not happen.
    #[arg(long, value_parser = fault)]
    mute: Vec<Fault>,
    /// Make a failing run smaller.
    #[arg(long)]
    shrink: bool,
    /// Fail if a kind of fault never happened.
    #[arg(long)]
    all_faults: bool,
}

fn range(text: &str) -> Result<(u64, u64), String> {
    let number = |text: &str| text.parse::<u64>().map_err(|error| format!("{text}: {error}"));
    match text.split_once("..") {
        Some((from, to)) => Ok((number(from)?, number(to)?)),
        None => number(text).map(|only| (only, only + 1)),
    }
}

fn fault(text: &str) -> Result<Fault, String> {
    let found = Fault::ALL.iter().find(|fault| fault.word() == text);
    found.copied().ok_or_else(|| format!("there is no fault {text}"))
}

/// Runs seeds until one fails; the counts of all, and the failure.
struct Sum {
    seeds: u64,
    decisions: u64,
    counts: Counts,
    begun: Instant,
}

impl Sum {
    fn new() -> Self {
        Self { seeds: 0, decisions: 0, counts: Counts::default(), begun: Instant::now() }
    }

    /// False: it failed.
    fn one(&mut self, plan: &Plan, make_smaller: bool) -> bool {
        let outcome = run(plan);
        self.seeds += 1;
        self.decisions += outcome.decisions;
        self.counts.add(&outcome.counts);
        if outcome.fault.is_none() {
            return true;
        }
        let plan = if make_smaller { shrink(plan, 400) } else { plan.clone() };
        println!("{}", report(&plan));
        false
    }

    fn say(&self) {
        let seconds = self.begun.elapsed().as_secs_f64();
        let rate = self.decisions as f64 / seconds;
        let (seeds, decisions) = (self.seeds, self.decisions);
        println!("{seeds} seeds, {decisions} decisions in {seconds:.1} s ({rate:.0}/s)");
        for fault in Fault::ALL {
            println!("  {:<24}{:>10}", fault.word(), self.counts.of(*fault));
        }
    }
}

fn main() -> std::process::ExitCode {
    let fine = match Cli::parse().command {
        Work::Run(work) => seeds(&work),
        Work::Night { steps, hours, from } => night(steps, hours, from),
    };
    if fine { std::process::ExitCode::SUCCESS } else { std::process::ExitCode::FAILURE }
}

fn seeds(work: &Run) -> bool {
    let mut sum = Sum::new();
    let mut fine = true;
    for seed in work.seeds.0..work.seeds.1 {
        let (skip, mute) = (work.skip.clone(), work.mute.clone());
        let plan = Plan { skip, mute, ..Plan::new(seed, work.steps) };
        fine = sum.one(&plan, work.shrink);
        if !fine {
            break;
        }
    }
    sum.say();
    let missing = sum.counts.missing();
    if fine && work.all_faults && !missing.is_empty() {
        println!("never happened: {}", missing.join(" "));
        return false;
    }
    fine
}

fn night(steps: u64, hours: f64, from: Option<u64>) -> bool {
    let mut sum = Sum::new();
    let mut seed = from.unwrap_or_else(stockade_sim::run::random_seed);
    println!("from seed {seed}");
    while sum.begun.elapsed().as_secs_f64() < hours * 3600.0 {
        if !sum.one(&Plan::new(seed, steps), true) {
            sum.say();
            return false;
        }
        seed = seed.wrapping_add(1);
        if sum.seeds.is_multiple_of(500) {
            sum.say();
        }
    }
    sum.say();
    true
}
