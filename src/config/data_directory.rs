//! `[store]` `path` and what goes with it: where and how the embedded line is kept.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::store::{DiskSettings, Durability};

use super::raw::{Table, Value};

/// Bounds of the commit interval: a commit takes a good part of a millisecond, and what a crash may
/// lose should not be noticed.
const SHORTEST_COMMIT: Duration = Duration::from_millis(1);
const LONGEST_COMMIT: Duration = Duration::from_secs(1);

/// The keys of a data directory.
pub(super) struct DirectoryKeys<'a> {
    path: Value<'a>,
    durability: Value<'a>,
    commit_interval: Value<'a>,
}

impl<'a> DirectoryKeys<'a> {
    pub(super) fn take(table: &mut Table<'a>) -> Self {
        Self {
            path: table.take("path"),
            durability: table.take("durability"),
            commit_interval: table.take("commit_interval"),
        }
    }

    pub(super) fn all(&self) -> [&Value<'a>; 3] {
        [&self.path, &self.durability, &self.commit_interval]
    }

    /// Where the line is kept, if a path says so; `None` also when that has been reported.
    pub(super) fn read(&self) -> Option<DiskSettings> {
        let Self { path, durability, commit_interval } = self;
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
        let durability =
            if sync { Durability::Sync } else { Durability::Async { commit_interval } };
        Some(DiskSettings { path: place, durability })
    }
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
