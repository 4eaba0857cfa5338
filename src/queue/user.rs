//! Who queues: the verified identity, and the short keyed tag the line knows it by.

use std::fmt;

/// Where an identity was verified. Two sources never name the same user, even with equal ids.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub enum UserSource {
    /// An anonymous visitor, by the cookie anteroom signs.
    Visitor,
    /// A JSON Web Token.
    Jwt,
    /// A header set by a trusted proxy.
    Header,
    /// A query parameter, in the compatibility set only.
    Query,
}

impl UserSource {
    /// The two-bit code carried in a token, 0 to 3.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::Visitor => 0,
            Self::Jwt => 1,
            Self::Header => 2,
            Self::Query => 3,
        }
    }

    /// The source with this code, if there is one.
    #[must_use]
    pub const fn from_code(code: u8) -> Option<Self> {
        match code {
            0 => Some(Self::Visitor),
            1 => Some(Self::Jwt),
            2 => Some(Self::Header),
            3 => Some(Self::Query),
            _ => None,
        }
    }

    /// The name used in `gateway.toml` and in logs.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Visitor => "cookie",
            Self::Jwt => "jwt",
            Self::Header => "header",
            Self::Query => "query",
        }
    }
}

/// The longest user id that is accepted, in bytes. Longer than any subject seen in practice, short
/// enough that it can be sent on to an upstream in a header.
pub const MAX_USER_ID_BYTES: usize = 256;

/// A verified user: a source and the id that source gave. The id is 1 to 256 bytes, without
/// control characters.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct UserId {
    source: UserSource,
    id: String,
}

impl UserId {
    /// A user, or `None` when the id is empty, too long, holds a control character, or starts with
    /// `anon:` without being a visitor (that prefix is what upstreams see for visitors).
    #[must_use]
    pub fn new(source: UserSource, id: impl Into<String>) -> Option<Self> {
        let id = id.into();
        let controls = if id.is_ascii() {
            id.bytes().any(|byte| byte.is_ascii_control())
        } else {
            id.chars().any(char::is_control)
        };
        let sound = !id.is_empty()
            && id.len() <= MAX_USER_ID_BYTES
            && !controls
            && (source == UserSource::Visitor || !id.starts_with("anon:"));
        sound.then_some(Self { source, id })
    }

    /// Where the identity was verified.
    #[must_use]
    pub const fn source(&self) -> UserSource {
        self.source
    }

    /// The id as the source gave it.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }
}

/// Users are personal data: logs show the source only.
impl fmt::Debug for UserId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "UserId({}:***)", self.source.as_str())
    }
}

/// Eight bytes that stand for one user in one store: the key of the line's user index and the
/// owner named in a token. It does not reveal the id to who does not hold the salt.
#[derive(
    Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize,
)]
#[serde(transparent)]
pub struct UserTag(pub [u8; 8]);

impl UserTag {
    /// The tag of `user`: the first eight bytes of keyed BLAKE3 over source, zero byte, id.
    ///
    /// `salt` is made once per store and never rotates: a new salt would give everybody a second
    /// place.
    #[must_use]
    pub fn of(user: &UserId, salt: &[u8; 32]) -> Self {
        let mut hasher = blake3::Hasher::new_keyed(salt);
        hasher.update(user.source.as_str().as_bytes());
        hasher.update(&[0]);
        hasher.update(user.id.as_bytes());
        let mut tag = [0; 8];
        tag.copy_from_slice(&hasher.finalize().as_bytes()[..8]);
        Self(tag)
    }

    /// Sixteen lower-case hexadecimal digits.
    #[must_use]
    pub fn to_hex(self) -> String {
        self.push_hex(String::new())
    }

    /// `text` with the digits of [`UserTag::to_hex`] at its end.
    #[must_use]
    pub fn push_hex(self, mut text: String) -> String {
        text.reserve(16);
        for byte in self.0 {
            for digit in [byte >> 4, byte & 0xf] {
                text.push(char::from(b"0123456789abcdef"[usize::from(digit)]));
            }
        }
        text
    }
}

impl fmt::Debug for UserTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_hex())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_ids_of_two_sources_are_two_users() {
        let salt = [7; 32];
        let jwt = UserId::new(UserSource::Jwt, "42").unwrap();
        let header = UserId::new(UserSource::Header, "42").unwrap();
        assert_ne!(UserTag::of(&jwt, &salt), UserTag::of(&header, &salt));
        assert_eq!(UserTag::of(&jwt, &salt), UserTag::of(&jwt.clone(), &salt));
        assert_ne!(UserTag::of(&jwt, &salt), UserTag::of(&jwt, &[8; 32]));
    }

    #[test]
    fn unsound_ids_are_no_users() {
        for id in ["", "a\nb", "a\0", "anon:x", &"x".repeat(257)] {
            assert!(UserId::new(UserSource::Jwt, id).is_none(), "{id:?}");
        }
        assert!(UserId::new(UserSource::Jwt, "x".repeat(256)).is_some());
    }
}
