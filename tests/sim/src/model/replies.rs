//! Answers as they leave the engine, held against what was expected of them.

use super::changes::{sale_of, sale_of_command};
use super::{Expect, Found, Key, Model};
use stockade_protocol::reply::{ReserveReply, SkuView};
use stockade_protocol::{Command, Outcome, PartitionId, Reply, SaleState};

impl Model {
    /// The engine refused a command at once.
    pub fn refused(&mut self, key: Key, reply: &Reply) -> Found {
        let asked = self.asked.remove(&key);
        if asked.is_some() && is_busy(reply) {
            return Ok(());
        }
        Err(format!("P10: a command was refused at once with {reply:?}: {asked:?}"))
    }

    /// The engine answers.
    pub fn replied(&mut self, key: Key, reply: &Reply) -> Found {
        let Some(mut asked) = self.asked.remove(&key) else {
            return Err(format!("an answer that nobody waits for: {reply:?}"));
        };
        if let Some((expected, rest)) = self.claim(&asked.command, reply) {
            asked.expect = Expect::Exact(Box::new(expected), rest);
        }
        self.decisions += 1;
        self.digest.add(key.2 ^ fold(reply));
        match &asked.expect {
            Expect::Busy if is_busy(reply) => Ok(()),
            Expect::Exact(expected, rest) => {
                self.check_rest(*rest, &asked.command)?;
                if agrees(expected, reply) {
                    return self.check_in_force(&asked.command, *rest);
                }
                Err(format!(
                    "{}: to\n  {:?}\nthe engine says\n  {reply:?}\nand the model\n  {expected:?}",
                    promise(expected, reply),
                    asked.command
                ))
            }
            Expect::Open => {
                let checked = self.check_free(&asked.command, asked.lsn, reply);
                // The catalog answers connections of other shards by mail: meanwhile it may have
                // changed.
                let late = key.0 != 0 && asked.lsn != self.catalog.lsn;
                let of_catalog = sale_of_command(&asked.command).is_some()
                    || matches!(asked.command, Command::SaleList);
                if late && of_catalog { Ok(()) } else { checked }
            }
            other => Err(format!(
                "to\n  {:?}\nthe engine says {reply:?}\nbut {other:?} was due",
                asked.command
            )),
        }
    }

    /// The change of the catalog that this answer tells of: of commands that ask the same, any may
    /// be the one that made it.
    fn claim(&mut self, command: &Command, reply: &Reply) -> Option<(Reply, super::rules::Rest)> {
        let sale = sale_of_command(command)?;
        let request = match command {
            Command::Adjust(adjust) => Some(&adjust.request),
            _ => None,
        };
        let found = self.granted.iter().position(|granted| {
            granted.sale == sale
                && granted.request.as_ref() == request
                && agrees(&granted.reply, reply)
        })?;
        let granted = self.granted.remove(found);
        Some((granted.reply, granted.rest))
    }

    /// What an answer rests on must be durable.
    fn check_rest(&self, rest: super::rules::Rest, command: &Command) -> Found {
        let Some((partition, lsn)) = rest else { return Ok(()) };
        let durable = self.durable_lsn(PartitionId::new(partition));
        if lsn > durable {
            return Err(format!(
                "P2: an answer leaves that rests on LSN {lsn} of partition {partition}, and only \
                 {durable} is durable: {command:?}"
            ));
        }
        Ok(())
    }

    /// A catalog change is answered when all shards have it.
    fn check_in_force(&self, command: &Command, rest: super::rules::Rest) -> Found {
        let last = Some((PartitionId::CATALOG.get(), self.catalog.lsn));
        if rest == last && !self.is_shipped() {
            return Err(format!("catalog: answered before it is in force everywhere: {command:?}"));
        }
        Ok(())
    }

    /// Answers that no turn decides.
    fn check_free(&self, command: &Command, lsn: u64, reply: &Reply) -> Found {
        if is_busy(reply) {
            return Ok(());
        }
        let wrong = || Err(format!("to\n  {command:?}\nthe engine says\n  {reply:?}"));
        let fits = match (command, reply) {
            (Command::SkuGet { .. }, Reply::Sku(view)) => adds_up(view),
            (Command::SaleGet(sale), Reply::Sale(Some(view))) => {
                view.definition.sale == *sale && view.skus.iter().all(adds_up)
            }
            (Command::SaleGet(sale), Reply::Sale(None)) => {
                self.catalog.sales.get(sale).is_none_or(|sale| sale.first_lsn > lsn)
            }
            (Command::OrderList(list), Reply::Orders(views)) => {
                views.is_sorted_by_key(|view| view.order)
                    && views.iter().all(|view| {
                        view.sale == Some(list.sale)
                            && list.state.is_none_or(|state| state == view.state)
                            && view.order.is_some_and(|id| id.get() > list.after)
                    })
            }
            (Command::SaleList, Reply::Sales(sales)) => {
                sales.iter().map(|sale| sale.sale).eq(self.catalog.sales.keys().copied())
            }
            (Command::SalePut(patch), Reply::SalePut(put)) => {
                let merged = self.catalog.merged(patch, self.now);
                let known = self.catalog.sales.get(&patch.sale);
                match put.outcome {
                    Outcome::Unchanged => {
                        merged.is_some() && merged == known.map(|s| s.view.definition.clone())
                    }
                    Outcome::BadRequest => merged.is_none(),
                    _ => false,
                }
            }
            (_, Reply::SaleSwitch(switch)) => self.switch_fits(command, switch.outcome),
            (Command::Adjust(adjust), Reply::Adjust(reply)) => {
                let sale = self.catalog.sales.get(&adjust.sale);
                let known = sale.and_then(|sale| sale.adjusts.get(&adjust.request));
                match reply.outcome {
                    Outcome::Adjusted => {
                        let same = |(sku, delta, applied): &(_, i64, i64)| {
                            (*sku, *delta) == (adjust.sku, adjust.delta)
                                && *applied == reply.applied
                        };
                        known.is_some_and(same) && reply.free <= reply.total
                    }
                    Outcome::IdConflict => known.is_some_and(|(sku, delta, _)| {
                        (*sku, *delta) != (adjust.sku, adjust.delta)
                    }),
                    Outcome::UnknownSale => sale.is_none(),
                    Outcome::UnknownSku => {
                        sale.is_some_and(|sale| !sale.totals.contains_key(&adjust.sku))
                    }
                    Outcome::BadRequest => true,
                    _ => false,
                }
            }
            _ => false,
        };
        if fits { Ok(()) } else { wrong() }
    }

