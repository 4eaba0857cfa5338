//! What signals mean.
//!
//! | signal | first time | after a stop has begun |
//! |---|---|---|
//! | `SIGTERM` | not ready for `shutdown_delay`, then drain | stop at once |
//! | `SIGINT` | drain | stop at once |
//! | `SIGHUP` | ask for a reload | nothing |
//!
//! It only says what is to happen, through watches; listeners, health and store act on it.

use std::io;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};
use tracing::{info, warn};

/// What the rest of the process watches.
#[derive(Clone, Debug)]
pub struct Shutdown {
    /// True from the first stop signal on: the gateway is to say that it is not ready.
    pub leaving: watch::Receiver<bool>,
    /// True when no more connections are to be taken and requests in flight are to end.
    pub stop: watch::Receiver<bool>,
    /// True when the process is to end without waiting for anything.
    pub now: watch::Receiver<bool>,
}

/// One signal of interest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Signal {
    /// `SIGTERM`.
    Terminate,
    /// `SIGINT`.
    Interrupt,
    /// `SIGHUP`.
    Hangup,
}

/// Handles the process's signals from now on, on the current tokio runtime.
///
/// - `shutdown_delay`: how long the gateway goes on after `SIGTERM`, not ready, so that balancers
///   notice before connections are refused.
/// - `reload`: gets one message per `SIGHUP`; messages nobody takes in time are merged. With `None`
///   a `SIGHUP` is logged and has no effect, where the system's default would end the process.
///
/// # Errors
/// When a handler cannot be installed.
pub fn handle_signals(
    shutdown_delay: Duration,
    reload: Option<mpsc::Sender<()>>,
) -> io::Result<Shutdown> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut hangup = signal(SignalKind::hangup())?;
    let (sender, signals) = mpsc::channel(4);
    tokio::spawn(async move {
        loop {
            let signal = tokio::select! {
                Some(()) = terminate.recv() => Signal::Terminate,
                Some(()) = interrupt.recv() => Signal::Interrupt,
                Some(()) = hangup.recv() => Signal::Hangup,
                else => return,
            };
            if sender.send(signal).await.is_err() {
                return;
            }
        }
    });
    Ok(follow(signals, shutdown_delay, reload))
}

/// The same for signals from anywhere. When `signals` ends, nothing more happens.
pub fn follow(
    signals: mpsc::Receiver<Signal>,
    shutdown_delay: Duration,
    reload: Option<mpsc::Sender<()>>,
) -> Shutdown {
    let (leaving, is_leaving) = watch::channel(false);
    let (stop, is_stop) = watch::channel(false);
    let (now, is_now) = watch::channel(false);
    let course = Course { signals, shutdown_delay, reload, leaving, stop, now };
    tokio::spawn(course.run());
    Shutdown { leaving: is_leaving, stop: is_stop, now: is_now }
}

struct Course {
    signals: mpsc::Receiver<Signal>,
    shutdown_delay: Duration,
    reload: Option<mpsc::Sender<()>>,
    leaving: watch::Sender<bool>,
    stop: watch::Sender<bool>,
    now: watch::Sender<bool>,
}

impl Course {
    async fn run(mut self) {
        let delay = loop {
            match self.signals.recv().await {
                Some(Signal::Terminate) => break self.shutdown_delay,
                Some(Signal::Interrupt) => break Duration::ZERO,
                Some(Signal::Hangup) => self.ask_for_reload(),
                None => return self.stay().await,
            }
        };
        info!(delay_ms = delay.as_millis(), "stopping; another signal stops at once");
        self.leaving.send_replace(true);
        let over = Instant::now() + delay;
        loop {
            let stopping = *self.stop.borrow();
            tokio::select! {
                biased;
                signal = self.signals.recv() => match signal {
                    Some(Signal::Hangup) => {}
                    Some(Signal::Terminate | Signal::Interrupt) => break,
                    None if stopping => return self.stay().await,
                    None => {
                        sleep_until(over).await;
                        self.stop.send_replace(true);
                        return self.stay().await;
                    }
                },
                () = sleep_until(over), if !stopping => {
                    self.stop.send_replace(true);
                }
            }
        }
        warn!("stopping at once");
        self.stop.send_replace(true);
        self.now.send_replace(true);
        self.stay().await;
    }

    /// Keeps the senders: to those who watch, a sender that is gone means stop.
    async fn stay(&self) {
        tokio::join!(self.leaving.closed(), self.stop.closed(), self.now.closed());
    }

    fn ask_for_reload(&self) {
        if let Some(reload) = &self.reload {
            // A full channel holds a request for the same thing already.
            let _ = reload.try_send(());
        } else {
            warn!("a reload was asked for, but this gateway cannot reload; restart it");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(3600);

    fn course(delay: Duration) -> (mpsc::Sender<Signal>, Shutdown, mpsc::Receiver<()>) {
        let (signals, receiver) = mpsc::channel(4);
        let (reload, reloads) = mpsc::channel(1);
        (signals, follow(receiver, delay, Some(reload)), reloads)
    }

    async fn is_true(watch: &mut watch::Receiver<bool>) {
        watch.wait_for(|value| *value).await.unwrap();
    }

    #[tokio::test]
    async fn sigterm_leaves_at_once_and_stops_after_the_delay() {
        let (signals, mut shutdown, _reloads) = course(LONG);
        signals.send(Signal::Terminate).await.unwrap();
        is_true(&mut shutdown.leaving).await;
        assert!(!*shutdown.stop.borrow());

        let (signals, mut shutdown, _reloads) = course(Duration::ZERO);
        signals.send(Signal::Terminate).await.unwrap();
        is_true(&mut shutdown.stop).await;
        assert!(!*shutdown.now.borrow());
    }

    #[tokio::test]
    async fn sigint_drains_without_delay() {
        let (signals, mut shutdown, _reloads) = course(LONG);
        signals.send(Signal::Interrupt).await.unwrap();
        is_true(&mut shutdown.stop).await;
        assert!(*shutdown.leaving.borrow());
        assert!(!*shutdown.now.borrow());
    }

    #[tokio::test]
    async fn a_second_signal_stops_at_once_even_during_the_delay() {
        let (signals, mut shutdown, _reloads) = course(LONG);
        signals.send(Signal::Terminate).await.unwrap();
        signals.send(Signal::Interrupt).await.unwrap();
        is_true(&mut shutdown.now).await;
        assert!(*shutdown.stop.borrow());

        let (signals, mut shutdown, _reloads) = course(Duration::ZERO);
        signals.send(Signal::Interrupt).await.unwrap();
        is_true(&mut shutdown.stop).await;
        signals.send(Signal::Terminate).await.unwrap();
        is_true(&mut shutdown.now).await;
    }

    #[tokio::test]
    async fn sighup_asks_for_a_reload_and_never_stops_anything() {
        let (signals, mut shutdown, mut reloads) = course(LONG);
        for _ in 0..3 {
            signals.send(Signal::Hangup).await.unwrap();
        }
        reloads.recv().await.unwrap();
        signals.send(Signal::Terminate).await.unwrap();
        signals.send(Signal::Hangup).await.unwrap();
        is_true(&mut shutdown.leaving).await;
        assert!(!*shutdown.stop.borrow() && !*shutdown.now.borrow());

        let (signals, receiver) = mpsc::channel(4);
        let mut without = follow(receiver, LONG, None);
        signals.send(Signal::Hangup).await.unwrap();
        signals.send(Signal::Interrupt).await.unwrap();
        is_true(&mut without.stop).await;
    }
}
