//! anteroom is a self-hosted virtual waiting room at the edge: a gateway that lets in as many as a
//! shop can serve, keeps everybody else in a fair line, and never lets a request without an active
//! queue token reach a protected service.
//!
//! Data flows one way, and the modules are named after the stages it passes:
//!
//! ```text
//! server/listener -> proxy/phases -> route -> identity -> gate -> proxy/dispatch -+-> proxy/upstream   (proxy)
//!                                                          ^                      +-> api              (queue API)
//!                                      admission -> store -+                      +-> page             (waiting room)
//!                                                   queue, token: the rules both sides share, pure
//! ```
//!
//! Who may import whom is in `docs/architecture.md` and enforced by `tests/architecture.rs`.

pub mod admin;
pub mod api;
pub mod clock;
pub mod config;
pub mod gate;
pub mod identity;
pub mod page;
pub mod problem;
pub mod proxy;
pub mod queue;
pub mod store;
pub mod route;
pub mod server;
pub mod telemetry;
pub mod token;
