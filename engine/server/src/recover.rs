//! From a data directory to machines that can decide: catalog first, then the partitions, then the
//! stock.

use crate::fold::{ArchivedSales, CoreFold};
use crate::routing::RoutingTable;
use std::sync::Arc;
use stockade_core::catalog::{CatalogChange, CatalogMachine};
use stockade_core::gather::set_stock;
use stockade_core::shard::ShardMachine;
use stockade_log::{Journal, Log, Recovery, SideWork, Storage};
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
    let archived = Arc::new(ArchivedSales::default());
    let fold = Arc::new(CoreFold(archived.clone()));
    let routing = routing(&config);
    let recovery = stockade_log::open(config, fold).map_err(|error| error.to_string())?;
    let (read, recovery) = Read::of(recovery, routing, &archived)?;
    let (log, journals) = recovery.start().map_err(|error| error.to_string())?;
    Ok(read.into_recovered(archived, log, journals))
}

/// As [`recover`], on other files than the operating system's and without threads: for simulation.
///
/// # Errors
/// As [`recover`].
pub fn recover_stepped(
    storage: Storage,
    config: stockade_log::Config,
) -> Result<(Recovered, SideWork), String> {
    let archived = Arc::new(ArchivedSales::default());
    let fold = Arc::new(CoreFold(archived.clone()));
    let routing = routing(&config);
    let recovery =
        stockade_log::open_on(storage, config, fold).map_err(|error| error.to_string())?;
    let (read, recovery) = Read::of(recovery, routing, &archived)?;
    let stepped = recovery.start_stepped().map_err(|error| error.to_string())?;
    Ok((read.into_recovered(archived, stepped.log, stepped.journals), stepped.side))
}

fn routing(config: &stockade_log::Config) -> RoutingTable {
    RoutingTable { partition_count: config.partitions, shard_count: config.shards }
}

/// What follows from the log before anything is written.
struct Read {
    machines: Vec<ShardMachine>,
    catalog: CatalogMachine,
    newest_at: TimestampMs,
}

impl Read {
    fn of(
        mut recovery: Recovery,
        routing: RoutingTable,
        archived: &ArchivedSales,
    ) -> Result<(Self, Recovery), String> {
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
        Ok((Self { machines, catalog, newest_at }, recovery))
    }

    fn into_recovered(
        self,
        archived: Arc<ArchivedSales>,
        log: Arc<Log>,
        journals: Vec<Journal>,
    ) -> Recovered {
        let Self { machines, catalog, newest_at } = self;
        Recovered { machines, catalog, archived, log, journals, newest_at }
    }
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
