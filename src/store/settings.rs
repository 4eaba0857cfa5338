//! Which store, and how it is reached.

use std::fmt;
use std::time::Duration;

/// Which store holds the line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StoreSettings {
    /// In this process's memory.
    Embedded,
    /// In Redis.
    Redis(RedisSettings),
}

/// How Redis is reached.
#[derive(Clone, PartialEq, Eq)]
pub struct RedisSettings {
    /// `redis://[user:password@]host:port[/db]` or `redis+unix:///path`.
    pub url: String,
    /// What stands before every key. Default `anteroom:`.
    pub key_prefix: String,
    /// Time to connect. Default 300 ms.
    pub connect_timeout: Duration,
    /// Time to answer one command. Default 200 ms.
    pub response_timeout: Duration,
}

impl RedisSettings {
    /// The defaults around a URL: fail fast, so that no request waits for a dead store.
    #[must_use]
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            key_prefix: "anteroom:".into(),
            connect_timeout: Duration::from_millis(300),
            response_timeout: Duration::from_millis(200),
        }
    }
}

/// The URL may hold a password: it is not shown.
impl fmt::Debug for RedisSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisSettings")
            .field("key_prefix", &self.key_prefix)
            .field("connect_timeout", &self.connect_timeout)
            .field("response_timeout", &self.response_timeout)
            .finish_non_exhaustive()
    }
}
