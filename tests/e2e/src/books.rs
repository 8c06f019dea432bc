//! An independent fold of the feed: plain maps, written from the description of the events.
//!
//! It reads over RESP and acknowledges as it goes, under its own consumer name.

use crate::resp::Resp;
use serde_json::Value;
use std::collections::BTreeMap;

/// An order as the feed tells it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OrderRow {
    /// The buyer.
    pub user: String,
    /// 1 held, 2 confirmed, 3 cancelled, 4 expired, 5 returned.
    pub state: i64,
    /// SKU -> (units, units returned).
    pub lines: BTreeMap<String, (i64, i64)>,
    /// The payment that confirmed it.
    pub payment: Option<String>,
    /// LSN of the last event that changed the row.
    pub lsn: i64,
}

/// The fold of a whole feed.
#[derive(Debug, Default)]
pub struct Books {
    /// Orders by id.
    pub orders: BTreeMap<String, OrderRow>,
    /// (order, payment) -> reason.
    pub late_payments: BTreeMap<(String, String), String>,
    /// Partition -> last LSN seen.
    pub lsns: BTreeMap<u64, i64>,
}

impl Books {
    /// Reads the feed from the consumer's cursors to its present end.
    pub fn read(&mut self, resp: &mut Resp, consumer: &str) {
        loop {
            let answer = resp.call(&["STOCK.FEED", consumer, "COUNT", "10000"]);
            let answer = answer.expect("the feed answers");
            if answer.items().is_empty() {
                return;
            }
            for event in answer.items() {
                self.apply(&serde_json::from_str(event.text()).expect("events are JSON"));
            }
            for (partition, lsn) in &self.lsns {
                let (partition, lsn) = (partition.to_string(), lsn.to_string());
                let done = resp.call(&["STOCK.FEED.ACK", consumer, &partition, &lsn]);
                done.expect("acks are answered");
            }
        }
    }

    fn apply(&mut self, event: &Value) {
        let lsn = event["lsn"].as_i64().expect("events have an lsn");
        let partition = event["partition"].as_u64().expect("events have a partition");
        let before = self.lsns.insert(partition, lsn).unwrap_or(0);
        assert_eq!(lsn, before + 1, "the feed has no gap and no duplicate: {event}");
        let kind = event["kind"].as_str().expect("events have a kind");
        let Some(id) = event["order"].as_str() else { return };
        let payment = event["payment"].as_str().map(str::to_owned);
        if kind == "late_payment" {
            let reason = event["reason"].as_str().unwrap_or_default().to_owned();
            let key = (id.to_owned(), payment.unwrap_or_default());
            self.late_payments.entry(key).or_insert(reason);
            return;
        }
        let row = self.orders.entry(id.to_owned()).or_default();
        let lines = event["lines"].as_array();
        let lines = lines.into_iter().flatten().map(|line| {
            (line[0].as_str().unwrap_or_default().to_owned(), line[1].as_i64().unwrap_or_default())
        });
        match kind {
            "held" | "confirmed" => {
                if let Some(user) = event["user"].as_str().filter(|_| row.user.is_empty()) {
                    row.user = user.into();
                }
                for (sku, units) in lines {
                    row.lines.entry(sku).or_insert((units, 0));
                }
                row.state = if kind == "held" { 1 } else { 2 };
                row.payment = payment.or(row.payment.take());
            }
            "cancelled" => row.state = 3,
            "expired" => row.state = 4,
            "returned" => {
                for (sku, units) in lines {
                    row.lines.get_mut(&sku).expect("only ordered SKUs come back").1 += units;
                }
                if row.lines.values().all(|(units, returned)| units == returned) {
                    row.state = 5;
                }
            }
            "extended" => {}
            other => panic!("an order event of kind {other}"),
        }
        row.lsn = lsn;
    }
}
