//! What the gate counts.

use std::collections::HashMap;
use std::sync::Arc;

use foldhash::fast::RandomState;
use parking_lot::RwLock;
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

use crate::store::mirror::LocalQueue;

/// How the gate decided.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, EncodeLabelValue)]
pub enum Decision {
    /// An active token passed.
    Pass,
    /// The queue's gate stands open (`mode = "pass_all"`).
    Open,
    /// The caller waits: page, redirect or refusal.
    Wait,
    /// The caller was refused for what it sent.
    Refuse,
    /// The store was away and the policy let everybody pass.
    FailedOpen,
    /// The store was away and the gateway could prove that the token is active.
    FailedHeld,
    /// The store was away and the caller was refused.
    FailedClosed,
}

/// How many decisions there are.
const DECISIONS: usize = 7;

impl Decision {
    const ALL: [Self; DECISIONS] = [
        Self::Pass,
        Self::Open,
        Self::Wait,
        Self::Refuse,
        Self::FailedOpen,
        Self::FailedHeld,
        Self::FailedClosed,
    ];
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct Labels {
    queue: String,
    decision: Decision,
}

/// Counters of the gate.
#[derive(Clone, Debug, Default)]
pub struct GateMetrics {
    decisions: Arc<Family<Labels, Counter>>,
    /// The counters of each queue by its label, so that counting makes no label.
    by_queue: Arc<RwLock<HashMap<String, [Counter; DECISIONS], RandomState>>>,
}

impl GateMetrics {
    /// Counters that are shown by `registry`.
    #[must_use]
    pub fn new(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register(
            "gate_decisions",
            "Decisions of the gate by queue (name or template)",
            Family::clone(&metrics.decisions),
        );
        metrics
    }

    pub(super) fn count(&self, queue: &LocalQueue, decision: Decision) {
        if let Some(counters) = self.by_queue.read().get(queue.label()) {
            counters[decision as usize].inc();
            return;
        }
        let counters = Decision::ALL.map(|decision| {
            let labels = Labels { queue: queue.label().to_owned(), decision };
            Counter::clone(&self.decisions.get_or_create(&labels))
        });
        let mut by_queue = self.by_queue.write();
        let counters = by_queue.entry(queue.label().to_owned()).or_insert(counters);
        counters[decision as usize].inc();
    }
}
