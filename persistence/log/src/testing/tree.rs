//! Names of files and directories: as processes see them, and as they are on the device.
//!
//! Changes in a directory that was not synced since may be on the device or not; those of one
//! directory are there in the order in which they were made, up to some point.

use super::data::FileData;
use super::rng::Rng;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Component, Path};

const ROOT: usize = 0;

/// Names in a directory, each with the number of its node.
type Names = BTreeMap<OsString, usize>;

#[derive(Clone, Debug)]
enum Change {
    Set(OsString, usize),
    Remove(OsString),
    Rename(OsString, OsString),
}

#[derive(Clone, Debug, Default)]
pub(super) struct Dir {
    now: Names,
    durable: Names,
    changes: Vec<Change>,
}

#[derive(Clone, Debug)]
pub(super) enum Node {
    File(FileData),
    Dir(Dir),
}

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Tree {
    nodes: Vec<Node>,
}

impl Dir {
    fn change(&mut self, change: Change) {
        apply(&mut self.now, &change);
        self.changes.push(change);
    }
}

fn apply(names: &mut Names, change: &Change) {
    match change {
        Change::Set(name, node) => {
            names.insert(name.clone(), *node);
        }
        Change::Remove(name) => {
            names.remove(name);
        }
        Change::Rename(from, to) => {
            if let Some(node) = names.remove(from) {
                names.insert(to.clone(), node);
            }
        }
    }
}

impl Tree {
    pub fn new() -> Self {
        Self { nodes: vec![Node::Dir(Dir::default())] }
    }

    pub fn find(&self, path: &Path) -> Option<usize> {
        let mut node = ROOT;
        for part in path.components() {
            if let Component::Normal(name) = part {
                match &self.nodes[node] {
                    Node::Dir(dir) => node = *dir.now.get(name)?,
                    Node::File(_) => return None,
                }
            }
        }
        Some(node)
    }

    pub fn dir(&self, path: &Path) -> io::Result<&Dir> {
        match self.find(path).map(|node| &self.nodes[node]) {
            Some(Node::Dir(dir)) => Ok(dir),
            Some(Node::File(_)) => Err(io::ErrorKind::NotADirectory.into()),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn dir_mut(&mut self, path: &Path) -> io::Result<&mut Dir> {
        self.dir(path)?;
        let node = self.find(path).ok_or(io::ErrorKind::NotFound)?;
        match &mut self.nodes[node] {
            Node::Dir(dir) => Ok(dir),
            Node::File(_) => Err(io::ErrorKind::NotADirectory.into()),
        }
    }

    pub fn file(&self, node: usize) -> Option<&FileData> {
        match &self.nodes[node] {
            Node::File(file) => Some(file),
            Node::Dir(_) => None,
        }
    }

    pub fn file_mut(&mut self, node: usize) -> &mut FileData {
        match &mut self.nodes[node] {
            Node::File(file) => file,
            Node::Dir(_) => panic!("an open file is a file"),
        }
    }

    pub fn names(&self, dir: &Path) -> io::Result<Vec<OsString>> {
        Ok(self.dir(dir)?.now.keys().cloned().collect())
    }

    /// A new empty file under this name.
    pub fn make_file(&mut self, path: &Path, data: FileData) -> io::Result<usize> {
        let node = self.nodes.len();
        self.add(path, Node::File(data))?;
        Ok(node)
    }

    fn add(&mut self, path: &Path, node: Node) -> io::Result<()> {
        let (parent, name) = split(path)?;
        let number = self.nodes.len();
        self.dir_mut(parent)?.change(Change::Set(name.into(), number));
        self.nodes.push(node);
        Ok(())
    }

    pub fn make_dirs(&mut self, path: &Path) -> io::Result<()> {
        if self.find(path).is_some() {
            return self.dir(path).map(|_| ());
        }
        if let Some(parent) = path.parent() {
            self.make_dirs(parent)?;
        }
        self.add(path, Node::Dir(Dir::default()))
    }

    pub fn remove(&mut self, path: &Path) -> io::Result<()> {
        let (parent, name) = split(path)?;
        let dir = self.dir_mut(parent)?;
        if !dir.now.contains_key(name) {
            return Err(io::ErrorKind::NotFound.into());
        }
        dir.change(Change::Remove(name.into()));
        Ok(())
    }

    pub fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        let ((parent, from), (other, to)) = (split(from)?, split(to)?);
        if parent != other {
            return Err(io::Error::other("a rename leaves its directory"));
        }
        let dir = self.dir_mut(parent)?;
        if !dir.now.contains_key(from) {
            return Err(io::ErrorKind::NotFound.into());
        }
        dir.change(Change::Rename(from.into(), to.into()));
        Ok(())
    }

    pub fn sync_dir(&mut self, path: &Path) -> io::Result<()> {
        let dir = self.dir_mut(path)?;
        dir.durable = dir.now.clone();
        dir.changes.clear();
        Ok(())
    }

    /// Bytes of all files below a directory.
    pub fn bytes_below(&self, node: usize) -> u64 {
        match &self.nodes[node] {
            Node::File(file) => file.now.len() as u64,
            Node::Dir(dir) => dir.now.values().map(|node| self.bytes_below(*node)).sum(),
        }
    }

    pub fn bytes(&self) -> u64 {
        self.bytes_below(ROOT)
    }

    /// The tree after a power loss.
    pub fn survivor(&self, rng: &mut Rng) -> Self {
        let mut after = Self { nodes: Vec::new() };
        self.survive(ROOT, rng, &mut after);
        after
    }

    fn survive(&self, node: usize, rng: &mut Rng, after: &mut Self) -> usize {
        let number = after.nodes.len();
        match &self.nodes[node] {
            Node::File(file) => {
                after.nodes.push(Node::File(FileData::durable(file.survivor(rng))));
            }
            Node::Dir(dir) => {
                after.nodes.push(Node::Dir(Dir::default()));
                let mut names = dir.durable.clone();
                let kept = rng.below(dir.changes.len() as u64 + 1) as usize;
                dir.changes[..kept].iter().for_each(|change| apply(&mut names, change));
                let names: Names = names
                    .into_iter()
                    .map(|(name, node)| (name, self.survive(node, rng, after)))
                    .collect();
                let dir = Dir { now: names.clone(), durable: names, changes: Vec::new() };
                after.nodes[number] = Node::Dir(dir);
            }
        }
        number
    }
}

fn split(path: &Path) -> io::Result<(&Path, &OsStr)> {
    let invalid = || io::Error::from(io::ErrorKind::InvalidInput);
    Ok((path.parent().ok_or_else(invalid)?, path.file_name().ok_or_else(invalid)?))
}
