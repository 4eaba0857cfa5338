//! The queue token: a signed, opaque proof of a place in line.
//!
//! 40 bytes of body and 16 bytes of MAC, base64url without padding: 75 characters.
//!
//! | bytes | first token (kind 1) | pass token (kind 2) |
//! |---|---|---|
//! | 0 | kind in the low nibble, identity source in the high one | the same |
//! | 1 | key id | the same |
//! | 2..6 | hint at the queue | the same |
//! | 6..10 | incarnation | the same |
//! | 10..18 | number in line | the same |
//! | 18..26 | user tag | the same |
//! | 26..32 | entry, ms | entry, ms |
//! | 32..38 | issued at, s (4 bytes), watermark (first half) | lease end, ms |
//! | 38..40 | watermark (second half) | flags: 1 = the place has been used |
//! | 40..56 | MAC | MAC |
//!
//! The MAC is the first half of keyed BLAKE3 over the full queue name, a zero byte and the body,
//! so a token never works for another queue, whatever its hint says. A client may keep its first
//! token for life: whether it is active is the store's word. A pass token also proves an active
//! lease while the store is away. The watermark is the number minus the head of the line plus one
//! when the token was issued, 0 in the very first token: it and the time of issue count only when
//! the store has lost its data.

mod keyring;
mod settings;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::clock::Timestamp;
use crate::queue::command::ProvenLease;
use crate::queue::{Place, QueueName, Seq, UserSource, UserTag};

pub use keyring::{Keyring, KeyringError, TokenKey};
pub use settings::TokenSettings;

const BODY_BYTES: usize = 40;
const MAC_BYTES: usize = 16;
const TOKEN_BYTES: usize = BODY_BYTES + MAC_BYTES;

/// Length of a token's text.
pub const TOKEN_CHARS: usize = 75;

/// The most a 48-bit millisecond field holds: the year 10889.
const MAX_U48: u64 = (1 << 48) - 1;

/// What a token says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Claims {
    /// Where its owner's identity was verified.
    pub source: UserSource,
    /// Its owner.
    pub owner: UserTag,
    /// The queue's incarnation it belongs to.
    pub incarnation: u32,
    /// Number and time of entry.
    pub place: Place,
    /// What it proves beside the place.
    pub proof: Proof,
}

/// What a token proves beside the place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Proof {
    /// Nothing: it is the first one, as given at entry.
    Entry,
    /// The place was waiting.
    Waited {
        /// When, in whole seconds.
        at: Timestamp,
        /// The next number to be called then.
        head: u64,
    },
    /// The place is active.
    Lease(ProvenLease),
}

impl Claims {
    /// The active lease it proves.
    #[must_use]
    pub const fn lease(&self) -> Option<ProvenLease> {
        match self.proof {
            Proof::Lease(lease) => Some(lease),
            Proof::Entry | Proof::Waited { .. } => None,
        }
    }

    /// When it was issued, at the earliest. Of a pass token only the end of the lease is known.
    #[must_use]
    pub const fn issued(&self) -> Timestamp {
        match self.proof {
            Proof::Entry => self.place.entered,
            Proof::Waited { at, .. } => at,
            Proof::Lease(lease) => lease.until,
        }
    }

    /// How far it proves that the line had moved; 0 = nothing.
    #[must_use]
    pub const fn head(&self) -> u64 {
        match self.proof {
            Proof::Entry => 0,
            Proof::Waited { head, .. } => head,
            Proof::Lease(_) => self.place.seq.0 + 1,
        }
    }
}

/// Text that has the form of a token. Nothing in it can be trusted before [`Keyring::verify`].
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct UnverifiedToken {
    bytes: [u8; TOKEN_BYTES],
}

/// Why a token is not accepted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TokenError {
    /// It does not have the form of a token.
    #[error("the token is malformed")]
    Malformed,
    /// Its MAC is wrong, its key is unknown, or it belongs to another queue.
    #[error("the token was not issued for this queue")]
    Forged,
}

impl UnverifiedToken {
    /// Parses text strictly: exactly 75 base64url characters, no padding, no spare bits, a known
    /// kind with its unused parts zero.
    ///
    /// # Errors
    /// [`TokenError::Malformed`].
    pub fn parse(text: &str) -> Result<Self, TokenError> {
        if text.len() != TOKEN_CHARS {
            return Err(TokenError::Malformed);
        }
        let mut bytes = [0; TOKEN_BYTES];
        match URL_SAFE_NO_PAD.decode_slice(text, &mut bytes) {
            Ok(TOKEN_BYTES) => {}
            _ => return Err(TokenError::Malformed),
        }
        let token = Self { bytes };
        token.claims().map(|_| token).ok_or(TokenError::Malformed)
    }

    /// Whether it says that it belongs to `queue`. A hint only.
    #[must_use]
    pub fn hints_at(&self, queue: &QueueName) -> bool {
        self.u32_at(2) == queue.hint()
    }

