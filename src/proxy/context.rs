//! What one request carries between phases.

use std::net::SocketAddr;
use std::sync::Arc;

use http::HeaderValue;
use uuid::Uuid;

use super::drain::Ticket;
use super::metrics::{Level, Outcome};
use super::upstream::Upstream;
use crate::gate::Forward;
use crate::identity::client_address::Connection;

/// One request between phases. Dropping it ends the request for the drain and the gauge, whatever
/// way it ended: a panic skips pingora's `logging` phase, a destructor is never skipped.
#[derive(Debug)]
pub struct Context {
    /// Its id, given to the upstream and to the client.
    pub(super) request_id: HeaderValue,
    /// What it came over.
    pub(super) connection: Connection,
    /// Whether the peer's forwarding headers are believed.
    pub(super) trusted: bool,
    /// Who answers it, as far as known yet.
    pub(super) outcome: Outcome,
    /// Where it goes, once judged.
    pub(super) forward: Option<Box<Forward>>,
    /// The upstream it goes to.
    pub(super) upstream: Option<Arc<Upstream>>,
    /// Servers that could not be connected to for this request.
    pub(super) failed: Vec<SocketAddr>,
    /// Whether the connection was upgraded; what follows is no body.
    pub(super) upgraded: bool,
    /// Bytes of a proxied body seen so far.
    pub(super) body_bytes: u64,
    _in_flight: (Ticket, Level),
}

impl Context {
    /// A request that has just been read, with a fresh id and nothing known about its peer.
    pub(super) fn new(ticket: Ticket, level: Level) -> Self {
        Self {
            request_id: fresh_request_id(),
            connection: Connection { peer: Some(Connection::NOBODY), tls: false },
            trusted: false,
            outcome: Outcome::Failed,
            forward: None,
            upstream: None,
            failed: Vec::new(),
            upgraded: false,
            body_bytes: 0,
            _in_flight: (ticket, level),
        }
    }
}

/// A new request id: a `UUIDv7`, so that ids sort by time in logs.
pub(super) fn fresh_request_id() -> HeaderValue {
    let mut text = Uuid::encode_buffer();
    let text = Uuid::now_v7().as_hyphenated().encode_lower(&mut text);
    HeaderValue::from_str(text).expect("hexadecimal digits and hyphens are a header value")
}
