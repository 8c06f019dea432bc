//! `status`: how far the databases are behind, and what waits for a person.

use super::Target;
use super::common::{DONE, FAILED, Failure, databases, engine, written};
use crate::rows::{CursorRow, RefusedState};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use stockade_protocol::{Lsn, PartitionId};

/// Prints the state of every database; exit 3 if the engine was not reached (the databases' own
/// part is printed all the same).
pub(super) fn status(target: &Target, json: bool) -> Result<u8, Failure> {
    let databases = databases(target)?;
    let layout = written(target, &databases)?;
    let committed = match engine(target)?.committed() {
        Ok(committed) if committed.is_empty() => {
            Err(Failure::failed("the engine has no consumer; start `stockade-writer run`"))
        }
        committed => committed.map_err(Failure::failed),
    };
    let mut out: Vec<Value> = Vec::new();
    for (index, database) in databases.iter().enumerate() {
        let failed = |error| Failure::failed(format!("{}: {error}", database.name()));
        let mut session = database.reader(&layout).map_err(failed)?;
        let cursors = session.cursors().map_err(failed)?;
        let refused = session.refused().map_err(failed)?;
        let count = |state: RefusedState| refused.iter().filter(|r| r.state == state).count();
        let mut object = json!({
            "database": database.name(),
            "index": index + 1,
            "databases": layout.databases,
            "tables": layout.tables,
            "epoch": cursors.iter().map(|cursor| cursor.epoch).max().unwrap_or(0),
            "entries": cursors.iter().map(|cursor| cursor.lsn.get()).sum::<u64>(),
        });
        for state in RefusedState::ALL {
            object[format!("refused_{}", state.word())] = count(state).into();
        }
        if let Ok(committed) = &committed {
            let (entries, seconds) = lag(&cursors, committed);
            object["lag_entries"] = entries.into();
            object["lag_seconds"] = seconds.into();
            let rows = cursors.iter().map(|cursor| {
                let end = committed.get(&cursor.partition).copied().unwrap_or_default();
                json!([cursor.partition.get(), cursor.lsn.get(), end.get()])
            });
            object["cursors"] = rows.collect();
        }
        out.push(object);
    }
    print(&out, json);
    match committed {
        Ok(_) => Ok(DONE),
        Err(failure) => Err(Failure { code: FAILED, message: failure.message }),
    }
}

/// Entries that are not written yet, and how old the last written entry of a partition with such
/// is.
fn lag(cursors: &[CursorRow], committed: &BTreeMap<PartitionId, Lsn>) -> (u64, f64) {
    let now = crate::lane::now();
    let (mut entries, mut ms) = (0, 0);
    for cursor in cursors {
        let end = committed.get(&cursor.partition).copied().unwrap_or_default();
        let behind = end.get().saturating_sub(cursor.lsn.get());
        entries += behind;
        if behind > 0 && cursor.lsn != Lsn::NONE {
            ms = ms.max(now.since(cursor.event_at));
        }
    }
    (entries, ms as f64 / 1000.0)
}

fn print(rows: &[Value], json: bool) {
    if json {
        println!("{}", json!({ "databases": rows }));
        return;
    }
    for row in rows {
        let lag = match row.get("lag_entries") {
            Some(entries) => format!("behind {entries} entries, {} s", row["lag_seconds"]),
            None => "engine not reached".into(),
        };
        println!(
            "{} ({} of {}, {} tables): {} entries written, {lag}; epoch {}; refused: open {}, \
             sent {}, done {}, reviewed {}",
            row["database"].as_str().unwrap_or_default(),
            row["index"],
            row["databases"],
            row["tables"],
            row["entries"],
            row["epoch"],
            row["refused_open"],
            row["refused_sent"],
            row["refused_done"],
            row["refused_reviewed"],
        );
    }
}
