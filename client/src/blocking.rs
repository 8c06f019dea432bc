//! The client for programs without a runtime: the same calls, blocking. The runtime is on a thread
//! of its own, so these calls also work (and only block the caller) inside somebody else's runtime.

use crate::builder::ClientBuilder;
use crate::error::Error;
use crate::feed::{FeedRun, SubscribeOptions};
use crate::register::ShutdownReport;
use std::sync::{Arc, mpsc};
use std::time::Duration;
use stockade_protocol::{Command, Lsn, PartitionId, Reply};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

/// The thread that runs everything; it ends with the last handle.
struct Runtime {
    handle: Handle,
    _stop: oneshot::Sender<()>,
}

impl Runtime {
    fn start() -> Result<Arc<Self>, Error> {
        let (handle_in, handle_out) = mpsc::channel();
        let (stop, stopped) = oneshot::channel::<()>();
        let run = move || {
            let built = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let Ok(runtime) = built else { return };
            if handle_in.send(runtime.handle().clone()).is_ok() {
                let _ = runtime.block_on(stopped);
            }
        };
        let started = std::thread::Builder::new().name("stockade-client".into()).spawn(run);
        started.map_err(|error| Error::Protocol(error.to_string()))?;
        let handle = handle_out.recv().map_err(|_| Error::Closed)?;
        Ok(Arc::new(Self { handle, _stop: stop }))
    }

    /// Runs a future on the thread and waits for it.
    fn wait<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, Error> {
        let (answer_in, answer) = mpsc::channel();
        self.handle.spawn(async move {
            let _ = answer_in.send(work.await);
        });
        answer.recv().map_err(|_| Error::Closed)
    }
}

/// See the module.
#[derive(Clone)]
pub struct Client {
    runtime: Arc<Runtime>,
    client: crate::Client,
}

impl Client {
    /// Connects.
    ///
    /// # Errors
    /// As [`ClientBuilder::connect`].
    pub fn connect(settings: ClientBuilder) -> Result<Self, Error> {
        let runtime = Runtime::start()?;
        let client = runtime.wait(settings.connect())??;
        Ok(Self { runtime, client })
    }

    /// The client beneath, for code that has a runtime.
    pub fn inner(&self) -> &crate::Client {
        &self.client
    }

    /// Runs any call of the client beneath: `client.wait(|client| async move { client.sales().await
    /// })`.
    ///
    /// # Errors
    /// [`Error::Closed`] if the runtime is gone; else what the call gives.
    pub fn wait<T, F>(&self, call: impl FnOnce(crate::Client) -> F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Error>> + Send + 'static,
    {
        self.runtime.wait(call(self.client.clone()))?
    }

    /// Has a command decided.
    ///
    /// # Errors
    /// As [`crate::Client::call`].
    pub fn call(&self, command: Command) -> Result<Reply, Error> {
        self.wait(|client| async move { client.call(command).await })
    }

    /// As [`crate::Client::shutdown`].
    ///
    /// # Errors
    /// [`Error::Closed`] if the runtime is gone.
    pub fn shutdown(&self, grace: Duration) -> Result<ShutdownReport, Error> {
        let client = self.client.clone();
        self.runtime.wait(async move { client.shutdown(grace).await })
    }

    /// Begins to read the feed.
    ///
    /// # Errors
    /// As [`crate::Client::subscribe`].
    pub fn subscribe(&self, options: SubscribeOptions) -> Result<FeedSubscription, Error> {
        let feed = self.wait(|client| async move { client.subscribe(options).await })?;
        let feed = Arc::new(tokio::sync::Mutex::new(feed));
        Ok(FeedSubscription { runtime: self.runtime.clone(), feed })
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.client.fmt(f)
    }
}

/// A subscription, blocking.
pub struct FeedSubscription {
    runtime: Arc<Runtime>,
    feed: Arc<tokio::sync::Mutex<crate::FeedSubscription>>,
}

impl FeedSubscription {
    /// As [`crate::FeedSubscription::next`].
    ///
    /// # Errors
    /// As there.
    pub fn next(&mut self, wait: Duration) -> Result<Option<FeedRun>, Error> {
        let feed = self.feed.clone();
        self.runtime.wait(async move { feed.lock().await.next(wait).await })?
    }

    /// As [`crate::FeedSubscription::ack`].
    ///
    /// # Errors
    /// As there.
    pub fn ack(&self, cursors: &[(PartitionId, Lsn)]) -> Result<(), Error> {
        let (feed, cursors) = (self.feed.clone(), cursors.to_vec());
        self.runtime.wait(async move { feed.lock().await.ack(&cursors).await })?
    }
}

impl std::fmt::Debug for FeedSubscription {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FeedSubscription").finish_non_exhaustive()
    }
}
