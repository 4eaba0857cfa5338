//! How the store's own disk fares, read when somebody asks for metrics.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use super::SharedStore;

/// Shows the [`DiskState`](super::DiskState) of a store.
#[derive(Debug)]
pub struct DiskCollector(SharedStore);

impl DiskCollector {
    /// Shows the disk of `store`; nothing if it has none.
    #[must_use]
    pub const fn new(store: SharedStore) -> Self {
        Self(store)
    }
}

impl Collector for DiskCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let Some(state) = self.0.disk() else { return Ok(()) };
        let gauges = [
            (
                "store_failing",
                "1 while the data directory cannot be written and the store takes nothing",
                u64::from(state.failing),
            ),
            ("store_unsaved_bytes", "Changes not on the disk yet", state.unsaved_bytes),
            ("store_journal_bytes", "Changes that a start would play again", state.journal_bytes),
        ];
        for (name, help, value) in gauges {
            let gauge = ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX));
            let kind = gauge.metric_type();
            gauge.encode(encoder.encode_descriptor(name, help, None, kind)?)?;
        }
        let counters = [
            ("store_failures", "Tries to save that failed", state.failures),
            ("store_snapshots", "Snapshots made", state.compactions),
        ];
        for (name, help, value) in counters {
            let counter = ConstCounter::new(value);
            let kind = counter.metric_type();
            counter.encode(encoder.encode_descriptor(name, help, None, kind)?)?;
        }
        Ok(())
    }
}
