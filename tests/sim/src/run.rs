//! Running seeds: one after the other, with their counts, and a readable report of the first that
//! fails.

use crate::faults::{Counts, Fault};
use crate::world::{Plan, World};
use std::cell::RefCell;
use std::sync::Once;

/// What a seed did.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The seed.
    pub seed: u64,
    /// Commands that were answered.
    pub decisions: u64,
    /// Faults that happened.
    pub counts: Counts,
    /// Of everything that was seen.
    pub digest: u64,
    /// What the auditor found.
    pub fault: Option<String>,
    /// What happened before, if a trace was kept.
    pub trace: Vec<String>,
}

/// Lines of the trace in a report.
const TRACE_LINES: usize = 60;

thread_local! {
    /// The plan that runs on this thread, and the words of its panic.
    static RUNNING: RefCell<(Option<String>, String)> =
        const { RefCell::new((None, String::new())) };
}

/// Panics on a thread that runs a plan are findings: they are kept with their place. Where a panic
/// ends the process, it is told with the command that replays it.
fn listen() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let others = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let replay = RUNNING.with_borrow(|(replay, _)| replay.clone());
            let Some(replay) = replay else { return others(info) };
            if cfg!(panic = "abort") {
                eprintln!("{info}\nreplay: {replay}");
            }
            RUNNING.with_borrow_mut(|(_, words)| *words = info.to_string());
        }));
    });
}

/// Runs a plan. A panic of the engine is a finding too.
pub fn run(plan: &Plan) -> Outcome {
    listen();
    RUNNING.set((Some(replay(plan)), String::new()));
    let mut world = World::new(plan.clone());
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| world.run()));
    let (_, words) = RUNNING.take();
    let fault = match result {
        Ok(found) => found.err(),
        Err(_) => Some(format!("panic: {words}")),
    };
    Outcome {
        seed: plan.seed,
        decisions: world.model.decisions,
        counts: world.counts.clone(),
        digest: world.model.digest.get(),
        fault,
        trace: world.trace.tail(TRACE_LINES).map(String::from).collect(),
    }
}

/// Runs the plan once more with a trace, and writes down what happened.
pub fn report(plan: &Plan) -> String {
    let outcome = run(&Plan { trace: true, ..plan.clone() });
    let mut text = outcome.trace.join("\n");
    let fault = outcome.fault.unwrap_or_else(|| "nothing the second time: not the same run".into());
    text.push_str(&format!("\n\nseed {}: {fault}\nreplay: {}\n", plan.seed, replay(plan)));
    text
}

/// The command that runs a plan again.
pub fn replay(plan: &Plan) -> String {
    let mut line = format!("stockade-sim run --seeds {} --steps {}", plan.seed, plan.steps);
    for (from, to) in &plan.skip {
        line.push_str(&format!(" --skip {from}..{to}"));
    }
    for fault in &plan.mute {
        line.push_str(&format!(" --mute {}", fault.word()));
    }
    line
}

/// Makes a failing plan smaller: fewer steps, fewer commands, fewer kinds of faults.
pub fn shrink(plan: &Plan, tries_max: usize) -> Plan {
    let mut best = plan.clone();
    let mut tries = 0;
    let mut fails = |plan: &Plan| {
        tries += 1;
        tries <= tries_max && run(plan).fault.is_some()
    };
    let (mut passes, mut steps) = (0, best.steps);
    while steps - passes > 1 {
        let middle = passes + (steps - passes) / 2;
        if fails(&Plan { steps: middle, ..best.clone() }) {
            steps = middle;
        } else {
            passes = middle;
        }
    }
    best.steps = steps;
    for fault in Fault::ALL {
        let mut smaller = best.clone();
        smaller.mute.push(*fault);
        if fails(&smaller) {
            best = smaller;
        }
    }
    let mut size = best.steps / 2;
    while size > 0 {
        let mut from = 1;
        while from <= best.steps {
            let mut smaller = best.clone();
            smaller.skip.push((from, from + size));
            if fails(&smaller) {
                best = smaller;
            }
            from += size;
        }
        size /= 2;
    }
    best
}

/// A seed that nobody chose; it is printed with every result.
pub fn random_seed() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    // Short enough to be typed again.
    RandomState::new().hash_one(0u8) >> 24
}
