//! A moment's memory of sale pages: a million viewers cost the shards four questions a second.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use stockade_protocol::SaleId;

/// How long a page is good for.
pub const FRESH: Duration = Duration::from_millis(250);
/// Pages remembered.
const PAGES_MAX: usize = 1024;

/// A page: its status, its body and the tag of its content.
#[derive(Clone, Debug)]
pub struct Page {
    /// The sale is known.
    pub found: bool,
    /// JSON.
    pub body: String,
    /// Changes with what a viewer sees, not with the clock.
    pub tag: String,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Pages(Mutex<HashMap<SaleId, (Instant, Page)>>);

impl Pages {
    /// A page that is fresh.
    pub fn get(&self, sale: SaleId) -> Option<Page> {
        let pages = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (made, page) = pages.get(&sale)?;
        (made.elapsed() < FRESH).then(|| page.clone())
    }

    /// Remembers a page.
    pub fn put(&self, sale: SaleId, page: Page) {
        let mut pages = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if pages.len() >= PAGES_MAX {
            pages.clear();
        }
        pages.insert(sale, (Instant::now(), page));
    }
}
