//! What the proxy counts. Labels are closed enums and configured names, never a client's words.

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};

use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// Who answered a request.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, EncodeLabelValue)]
pub(super) enum Outcome {
    /// It broke the limits or could not be read one way only.
    Rejected,
    /// The gate answered: waiting room, refusal, preflight.
    Gate,
    /// The queue API.
    Api,
    /// An upstream.
    Forwarded,
    /// It was to go upstream, and no upstream gave an answer.
    UpstreamFailed,
    /// The client left before an answer was complete.
    ClientGone,
    /// A fault of the gateway.
    Failed,
}

impl Outcome {
    const COUNT: usize = Self::Failed as usize + 1;
}

/// The class of a status code.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, EncodeLabelValue)]
pub(super) enum StatusClass {
    /// No final status was written.
    None,
    /// 1xx: an upgraded connection.
    Informational,
    /// 2xx.
    Success,
    /// 3xx.
    Redirection,
    /// 4xx.
    ClientError,
    /// 5xx.
    ServerError,
}

impl StatusClass {
    const COUNT: usize = Self::ServerError as usize + 1;

    /// The class of `status`; `None` where nothing was written.
    pub(super) fn of(status: Option<http::StatusCode>) -> Self {
        match status.map(|status| status.as_u16() / 100) {
            Some(1) => Self::Informational,
            Some(2) => Self::Success,
            Some(3) => Self::Redirection,
            Some(4) => Self::ClientError,
            Some(5) => Self::ServerError,
            _ => Self::None,
        }
    }
}

/// Why a connection was ended before a request was taken.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, EncodeLabelValue)]
pub(super) enum Refusal {
    /// Too many connections.
    ConnectionLimit,
    /// The head took too long.
    HeadTimeout,
    /// The head is too large.
    HeadTooLarge,
    /// What came is not HTTP.
    Malformed,
}

/// How an upstream failed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, EncodeLabelValue)]
pub(super) enum Fault {
    /// No connection.
    Connect,
    /// Silence.
    Timeout,
    /// A broken connection or an answer that is not HTTP.
    Broken,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct RequestLabels {
    outcome: Outcome,
    status: StatusClass,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct RefusalLabels {
    reason: Refusal,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct FaultLabels {
    upstream: String,
    fault: Fault,
}

type Count = Counter<u64, AtomicU64>;

type Found = [[OnceLock<Count>; StatusClass::COUNT]; Outcome::COUNT];

/// The proxy's metric families; clones count into the same.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    requests: Family<RequestLabels, Count>,
    refusals: Family<RefusalLabels, Count>,
    faults: Family<FaultLabels, Count>,
    /// The counters of `requests` that were needed yet, by outcome and status: finding one in its
    /// family takes a lock and a hash.
    found: Arc<Found>,
    in_flight: Gauge,
    connections: Gauge,
}

impl Metrics {
    /// Registers the families in `registry`, under whatever prefix it has.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register(
            "requests",
            "Requests that ended, by who answered and by status class",
            metrics.requests.clone(),
        );
        registry.register(
            "connections_refused",
            "Connections ended before a request was taken",
            metrics.refusals.clone(),
        );
        registry.register(
            "upstream_failures",
            "Failed attempts at an upstream; a failover that succeeds counts here too",
            metrics.faults.clone(),
        );
        registry.register(
            "requests_in_flight",
            "Requests being served, upgraded connections included",
            metrics.in_flight.clone(),
        );
        registry.register("connections", "Open client connections", metrics.connections.clone());
        metrics
    }

    /// One request ended.
    pub(super) fn request(&self, outcome: Outcome, status: StatusClass) {
        let find = || self.requests.get_or_create(&RequestLabels { outcome, status }).clone();
        self.found[outcome as usize][status as usize].get_or_init(find).inc();
    }

    /// One connection was ended before a request was taken.
    pub(super) fn refused(&self, reason: Refusal) {
        self.refusals.get_or_create(&RefusalLabels { reason }).inc();
    }

    /// One attempt at `upstream` failed.
    pub(super) fn upstream_fault(&self, upstream: &str, fault: Fault) {
        self.faults.get_or_create(&FaultLabels { upstream: upstream.to_owned(), fault }).inc();
    }

    /// Counts one request in flight until the guard is dropped.
    pub(super) fn enter_request(&self) -> Level {
        Level::raise(&self.in_flight)
    }

    /// Counts one connection until the guard is dropped.
    pub(super) fn enter_connection(&self) -> Level {
        Level::raise(&self.connections)
    }
}

/// A gauge that is one higher while this lives.
#[derive(Debug)]
pub(super) struct Level(Gauge);

impl Level {
    fn raise(gauge: &Gauge) -> Self {
        gauge.inc();
        Self(gauge.clone())
    }
}

impl Drop for Level {
    fn drop(&mut self) {
        self.0.dec();
    }
}
