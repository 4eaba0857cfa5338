//! Which store, and how it is reached.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use super::{Credentials, RedisTls};

/// Which store holds the line.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(clippy::large_enum_variant, reason = "a process has one")]
pub enum StoreSettings {
    /// In this process's memory, and in a directory if there is one: without, it ends with the
    /// process.
    Embedded(Option<DiskSettings>),
    /// In Redis.
    Redis(RedisSettings),
}

/// Where the embedded store keeps what has to outlive the process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DiskSettings {
    /// The data directory, for this process alone. It is made if only it itself is missing.
    pub path: PathBuf,
    /// When an answer is given.
    pub durability: Durability,
}

/// When the embedded store answers, seen from its disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Durability {
    /// At once; a crash of the process loses what the last commit did not hold.
    Async {
        /// How long changes collect before they are committed together. Default 5 ms.
        commit_interval: Duration,
    },
    /// When everything that the answer rests on is on the disk.
    Sync,
}

impl Durability {
    /// Default for `commit_interval`: short against the time a person takes to come back with a
    /// token, long against the fraction of a millisecond a commit takes.
    pub const COMMIT_INTERVAL: Duration = Duration::from_millis(5);
}

impl Default for Durability {
    fn default() -> Self {
        Self::Async { commit_interval: Self::COMMIT_INTERVAL }
    }
}

/// How Redis is reached.
#[derive(Clone, PartialEq, Eq)]
pub struct RedisSettings {
    /// Which servers, as [`RedisAddress`](super::RedisAddress) reads it.
    pub url: String,
    /// Who logs in, instead of whom the URL names.
    pub credentials: Credentials,
    /// Who logs in to sentinels. Default: nobody.
    pub sentinel_credentials: Credentials,
    /// Certificates, for URLs with TLS. Default: the authorities this system trusts.
    pub tls: RedisTls,
    /// What stands before every key. Default `anteroom:`.
    pub key_prefix: String,
    /// Time to connect, in the background. Default 300 ms.
    pub connect_timeout: Duration,
    /// The longest any command is waited for, connecting included. Default 200 ms.
    pub response_timeout: Duration,
}

impl RedisSettings {
    /// The defaults around a URL: fail fast, so that no request waits for a dead store.
    #[must_use]
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            credentials: Credentials::default(),
            sentinel_credentials: Credentials::default(),
            tls: RedisTls::default(),
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
            .field("credentials", &self.credentials)
            .field("sentinel_credentials", &self.sentinel_credentials)
            .field("tls", &self.tls)
            .field("key_prefix", &self.key_prefix)
            .field("connect_timeout", &self.connect_timeout)
            .field("response_timeout", &self.response_timeout)
            .finish_non_exhaustive()
    }
}
