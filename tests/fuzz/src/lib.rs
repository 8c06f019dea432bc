//! What must hold for any bytes that reach a decoder, and for any sequence of commands that reaches
//! the core. Each body panics when it does not hold.
//!
//! `tests/corpus.rs` runs the bodies on the committed corpus, on every seed cut short and with
//! flipped bits, and on seeded random mutations; `cargo-fuzz/` (a workspace of its own) gives the
//! same bodies to libFuzzer.

pub mod commands;
pub mod entry;
pub mod json;
pub mod log_files;
pub mod mutate;
pub mod resp;
pub mod seeds;
pub mod wire;

/// A body with its name and how it is run by the tests.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// The name of its corpus and of its `cargo fuzz` target.
    pub name: &'static str,
    /// Panics if the bytes break a rule.
    pub body: fn(&[u8]),
    /// Seeded random inputs that the tests try.
    pub tries: usize,
    /// Bytes that one input may allocate at the same time, beyond [`Self::per_byte`].
    pub bytes_max: usize,
    /// Bytes that each byte of the input may allocate.
    pub per_byte: usize,
}

/// All of them.
pub const TARGETS: &[Target] = &[
    // A frame is checked before it is copied, so its parts cost a small multiple of it.
    Target { name: "wire", body: wire::body, tries: 60_000, bytes_max: 1 << 20, per_byte: 256 },
    Target { name: "entry", body: entry::body, tries: 60_000, bytes_max: 1 << 16, per_byte: 256 },
    Target { name: "json", body: json::body, tries: 20_000, bytes_max: 1 << 16, per_byte: 1024 },
    // The other parser reserves 64 KiB for each array that it begins.
    Target { name: "resp", body: resp::body, tries: 60_000, bytes_max: 1 << 18, per_byte: 512 },
    // The directory in memory itself is about 100 KiB, and recovery copies it.
    Target {
        name: "log_files",
        body: log_files::body,
        tries: 1_500,
        bytes_max: 16 << 20,
        per_byte: 256,
    },
    Target {
        name: "commands",
        body: commands::body,
        tries: 1_500,
        bytes_max: 8 << 20,
        per_byte: 4096,
    },
];
