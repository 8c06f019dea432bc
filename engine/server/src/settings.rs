//! The server's settings: the command line over the configuration file over the defaults.
//!
//! The file is TOML; an unknown key is refused with the nearest known one. Nothing here touches the
//! system.

use crate::resp::scripts::{ScriptSettings, Scripts};
use clap::Args;
use serde::Deserialize;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;
use stockade_log::Durability;
use stockade_protocol::PartitionId;

/// Most shards of a server.
pub const SHARDS_MAX: u16 = 256;
const PARTITIONS_DEFAULT: u16 = 64;
const RESTART_GRACE_DEFAULT: Duration = Duration::from_secs(30);
const FLUSH_EVERY_DEFAULT: Duration = Duration::from_millis(10);
/// Descriptors that are not for clients of the shards: files, sockets of the server, executors, and
/// the connections of HTTP.
const FILES_RESERVED: u64 = 256 + crate::http::CONNECTIONS_MAX as u64;

/// When an answer may leave.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum DurabilityMode {
    /// After fdatasync: power loss loses nothing that was acknowledged.
    Group,
    /// After the write: kill -9 loses nothing, power loss may.
    Async,
}

/// The flags of the server.
#[derive(Args, Clone, Debug, Default)]
pub struct Flags {
    /// Directory of journal, archive and snapshots; made if it is not there.
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// Address of the binary protocol [default: 127.0.0.1:7421]; port 0 picks a free one.
    #[arg(long, value_name = "ADDR")]
    pub listen: Option<SocketAddr>,
    /// Address of RESP [default: 127.0.0.1:7422].
    #[arg(long, value_name = "ADDR")]
    pub resp: Option<SocketAddr>,
    /// Address of HTTP [default: 127.0.0.1:7423].
    #[arg(long, value_name = "ADDR")]
    pub http: Option<SocketAddr>,
    /// Shards [default: one a core].
    #[arg(long, value_name = "N")]
    pub shards: Option<u16>,
    /// Partitions of users, 1..=1024 [default: 64]; fixed when the data directory is made.
    #[arg(long, value_name = "N")]
    pub partitions: Option<u16>,
    /// When an answer may leave [default: group].
    #[arg(long, value_enum)]
    pub durability: Option<DurabilityMode>,
    /// What holds that ran out while the server was down get after a start [default: 30s].
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub restart_grace: Option<Duration>,
    /// File with the same settings and more.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

/// The file's keys.
#[derive(Deserialize, Clone, Debug, Default)]
#[serde(default)]
struct File {
    data_dir: Option<PathBuf>,
    listen: Option<SocketAddr>,
    resp: Option<SocketAddr>,
    http: Option<SocketAddr>,
    shards: Option<u16>,
    partitions: Option<u16>,
    durability: Option<DurabilityMode>,
    restart_grace: Option<Time>,
    flush_every: Option<Time>,
    tokens: Vec<String>,
    connections_max: Option<u32>,
    in_flight_max: Option<u32>,
    queue_max: Option<u32>,
    disk_bytes_max: Option<u64>,
    segment_bytes: Option<u64>,
    segments_unarchived_max: Option<u32>,
    keep_after_ack: Option<Time>,
    scripts: Vec<ScriptSettings>,
}

/// The names of [`File`]'s keys.
const KEYS: &[&str] = &[
    "data_dir",
    "listen",
    "resp",
    "http",
    "shards",
    "partitions",
    "durability",
    "restart_grace",
    "flush_every",
    "tokens",
    "connections_max",
    "in_flight_max",
    "queue_max",
    "disk_bytes_max",
    "segment_bytes",
    "segments_unarchived_max",
    "keep_after_ack",
    "scripts",
];

/// A time as people write it.
#[derive(Deserialize, Clone, Copy, Debug)]
#[serde(try_from = "String")]
struct Time(Duration);

impl TryFrom<String> for Time {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        parse_duration(&text).map(Time)
    }
}

