//! `[store]`: where the line lives.

use std::path::{Path, PathBuf};
use std::time::Duration;

use redis::IntoConnectionInfo as _;

use crate::store::{DiskSettings, Durability, RedisSettings, StoreSettings};

use super::raw::{Table, Value};

/// Bounds of both time limits: below, a healthy store would fail; above, requests would pile up.
const SHORTEST: Duration = Duration::from_millis(10);
const LONGEST: Duration = Duration::from_secs(30);

/// Bounds of the commit interval: a commit takes a good part of a millisecond, and what a crash may
/// lose should not be noticed.
const SHORTEST_COMMIT: Duration = Duration::from_millis(1);
const LONGEST_COMMIT: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, PartialEq)]
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
    let path = table.take("path");
    let durability = table.take("durability");
    let commit_interval = table.take("commit_interval");
    table.done();

    let chosen = kind.choice(&[("embedded", Kind::Embedded), ("redis", Kind::Redis)]);
    if kind.is_set() && chosen.is_none() {
        // It has been reported; what belongs to the kind that was meant is anybody's guess.
        return StoreSettings::Embedded(None);
    }
    match chosen.unwrap_or(Kind::Embedded) {
        Kind::Redis => {
            for value in [&path, &durability, &commit_interval] {
                value.useless("kind = \"embedded\"");
            }
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
            StoreSettings::Embedded(read_disk(&path, &durability, &commit_interval))
        }
    }
}

/// Where the line is kept, if a path says so; `None` also when that has been reported.
fn read_disk(
    path: &Value<'_>,
    durability: &Value<'_>,
    commit_interval: &Value<'_>,
) -> Option<DiskSettings> {
    let choices = [("async", false), ("sync", true)];
    let sync = durability.choice(&choices).unwrap_or(false);
    let interval = commit_interval.duration(SHORTEST_COMMIT..=LONGEST_COMMIT);
    if !path.is_set() {
        durability.useless("path");
        commit_interval.useless("path");
        return None;
    }
    if sync {
        commit_interval.useless("durability = \"async\"");
    }
    let place = path.file_path()?;
    if let Err(found) = is_usable(&place) {
        path.refuse(
            found,
            "a directory that can be written, or the name of one to make in such a directory",
        );
        return None;
    }
    let commit_interval = interval.unwrap_or(Durability::COMMIT_INTERVAL);
    let durability = if sync { Durability::Sync } else { Durability::Async { commit_interval } };
    Some(DiskSettings { path: place, durability })
}

/// Whether a data directory can be there; if not, what is there instead. Leaves no trace.
fn is_usable(path: &Path) -> Result<(), String> {
    let shown = path.display();
    if path.exists() {
        if !path.is_dir() {
            return Err(format!("{shown}, which is not a directory"));
        }
        return may_write(path);
    }
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    };
    if !parent.is_dir() {
        return Err(format!("{shown}, and there is no directory {}", parent.display()));
    }
    may_write(&parent)
}

fn may_write(directory: &Path) -> Result<(), String> {
    let wanted = rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK;
    rustix::fs::access(directory, wanted)
        .map_err(|_| format!("{}, which cannot be written", directory.display()))
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
