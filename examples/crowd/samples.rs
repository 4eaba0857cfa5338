//! What the line looks like from outside while the crowd waits: the queue's status, and, where it
//! can be reached, the store itself.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};

use super::client::Client;

const EVERY: Duration = Duration::from_millis(50);

/// Samples of how many were active.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ActiveSamples {
    /// Samples taken.
    pub(crate) count: u64,
    /// The most active in one of them.
    pub(crate) most: u64,
    /// Samples with more active than the capacity they named.
    pub(crate) over_capacity: u64,
}

impl ActiveSamples {
    fn add(&mut self, active: u64, capacity: u64) {
        self.count += 1;
        self.most = self.most.max(active);
        self.over_capacity += u64::from(active > capacity);
    }
}

/// Samples of the store.
#[derive(Clone, Debug, Default)]
pub(crate) struct StoreSamples {
    /// How many were active.
    pub(crate) active: ActiveSamples,
    /// Different numbers seen active.
    pub(crate) numbers: u64,
    /// Numbers that came in after a greater one, late ones apart.
    pub(crate) inversions: u64,
    /// Numbers that had been in the late lane, or came back after they had gone.
    pub(crate) late: u64,
}

/// Samples the queue's status until `stop` ends.
pub(crate) async fn status(client: Arc<Client>, mut stop: watch::Receiver<()>) -> ActiveSamples {
    let mut samples = ActiveSamples::default();
    let mut ticks = interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        tokio::select! {
            _ = stop.changed() => return samples,
            _ = ticks.tick() => {}
        }
        if let Some(status) = client.status().await {
            samples.add(status.active, status.capacity);
        }
    }
}

/// The keys of one queue in Redis.
#[derive(Clone, Debug)]
pub(crate) struct Keys {
    active: String,
    late: String,
    meta: String,
}

impl Keys {
    /// The keys of `queue` behind `prefix`.
    pub(crate) fn new(prefix: &str, queue: &str) -> Self {
        let key = |part: &str| format!("{prefix}{{{queue}}}:{part}");
        Self { active: key("a"), late: key("l"), meta: key("m") }
    }
}

type Sample = ((u64, u64), Vec<(u64, u64)>, Vec<u64>, Option<u64>);

/// Samples the store until `stop` ends.
pub(crate) async fn store(
    mut connection: MultiplexedConnection,
    keys: Keys,
    mut stop: watch::Receiver<()>,
) -> redis::RedisResult<StoreSamples> {
    let mut samples = StoreSamples::default();
    let (mut known, mut inside, mut late) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    let mut greatest = 0;
    let mut ticks = interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        tokio::select! {
            _ = stop.changed() => return Ok(samples),
            _ = ticks.tick() => {}
        }
        // One moment: Redis runs a transaction without anything between.
        let ((secs, micros), active, in_late_lane, capacity): Sample = redis::pipe()
            .atomic()
            .cmd("TIME")
            .cmd("ZRANGE")
            .arg(&keys.active)
            .arg(0)
            .arg(-1)
            .arg("WITHSCORES")
            .cmd("ZRANGE")
            .arg(&keys.late)
            .arg(0)
            .arg(-1)
            .cmd("HGET")
            .arg(&keys.meta)
            .arg("capacity")
            .query_async(&mut connection)
            .await?;
        let now = secs * 1000 + micros / 1000;
        late.extend(in_late_lane);
        let now_inside: BTreeSet<u64> =
            active.into_iter().filter(|(_, until)| *until > now).map(|(seq, _)| seq).collect();
        if let Some(capacity) = capacity {
            samples.active.add(now_inside.len() as u64, capacity);
        }
        for seq in now_inside.difference(&inside) {
            if late.contains(seq) || known.contains(seq) {
                samples.late += 1;
            } else if *seq < greatest {
                samples.inversions += 1;
            }
        }
        known.extend(now_inside.iter().copied());
        greatest = known.last().copied().unwrap_or(0);
        samples.numbers = known.len() as u64;
        inside = now_inside;
    }
}