/// Everything the server needs to know; checked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settings {
    /// Directory of journal, archive and snapshots.
    pub data_dir: PathBuf,
    /// Address of the binary protocol.
    pub listen: SocketAddr,
    /// Address of RESP.
    pub resp: SocketAddr,
    /// Address of HTTP.
    pub http: SocketAddr,
    /// Shards, 1..=256.
    pub shards: u16,
    /// Partitions of users, 1..=1024.
    pub partitions: u16,
    /// When a batch counts as committed.
    pub durability: Durability,
    /// What holds that ran out while the server was down get.
    pub restart_grace: Duration,
    /// Tokens that clients must show; empty: none.
    pub tokens: Vec<String>,
    /// Open connections at most.
    pub connections_max: u32,
    /// Requests of one connection in flight at most.
    pub in_flight_max: u32,
    /// Requests that wait in one shard at most.
    pub queue_max: u32,
    /// Bytes of the data directory at which reserves are answered `busy`; 0: no cap.
    pub disk_bytes_max: u64,
    /// Bytes of one journal segment.
    pub segment_bytes: u64,
    /// Segments not archived at which reserves are answered `busy`.
    pub segments_unarchived_max: u32,
    /// How long entries are kept after every consumer has acknowledged them.
    pub keep_after_ack: Duration,
    /// Scripts that stand for commands, over RESP.
    pub scripts: Scripts,
}

/// What the machine has.
#[derive(Clone, Copy, Debug)]
pub struct Machine {
    /// Cores this process may use.
    pub cores: usize,
    /// Files it may open.
    pub open_files: u64,
}

impl Settings {
    /// Puts flags, file and defaults together. An error is one plain sentence.
    ///
    /// # Errors
    /// The file cannot be read or has unknown keys; a value is out of range.
    pub fn load(flags: &Flags, machine: Machine) -> Result<Self, String> {
        let file = match &flags.config {
            None => File::default(),
            Some(path) => {
                let text = std::fs::read_to_string(path)
                    .map_err(|error| format!("cannot read {}: {error}", path.display()))?;
                parse_file(&text, path)?
            }
        };
        Self::merge(flags.clone(), file, machine)
    }

    fn merge(flags: Flags, file: File, machine: Machine) -> Result<Self, String> {
        let address = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let mode = flags.durability.or(file.durability).unwrap_or(DurabilityMode::Group);
        let flush_every = file.flush_every.map_or(FLUSH_EVERY_DEFAULT, |time| time.0);
        let log = stockade_log::Config::new("", 1, 1);
        let clients = machine.open_files.saturating_sub(FILES_RESERVED).clamp(1, 10_000) as u32;
        let cores = machine.cores.clamp(1, usize::from(SHARDS_MAX)) as u16;
        let settings = Self {
            data_dir: flags
                .data_dir
                .or(file.data_dir)
                .ok_or("say where the data is: --data-dir DIR")?,
            listen: flags.listen.or(file.listen).unwrap_or(address(7421)),
            resp: flags.resp.or(file.resp).unwrap_or(address(7422)),
            http: flags.http.or(file.http).unwrap_or(address(7423)),
            shards: flags.shards.or(file.shards).unwrap_or(cores),
            partitions: flags.partitions.or(file.partitions).unwrap_or(PARTITIONS_DEFAULT),
            durability: match mode {
                DurabilityMode::Group => Durability::Group,
                DurabilityMode::Async => Durability::Async { flush_every },
            },
            restart_grace: flags
                .restart_grace
                .or(file.restart_grace.map(|time| time.0))
                .unwrap_or(RESTART_GRACE_DEFAULT),
            tokens: file.tokens,
            connections_max: file.connections_max.unwrap_or(clients),
            in_flight_max: file.in_flight_max.unwrap_or(1024),
            queue_max: file.queue_max.unwrap_or(65_536),
            disk_bytes_max: file.disk_bytes_max.unwrap_or(log.disk_bytes_max),
            segment_bytes: file.segment_bytes.unwrap_or(log.segment_bytes),
            segments_unarchived_max: file
                .segments_unarchived_max
                .unwrap_or(log.segments_unarchived_max),
            keep_after_ack: file.keep_after_ack.map_or(log.keep_after_ack, |time| time.0),
            scripts: Scripts::new(
                &file.scripts,
                flags.config.as_deref().and_then(Path::parent).unwrap_or(Path::new("")),
            )?,
        };
        settings.check(machine)?;
        Ok(settings)
    }

