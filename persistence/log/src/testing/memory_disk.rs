//! A disk in memory.
//!
//! A handle stands for one run of the machine: [`MemoryDisk::power_loss`] and [`MemoryDisk::kill`]
//! end it (every operation through it fails from then on) and give the disk as the next run finds
//! it. Each operation that changes something has a number, at which the power may be lost.

use super::data::FileData;
use super::faults::{Fault, FaultKind, Faults, error};
use super::rng::Rng;
use super::table::MemoryTables;
use super::tree::Tree;
use crate::disk::{Disk, DiskFile, DiskLock, OpenHow};
use crate::shared::lock;
use crate::storage::Storage;
use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// See the module. Clones are the same disk.
#[derive(Clone, Debug)]
pub struct MemoryDisk(Arc<Mutex<State>>);

#[derive(Clone, Debug)]
struct State {
    rng: Rng,
    tree: Tree,
    operations: u64,
    crash_at: Option<u64>,
    kill_at: Option<u64>,
    down: bool,
    read_only: bool,
    faults: Faults,
    capacity: Option<u64>,
    locked: BTreeSet<PathBuf>,
}

impl MemoryDisk {
    /// An empty disk; everything by chance follows from the seed.
    pub fn new(seed: u64) -> Self {
        Self::with(State {
            rng: Rng::new(seed),
            tree: Tree::new(),
            operations: 0,
            crash_at: None,
            kill_at: None,
            down: false,
            read_only: false,
            faults: Faults::default(),
            capacity: None,
            locked: BTreeSet::new(),
        })
    }

    fn with(state: State) -> Self {
        Self(Arc::new(Mutex::new(state)))
    }

    /// This disk, and a twin of sled on it.
    pub fn storage(&self) -> Storage {
        let disk: Arc<dyn Disk> = Arc::new(self.clone());
        Storage { tables: Arc::new(MemoryTables(disk.clone())), disk }
    }

    /// Operations so far that changed something.
    pub fn operations(&self) -> u64 {
        lock(&self.0).operations
    }

    /// The power is lost at the operation of this number: it may be done or not, and fails; later
    /// ones do nothing and fail.
    pub fn crash_at(&self, operation: u64) {
        lock(&self.0).crash_at = Some(operation);
    }

    /// The process is killed before the operation of this number: unlike a power loss, that never
    /// leaves half of one.
    pub fn kill_at(&self, operation: u64) {
        lock(&self.0).kill_at = Some(operation);
    }

    /// The power is lost, or the process was killed.
    pub fn is_down(&self) -> bool {
        lock(&self.0).down
    }

    /// The disk as the next run finds it after a power loss.
    #[must_use]
    pub fn power_loss(&self) -> Self {
        let mut state = lock(&self.0);
        state.down = true;
        let mut rng = Rng::new(state.rng.bits());
        let tree = state.tree.survivor(&mut rng);
        let after = State { rng, tree, ..state.next_run() };
        drop(state);
        Self::with(after)
    }

    /// The disk as the next run finds it after kill -9: what was written is there, synced or not.
    #[must_use]
    pub fn kill(&self) -> Self {
        let mut state = lock(&self.0);
        state.down = true;
        let after = state.next_run();
        drop(state);
        Self::with(after)
    }

    /// A copy, for another future; this one goes on.
    #[must_use]
    pub fn fork(&self) -> Self {
        let after = lock(&self.0).next_run();
        Self::with(after)
    }

    /// Adds a failure.
    pub fn inject(&self, fault: Fault) {
        lock(&self.0).faults.add(fault);
    }

    /// Takes away the failures that did not happen; true if there were none.
    pub fn clear_faults(&self) -> bool {
        let mut state = lock(&self.0);
        let none = state.faults.is_empty();
        state.faults.clear();
        none
    }

