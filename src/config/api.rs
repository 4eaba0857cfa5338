//! `[api]`: the queue API and the compatibility set.

use ipnet::IpNet;

use crate::api::{ApiSettings, SimpleSettings};
use crate::route::COMPATIBILITY_PATHS;

use super::networks;
use super::origin;
use super::raw::{Table, Value};

/// The section with the place that is compared with others later.
pub(super) struct Api<'a> {
    pub(super) settings: ApiSettings,
    pub(super) prefix: Value<'a>,
}

pub(super) fn read<'a>(root: &mut Table<'a>) -> Api<'a> {
    let mut table = root.table("api");
    let prefix = table.take("prefix");
    let cors_origins = table.take("cors_origins");
    let simple = table.take("simple");
    let simple_prefix = table.take("simple_prefix");
    let simple_clients = table.take("simple_clients");
    let max_event_streams = table.take("max_event_streams");
    table.done();

    let expected = "a path such as \"/_queue\": letters, digits, `-`, `_`, `.` and `~`, no slash at \
                    the end";
    let own_prefix = prefix.parsed(expected, path_prefix).unwrap_or_else(|| "/_queue".into());
    let on = simple.flag().unwrap_or(false);
    let simple_settings = SimpleSettings {
        prefix: simple_prefix
            .parsed("\"\" or a path such as \"/simple\", no slash at the end", |text| {
                if text.is_empty() { Some(String::new()) } else { path_prefix(text) }
            })
            .unwrap_or_default(),
        clients: networks::list(&simple_clients).unwrap_or_else(loopback),
    };
    if on {
        check_apart(&simple_prefix, &own_prefix, &simple_settings.prefix);
    } else {
        simple_prefix.useless("simple = true");
        simple_clients.useless("simple = true");
    }
    let settings = ApiSettings {
        prefix: own_prefix,
        cors_origins: origin::list(&cors_origins),
        simple: on.then_some(simple_settings),
        max_event_streams: max_event_streams.count(0..=1_000_000).unwrap_or(10_000),
    };
    Api { settings, prefix }
}

/// The two interfaces may not lie inside each other.
fn check_apart(at: &Value<'_>, prefix: &str, simple_prefix: &str) {
    let inside = simple_paths(simple_prefix)
        .iter()
        .any(|path| is_under(path, prefix) || is_under(prefix, path));
    if inside {
        at.contradicts(
            format_args!("paths of the compatibility set under the prefix {prefix:?}"),
            "them outside",
        );
    }
}

/// The paths of the compatibility set.
fn simple_paths(prefix: &str) -> [String; 5] {
    COMPATIBILITY_PATHS.map(|path| format!("{prefix}{path}"))
}

/// Whether `path` is `prefix` or lies under it.
fn is_under(path: &str, prefix: &str) -> bool {
    path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// A path prefix of plain segments, so that it has one spelling only.
fn path_prefix(text: &str) -> Option<String> {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-_.~".contains(&b);
    let segment = |segment: &str| {
        !segment.is_empty() && segment != "." && segment != ".." && segment.bytes().all(plain)
    };
    let sound = text.len() <= 64 && text.strip_prefix('/')?.split('/').all(segment);
    sound.then(|| text.to_owned())
}

fn loopback() -> Vec<IpNet> {
    ["127.0.0.0/8", "::1/128"].iter().filter_map(|network| network.parse().ok()).collect()
}
