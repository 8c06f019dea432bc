//! `lua check`: the usual faults of a flash sale's Lua script, in plain words.
//!
//! It reads the script as text and looks for what such scripts do wrong again and again; it proves
//! nothing, and a script without findings can still be wrong. It also prints what registers the
//! script with a server, so that the shop can go on calling it.

use crate::output::{Failure, Output};
use clap::Subcommand;
use serde_json::{Value, json};
use sha1::{Digest, Sha1};
use std::path::PathBuf;
use std::process::ExitCode;

/// What to do with a script.
#[derive(Subcommand, Debug)]
pub enum Verb {
    /// Name the usual faults of a script; exit 1 if there are any.
    Check {
        /// The script, byte by byte what the shop sends to Redis.
        file: PathBuf,
    },
}

/// Runs the verb.
pub fn run(out: &Output, verb: Verb) -> Result<ExitCode, Failure> {
    let Verb::Check { file } = verb;
    let text = std::fs::read(&file)
        .map_err(|error| Failure::Usage(format!("cannot read {}: {error}", file.display())))?;
    let faults = check(&String::from_utf8_lossy(&text));
    let sha1: String = Sha1::digest(&text).iter().map(|byte| format!("{byte:02x}")).collect();
    if out.json {
        let shown: Vec<Value> = faults
            .iter()
            .map(|fault| json!({"line": fault.line, "fault": fault.name, "why": fault.why}))
            .collect();
        out.object(&json!({"sha1": sha1, "faults": shown}));
    } else {
        for fault in &faults {
            out.line(&format!("line {}: {}: {}", fault.line, fault.name, fault.why));
        }
        if faults.is_empty() {
            out.line("none of the usual faults was found");
        }
        out.line("");
        out.line("To serve it, add this to the server's config file and set words and values:");
        out.line(&registration(&sha1));
    }
    Ok(ExitCode::from(u8::from(!faults.is_empty())))
}

fn registration(sha1: &str) -> String {
    format!(
        "[[scripts]]\nsha1 = \"{sha1}\"\n\
         command = \"STOCK.RESERVE 1 {{ARGV[1]}} {{ARGV[2]}} {{KEYS[1]#stock:}} 1\"\n\
         returns = {{ held = 1, confirmed = 1, sold_out = 0 }}\notherwise = -1"
    )
}

/// A finding.
#[derive(Debug, PartialEq, Eq)]
struct Fault {
    line: usize,
    name: &'static str,
    why: &'static str,
}

/// A `redis.call` in the script: its command in lower case, its arguments without spaces.
struct Call {
    line: usize,
    command: String,
    arguments: String,
}

const TAKES: &[&str] = &["decr", "decrby", "hincrby", "incrby", "lpop", "rpop", "spop"];
const RECORDS: &[&str] =
    &["sadd", "hset", "hsetnx", "hmset", "set", "setnx", "zadd", "xadd", "lpush", "rpush"];
/// Commands by which a request that came before can be recognised.
const RECOGNISES: &[&str] = &["setnx", "hsetnx", "hexists", "exists", "hget", "get"];

impl Call {
    fn takes(&self) -> bool {
        let adds = self.command.starts_with("incr") || self.command == "hincrby";
        let takes_by_adding = self.arguments.contains("-") && adds;
        TAKES.contains(&self.command.as_str()) && (!adds || takes_by_adding)
    }

    fn mentions_request(&self) -> bool {
        let about = ["request", "req", "order", "idem", "token", "nonce", "uuid"];
        let arguments = self.arguments.to_lowercase();
        about.iter().any(|word| arguments.contains(word))
    }
}

/// All findings, by line.
fn check(text: &str) -> Vec<Fault> {
    let text = without_comments(text);
    let calls = calls(&text);
    let dense: String = text.chars().filter(|c| !c.is_whitespace()).collect();
    let mut faults = Vec::new();
    let mut found = |line, name, why| faults.push(Fault { line, name, why });

    let take = calls.iter().find(|call| call.takes());
    let record = calls.iter().find(|call| RECORDS.contains(&call.command.as_str()));
    match (take, record) {
        (Some(take), None) => found(
            take.line,
            "no record",
            "units are taken and nothing says who has them: what the shop does afterwards can be \
             lost, and nobody can tell",
        ),
        (Some(take), Some(record)) if take.line < record.line => found(
            take.line,
            "decrement before record",
            "units are taken before the buyer is recorded: a script that fails in between is not \
             rolled back, and the units are gone",
        ),
        _ => {}
    }
    if let Some(call) = calls.iter().find(|c| matches!(c.command.as_str(), "sismember" | "sadd")) {
        found(
            call.line,
            "set instead of quantity",
            "a set knows whether somebody bought, not how many units: limits above 1 and orders of \
             several units cannot be held with it",
        );
    }
    for (line, name) in numbers(&text) {
        let guards = ["<=0", "<1", ">0", ">=1"].map(|guard| format!("{name}{guard}"));
        if !guards.iter().any(|guard| dense.contains(guard)) {
            found(
                line,
                "nil and negative quantity",
                "a number from outside is used without a check: a negative quantity adds stock, \
                 and one that is no number is nil and breaks the script",
            );
        }
    }
    let read = calls.iter().find(|call| matches!(call.command.as_str(), "get" | "hget"));
    if let Some(read) = read.filter(|_| take.is_some()) {
        let told = ["==nil", "==false", "~=nil", "~=false", "ifnot", "notstock"];
        if !told.iter().any(|word| dense.to_lowercase().contains(word)) || dense.contains("or0") {
            found(
                read.line,
                "missing key read as sold out",
                "a stock key that expired, was evicted or is not loaded yet looks like a stock of \
                 none: people are told \"sold out\" while there are units",
            );
        }
    }
    let recognised = |call: &&Call| {
        let set_nx = call.command == "set" && call.arguments.to_lowercase().contains("'nx'");
        (set_nx || RECOGNISES.contains(&call.command.as_str())) && call.mentions_request()
    };
    if let Some(take) = take.filter(|_| !calls.iter().any(|call| recognised(&call))) {
        found(
            take.line,
            "no request id",
            "nothing recognises a request that came before: a retry after a time-out buys again, \
             or is refused although its order was made",
        );
    }
    if let Some(take) = take.filter(|_| !calls.iter().any(|call| call.command == "time")) {
        found(
            take.line,
            "no window",
            "the script does not look at the clock: it sells before the sale opens and after it \
             has closed, or trusts the caller's clock",
        );
    }
    faults.sort_by_key(|fault| fault.line);
    faults
}

