//! `[store]`: where the line lives.

use std::time::Duration;

use redis::IntoConnectionInfo as _;

use crate::store::{RedisSettings, StoreSettings};

use super::raw::{Table, Value};

/// Bounds of both time limits: below, a healthy store would fail; above, requests would pile up.
const SHORTEST: Duration = Duration::from_millis(10);
const LONGEST: Duration = Duration::from_secs(30);

#[derive(Clone, Copy)]
enum Kind {
    Embedded,
    Redis,
}

pub(super) fn read(root: &mut Table<'_>) -> StoreSettings {
    let mut table = root.table("store");
    let kind = table.take("kind");
    let url = table.take("url").secret();
    let key_prefix = table.take("key_prefix");
    let connect_timeout = table.take("connect_timeout");
    let response_timeout = table.take("response_timeout");
    table.later("path");
    table.later("durability");
    table.done();

    let chosen = kind.choice(&[("embedded", Kind::Embedded), ("redis", Kind::Redis)]);
    if kind.is_set() && chosen.is_none() {
        // It has been reported; what belongs to the kind that was meant is anybody's guess.
        return StoreSettings::Embedded;
    }
    match chosen.unwrap_or(Kind::Embedded) {
        Kind::Redis => {
            let mut redis = RedisSettings::new(read_url(&url).unwrap_or_default());
            if let Some(prefix) = key_prefix.parsed(
                "1 to 64 characters without spaces, control characters and braces",
                key_prefix_of,
            ) {
                redis.key_prefix = prefix;
            }
            if let Some(span) = connect_timeout.duration(SHORTEST..=LONGEST) {
                redis.connect_timeout = span;
            }
            if let Some(span) = response_timeout.duration(SHORTEST..=LONGEST) {
                redis.response_timeout = span;
            }
            StoreSettings::Redis(redis)
        }
        Kind::Embedded => {
            for value in [&url, &key_prefix, &connect_timeout, &response_timeout] {
                value.useless("kind = \"redis\"");
            }
            StoreSettings::Embedded
        }
    }
}

fn read_url(value: &Value<'_>) -> Option<String> {
    let expected = "a URL such as \"redis://127.0.0.1:6379\"";
    let value = value.clone().required(expected);
    let url = value.text()?;
    match url.split_once("://").map(|(scheme, _)| scheme) {
        Some(
            "rediss" | "redis+sentinel" | "rediss+sentinel" | "redis+cluster" | "rediss+cluster",
        ) => {
            value.later();
            None
        }
        Some("redis" | "redis+unix") if url.into_connection_info().is_ok() => Some(url.to_owned()),
        _ => {
            value.wrong(expected);
            None
        }
    }
}

/// Braces would decide on which node of a cluster a key lives.
fn key_prefix_of(text: &str) -> Option<String> {
    let sound = (1..=64).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_graphic() && b != b'{' && b != b'}');
    sound.then(|| text.to_owned())
}
