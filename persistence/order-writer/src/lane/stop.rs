//! The stop signal of all lanes.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Set once, seen by all.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<(Mutex<bool>, Condvar)>);

impl Stop {
    /// Asks every lane to stop.
    pub fn set(&self) {
        *self.0.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.0.1.notify_all();
    }

    /// Was it asked?
    pub fn is_set(&self) -> bool {
        *self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits; true as soon as it was asked to stop.
    pub fn wait(&self, most: Duration) -> bool {
        let guard = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.0.1.wait_timeout_while(guard, most, |stop| !*stop);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }
}