    /// Writes that would make all files larger than this together fail; `None`: no bound.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        lock(&self.0).capacity = bytes;
    }

    /// Every change fails as on a file system mounted read-only.
    pub fn set_read_only(&self, read_only: bool) {
        lock(&self.0).read_only = read_only;
    }

    /// Bytes of all files.
    pub fn bytes_used(&self) -> u64 {
        lock(&self.0).tree.bytes()
    }

    /// Replaces a file, or makes it: an operator's hand, or the tooth of time. Durable at once.
    ///
    /// # Panics
    /// There is no such directory.
    pub fn put(&self, path: impl AsRef<Path>, bytes: Vec<u8>) {
        let (path, mut state) = (path.as_ref(), lock(&self.0));
        let made = state.tree.make_file(path, FileData::durable(bytes));
        made.expect("the directory is there");
        let parent = path.parent().expect("a file has a directory");
        state.tree.sync_dir(parent).expect("the directory is there");
    }

    /// Removes a file or directory, as an operator would. Durable at once.
    ///
    /// # Panics
    /// There is no such file.
    pub fn remove(&self, path: impl AsRef<Path>) {
        let (path, mut state) = (path.as_ref(), lock(&self.0));
        state.tree.remove(path).expect("it is there");
        let parent = path.parent().expect("a file has a directory");
        state.tree.sync_dir(parent).expect("the directory is there");
    }

    /// Flips a bit of a file.
    ///
    /// # Panics
    /// There is no such byte.
    pub fn flip(&self, path: impl AsRef<Path>, byte: usize, bit: u8) {
        let mut bytes = self.read(path.as_ref()).expect("the file is there");
        bytes[byte] ^= 1 << bit;
        self.put(path, bytes);
    }
}

impl State {
    /// The same disk for the next run.
    fn next_run(&mut self) -> Self {
        Self {
            rng: Rng::new(self.rng.bits()),
            operations: 0,
            crash_at: None,
            kill_at: None,
            down: false,
            faults: Faults::default(),
            locked: BTreeSet::new(),
            ..self.clone()
        }
    }

    fn refuse_down(&self) -> io::Result<()> {
        if self.down { Err(io::Error::other("the power is lost")) } else { Ok(()) }
    }

    /// Begins an operation that changes something. `Ok(true)`: the power is lost in it.
    fn begin(&mut self) -> io::Result<bool> {
        self.refuse_down()?;
        if self.read_only {
            return Err(io::ErrorKind::ReadOnlyFilesystem.into());
        }
        self.operations += 1;
        if self.kill_at.is_some_and(|at| self.operations >= at) {
            self.down = true;
            return Err(io::Error::other("the process was killed"));
        }
        let lost = self.crash_at.is_some_and(|at| self.operations >= at);
        self.down = lost;
        Ok(lost)
    }

    /// A change of names: done or not if the power is lost in it.
    fn change<T>(
        &mut self,
        path: &Path,
        change: impl FnOnce(&mut Tree) -> io::Result<T>,
    ) -> io::Result<T> {
        let lost = self.begin()?;
        if let Some(kind) = self.faults.take(&[FaultKind::Name], path) {
            return Err(error(kind));
        }
        if lost {
            if self.rng.once_in(2) {
                let _ = change(&mut self.tree);
            }
            return Err(io::Error::other("the power is lost"));
        }
        change(&mut self.tree)
    }
}

#[derive(Debug)]
struct MemoryFile {
    disk: Arc<Mutex<State>>,
    node: usize,
    path: PathBuf,
}

impl DiskFile for MemoryFile {
    fn write_all_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        let mut state = lock(&self.disk);
        let lost = state.begin()?;
        let growth = state.tree.file_mut(self.node).growth(bytes, at);
        let kinds = [FaultKind::Write, FaultKind::ShortWrite, FaultKind::NoSpace];
        let mut fault = state.faults.take(&kinds, &self.path);
        if growth > 0 && state.capacity.is_some_and(|most| state.tree.bytes() + growth > most) {
            fault = Some(FaultKind::NoSpace);
        }
        let part = match fault {
            Some(FaultKind::ShortWrite) => state.rng.below(bytes.len() as u64) as usize,
            Some(_) => 0,
            None if lost => state.rng.below(bytes.len() as u64 + 1) as usize,
            None => bytes.len(),
        };
        if part > 0 {
            state.tree.file_mut(self.node).write(&bytes[..part], at);
        }
        match fault {
            Some(kind) => Err(error(kind)),
            None if lost => Err(io::Error::other("the power is lost")),
            None => Ok(()),
        }
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = lock(&self.disk);
        let lost = state.begin()?;
        let State { tree, rng, faults, .. } = &mut *state;
        let file = tree.file_mut(self.node);
        if let Some(kind) = faults.take(&[FaultKind::Sync], &self.path) {
            file.fail_sync(rng);
            return Err(error(kind));
        }
        if lost {
            return Err(io::Error::other("the power is lost"));
        }
        file.sync();
        Ok(())
    }
}