    fn check(&self, machine: Machine) -> Result<(), String> {
        let partitions = u64::from(PartitionId::COUNT_MAX);
        let connections = machine.open_files.saturating_sub(FILES_RESERVED).max(1);
        let flush_ms = match self.durability {
            Durability::Group => 1,
            Durability::Async { flush_every } => flush_every.as_millis() as u64,
        };
        for (name, value, least, most) in [
            ("shards", u64::from(self.shards), 1, u64::from(SHARDS_MAX)),
            ("partitions", u64::from(self.partitions), 1, partitions),
            ("connections_max", u64::from(self.connections_max), 1, connections),
            ("in_flight_max", u64::from(self.in_flight_max), 1, 65_536),
            ("queue_max", u64::from(self.queue_max), 1, 1 << 24),
            ("segment_bytes", self.segment_bytes, 16 << 20, 1 << 32),
            ("segments_unarchived_max", u64::from(self.segments_unarchived_max), 2, 65_536),
            ("flush_every in ms", flush_ms, 1, 60_000),
        ] {
            if value < least || value > most {
                return Err(format!("{name} must be {least}..={most}, not {value}"));
            }
        }
        if let Some(at) = self.tokens.iter().position(String::is_empty) {
            return Err(format!("token {} is empty", at + 1));
        }
        Ok(())
    }

    /// The log's settings.
    pub fn log_config(&self) -> stockade_log::Config {
        let mut log = stockade_log::Config::new(&self.data_dir, self.shards, self.partitions);
        log.durability = self.durability;
        log.segment_bytes = self.segment_bytes;
        log.segments_unarchived_max = self.segments_unarchived_max;
        log.disk_bytes_max = self.disk_bytes_max;
        log.keep_after_ack = self.keep_after_ack;
        log
    }
}

/// Reads the file; an error names it.
fn parse_file(text: &str, path: &Path) -> Result<File, String> {
    let within = |error: &dyn std::fmt::Display| {
        // The first line says what is wrong; the others draw it.
        let error = error.to_string();
        let place = error.lines().next().unwrap_or_default();
        let cause = error.lines().last().unwrap_or_default();
        let text = if place == cause { place.into() } else { format!("{place}: {cause}") };
        format!("{}: {text}", path.display())
    };
    let table: toml::Table = text.parse().map_err(|error: toml::de::Error| within(&error))?;
    for key in table.keys() {
        if !KEYS.contains(&key.as_str()) {
            let hint = nearest(key).map_or(String::new(), |near| format!("; is it {near}?"));
            return Err(format!("{}: unknown key {key}{hint}", path.display()));
        }
    }
    table.try_into().map_err(|error: toml::de::Error| within(&error))
}

/// The known key that takes the fewest changes, if it is near at all.
fn nearest(key: &str) -> Option<&'static str> {
    let key = key.replace('-', "_");
    let near = KEYS.iter().map(|known| (distance(&key, known), *known)).min()?;
    (near.0 <= 3.max(key.len() / 3)).then_some(near.1)
}

