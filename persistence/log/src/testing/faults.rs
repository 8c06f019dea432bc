//! Failures to inject: the next operation of a kind on a path that contains a text fails, once.

use std::io;
use std::path::Path;

/// What fails, and how.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FaultKind {
    /// A write fails and leaves nothing.
    Write,
    /// A write fails and leaves a part.
    ShortWrite,
    /// A write fails because the device is full.
    NoSpace,
    /// A sync fails: what was written since the last one is lost or not, sector by sector, and a
    /// later sync succeeds without it.
    Sync,
    /// A file cannot be read.
    Read,
    /// Making, renaming or removing a name fails.
    Name,
}

/// One failure.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fault {
    /// What fails.
    pub kind: FaultKind,
    /// The path contains this.
    pub path: String,
    /// So many matching operations succeed before.
    pub after: u32,
}

impl Fault {
    /// The next such operation on such a path fails.
    pub fn new(kind: FaultKind, path: &str) -> Self {
        Self { kind, path: path.into(), after: 0 }
    }

    /// The next sync of such a path fails.
    pub fn sync(path: &str) -> Self {
        Self::new(FaultKind::Sync, path)
    }

    /// After this many that succeed.
    #[must_use]
    pub fn after(mut self, count: u32) -> Self {
        self.after = count;
        self
    }
}

/// Failures that wait for their operation.
#[derive(Clone, Debug, Default)]
pub(super) struct Faults(Vec<Fault>);

impl Faults {
    pub fn add(&mut self, fault: Fault) {
        self.0.push(fault);
    }

    pub fn clear(&mut self) {
        self.0.clear();
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The failure of this operation, if one of these kinds is due.
    pub fn take(&mut self, kinds: &[FaultKind], path: &Path) -> Option<FaultKind> {
        let path = path.to_string_lossy();
        let at = self.0.iter().position(|f| kinds.contains(&f.kind) && path.contains(&f.path))?;
        if self.0[at].after > 0 {
            self.0[at].after -= 1;
            return None;
        }
        Some(self.0.remove(at).kind)
    }
}

/// The error of an injected failure.
pub(super) fn error(kind: FaultKind) -> io::Error {
    match kind {
        FaultKind::NoSpace => io::ErrorKind::StorageFull.into(),
        kind => io::Error::other(format!("injected failure: {kind:?}")),
    }
}
