//! Moves people from the line to the active set: ticks that any number of gateways may run.
//!
//! The store decides how many may move, atomically and by its own clock, so there is no leader
//! and no lock: a tick too many admits nobody too many.

mod metrics;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tracing::{debug, trace};

use crate::queue::command::AdmitBy;
use crate::queue::settings::Mode;
use crate::store::mirror::{LocalQueue, Mirror};

pub use metrics::QueueCollector;

/// How often each gateway asks for admissions.
const TICK: Duration = Duration::from_millis(200);

/// Users admitted by one command: about a millisecond of one Redis core.
const BATCH: u64 = 500;

/// Batches in one tick of one queue, so that one queue cannot starve the others.
const BATCHES: u32 = 20;

/// Runs the ticks until `stop` turns true.
pub async fn run(mirror: Arc<Mirror>, mut stop: watch::Receiver<bool>) {
    // A random phase spreads the ticks of several gateways over the interval.
    let phase = TICK.mul_f64(rand::random());
    let mut ticks = tokio::time::interval_at(tokio::time::Instant::now() + phase, TICK);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    while !*stop.borrow_and_update() {
        tokio::select! {
            _ = ticks.tick() => {}
            _ = stop.changed() => continue,
        }
        for queue in mirror.all() {
            if may_admit(&queue) {
                admit(&queue).await;
            }
        }
    }
}

/// Whether the local picture says that asking could admit anybody.
fn may_admit(queue: &LocalQueue) -> bool {
    let picture = queue.picture();
    picture.waiting() > 0 && matches!(picture.settings.mode, Mode::Auto | Mode::QueueAll)
}

async fn admit(queue: &LocalQueue) {
    for _ in 0..BATCHES {
        match queue.admit(BATCH, AdmitBy::Tick).await {
            Ok(admitted) => {
                trace!(queue.name = %queue.name(), admitted.count, "admitted");
                if admitted.count < BATCH {
                    return;
                }
            }
            Err(error) => {
                debug!(%error, queue.name = %queue.name(), "no admission for queue `{}`: {error}", queue.name());
                return;
            }
        }
    }
}
