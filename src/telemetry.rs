//! Logs. Tokens, cookies and bodies are never logged anywhere, so nothing has to be taken out
//! here.

mod settings;

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

pub use settings::{LogFormat, LogSettings};

/// Starts logging to standard error. `RUST_LOG` wins over the configured filter. A second call
/// changes nothing.
///
/// # Errors
/// When the filter cannot be read.
pub fn start(settings: &LogSettings) -> Result<(), tracing_subscriber::filter::ParseError> {
    let filter = match std::env::var("RUST_LOG") {
        Ok(filter) if !filter.is_empty() => EnvFilter::try_new(filter)?,
        // What pingora says in normal running is no news to an operator, and what the Redis client
        // says about nodes of a cluster is said by us once, where it matters.
        _ => {
            let quiet = "pingora_core=warn,pingora_proxy=warn,redis=off";
            EnvFilter::try_new(format!("{quiet},{}", settings.filter))?
        }
    };
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal());
    // Only the first subscriber of a process counts; tests start several gateways in one.
    let _ = match settings.format {
        LogFormat::Text => builder.try_init(),
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
    };
    Ok(())
}
