//! The connection to Redis: made on first use, shared by all, replaced when it fails, and never
//! waited for longer than the settings say.
//!
//! Connecting goes on in the background, one attempt at a time: a caller whose time is over is told
//! so, and the next one finds the connection made. Whether a store counts as away is not decided
//! here but by the mirror, which stops asking.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use redis::{Cmd, ErrorKind, RedisError, ServerErrorKind, Value};
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};
use tracing::{debug, info};

use crate::store::{RedisSettings, StoreError};

use super::address::Host;
use super::failure::{Reaction, failed, judge, unavailable};
use super::scripts::Source;
use super::topology::{Link, Topology};

/// Timeouts in a row after which the connection counts as dead though nobody closed it, as when
/// the machine at its other end is gone.
const TIMEOUTS_IN_A_ROW: u32 = 3;

/// After an attempt that failed, callers get its error for so long: a crowd does not knock more
/// often than this.
const PAUSE: Duration = Duration::from_millis(50);

/// How often a cluster is looked at anew while some of its nodes are silent. The nodes that answer
/// are not disturbed by it.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// How often sentinels are asked whether the master is still the same.
const ASK_SENTINELS: Duration = Duration::from_secs(1);

/// A connection that comes back by itself.
#[derive(Debug)]
pub(super) struct Connection(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    topology: Topology,
    /// The longest any call takes.
    patience: Duration,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    live: Option<Live>,
    /// Connections made so far.
    made: u64,
    /// Closes when the attempt that is under way ends.
    attempt: Option<watch::Receiver<()>>,
    /// When the last attempt failed and why; none since the last that succeeded.
    failed: Option<(Instant, RedisError)>,
}

/// A connection in use.
#[derive(Clone, Debug)]
struct Live {
    link: Link,
    number: u64,
    since: Instant,
    timeouts: Arc<AtomicU32>,
}

impl Connection {
    /// Prepares a connection without making it.
    pub(super) fn new(settings: &RedisSettings) -> Result<Self, StoreError> {
        let topology = Topology::new(settings)?;
        let (patience, state) = (settings.response_timeout, Mutex::default());
        Ok(Self(Arc::new(Shared { topology, patience, state })))
    }

    /// Runs a script; sends its text if Redis has forgotten it.
    pub(super) async fn run(
        &self,
        script: &Source,
        keys: &[String],
        args: &[&[u8]],
    ) -> Result<Value, StoreError> {
        let deadline = Instant::now() + self.0.patience;
        let command = |verb: &str, script: &str| {
            let mut command = redis::cmd(verb);
            command.arg(script).arg(keys.len()).arg(keys).arg(args);
            command
        };
        match self.0.ask(&command("EVALSHA", &script.hash), deadline).await {
            Err(Failure::Answer(error))
                if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) =>
            {
                Ok(self.0.ask(&command("EVAL", script.text), deadline).await?)
            }
            other => Ok(other?),
        }
    }

    /// Sends one command.
    pub(super) async fn send(&self, command: &Cmd) -> Result<Value, StoreError> {
        Ok(self.0.ask(command, Instant::now() + self.0.patience).await?)
    }
}

/// Why there is no answer.
#[derive(Debug)]
enum Failure {
    /// No connection could be made: nothing was sent.
    Unconnected(RedisError),
    /// No connection was made in time: nothing was sent.
    Connecting,
    /// The command was handed to a connection.
    Answer(RedisError),
}

impl From<Failure> for StoreError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Unconnected(error) => unavailable(error),
            Failure::Connecting => unavailable(silence()),
            Failure::Answer(error) => failed(error),
        }
    }
}

fn silence() -> RedisError {
    RedisError::from(std::io::Error::from(std::io::ErrorKind::TimedOut))
}

impl Shared {
    async fn ask(self: &Arc<Self>, command: &Cmd, deadline: Instant) -> Result<Value, Failure> {
        let live = match timeout_at(deadline, self.live()).await {
            Ok(live) => live.map_err(Failure::Unconnected)?,
            Err(_) => return Err(Failure::Connecting),
        };
        let mut link = live.link.clone();
        let answer = timeout_at(deadline, link.query(command)).await;
        let answer = answer.unwrap_or_else(|_| Err(silence()));
        self.learn(&live, answer.as_ref().err());
        answer.map_err(Failure::Answer)
    }

