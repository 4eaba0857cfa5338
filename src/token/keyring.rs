//! Signing keys by id: the newest signs, all verify.

use std::fmt;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};

use crate::queue::QueueName;

use super::{BODY_BYTES, MAC_BYTES};

/// One signing key: an id from 0 to 255 and 32 secret bytes.
#[derive(Clone, PartialEq, Eq)]
pub struct TokenKey {
    id: u8,
    secret: [u8; 32],
    mac_key: [u8; 32],
}

/// Why a key or a set of keys cannot be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum KeyringError {
    /// Not of the form `k<0-255>:<base64>`.
    #[error("a key is written `k<number>:<base64>`, the number from 0 to 255")]
    Form,
    /// The secret is not 32 bytes.
    #[error("a key's secret is 32 bytes in base64")]
    Length,
    /// Two keys have one id.
    #[error("two keys have the id k{0}")]
    Twice(u8),
    /// No key at all.
    #[error("at least one key is needed")]
    Empty,
}

impl TokenKey {
    /// A key from its parts.
    #[must_use]
    pub fn new(id: u8, secret: [u8; 32]) -> Self {
        let mac_key = blake3::derive_key("anteroom 2026 queue token mac", &secret);
        Self { id, secret, mac_key }
    }

    /// Parses `k1:BASE64`, with or without padding.
    ///
    /// # Errors
    /// [`KeyringError::Form`] or [`KeyringError::Length`].
    pub fn parse(text: &str) -> Result<Self, KeyringError> {
        let (id, secret) = text.trim().split_once(':').ok_or(KeyringError::Form)?;
        let digits = id.strip_prefix('k').ok_or(KeyringError::Form)?;
        let id: u8 = digits.parse().map_err(|_| KeyringError::Form)?;
        // One spelling per id: no sign, no leading zero.
        if id.to_string() != digits {
            return Err(KeyringError::Form);
        }
        let bytes = STANDARD
            .decode(secret)
            .or_else(|_| STANDARD_NO_PAD.decode(secret))
            .map_err(|_| KeyringError::Form)?;
        let secret = bytes.try_into().map_err(|_| KeyringError::Length)?;
        Ok(Self::new(id, secret))
    }

    pub(super) const fn id(&self) -> u8 {
        self.id
    }

    /// A key for another purpose, made from this one. `purpose` is a fixed text.
    #[must_use]
    pub fn derive(&self, purpose: &'static str) -> [u8; 32] {
        blake3::derive_key(purpose, &self.secret)
    }

    fn hash(&self, queue: &QueueName, body: &[u8; BODY_BYTES]) -> blake3::Hash {
        // In one piece: short input needs no hasher, which is two kilobytes of state.
        let mut text = [0; QueueName::MAX_BYTES + 1 + BODY_BYTES];
        let name = queue.as_str().as_bytes();
        let (at, end) = (name.len() + 1, name.len() + 1 + body.len());
        text[..name.len()].copy_from_slice(name);
        text[at..end].copy_from_slice(body);
        blake3::keyed_hash(&self.mac_key, &text[..end])
    }

    pub(super) fn mac(&self, queue: &QueueName, body: &[u8; BODY_BYTES]) -> [u8; MAC_BYTES] {
        let mut mac = [0; MAC_BYTES];
        mac.copy_from_slice(&self.hash(queue, body).as_bytes()[..MAC_BYTES]);
        mac
    }

    pub(super) fn accepts(&self, queue: &QueueName, body: &[u8; BODY_BYTES], mac: &[u8]) -> bool {
        // `blake3::Hash` compares in constant time but only whole hashes; both halves are padded
        // with the same bytes.
        let own = self.hash(queue, body);
        let Ok(mac) = <[u8; MAC_BYTES]>::try_from(mac) else { return false };
        let mut claimed = *own.as_bytes();
        claimed[..MAC_BYTES].copy_from_slice(&mac);
        own == blake3::Hash::from_bytes(claimed)
    }
}

/// Secrets never show up in logs.
impl fmt::Debug for TokenKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TokenKey(k{}:***)", self.id)
    }
}

/// The keys of a gateway, newest first. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Keyring {
    keys: Arc<[TokenKey]>,
}

impl Keyring {
    /// A ring of keys, newest first.
    ///
    /// # Errors
    /// [`KeyringError::Empty`] or [`KeyringError::Twice`].
    pub fn new(keys: Vec<TokenKey>) -> Result<Self, KeyringError> {
        if keys.is_empty() {
            return Err(KeyringError::Empty);
        }
        for (at, key) in keys.iter().enumerate() {
            if keys[..at].iter().any(|other| other.id == key.id) {
                return Err(KeyringError::Twice(key.id));
            }
        }
        Ok(Self { keys: keys.into() })
    }

    /// One key per signing key, newest first, for another purpose than tokens.
    #[must_use]
    pub fn derive_all(&self, purpose: &'static str) -> Vec<[u8; 32]> {
        self.keys.iter().map(|key| key.derive(purpose)).collect()
    }

    pub(super) fn newest(&self) -> &TokenKey {
        // `new` refuses an empty ring.
        &self.keys[0]
    }

    pub(super) fn key(&self, id: u8) -> Option<&TokenKey> {
        self.keys.iter().find(|key| key.id == id)
    }
}