/// Insertions, deletions and replacements from `a` to `b`.
fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.bytes().enumerate() {
            let replaced = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

/// A whole number with `ms`, `s`, `m` or `h`.
fn parse_duration(text: &str) -> Result<Duration, String> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let ms_per_unit = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => return Err(format!("{text:?} is no time; write it as 500ms, 30s, 5m or 1h")),
    };
    let number: Option<u64> = number.parse().ok();
    let ms = number.and_then(|number| number.checked_mul(ms_per_unit));
    let ms = ms.filter(|ms| *ms <= stockade_protocol::limits::SPAN_MS_MAX);
    ms.map(Duration::from_millis).ok_or_else(|| format!("{text:?} is out of range"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MACHINE: Machine = Machine { cores: 4, open_files: 20_000 };

    fn merge(flags: Flags, text: &str) -> Result<Settings, String> {
        Settings::merge(flags, parse_file(text, Path::new("s.toml"))?, MACHINE)
    }

    fn with_dir() -> Flags {
        Flags { data_dir: Some("d".into()), ..Flags::default() }
    }

    #[test]
    fn defaults_are_those_of_the_manual() {
        let settings = merge(with_dir(), "").unwrap();
        assert_eq!(settings.listen.to_string(), "127.0.0.1:7421");
        assert_eq!(settings.resp.to_string(), "127.0.0.1:7422");
        assert_eq!(settings.http.to_string(), "127.0.0.1:7423");
        assert_eq!((settings.shards, settings.partitions), (4, 64));
        assert_eq!(settings.durability, Durability::Group);
        assert_eq!(settings.restart_grace, Duration::from_secs(30));
    }

    #[test]
    fn flags_win_over_the_file() {
        let file = "shards = 2\npartitions = 8\nrestart_grace = \"1m\"\ntokens = [\"t\"]";
        let flags = Flags { shards: Some(3), ..with_dir() };
        let settings = merge(flags, file).unwrap();
        assert_eq!((settings.shards, settings.partitions), (3, 8));
        assert_eq!(settings.restart_grace, Duration::from_secs(60));
        assert_eq!(settings.tokens, ["t"]);
    }

    #[test]
    fn every_key_of_the_list_is_read_and_no_other() {
        let file = "data_dir = 'x'\nlisten = '127.0.0.1:1'\nresp = '127.0.0.1:2'\n\
                    http = '127.0.0.1:3'\nshards = 1\npartitions = 1\ndurability = 'async'\n\
                    restart_grace = '0s'\nflush_every = '5ms'\ntokens = []\n\
                    connections_max = 7\nin_flight_max = 8\nqueue_max = 9\n\
                    disk_bytes_max = 10\nsegment_bytes = 16777216\n\
                    segments_unarchived_max = 12\nkeep_after_ack = '13s'\nscripts = []";
        assert_eq!(file.lines().count(), KEYS.len());
        let settings = merge(Flags::default(), file).unwrap();
        assert_eq!(
            settings.durability,
            Durability::Async { flush_every: Duration::from_millis(5) }
        );
        assert_eq!(
            (settings.connections_max, settings.in_flight_max, settings.queue_max),
            (7, 8, 9)
        );
        assert_eq!((settings.disk_bytes_max, settings.segments_unarchived_max), (10, 12));
        assert_eq!(settings.keep_after_ack, Duration::from_secs(13));
    }

    #[test]
    fn what_is_wrong_is_told_in_one_sentence() {
        for (file, told) in [
            ("shard = 2", "unknown key shard; is it shards?"),
            ("data-dir = 'x'", "is it data_dir?"),
            ("zzzzzzzzzzzz = 1", "unknown key zzzzzzzzzzzz"),
            ("shards = 0", "shards must be 1..=256, not 0"),
            ("partitions = 0", "partitions must be 1..=1024"),
            ("partitions = 1025", "partitions must be 1..=1024"),
            ("shards = -1", "s.toml"),
            ("shards = 'two'", "s.toml"),
            ("tokens = ['']", "token 1 is empty"),
            ("restart_grace = '30'", "30s"),
            ("connections_max = 30000", "connections_max must be 1..=18720"),
            ("durability = 'none'", "s.toml"),
            ("shards = ", "s.toml"),
        ] {
            let error = merge(with_dir(), file).unwrap_err();
            assert!(error.contains(told), "{file}: {error}");
            assert!(!error.contains('\n'), "{file}: {error}");
        }
        assert!(merge(Flags::default(), "").unwrap_err().contains("--data-dir"));
    }

    #[test]
    fn times_need_a_unit() {
        for (text, ms) in [("0s", 0), ("500ms", 500), ("30s", 30_000), ("5m", 300_000)] {
            assert_eq!(parse_duration(text), Ok(Duration::from_millis(ms)));
        }
        for text in ["", "30", "s", "-1s", "1.5s", "99999999999999999999s", "9999999h", "1 s"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }
}
