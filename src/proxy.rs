//! pingora carries the bytes; each phase is one call into the stages named in the crate's picture.

mod settings;

pub use settings::{Limits, Listen, ServerSettings, UpstreamSettings};