struct MemoryLock {
    disk: Arc<Mutex<State>>,
    path: PathBuf,
}

impl Drop for MemoryLock {
    fn drop(&mut self) {
        lock(&self.disk).locked.remove(&self.path);
    }
}

impl Disk for MemoryDisk {
    fn open(&self, path: &Path, how: OpenHow) -> io::Result<Arc<dyn DiskFile>> {
        let mut state = lock(&self.0);
        state.refuse_down()?;
        let found = state.tree.find(path);
        let node = match (found, how) {
            (Some(_), OpenHow::New) => return Err(io::ErrorKind::AlreadyExists.into()),
            (None, OpenHow::Existing) => return Err(io::ErrorKind::NotFound.into()),
            (Some(node), OpenHow::Existing) => node,
            // An emptied file is another one under the same name.
            _ => state.change(path, |tree| tree.make_file(path, FileData::default()))?,
        };
        Ok(Arc::new(MemoryFile { disk: self.0.clone(), node, path: path.into() }))
    }

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        let mut state = lock(&self.0);
        state.refuse_down()?;
        if let Some(kind) = state.faults.take(&[FaultKind::Read], path) {
            return Err(error(kind));
        }
        let node = state.tree.find(path).ok_or(io::ErrorKind::NotFound)?;
        let file = state.tree.file(node).ok_or(io::ErrorKind::IsADirectory)?;
        Ok(file.now.clone())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        lock(&self.0).change(from, |tree| tree.rename(from, to))
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        lock(&self.0).change(path, |tree| tree.remove(path))
    }

    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        if !self.exists(path) {
            return Ok(());
        }
        // Entry by entry: it may be half gone.
        for entry in self.list(path)? {
            if lock(&self.0).tree.dir(&entry).is_ok() {
                self.remove_dir_all(&entry)?;
            } else {
                self.remove_file(&entry)?;
            }
        }
        self.remove_file(path)
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        let mut state = lock(&self.0);
        if state.tree.dir(path).is_ok() {
            return state.refuse_down();
        }
        state.change(path, |tree| tree.make_dirs(path))
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        let mut state = lock(&self.0);
        if state.faults.take(&[FaultKind::Sync], path).is_some() {
            state.refuse_down()?;
            return Err(error(FaultKind::Sync));
        }
        state.change(path, |tree| tree.sync_dir(path))
    }

    fn list(&self, path: &Path) -> io::Result<Vec<PathBuf>> {
        let state = lock(&self.0);
        state.refuse_down()?;
        match state.tree.names(path) {
            Ok(names) => Ok(names.into_iter().map(|name| path.join(name)).collect()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }

    fn exists(&self, path: &Path) -> bool {
        lock(&self.0).tree.find(path).is_some()
    }

    fn bytes_below(&self, path: &Path) -> u64 {
        let state = lock(&self.0);
        state.tree.find(path).map_or(0, |node| state.tree.bytes_below(node))
    }

    fn lock(&self, path: &Path) -> io::Result<Option<DiskLock>> {
        let mut state = lock(&self.0);
        state.refuse_down()?;
        if state.tree.find(path).is_none() {
            state.change(path, |tree| tree.make_file(path, FileData::default()))?;
        }
        if !state.locked.insert(path.into()) {
            return Ok(None);
        }
        Ok(Some(Box::new(MemoryLock { disk: self.0.clone(), path: path.into() })))
    }

    fn unique(&self) -> u64 {
        lock(&self.0).rng.bits().max(1)
    }
}
