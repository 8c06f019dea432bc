//! `stockade-server check`: can the server run here, and how quick is the disk? Plain words.

use crate::os;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Flushes measured.
const FLUSHES: usize = 100;
/// Bytes written before each.
const FLUSH_BYTES: usize = 4096;
/// Locked memory that an executor needs at least, bytes.
const LOCKED_BYTES_MIN: u64 = 512 << 10;
/// Open files below which many clients are refused.
const FILES_ADVISED: u64 = 4096;

/// Writes what was found; true if the server can run.
///
/// # Errors
/// The output cannot be written.
pub fn run(out: &mut dyn Write) -> io::Result<bool> {
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    writeln!(out, "kernel: Linux {}", kernel.trim())?;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    writeln!(out, "cores: {cores}; by default the server runs that many shards")?;
    let mut can = check_io_uring(out)?;
    can &= check_locked_memory(out)?;
    check_open_files(out)?;
    can &= check_disk(out)?;
    let verdict = if can { "the server can run here" } else { "the server cannot run here" };
    writeln!(out, "{verdict}")?;
    Ok(can)
}

fn check_io_uring(out: &mut dyn Write) -> io::Result<bool> {
    match os::probe_io_uring() {
        Ok(()) => writeln!(out, "io_uring: works").map(|()| true),
        Err(error) => {
            let why = match error.raw_os_error() {
                Some(libc::ENOSYS) => "the kernel has none; Linux 5.8 or later is needed",
                Some(libc::EPERM | libc::EACCES) => {
                    "it is forbidden; in a container allow it (--security-opt seccomp=...), or set \
                     kernel.io_uring_disabled to 0"
                }
                _ => "the kernel refused",
            };
            writeln!(out, "io_uring: does not work ({error}): {why}").map(|()| false)
        }
    }
}

fn check_locked_memory(out: &mut dyn Write) -> io::Result<bool> {
    let (now, _) = os::locked_memory_limit()?;
    if now == u64::MAX {
        return writeln!(out, "locked memory: no limit").map(|()| true);
    }
    let kib = now >> 10;
    if now < LOCKED_BYTES_MIN {
        writeln!(out, "locked memory: {kib} KiB is too little; 512 KiB are needed (ulimit -l)")?;
        return Ok(false);
    }
    writeln!(out, "locked memory: {kib} KiB is enough").map(|()| true)
}

fn check_open_files(out: &mut dyn Write) -> io::Result<()> {
    let (now, highest) = os::open_files_limit()?;
    let advice = if highest < FILES_ADVISED { "; few for many clients (ulimit -n)" } else { "" };
    writeln!(out, "open files: {now}, can be raised to {highest}{advice}")
}

fn check_disk(out: &mut dyn Write) -> io::Result<bool> {
    let directory = std::env::temp_dir();
    match measure_flushes(&directory) {
        Ok(mut times) => {
            times.sort_unstable();
            let us = |at: usize| times[at].as_micros();
            let (middle, late) = (us(FLUSHES / 2), us(FLUSHES * 99 / 100));
            writeln!(
                out,
                "disk: a write of 4 KiB with its flush takes {middle} us, the slowest of a hundred \
                 {late} us (in {})",
                directory.display()
            )?;
            Ok(true)
        }
        Err(error) => {
            writeln!(out, "disk: cannot write in {}: {error}", directory.display())?;
            Ok(false)
        }
    }
}

/// Removes the file when the measuring is over, however it ends.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn measure_flushes(directory: &std::path::Path) -> io::Result<Vec<Duration>> {
    let path = directory.join(format!("stockade-check-{}", std::process::id()));
    let file = File::create_new(&path)?;
    let _scratch = Scratch(path);
    // As the journal does it: into space that is there already.
    let bytes = [0x5a; FLUSH_BYTES];
    for at in 0..FLUSHES {
        file.write_all_at(&bytes, (at * FLUSH_BYTES) as u64)?;
    }
    file.sync_all()?;
    (0..FLUSHES)
        .map(|at| {
            let begun = Instant::now();
            file.write_all_at(&bytes, (at * FLUSH_BYTES) as u64)?;
            file.sync_data()?;
            Ok(begun.elapsed())
        })
        .collect()
}
