//! The queue API, as `http` responses: it knows no socket and no pingora.

pub mod openapi;
mod settings;

pub use settings::{ApiSettings, SimpleSettings};
