//! `[log]`: what is logged, and how it looks.

use tracing_subscriber::EnvFilter;

use crate::telemetry::{LogFormat, LogSettings};

use super::raw::Table;

pub(super) fn read(root: &mut Table<'_>) -> LogSettings {
    let mut table = root.table("log");
    let format = table.take("format");
    let filter = table.take("filter");
    table.done();

    let default = LogSettings::default();
    let formats = [("text", LogFormat::Text), ("json", LogFormat::Json)];
    LogSettings {
        format: format.choice(&formats).unwrap_or(default.format),
        filter: filter
            .parsed("a filter such as \"info\" or \"anteroom=debug,warn\"", |text| {
                let sound = !text.trim().is_empty() && EnvFilter::builder().parse(text).is_ok();
                sound.then(|| text.to_owned())
            })
            .unwrap_or(default.filter),
    }
}
