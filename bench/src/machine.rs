//! What a figure was measured on, and what it cost: cores, versions, commit, CPU time and memory of
//! a process.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// Clock ticks a second that /proc counts in (fixed at 100 for user space on Linux).
const TICKS_PER_S: u64 = 100;

/// CPU time that a process has used; zero if it is gone.
pub fn cpu_time(pid: u32) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name in brackets may hold spaces; what follows it may not.
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or("").split_whitespace().collect();
    let ticks = |at: usize| fields.get(at).and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
    Duration::from_millis((ticks(11) + ticks(12)) * 1000 / TICKS_PER_S)
}

/// Resident memory of a process, bytes.
pub fn resident_bytes(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

/// Binds a process (and the threads that it starts later) to a core.
///
/// # Errors
/// `taskset` is missing or refuses.
pub fn pin(pid: u32, core: usize) -> Result<(), String> {
    let output = Command::new("taskset")
        .args(["-p", "-c", &core.to_string(), &pid.to_string()])
        .output()
        .map_err(|error| format!("taskset: {error}"))?;
    if output.status.success() {
        Ok(())
    } else {
        Err(String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

/// One line about the machine and the build.
pub fn describe() -> String {
    let cores = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let cpu = read("/proc/cpuinfo");
    let cpu = cpu.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let cpu = cpu.map_or("unknown CPU", |(_, name)| name).to_owned();
    let kernel = read("/proc/sys/kernel/osrelease").trim().to_owned();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let commit =
        Command::new("git").current_dir(root).args(["rev-parse", "--short", "HEAD"]).output();
    let commit = commit.ok().filter(|output| output.status.success());
    let commit = commit.map_or("unknown".into(), |output| {
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    });
    let version = env!("CARGO_PKG_VERSION");
    format!("{cores} cores ({cpu}), Linux {kernel}, stockade {version}, commit {commit}")
}
