//! The scripts, one a command, each with the shared rules of `line.lua` and what it shares
//! with others in front.
//!
//! The first line makes Redis refuse a script before its first step when memory is short, so that
//! a refusal never leaves half a command behind; those that free memory run all the same.

use std::sync::LazyLock;

use redis::Script;

/// One script: its text and the hash Redis knows it by.
macro_rules! script {
    ($name:ident, $flags:literal, $($file:literal),+) => {
        pub(super) static $name: LazyLock<Source> = LazyLock::new(|| {
            Source::new(concat!(
                "#!lua",
                $flags,
                "\n",
                include_str!("line.lua"),
                $(include_str!($file)),+
            ))
        });
    };
}

script!(CONFIGURE, "", "create.lua", "configure.lua");
script!(ENTER, "", "enter.lua");
script!(STANDING, "", "standing.lua");
script!(LEAVE, " flags=allow-oom", "leave.lua");
script!(ADMIT, "", "admit.lua");
script!(HEARTBEAT, "", "heartbeat.lua");
script!(REAP, "", "reap.lua");
script!(SYNC, " flags=no-writes", "sync.lua");
script!(COMPACT, " flags=allow-oom", "compact.lua");
script!(FENCE, " flags=allow-oom", "fence.lua");
script!(REVIVE, "", "recovery.lua", "revive.lua");
script!(RESTORE, "", "recovery.lua", "restore.lua");
script!(REBUILD, "", "create.lua", "rebuild.lua");

/// A script's text and hash.
#[derive(Debug)]
pub(super) struct Source {
    /// The whole text.
    pub(super) text: &'static str,
    /// Its SHA-1, in hexadecimal.
    pub(super) hash: String,
}

impl Source {
    fn new(text: &'static str) -> Self {
        Self { text, hash: Script::new(text).get_hash().to_owned() }
    }
}