    const fn key_id(&self) -> u8 {
        self.bytes[1]
    }

    fn body(&self) -> &[u8; BODY_BYTES] {
        self.bytes.first_chunk().expect("a token is longer than its body")
    }

    fn mac(&self) -> &[u8] {
        &self.bytes[BODY_BYTES..]
    }

    fn claims(&self) -> Option<Claims> {
        let source = UserSource::from_code(self.bytes[0] >> 4)?;
        let seq = Seq(self.u64_at(10));
        let proof = match (self.bytes[0] & 0x0f, self.u32_at(36)) {
            (1, 0) => Proof::Entry,
            (1, mark) => Proof::Waited {
                at: Timestamp::from_millis(u64::from(self.u32_at(32)) * 1000),
                head: (seq.0 + 1).checked_sub(u64::from(mark))?,
            },
            (2, _) if self.bytes[38] == 0 && self.bytes[39] <= 1 => Proof::Lease(ProvenLease {
                until: Timestamp::from_millis(self.u48_at(32)),
                claimed: self.bytes[39] == 1,
            }),
            _ => return None,
        };
        let mut owner = [0; 8];
        owner.copy_from_slice(&self.bytes[18..26]);
        let place = Place { seq, entered: Timestamp::from_millis(self.u48_at(26)) };
        let sound = seq >= Seq(1) && seq <= Seq::MAX;
        let owner = UserTag(owner);
        sound.then_some(Claims { source, owner, incarnation: self.u32_at(6), place, proof })
    }

    fn u32_at(&self, at: usize) -> u32 {
        self.bytes[at..at + 4].iter().fold(0, |sum, byte| (sum << 8) | u32::from(*byte))
    }

    fn u48_at(&self, at: usize) -> u64 {
        self.bytes[at..at + 6].iter().fold(0, |sum, byte| (sum << 8) | u64::from(*byte))
    }

    fn u64_at(&self, at: usize) -> u64 {
        self.bytes[at..at + 8].iter().fold(0, |sum, byte| (sum << 8) | u64::from(*byte))
    }
}

impl std::fmt::Debug for UnverifiedToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("UnverifiedToken(***)")
    }
}

impl Keyring {
    /// The text of a token with these claims for `queue`, signed with the newest key. Equal claims
    /// give equal bytes on every gateway with the same keys.
    #[must_use]
    pub fn sign(&self, queue: &QueueName, claims: &Claims) -> String {
        let key = self.newest();
        let mut bytes = [0; TOKEN_BYTES];
        let kind = if claims.lease().is_some() { 2 } else { 1 };
        bytes[0] = kind | (claims.source.code() << 4);
        bytes[1] = key.id();
        bytes[2..6].copy_from_slice(&queue.hint().to_be_bytes());
        bytes[6..10].copy_from_slice(&claims.incarnation.to_be_bytes());
        bytes[10..18].copy_from_slice(&claims.place.seq.0.to_be_bytes());
        bytes[18..26].copy_from_slice(&claims.owner.0);
        put_u48(&mut bytes[26..32], claims.place.entered);
        let seconds = |at: Timestamp| u32::try_from(at.as_secs()).unwrap_or(u32::MAX);
        match claims.proof {
            // Issued at entry and without a watermark, so that repeating an enter gives the same
            // bytes.
            Proof::Entry => {
                bytes[32..36].copy_from_slice(&seconds(claims.place.entered).to_be_bytes());
            }
            Proof::Waited { at, head } => {
                let mark = (claims.place.seq.0 + 1).saturating_sub(head).max(1);
                let mark = u32::try_from(mark).unwrap_or(u32::MAX);
                bytes[32..36].copy_from_slice(&seconds(at).to_be_bytes());
                bytes[36..40].copy_from_slice(&mark.to_be_bytes());
            }
            Proof::Lease(lease) => {
                put_u48(&mut bytes[32..38], lease.until);
                bytes[39] = u8::from(lease.claimed);
            }
        }
        let (body, mac) = bytes.split_first_chunk_mut().expect("a token is longer than its body");
        mac.copy_from_slice(&key.mac(queue, body));
        URL_SAFE_NO_PAD.encode(bytes)
    }

    /// The claims of `token` if one of the keys signed it for `queue`.
    ///
    /// # Errors
    /// [`TokenError::Forged`] otherwise. The comparison takes constant time.
    pub fn verify(&self, queue: &QueueName, token: &UnverifiedToken) -> Result<Claims, TokenError> {
        let genuine = self
            .key(token.key_id())
            .is_some_and(|key| key.accepts(queue, token.body(), token.mac()));
        if genuine { token.claims().ok_or(TokenError::Forged) } else { Err(TokenError::Forged) }
    }
}

fn put_u48(to: &mut [u8], at: Timestamp) {
    to.copy_from_slice(&at.as_millis().min(MAX_U48).to_be_bytes()[2..]);
}

#[cfg(test)]
mod tests;
