//! Requests in flight, and the word that no more will be taken.
//!
//! It counts and tells; it neither stops a listener nor cuts a connection. Waiting for the count
//! to reach zero is what makes a shutdown end early instead of after a fixed grace period.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{Notify, watch};

/// A handle on the requests in flight; clones share the count.
#[derive(Clone, Debug)]
pub struct Drain(Arc<State>);

#[derive(Debug)]
struct State {
    in_flight: AtomicUsize,
    idle: Notify,
    closing: watch::Sender<bool>,
}

impl Default for Drain {
    fn default() -> Self {
        let closing = watch::Sender::new(false);
        Self(Arc::new(State { in_flight: AtomicUsize::new(0), idle: Notify::new(), closing }))
    }
}

impl Drain {
    /// Counts one request until the ticket is dropped.
    #[must_use]
    pub fn enter(&self) -> Ticket {
        self.0.in_flight.fetch_add(1, Ordering::AcqRel);
        Ticket(Arc::clone(&self.0))
    }

    /// Requests in flight now.
    pub fn in_flight(&self) -> usize {
        self.0.in_flight.load(Ordering::Acquire)
    }

    /// Tells endless answers, such as event streams, to end.
    pub fn close(&self) {
        self.0.closing.send_replace(true);
    }

    /// Resolves once [`close`](Self::close) was called, at once if it was before.
    pub async fn closing(&self) {
        let mut closing = self.0.closing.subscribe();
        // The sender lives in `self`, so waiting cannot fail.
        let _ = closing.wait_for(|closing| *closing).await;
    }

    /// Resolves when no request is in flight.
    pub async fn idle(&self) {
        loop {
            // Created before the check, so that a request ending in between is not missed.
            let notified = self.0.idle.notified();
            if self.in_flight() == 0 {
                return;
            }
            notified.await;
        }
    }
}

/// One request in flight.
#[derive(Debug)]
pub struct Ticket(Arc<State>);

impl Drop for Ticket {
    fn drop(&mut self) {
        if self.0.in_flight.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.idle.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[tokio::test]
    async fn idle_waits_for_the_last_request_however_it_ends() {
        let drain = Drain::default();
        let (one, two) = (drain.enter(), drain.enter());
        let mut idle = Box::pin(drain.idle());
        assert!(idle.as_mut().now_or_never().is_none());
        drop(one);
        assert!(idle.as_mut().now_or_never().is_none());
        drop(two);
        idle.await;
        assert_eq!(drain.in_flight(), 0);
    }

    #[tokio::test]
    async fn closing_is_told_to_those_who_wait_and_those_who_come_later() {
        let drain = Drain::default();
        let mut waiting = Box::pin(drain.closing());
        assert!(waiting.as_mut().now_or_never().is_none());
        drain.close();
        waiting.await;
        drain.closing().await;
    }
}