/// The text with comments blanked, so that lines keep their numbers.
fn without_comments(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find("--") {
        out.push_str(&rest[..at]);
        let comment = &rest[at..];
        let end = if comment.starts_with("--[[") {
            comment.find("]]").map_or(comment.len(), |end| end + 2)
        } else {
            comment.find('\n').unwrap_or(comment.len())
        };
        out.extend(comment[..end].chars().filter(|c| *c == '\n'));
        rest = &comment[end..];
    }
    out + rest
}

fn line_at(text: &str, at: usize) -> usize {
    text[..at].matches('\n').count() + 1
}

/// Every `redis.call` and `redis.pcall` with a command in quotes.
fn calls(text: &str) -> Vec<Call> {
    let mut calls = Vec::new();
    for (at, _) in text.match_indices("call(") {
        if !text[..at].ends_with("redis.") && !text[..at].ends_with("redis.p") {
            continue;
        }
        let inner = &text[at + "call(".len()..];
        let mut depth = 1;
        let end = inner.find(|c| {
            depth += i32::from(c == '(') - i32::from(c == ')');
            depth == 0
        });
        let inner: String = inner[..end.unwrap_or(inner.len())].split_whitespace().collect();
        let (command, arguments) = inner.split_once(',').unwrap_or((&inner, ""));
        let command = command.trim_matches(['\'', '"']).to_lowercase();
        let arguments = arguments.replace('"', "'");
        calls.push(Call { line: line_at(text, at), command, arguments });
    }
    calls
}

/// Locals that are numbers from outside, with their lines.
fn numbers(text: &str) -> Vec<(usize, String)> {
    let mut numbers = Vec::new();
    for (at, _) in text.match_indices("tonumber(") {
        if !text[at + "tonumber(".len()..].trim_start().starts_with("ARGV") {
            continue;
        }
        let before = text[..at].trim_end().strip_suffix('=').map(str::trim_end);
        let name = before.and_then(|before| before.rsplit(|c: char| c.is_whitespace()).next());
        // Used where it stands: nothing can have checked it.
        numbers.push((line_at(text, at), name.unwrap_or("tonumber(").to_owned()));
    }
    numbers
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Vec<(usize, &'static str)> {
        check(text).into_iter().map(|fault| (fault.line, fault.name)).collect()
    }

    #[test]
    fn the_script_of_every_tutorial_has_all_of_them() {
        let script = "-- 秒杀 \n\
            local stock = tonumber(redis.call('get', KEYS[1]) or 0)\n\
            local quantity = tonumber(ARGV[2])\n\
            if stock < quantity then return 1 end\n\
            if redis.call('sismember', KEYS[2], ARGV[1]) == 1 then return 2 end\n\
            redis.call('incrby', KEYS[1], -quantity)\n\
            redis.call('sadd', KEYS[2], ARGV[1])\n\
            redis.call('xadd', 'stream.orders', '*', 'userId', ARGV[1])\n\
            return 0\n";
        assert_eq!(
            names(script),
            [
                (2, "missing key read as sold out"),
                (3, "nil and negative quantity"),
                (5, "set instead of quantity"),
                (6, "decrement before record"),
                (6, "no request id"),
                (6, "no window"),
            ]
        );
    }

    #[test]
    fn a_careful_script_has_none() {
        let script = "local quantity = tonumber(ARGV[2])\n\
            if quantity == nil or quantity < 1 then return -3 end\n\
            local before = redis.call('HGET', KEYS[3], ARGV[3] .. ':request')\n\
            if before then return before end\n\
            local now = tonumber(redis.call('TIME')[1])\n\
            local stock = redis.call('GET', KEYS[1])\n\
            if stock == false then return -2 end\n\
            if tonumber(stock) < quantity then return 0 end\n\
            redis.call('HSET', KEYS[3], ARGV[3] .. ':request', quantity)\n\
            redis.call('DECRBY', KEYS[1], quantity)\n\
            return 1\n";
        assert_eq!(names(script), []);
    }

    #[test]
    fn comments_and_other_calls_are_no_findings() {
        assert_eq!(names("--[[ redis.call('decr', 'x')\n]] return mycall('decr', 1)"), []);
        assert_eq!(names("-- redis.call('decr', KEYS[1])\nreturn redis.call('incr', KEYS[1])"), []);
        assert_eq!(names("return redis.call('DECR', KEYS[1])")[0], (1, "no record"));
        // A script that only adds stock takes none.
        assert_eq!(names("return redis.call('incrby', KEYS[1], ARGV[1])"), []);
    }
}
