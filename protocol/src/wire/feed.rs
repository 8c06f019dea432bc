//! Bodies of the handshake and of the feed.

use crate::ids::{Lsn, PartitionId};
use crate::le::{Malformed, Reader, Writer};
use crate::limits::CONSUMERS_MAX;
use crate::text::ConsumerName;
use crate::wire::{ConsumerInfo, FeedFrom, Hello, ShardPort, Subscribe, Welcome};
use alloc::string::String;
use alloc::vec::Vec;

/// Partitions that a list can name: all of users and the catalog's.
const PARTITIONS_MAX: usize = PartitionId::COUNT_MAX as usize + 1;
/// Bytes of a program's name or a token.
const NAME_BYTES_MAX: usize = 256;
/// Shards of a server.
const SHARDS_MAX: usize = 1024;

fn take_name(r: &mut Reader<'_>) -> Result<String, Malformed> {
    let text = r.text("name")?;
    if text.len() > NAME_BYTES_MAX {
        return Err(Malformed::Range("name"));
    }
    Ok(String::from(text))
}

fn take_count(r: &mut Reader<'_>, most: usize) -> Result<usize, Malformed> {
    let count = usize::from(r.u16()?);
    if count > most { Err(Malformed::Range("count")) } else { Ok(count) }
}

pub(super) fn put_hello(hello: &Hello, out: &mut Vec<u8>) {
    out.put_u16(hello.version_min);
    out.put_u16(hello.version_max);
    out.put_u32(0);
    out.put_u64(hello.features);
    out.put_text(&hello.name);
    out.put_text(&hello.token);
}

pub(super) fn take_hello(r: &mut Reader<'_>) -> Result<Hello, Malformed> {
    let (version_min, version_max) = (r.u16()?, r.u16()?);
    r.u32()?;
    let features = r.u64()?;
    Ok(Hello { version_min, version_max, features, name: take_name(r)?, token: take_name(r)? })
}

pub(super) fn put_welcome(welcome: &Welcome, out: &mut Vec<u8>) {
    out.put_u16(welcome.version);
    out.put_u8(welcome.durability);
    out.put_u8(0);
    out.put_u32(welcome.body_bytes_max);
    out.put_u64(welcome.features);
    out.put_u64(welcome.epoch);
    out.put_u64(welcome.server_time.get());
    out.put_u32(welcome.in_flight_max);
    out.put_u16(welcome.partition_count);
    let count = out.put_count(welcome.shards.len());
    for shard in &welcome.shards[..count] {
        out.put_u16(shard.port);
    }
    out.put_text(&welcome.server);
}

pub(super) fn take_welcome(r: &mut Reader<'_>) -> Result<Welcome, Malformed> {
    let version = r.u16()?;
    let durability = r.u8()?;
    r.u8()?;
    let body_bytes_max = r.u32()?;
    let (features, epoch, server_time) = (r.u64()?, r.u64()?, r.timestamp()?);
    let (in_flight_max, partition_count) = (r.u32()?, r.u16()?);
    let mut shards = Vec::new();
    for _ in 0..take_count(r, SHARDS_MAX)? {
        shards.push(ShardPort { port: r.u16()? });
    }
    Ok(Welcome {
        version,
        features,
        body_bytes_max,
        in_flight_max,
        durability,
        epoch,
        server_time,
        partition_count,
        shards,
        server: take_name(r)?,
    })
}

pub(super) fn put_consumer(name: &ConsumerName, out: &mut Vec<u8>) {
    out.put_text(name.as_str());
}

pub(super) fn take_consumer(r: &mut Reader<'_>) -> Result<ConsumerName, Malformed> {
    let text = r.text("consumer")?;
    ConsumerName::new(text.as_bytes()).map_err(|_| Malformed::Range("consumer"))
}

pub(super) fn put_cursors(cursors: &[(PartitionId, Lsn)], out: &mut Vec<u8>) {
    let count = out.put_count(cursors.len());
    for (partition, lsn) in &cursors[..count] {
        out.put_u16(partition.get());
        out.put_u64(lsn.get());
    }
}

pub(super) fn take_cursors(r: &mut Reader<'_>) -> Result<Vec<(PartitionId, Lsn)>, Malformed> {
    let mut cursors = Vec::new();
    for _ in 0..take_count(r, PARTITIONS_MAX)? {
        cursors.push((PartitionId::new(r.u16()?), Lsn::new(r.u64()?)));
    }
    Ok(cursors)
}

pub(super) fn put_subscribe(subscribe: &Subscribe, out: &mut Vec<u8>) {
    out.put_u32(subscribe.credit_bytes);
    out.put_text(subscribe.consumer.as_ref().map_or("", ConsumerName::as_str));
    let count = out.put_count(subscribe.partitions.len());
    for partition in &subscribe.partitions[..count] {
        out.put_u16(partition.get());
    }
    match &subscribe.from {
        FeedFrom::Stored => out.put_u8(0),
        FeedFrom::Oldest => out.put_u8(1),
        FeedFrom::Newest => out.put_u8(2),
        FeedFrom::Lsns(lsns) => {
            out.put_u8(3);
            put_cursors(lsns, out);
        }
    }
}

pub(super) fn take_subscribe(r: &mut Reader<'_>) -> Result<Subscribe, Malformed> {
    let credit_bytes = r.u32()?;
    let consumer = match r.text("consumer")? {
        "" => None,
        text => {
            let name = ConsumerName::new(text.as_bytes());
            Some(name.map_err(|_| Malformed::Range("consumer"))?)
        }
    };
    let mut partitions = Vec::new();
    for _ in 0..take_count(r, PARTITIONS_MAX)? {
        partitions.push(PartitionId::new(r.u16()?));
    }
    let from = match r.u8()? {
        0 => FeedFrom::Stored,
        1 => FeedFrom::Oldest,
        2 => FeedFrom::Newest,
        3 => FeedFrom::Lsns(take_cursors(r)?),
        _ => return Err(Malformed::Range("from")),
    };
    Ok(Subscribe { consumer, partitions, from, credit_bytes })
}

pub(super) fn put_consumers(consumers: &[ConsumerInfo], out: &mut Vec<u8>) {
    let count = out.put_count(consumers.len());
    for info in &consumers[..count] {
        put_consumer(&info.name, out);
        let count = out.put_count(info.cursors.len());
        for (partition, acked, committed) in &info.cursors[..count] {
            out.put_u16(partition.get());
            out.put_u64(acked.get());
            out.put_u64(committed.get());
        }
    }
}

pub(super) fn take_consumers(r: &mut Reader<'_>) -> Result<Vec<ConsumerInfo>, Malformed> {
    let mut consumers = Vec::new();
    for _ in 0..take_count(r, CONSUMERS_MAX)? {
        let name = take_consumer(r)?;
        let mut cursors = Vec::new();
        for _ in 0..take_count(r, PARTITIONS_MAX)? {
            let partition = PartitionId::new(r.u16()?);
            cursors.push((partition, Lsn::new(r.u64()?), Lsn::new(r.u64()?)));
        }
        consumers.push(ConsumerInfo { name, cursors });
    }
    Ok(consumers)
}
