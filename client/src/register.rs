//! The calls that have no end yet, so that a shutdown can say what it leaves in doubt.

use crate::error::{Error, InDoubt};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, watch};

/// What a shutdown left.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShutdownReport {
    /// Commands that were sent and had no answer: their outcomes are not known. Resolve them from
    /// another client.
    pub in_doubt: Vec<InDoubt>,
    /// Calls that were given up and did nothing: questions, and commands that were never sent.
    pub given_up: usize,
}

impl ShutdownReport {
    fn add(&mut self, call: &Call, in_doubt: bool) {
        if in_doubt && !call.doubts.is_empty() {
            self.in_doubt.extend(call.doubts.iter().cloned());
        } else {
            self.given_up += 1;
        }
    }
}

/// How long calls have to notice that they must end.
const STOP_WAIT: Duration = Duration::from_millis(500);

/// One call.
#[derive(Debug)]
pub(crate) struct Call {
    number: u64,
    pub doubts: Vec<InDoubt>,
    /// An attempt may be decided.
    handed: AtomicBool,
    register: Arc<Register>,
}

impl Call {
    pub fn set_handed(&self) {
        self.handed.store(true, Ordering::Release);
    }
}

/// Takes the call off the register when its future ends, however that is.
#[derive(Debug)]
pub(crate) struct CallGuard(pub Arc<Call>);

impl Drop for CallGuard {
    fn drop(&mut self) {
        let mut calls = self.0.register.lock();
        calls.remove(&self.0.number);
        if calls.is_empty() {
            self.0.register.idle.notify_waiters();
        }
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Register {
    calls: Mutex<HashMap<u64, Arc<Call>>>,
    last: AtomicU64,
    closed: AtomicBool,
    /// Ends of calls after the register was closed.
    ended: Mutex<ShutdownReport>,
    idle: Notify,
    /// True: calls end now.
    stop: watch::Sender<bool>,
}

impl Register {
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            calls: Mutex::default(),
            last: AtomicU64::new(0),
            closed: AtomicBool::new(false),
            ended: Mutex::default(),
            idle: Notify::new(),
            stop: watch::Sender::new(false),
        })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Arc<Call>>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new call; none after a shutdown.
    pub fn begin(self: &Arc<Self>, doubts: Vec<InDoubt>) -> Result<CallGuard, Error> {
        let number = self.last.fetch_add(1, Ordering::Relaxed);
        let call = Call { number, doubts, handed: AtomicBool::new(false), register: self.clone() };
        let call = Arc::new(call);
        let mut calls = self.lock();
        // Under the lock, so that a shutdown sees every call or the call sees the shutdown.
        if self.closed.load(Ordering::Acquire) {
            return Err(Error::Closed);
        }
        calls.insert(number, call.clone());
        drop(calls);
        Ok(CallGuard(call))
    }

    /// A call ends without an answer; of interest while the client is shut down.
    pub fn ended(&self, call: &Call, in_doubt: bool) {
        if self.closed.load(Ordering::Acquire) {
            let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
            ended.add(call, in_doubt);
        }
    }

    /// Ends when calls must.
    pub fn stopped(&self) -> watch::Receiver<bool> {
        self.stop.subscribe()
    }

    /// No new calls; waits up to `grace` for those there are, then ends them.
    pub async fn close(&self, grace: Duration) -> ShutdownReport {
        {
            let _calls = self.lock();
            self.closed.store(true, Ordering::Release);
        }
        let _ = tokio::time::timeout(grace, self.wait_idle()).await;
        self.stop.send_replace(true);
        // Calls end as soon as they are polled; those that nobody polls are counted as they stand.
        let _ = tokio::time::timeout(STOP_WAIT, self.wait_idle()).await;
        let calls = self.lock();
        let ended = &mut *self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        let mut report = std::mem::take(ended);
        for call in calls.values() {
            report.add(call, call.handed.load(Ordering::Acquire));
        }
        report
    }

    async fn wait_idle(&self) {
        loop {
            let idle = self.idle.notified();
            tokio::pin!(idle);
            // Registered before the look, so that no end between the two is missed.
            idle.as_mut().enable();
            if self.lock().is_empty() {
                return;
            }
            idle.await;
        }
    }
}
