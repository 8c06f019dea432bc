//! Server-sent events of a sale: its page at once, and again whenever what a viewer sees changes.
//!
//! One task follows a sale for all who watch it, with the same questions to the shards as the page
//! itself, and ends with the last of them. Who is slow misses pages in between, never the last one.

use super::app::App;
use super::cache::{FRESH, Page};
use super::sales::look;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_lite::{Stream, stream};
use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use stockade_protocol::SaleId;
use tokio::sync::watch;

/// A comment is sent this often where nothing changes, so that dead connections are noticed.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// The sales that somebody watches.
#[derive(Default)]
pub(super) struct Watched(Mutex<HashMap<SaleId, watch::Sender<Page>>>);

impl Watched {
    fn with<T>(&self, then: impl FnOnce(&mut HashMap<SaleId, watch::Sender<Page>>) -> T) -> T {
        then(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The stream of a sale that is known, beginning with `page`.
pub(super) fn stream_of(app: &Arc<App>, sale: SaleId, page: Page) -> Response {
    let pages = app.watched.with(|watched| match watched.get(&sale) {
        Some(pages) => pages.subscribe(),
        None => {
            let (sender, pages) = watch::channel(page);
            watched.insert(sale, sender);
            tokio::spawn(follow(app.clone(), sale));
            pages
        }
    });
    Sse::new(events(pages)).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)).into_response()
}

/// Looks at the sale as long as somebody watches it and it is known.
async fn follow(app: Arc<App>, sale: SaleId) {
    loop {
        tokio::time::sleep(FRESH).await;
        let unwatched = app.watched.with(|watched| {
            let unwatched = watched.get(&sale).is_none_or(|pages| pages.receiver_count() == 0);
            if unwatched {
                watched.remove(&sale);
            }
            unwatched
        });
        if unwatched {
            return;
        }
        // Without an answer the next look tells.
        let Some(page) = look(&app, sale).await else { continue };
        let found = page.found;
        app.watched.with(|watched| {
            if let Some(pages) = watched.get(&sale) {
                pages.send_if_modified(|seen| {
                    let changed = seen.tag != page.tag || seen.found != page.found;
                    if changed {
                        *seen = page;
                    }
                    changed
                });
            }
            if !found {
                watched.remove(&sale);
            }
        });
        if !found {
            return;
        }
    }
}

fn events(mut pages: watch::Receiver<Page>) -> impl Stream<Item = Result<Event, Infallible>> {
    pages.mark_changed();
    stream::unfold(Some(pages), |pages| async move {
        let mut pages = pages?;
        // The sender is gone after the last page: that of a sale that is not known any more.
        pages.changed().await.ok()?;
        let page = pages.borrow_and_update().clone();
        if !page.found {
            return Some((Ok(Event::default().event("gone").data("")), None));
        }
        let event = Event::default().event("sale").id(page.tag).data(page.body);
        Some((Ok(event), Some(pages)))
    })
}