    fn switch_fits(&self, command: &Command, outcome: Outcome) -> bool {
        let sale = sale_of_command(command).and_then(|sale| self.catalog.sales.get(&sale));
        let Some(sale) = sale else { return outcome == Outcome::UnknownSale };
        let ended = sale.view.state(self.now) == SaleState::Ended;
        let same = match command {
            Command::SalePause(_) => sale.view.paused,
            Command::SaleResume(_) => !sale.view.paused,
            _ => false,
        };
        outcome == Outcome::Unchanged && (ended || same)
    }

    /// The catalog's entry on its way is about this sale.
    pub fn is_changing(&self, sale: stockade_protocol::SaleId) -> bool {
        self.catalog_flight.as_ref().is_some_and(|entry| sale_of(&entry.event) == Some(sale))
    }
}

const fn adds_up(view: &SkuView) -> bool {
    view.free + view.held + view.confirmed == view.total
}

/// `busy`, in whatever form.
fn is_busy(reply: &Reply) -> bool {
    let outcome = match reply {
        Reply::Reserve(reply) => reply.outcome,
        Reply::Order(reply) => reply.outcome,
        Reply::SalePut(reply) => reply.outcome,
        Reply::SaleSwitch(reply) => reply.outcome,
        Reply::Adjust(reply) => reply.outcome,
        Reply::Busy { .. } => Outcome::Busy,
        _ => return false,
    };
    outcome == Outcome::Busy
}

/// The same answer. When to come back after `sold_out` is a hint; but "never" may be said only
/// where nothing is held.
fn agrees(expected: &Reply, actual: &Reply) -> bool {
    match (expected, actual) {
        (Reply::Reserve(a), Reply::Reserve(b)) if a.outcome == Outcome::SoldOut => {
            let hint = ReserveReply { retry_after_ms: 0, ..*a };
            hint == ReserveReply { retry_after_ms: 0, ..*b }
                && (b.retry_after_ms == a.retry_after_ms || b.retry_after_ms > 0)
        }
        (Reply::Adjust(a), Reply::Adjust(b)) => {
            (a.outcome, a.applied) == (b.outcome, b.applied) && b.free <= b.total
        }
        _ => expected == actual,
    }
}

/// The promise that a wrong answer breaks.
fn promise(expected: &Reply, actual: &Reply) -> &'static str {
    let outcome = |reply: &Reply| match reply {
        Reply::Reserve(reply) => Some(reply.outcome),
        Reply::Order(reply) => Some(reply.outcome),
        _ => None,
    };
    match (outcome(expected), outcome(actual)) {
        (Some(Outcome::SoldOut), Some(Outcome::Held | Outcome::Confirmed)) => "P1",
        (_, Some(Outcome::SoldOut)) => "P3",
        (Some(Outcome::Limit), _) | (_, Some(Outcome::Limit)) => "P4",
        (Some(Outcome::IdConflict), _) | (_, Some(Outcome::IdConflict)) => "P5",
        (Some(Outcome::TooLate), _) | (_, Some(Outcome::TooLate)) => "P6",
        (Some(a), Some(b)) if a == b => "P2",
        _ => "rules",
    }
}

/// A number that follows from the answer.
fn fold(reply: &Reply) -> u64 {
    match reply {
        Reply::Reserve(r) => {
            let order = r.order.map_or(0, |order| order.get());
            u64::from(r.outcome.number()) ^ order << 8 ^ r.expires_at.get() << 20
        }
        Reply::Order(r) => {
            let order = r.order.map_or(0, |order| order.get());
            u64::from(r.outcome.number()) ^ order << 8 ^ u64::from(r.state.number()) << 50
        }
        Reply::OrderView(view) => u64::from(view.state.number()) ^ view.expires_at.get(),
        Reply::Sku(view) => view.free ^ view.held << 20 ^ view.confirmed << 40,
        Reply::Adjust(r) => r.total ^ r.free << 30,
        Reply::User(view) => view.orders.len() as u64,
        Reply::Orders(views) => views.len() as u64,
        _ => 1,
    }
}
