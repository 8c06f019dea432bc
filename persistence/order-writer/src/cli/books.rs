//! `books`: every order of SQL, one JSON object a line, for those who want to check the books by
//! themselves. The engine is not asked.

use super::Target;
use super::common::{DONE, Failure, databases, written};
use crate::stored::order_range;
use serde_json::json;
use std::io::{BufWriter, Write};
use stockade_protocol::PartitionId;

pub(super) fn books(target: &Target) -> Result<u8, Failure> {
    let databases = databases(target)?;
    let layout = written(target, &databases)?;
    let mut out = BufWriter::new(std::io::stdout().lock());
    for (index, database) in databases.iter().enumerate() {
        let failed = |error| Failure::failed(format!("{}: {error}", database.name()));
        let mut session = database.reader(&layout).map_err(failed)?;
        session.begin_read().map_err(failed)?;
        for partition in layout.partitions_of(index as u16) {
            if partition == PartitionId::CATALOG {
                continue;
            }
            let table = layout.table_of(partition);
            let orders = session.orders(table, order_range(partition)).map_err(failed)?;
            for order in orders.values() {
                let lines: Vec<_> =
                    order.lines.iter().map(|(sku, (qty, back))| json!([sku, qty, back])).collect();
                let row = json!({
                    "order": order.order,
                    "sale": order.sale,
                    "user": order.user,
                    "state": order.state,
                    "payment": order.payment,
                    "lsn": order.lsn,
                    "lines": lines,
                });
                writeln!(out, "{row}").map_err(Failure::failed)?;
            }
        }
        session.rollback().map_err(failed)?;
    }
    out.flush().map_err(Failure::failed)?;
    Ok(DONE)
}
