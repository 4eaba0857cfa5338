//! Anonymous visitors, by a cookie that only the gateway can make.
//!
//! The value is a random UUID and a MAC over it, 43 base64url characters. It says nothing about
//! the visitor and cannot be guessed or made up, so one visitor never takes another one's place by
//! writing an id. A cookie that does not verify counts as none: whoever holds it cannot remove it,
//! and gets a good one with the next answer.

use std::fmt;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::{HeaderMap, HeaderValue};
use uuid::Uuid;

use crate::queue::{UserId, UserSource};
use crate::token::Keyring;

use super::cookies::{self, CookieNames};
use super::{Finding, IdentityRequest, IdentitySource};

/// How long a browser keeps the cookie. Longer than any sale and its queue, and short enough that
/// it is not a tracker.
pub const VISITOR_COOKIE_AGE: Duration = Duration::from_secs(30 * 24 * 60 * 60);

const PURPOSE: &str = "anteroom 2026 visitor cookie mac";
const UUID_BYTES: usize = 16;
const MAC_BYTES: usize = 16;
const VALUE_BYTES: usize = UUID_BYTES + MAC_BYTES;

/// Length of the cookie's value.
pub const VISITOR_COOKIE_CHARS: usize = 43;

/// Issues visitor cookies and reads them back.
#[derive(Clone)]
pub struct VisitorCookies {
    names: CookieNames,
    /// Newest first; the first signs, all verify.
    keys: Vec<[u8; 32]>,
}

/// What a request says about its visitor.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum VisitorCookie {
    /// It holds no visitor cookie.
    Absent,
    /// It holds one visitor's cookie.
    Valid(UserId),
    /// It holds only cookies that do not verify, or those of two visitors, between whom nobody
    /// can choose.
    Invalid,
}

impl VisitorCookies {
    /// Cookies under the names of `names`, signed with keys made from `keyring`.
    #[must_use]
    pub fn new(names: CookieNames, keyring: &Keyring) -> Self {
        Self { names, keys: keyring.derive_all(PURPOSE) }
    }

    /// The names of the gateway's cookies.
    #[must_use]
    pub const fn names(&self) -> &CookieNames {
        &self.names
    }

    /// A new visitor, and the `Set-Cookie` line that makes a browser remember it.
    #[must_use]
    pub fn issue(&self, https: bool) -> (UserId, HeaderValue) {
        let id = Uuid::new_v4();
        let mut bytes = [0; VALUE_BYTES];
        bytes[..UUID_BYTES].copy_from_slice(id.as_bytes());
        if let Some(key) = self.keys.first() {
            bytes[UUID_BYTES..].copy_from_slice(&mac(key, id.as_bytes()).as_bytes()[..MAC_BYTES]);
        }
        let value = URL_SAFE_NO_PAD.encode(bytes);
        let line = cookies::set(self.names.visitor(https), &value, VISITOR_COOKIE_AGE, https)
            .expect("checked names and base64url are header text");
        (visitor(id), line)
    }

    /// The visitor a request belongs to. Only the name for this scheme is read. Cookies that do
    /// not verify beside one that does are passed over, so that nobody is locked out by a cookie
    /// planted for a wider domain or a narrower path.
    #[must_use]
    pub fn read(&self, headers: &HeaderMap, https: bool) -> VisitorCookie {
        let mut found = VisitorCookie::Absent;
        for value in cookies::values(headers, self.names.visitor(https)) {
            match (self.verify(value), &found) {
                (None, VisitorCookie::Absent) => found = VisitorCookie::Invalid,
                (None, _) => {}
                (Some(user), VisitorCookie::Valid(first)) if *first != user => {
                    return VisitorCookie::Invalid;
                }
                (Some(user), _) => found = VisitorCookie::Valid(user),
            }
        }
        found
    }

    fn verify(&self, value: &[u8]) -> Option<UserId> {
        if value.len() != VISITOR_COOKIE_CHARS {
            return None;
        }
        let mut bytes = [0; VALUE_BYTES];
        if URL_SAFE_NO_PAD.decode_slice(value, &mut bytes).ok()? != VALUE_BYTES {
            return None;
        }
        let (id, claimed) = bytes.split_first_chunk::<UUID_BYTES>()?;
        let id = Uuid::from_bytes(*id);
        self.keys.iter().any(|key| accepts(key, id.as_bytes(), claimed)).then(|| visitor(id))
    }
}

fn mac(key: &[u8; 32], id: &[u8]) -> blake3::Hash {
    blake3::keyed_hash(key, id)
}

fn accepts(key: &[u8; 32], id: &[u8], claimed: &[u8]) -> bool {
    // `blake3::Hash` compares in constant time but only whole hashes; both halves are padded with
    // the same bytes.
    let own = mac(key, id);
    let mut padded = *own.as_bytes();
    let Some(half) = padded.get_mut(..claimed.len()) else { return false };
    half.copy_from_slice(claimed);
    claimed.len() == MAC_BYTES && own == blake3::Hash::from_bytes(padded)
}

fn visitor(id: Uuid) -> UserId {
    UserId::new(UserSource::Visitor, id.hyphenated().to_string())
        .expect("36 hexadecimal digits and hyphens are a sound id")
}

impl IdentitySource for VisitorCookies {
    fn source(&self) -> UserSource {
        UserSource::Visitor
    }

    fn look(&self, request: &IdentityRequest<'_>) -> Finding {
        match self.read(request.headers, request.https) {
            VisitorCookie::Valid(user) => Finding::Verified(user),
            VisitorCookie::Absent | VisitorCookie::Invalid => Finding::Absent,
        }
    }
}

/// Keys never show up in logs.
impl fmt::Debug for VisitorCookies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VisitorCookies").field("names", &self.names).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
