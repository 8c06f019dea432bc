//! What happened, in words, for the run that failed. It costs nothing where nobody reads it.

use std::collections::VecDeque;

/// Lines that are kept.
const LINES_MAX: usize = 400;

/// See the module.
#[derive(Debug)]
pub struct Trace {
    on: bool,
    lines: VecDeque<String>,
}

impl Trace {
    /// A trace that is kept, or not.
    pub const fn new(on: bool) -> Self {
        Self { on, lines: VecDeque::new() }
    }

    /// This happened.
    pub fn say(&mut self, at_us: u64, words: impl FnOnce() -> String) {
        if self.on {
            if self.lines.len() == LINES_MAX {
                self.lines.pop_front();
            }
            let (ms, us) = (at_us / 1000, at_us % 1000);
            self.lines.push_back(format!("{ms:>8}.{us:03} {}", words()));
        }
    }

    /// The last lines.
    pub fn tail(&self, count: usize) -> impl Iterator<Item = &str> {
        let skip = self.lines.len().saturating_sub(count);
        self.lines.iter().skip(skip).map(String::as_str)
    }
}
