//! From a data directory to machines that can decide: catalog first, then the partitions, then the
//! stock.

use crate::fold::{ArchivedSales, CoreFold};
use crate::routing::RoutingTable;
use std::sync::Arc;
use stockade_core::catalog::{CatalogChange, CatalogMachine};
use stockade_core::gather::set_stock;
use stockade_core::shard::ShardMachine;
use stockade_log::{Journal, Log, Recovery};
use stockade_protocol::PartitionId;
use stockade_protocol::ids::TimestampMs;

/// What recovery made.
pub struct Recovered {
    /// One per shard.
    pub machines: Vec<ShardMachine>,
    /// The catalog.
    pub catalog: CatalogMachine,
    /// Sales that are archived; the log's snapshots leave their orders out.
    pub archived: Arc<ArchivedSales>,
    /// The running log.
    pub log: Arc<Log>,
    /// One per shard.
    pub journals: Vec<Journal>,
    /// The latest timestamp of the log.
    pub newest_at: TimestampMs,
}

/// Recovers the directory and begins a new epoch. An error is one plain sentence.
///
/// # Errors
/// The directory is in use, damaged or made with other settings; or its log sells more than there
/// is.
pub fn recover(config: stockade_log::Config) -> Result<Recovered, String> {
    let routing = RoutingTable { partition_count: config.partitions, shard_count: config.shards };
    let archived = Arc::new(ArchivedSales::default());
    let fold = Arc::new(CoreFold(archived.clone()));
    let mut recovery = stockade_log::open(config, fold).map_err(|error| error.to_string())?;
    for warning in recovery.warnings() {
        tracing::warn!("{warning}");
    }
    let catalog = recover_catalog(&recovery)?;
    let changes = catalog.changes();
    for change in &changes {
        if let CatalogChange::Archive(sale) = change {
            archived.add(*sale);
        }
    }
    let machines = recover_shards(&mut recovery, routing, &changes)?;
    let sales: Vec<_> = changes
        .iter()
        .filter_map(|change| match change {
            CatalogChange::Replace(sale) => Some(sale.clone()),
            CatalogChange::Archive(_) => None,
        })
        .collect();
    set_stock(&sales, machines.iter().flat_map(ShardMachine::tallies)).map_err(|oversold| {
        format!("the log sells more than there is ({oversold}); restore a backup")
    })?;
    let newest_at = recovery.newest_at();
    let (log, journals) = recovery.start().map_err(|error| error.to_string())?;
    Ok(Recovered { machines, catalog, archived, log, journals, newest_at })
}

fn recover_catalog(recovery: &Recovery) -> Result<CatalogMachine, String> {
    let mut catalog = CatalogMachine::from_image(recovery.catalog());
    let mut apply = |entry| {
        catalog.replay(&entry);
        Ok(())
    };
    recovery.replay(PartitionId::CATALOG, &mut apply).map_err(|error| error.to_string())?;
    Ok(catalog)
}

fn recover_shards(
    recovery: &mut Recovery,
    routing: RoutingTable,
    changes: &[CatalogChange],
) -> Result<Vec<ShardMachine>, String> {
    let mut images = recovery.take_images();
    let mut machines = Vec::new();
    for shard in 0..routing.shard_count {
        let owned = routing.owned(shard);
        let mut machine = ShardMachine::new(routing.partition_count, &owned);
        // Before the entries: an image may have left archived sales out.
        changes.iter().for_each(|change| machine.apply(change));
        for partition in owned {
            if let Some(image) = images.remove(&partition) {
                machine.try_load(partition, image).map_err(|error| error.to_string())?;
            }
            let mut apply = |entry| machine.replay(&entry).map_err(|error| error.to_string());
            recovery.replay(partition, &mut apply).map_err(|error| error.to_string())?;
        }
        machines.push(machine);
    }
    Ok(machines)
}
