//! Snapshots: one file per partition and LSN, an rkyv body in a checksummed envelope.

mod v1;

use crate::directory::Directory;
use crate::disk::Disk;
use crate::error::OpenError;
use crate::files::{damaged, failed, replace};
use crate::sealed::{HEADER_BYTES, Kind, seal, unseal};
use rkyv::util::AlignedVec;
use std::io;
use std::path::{Path, PathBuf};
use stockade_protocol::image::{CatalogImage, PartitionImage};
use stockade_protocol::{Lsn, PartitionId};

const KIND: Kind = Kind { magic: b"STKSNAP\0", version: 1 };

/// A partition's state, of either kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Image {
    /// Of users.
    Partition(PartitionImage),
    /// Of the catalog.
    Catalog(CatalogImage),
}

impl Image {
    /// The empty state of a partition.
    pub fn empty(partition: PartitionId) -> Self {
        if partition == PartitionId::CATALOG {
            Self::Catalog(CatalogImage::default())
        } else {
            Self::Partition(PartitionImage::default())
        }
    }

    /// The last entry that it contains.
    pub fn lsn(&self) -> Lsn {
        match self {
            Self::Partition(image) => image.lsn,
            Self::Catalog(image) => image.lsn,
        }
    }
}

/// The file of a partition's snapshot.
pub fn path(dir: &Path, partition: PartitionId, lsn: Lsn) -> PathBuf {
    dir.join(format!("p{:05}-{:020}.snap", partition.get(), lsn.get()))
}

/// Writes a snapshot durably.
///
/// # Errors
/// The operating system refused.
pub fn write(directory: &Directory, partition: PartitionId, image: &Image) -> io::Result<()> {
    let path = path(&directory.snapshots(), partition, image.lsn());
    replace(directory.disk(), &path, &encode(image, directory.id)?)
}

/// The file's bytes.
///
/// # Errors
/// The image is too large for its form.
pub fn encode(image: &Image, directory: u64) -> io::Result<Vec<u8>> {
    let body = match image {
        Image::Partition(image) => body(&v1::PartitionV1::from(image)),
        Image::Catalog(image) => body(&v1::CatalogV1::from(image)),
    }?;
    Ok(seal(KIND, directory, &body))
}

fn body<T>(value: &T) -> io::Result<AlignedVec>
where
    T: for<'a> rkyv::Serialize<
            rkyv::api::high::HighSerializer<
                AlignedVec,
                rkyv::ser::allocator::ArenaHandle<'a>,
                rkyv::rancor::Error,
            >,
        >,
{
    rkyv::to_bytes::<rkyv::rancor::Error>(value).map_err(|e| io::Error::other(e.to_string()))
}

/// Reads the snapshot that the floor names.
///
/// # Errors
/// Missing, damaged, or not the state that its name says.
pub fn read(directory: &Directory, partition: PartitionId, lsn: Lsn) -> Result<Image, OpenError> {
    let path = path(&directory.snapshots(), partition, lsn);
    let bytes = match directory.disk().read(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(damaged(&path, 0, "the snapshot that the floor names is missing"));
        }
        read => read.map_err(failed("read", &path))?,
    };
    decode(&path, directory.id, partition, lsn, &bytes)
}

/// Reads the bytes of the snapshot of a partition at an LSN.
///
/// # Errors
/// Damaged, or not the state that its name says.
pub fn decode(
    path: &Path,
    directory: u64,
    partition: PartitionId,
    lsn: Lsn,
    bytes: &[u8],
) -> Result<Image, OpenError> {
    let body = unseal(path, KIND, directory, bytes)?;
    let mut aligned = AlignedVec::<16>::with_capacity(body.len());
    aligned.extend_from_slice(body);
    let bad = |what: &str| damaged(path, HEADER_BYTES as u64, what);
    let image = if partition == PartitionId::CATALOG {
        let value = rkyv::from_bytes::<v1::CatalogV1, rkyv::rancor::Error>(&aligned);
        let value = value.map_err(|_| bad("the body is no catalog"))?;
        value.into_image().map(Image::Catalog)
    } else {
        let value = rkyv::from_bytes::<v1::PartitionV1, rkyv::rancor::Error>(&aligned);
        let value = value.map_err(|_| bad("the body is no partition"))?;
        value.into_image().map(Image::Partition)
    };
    let image = image.ok_or_else(|| bad("a value is out of range"))?;
    if image.lsn() == lsn { Ok(image) } else { Err(bad("the body is of another LSN")) }
}

/// Deletes snapshots that are not the one kept, by partition; left-overs do no harm.
pub fn delete_others(
    disk: &dyn Disk,
    dir: &Path,
    keep: impl Fn(PartitionId) -> Lsn,
) -> io::Result<()> {
    for found in disk.list(dir)? {
        let name = found.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let parsed = name.strip_prefix('p').and_then(|rest| rest.strip_suffix(".snap"));
        let parsed = parsed.and_then(|rest| rest.split_once('-'));
        let parsed = parsed.and_then(|(p, l)| Some((p.parse().ok()?, l.parse().ok()?)));
        let Some((partition, lsn)) = parsed else { continue };
        if keep(PartitionId::new(partition)) != Lsn::new(lsn) {
            disk.remove_file(&found)?;
        }
    }
    Ok(())
}
