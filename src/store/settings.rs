//! Which store, and how it is reached.

use std::fmt;
use std::time::Duration;

use super::{Credentials, RedisTls};

/// Which store holds the line.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(clippy::large_enum_variant, reason = "a process has one")]
pub enum StoreSettings {
    /// In this process's memory.
    Embedded,
    /// In Redis.
    Redis(RedisSettings),
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
