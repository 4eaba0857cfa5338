//! Logs.

mod settings;

pub use settings::{LogFormat, LogSettings};
