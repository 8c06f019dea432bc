//! A shard's mailbox: any thread puts batches in, one task of the shard takes them out.
//!
//! One lock and at most one wake for a batch. The mailbox itself has no bound: every kind of
//! message is bounded where it is made (commands by the shard's queue, answers by the commands in
//! flight, feed pushes by credit).

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

#[derive(Debug)]
struct Inner<T> {
    messages: Vec<T>,
    waker: Option<Waker>,
}

/// See the module.
#[derive(Debug)]
pub struct Mailbox<T>(Mutex<Inner<T>>);

impl<T> Default for Mailbox<T> {
    fn default() -> Self {
        Self(Mutex::new(Inner { messages: Vec::new(), waker: None }))
    }
}

impl<T> Mailbox<T> {
    /// Puts one message in.
    pub fn push(&self, message: T) {
        let mut inner = self.lock();
        inner.messages.push(message);
        wake(inner);
    }

    /// Puts all of `batch` in and leaves it empty.
    pub fn push_batch(&self, batch: &mut Vec<T>) {
        if batch.is_empty() {
            return;
        }
        let mut inner = self.lock();
        inner.messages.append(batch);
        wake(inner);
    }

    /// Moves everything that is there into `out`.
    pub fn take(&self, out: &mut Vec<T>) {
        let mut inner = self.lock();
        if out.is_empty() {
            std::mem::swap(&mut inner.messages, out);
        } else {
            out.append(&mut inner.messages);
        }
    }

    /// Ready when there is a message; else the task is woken by the next one.
    pub fn poll(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut inner = self.lock();
        if !inner.messages.is_empty() {
            inner.waker = None;
            return Poll::Ready(());
        }
        if !inner.waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
            inner.waker = Some(cx.waker().clone());
        }
        Poll::Pending
    }

    fn lock(&self) -> MutexGuard<'_, Inner<T>> {
        // Nothing that can panic runs under the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Wakes outside of the lock.
fn wake<T>(mut inner: MutexGuard<'_, Inner<T>>) {
    let waker = inner.waker.take();
    drop(inner);
    if let Some(waker) = waker {
        waker.wake();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    #[derive(Default)]
    struct Counter(AtomicUsize);

    impl Wake for Counter {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_batch_wakes_once_and_comes_out_in_order() {
        let mailbox = Mailbox::default();
        let counter = Arc::new(Counter::default());
        let waker = Waker::from(counter.clone());
        let mut cx = Context::from_waker(&waker);
        assert!(mailbox.poll(&mut cx).is_pending());
        mailbox.push_batch(&mut vec![1, 2, 3]);
        mailbox.push(4);
        assert_eq!(counter.0.load(Ordering::Relaxed), 1, "a wake that was not asked for");
        assert!(mailbox.poll(&mut cx).is_ready());
        let mut out = vec![0];
        mailbox.take(&mut out);
        assert_eq!(out, [0, 1, 2, 3, 4]);
        assert!(mailbox.poll(&mut cx).is_pending());
    }

    #[test]
    fn an_empty_batch_wakes_nobody() {
        let mailbox = Mailbox::<u8>::default();
        let counter = Arc::new(Counter::default());
        let waker = Waker::from(counter.clone());
        assert!(mailbox.poll(&mut Context::from_waker(&waker)).is_pending());
        mailbox.push_batch(&mut Vec::new());
        assert_eq!(counter.0.load(Ordering::Relaxed), 0);
    }
}