    /// The connection; made if there is none.
    async fn live(self: &Arc<Self>) -> Result<Live, RedisError> {
        loop {
            let mut attempt = {
                let mut state = self.state.lock();
                if let Some(live) = &state.live {
                    return Ok(live.clone());
                }
                if let Some((at, error)) = &state.failed
                    && at.elapsed() < PAUSE
                {
                    return Err(error.clone());
                }
                self.begin(&mut state)
            };
            // Nothing is ever sent: this ends with the attempt, also if its runtime ends first.
            let _ = attempt.changed().await;
        }
    }

    /// The attempt under way; a new one if there is none.
    fn begin(self: &Arc<Self>, state: &mut State) -> watch::Receiver<()> {
        if let Some(attempt) = &state.attempt
            && attempt.has_changed().is_ok()
        {
            return attempt.clone();
        }
        let (done, attempt) = watch::channel(());
        state.attempt = Some(attempt.clone());
        let shared = Arc::clone(self);
        tokio::spawn(async move {
            let connected = shared.topology.connect().await;
            shared.settle(connected);
            drop(done);
        });
        attempt
    }

    /// Ends an attempt.
    fn settle(self: &Arc<Self>, connected: Result<(Link, Option<Host>), RedisError>) {
        let mut state = self.state.lock();
        state.attempt = None;
        match connected {
            Ok((link, master)) => {
                state.failed = None;
                state.made += 1;
                let (number, since) = (state.made, Instant::now());
                state.live = Some(Live { link, number, since, timeouts: Arc::default() });
                if let Some((host, port)) = master {
                    info!(store.master = %format_args!("{host}:{port}"), "the master of the store is {host}:{port}");
                    tokio::spawn(watch_master(Arc::downgrade(self), number, (host, port)));
                }
            }
            Err(error) => {
                debug!(%error, "no connection to Redis: {error}");
                state.failed = Some((Instant::now(), error));
            }
        }
    }

    /// Decides from the outcome of a command whether its connection is still good.
    fn learn(self: &Arc<Self>, live: &Live, error: Option<&RedisError>) {
        let reaction = error.map_or(Reaction::Keep, |error| judge(error).1);
        if self.topology.is_cluster() {
            // It repairs itself node by node. What it does not notice is a node that is silent for
            // good while another was promoted in its place.
            if reaction != Reaction::Keep && live.since.elapsed() >= LOOK_AGAIN {
                let mut state = self.state.lock();
                let tried = state.failed.as_ref().is_some_and(|(at, _)| at.elapsed() < LOOK_AGAIN);
                if !tried {
                    self.begin(&mut state);
                }
            }
            return;
        }
        match reaction {
            Reaction::Keep => live.timeouts.store(0, Ordering::Relaxed),
            Reaction::Renew => self.give_up(live.number),
            Reaction::Suspect => {
                if live.timeouts.fetch_add(1, Ordering::Relaxed) + 1 >= TIMEOUTS_IN_A_ROW {
                    self.give_up(live.number);
                }
            }
        }
    }

    /// Starts over, unless somebody else just did.
    fn give_up(self: &Arc<Self>, number: u64) {
        let mut state = self.state.lock();
        if state.live.as_ref().is_some_and(|live| live.number == number) {
            state.live = None;
            self.begin(&mut state);
        }
    }

    fn is_current(&self, number: u64) -> bool {
        self.state.lock().live.as_ref().is_some_and(|live| live.number == number)
    }
}

/// Starts over once sentinels name another master than the one connected to, though that one may
/// go on answering: it may be cut off from them, and what it takes would be lost.
async fn watch_master(shared: std::sync::Weak<Shared>, number: u64, master: Host) {
    loop {
        tokio::time::sleep(ASK_SENTINELS).await;
        let Some(shared) = shared.upgrade().filter(|shared| shared.is_current(number)) else {
            return;
        };
        let Some(sentinels) = shared.topology.sentinels() else { return };
        // Sentinels that do not answer change nothing: the master is what counts.
        if sentinels.master().await.is_ok_and(|named| named != master) {
            shared.give_up(number);
            return;
        }
    }
}
