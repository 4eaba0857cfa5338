//! What each queue looks like from this gateway, read when somebody asks for metrics.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use crate::store::mirror::{LocalQueue, Mirror, Picture};

/// Shows who waits, is active and was admitted in all queues, summed over the instances of a
/// template.
pub struct QueueCollector(Arc<Mirror>);

impl QueueCollector {
    /// Shows the queues of `mirror`.
    #[must_use]
    pub const fn new(mirror: Arc<Mirror>) -> Self {
        Self(mirror)
    }

    /// One number of every queue, by name or template.
    fn sums(&self, of: fn(&LocalQueue, &Picture) -> u64) -> BTreeMap<String, u64> {
        let mut sums = BTreeMap::new();
        for queue in self.0.all() {
            *sums.entry(queue.label().to_owned()).or_default() += of(&queue, &queue.picture());
        }
        sums
    }
}

impl fmt::Debug for QueueCollector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("QueueCollector")
    }
}

/// Name, help and value of a gauge.
type Gauge = (&'static str, &'static str, fn(&LocalQueue, &Picture) -> u64);

impl Collector for QueueCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let arrivals = "Users who came while the store was away and have not entered yet";
        let gauges: [Gauge; 5] = [
            ("queue_waiting", "Users waiting, late ones included", |_, picture| picture.waiting()),
            ("queue_active", "Tokens active", |_, picture| picture.active),
            ("queue_capacity", "Most tokens active at once", |_, picture| {
                picture.settings.capacity
            }),
            ("queue_arrivals_held", arrivals, |queue, _| queue.arrivals() as u64),
            ("queue_fences", "Moves of the line to a new server of its store", |_, picture| {
                picture.recovery.fences
            }),
        ];
        for (name, help, of) in gauges {
            let kind = ConstGauge::new(0i64).metric_type();
            let mut family = encoder.encode_descriptor(name, help, None, kind)?;
            for (queue, value) in self.sums(of) {
                let gauge = ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX));
                gauge.encode(family.encode_family(&[("queue", queue)])?)?;
            }
        }
        let help = "Users admitted since the queue was created";
        let kind = ConstCounter::new(0u64).metric_type();
        let mut family = encoder.encode_descriptor("queue_admitted", help, None, kind)?;
        for (queue, value) in self.sums(|_, picture| picture.admitted) {
            ConstCounter::new(value).encode(family.encode_family(&[("queue", queue)])?)?;
        }
        Ok(())
    }
}
