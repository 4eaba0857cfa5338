//! What can be set about logs.

/// How log lines look.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// Logs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogSettings {
    /// How lines look.
    pub format: LogFormat,
    /// A filter such as `info` or `anteroom=debug,warn`. `RUST_LOG` wins over it.
    pub filter: String,
}

impl Default for LogSettings {
    fn default() -> Self {
        Self { format: LogFormat::Text, filter: "info".into() }
    }
}
