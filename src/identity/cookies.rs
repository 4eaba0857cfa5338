//! Cookies as bytes: their names, reading them, setting them, taking them out.
//!
//! Reading is lenient, because a shop's own cookies are none of our business: whatever their bytes
//! are, they neither fail a request nor change on the way to the upstream. What is set here always
//! has the same attributes: `HttpOnly`, `SameSite=Lax`, `Path=/`, no `Domain`, and over https
//! `Secure` with the `__Host-` prefix, which no other host of the domain can forge.

use std::time::Duration;

use cookie::{Cookie, SameSite};
use http::header::COOKIE;
use http::{HeaderMap, HeaderValue};

use crate::queue::QueueName;

const HOST_PREFIX: &str = "__Host-";

/// A queue of this name would share its cookie with the visitor's identity.
pub const RESERVED_QUEUE_NAME: &str = "visitor";

/// The longest base name, bytes. With prefix and queue name a cookie's name stays under 140.
const MAX_BASE_BYTES: usize = 64;

/// The names of all cookies the gateway sets, made from one base name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CookieNames {
    base: String,
    /// The visitor cookie's name with the `__Host-` prefix.
    visitor: String,
}

/// A base name that cannot begin a cookie's name.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "`{0}` cannot name cookies: 1 to 64 letters, digits or any of `!#$%&'*+-.^_|~`, \
     and without the prefixes `__Host-` and `__Secure-`, which are added where they belong"
)]
pub struct CookieNameError(String);

impl CookieNames {
    /// Names that begin with `base`.
    ///
    /// # Errors
    /// [`CookieNameError`] when `base` is empty, longer than 64 bytes, holds a byte no cookie name
    /// may hold, or brings a prefix of its own.
    pub fn new(base: &str) -> Result<Self, CookieNameError> {
        let lower = base.to_ascii_lowercase();
        let prefixed = lower.starts_with("__host-") || lower.starts_with("__secure-");
        if base.len() > MAX_BASE_BYTES || !is_cookie_name(base) || prefixed {
            return Err(CookieNameError(base.to_owned()));
        }
        let visitor = format!("{HOST_PREFIX}{base}-{RESERVED_QUEUE_NAME}");
        Ok(Self { base: base.to_owned(), visitor })
    }

    /// The visitor cookie's name for an effective scheme.
    #[must_use]
    pub fn visitor(&self, https: bool) -> &str {
        if https { &self.visitor } else { &self.visitor[HOST_PREFIX.len()..] }
    }

    /// The name of the cookie that carries a token of `queue`, for an effective scheme.
    #[must_use]
    pub fn token(&self, queue: &QueueName, https: bool) -> String {
        let prefix = if https { HOST_PREFIX } else { "" };
        format!("{prefix}{}-{}", self.base, queue.as_str())
    }

    /// Whether `name` is what [`Self::token`] gives for `queue`, without making it.
    #[must_use]
    pub fn is_token(&self, name: &[u8], queue: &QueueName, https: bool) -> bool {
        let bare = if https { name.strip_prefix(HOST_PREFIX.as_bytes()) } else { Some(name) };
        bare.and_then(|bare| self.suffix(bare)) == Some(queue.as_str().as_bytes())
    }

    /// The queue part of a token cookie's name, for an effective scheme: only the one name that
    /// [`Self::token`] would give counts. `None` for the visitor cookie and everybody else's.
    #[must_use]
    pub fn queue_of<'a>(&self, name: &'a [u8], https: bool) -> Option<&'a [u8]> {
        let bare = if https { name.strip_prefix(HOST_PREFIX.as_bytes())? } else { name };
        self.suffix(bare).filter(|queue| *queue != RESERVED_QUEUE_NAME.as_bytes())
    }

    /// Whether a cookie of this name is the gateway's, under either scheme. Such cookies never
    /// reach an upstream and are never taken from one.
    #[must_use]
    pub fn is_ours(&self, name: &[u8]) -> bool {
        let bare = match name.split_at_checked(HOST_PREFIX.len()) {
            // Browsers compare the prefix without regard to case.
            Some((prefix, bare)) if prefix.eq_ignore_ascii_case(HOST_PREFIX.as_bytes()) => bare,
            _ => name,
        };
        self.suffix(bare).is_some()
    }

    /// What follows `<base>-`.
    fn suffix<'a>(&self, bare: &'a [u8]) -> Option<&'a [u8]> {
        bare.strip_prefix(self.base.as_bytes())?.strip_prefix(b"-").filter(|rest| !rest.is_empty())
    }
}

/// Whether `name` is a token as RFC 9110 spells it, which cookie names are.
pub(super) fn is_cookie_name(name: &str) -> bool {
    let sound = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !name.is_empty() && name.bytes().all(sound)
}

/// All cookies of a request in order, name and value as raw bytes, over all `Cookie` lines. What
/// has no `=` is passed over; quotes mean nothing. Allocates nothing.
pub fn pairs(headers: &HeaderMap) -> impl Iterator<Item = (&[u8], &[u8])> {
    headers.get_all(COOKIE).iter().flat_map(|line| segments(line).filter_map(split))
}

/// The values of all cookies called `name`, in order.
pub fn values<'a>(headers: &'a HeaderMap, name: &'a str) -> impl Iterator<Item = &'a [u8]> {
    pairs(headers).filter(move |pair| pair.0 == name.as_bytes()).map(|pair| pair.1)
}

fn segments(line: &HeaderValue) -> impl Iterator<Item = &[u8]> {
    let mut rest = Some(line.as_bytes());
    std::iter::from_fn(move || {
        let whole = rest?;
        let (segment, after) = match memchr::memchr(b';', whole) {
            Some(at) => (&whole[..at], Some(&whole[at + 1..])),
            None => (whole, None),
        };
        rest = after;
        Some(segment)
    })
}

fn split(segment: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = memchr::memchr(b'=', segment)?;
    Some((segment[..at].trim_ascii(), segment[at + 1..].trim_ascii()))
}

/// The `Cookie` lines of a request without the cookies that `unwanted` names.
///
/// `None` when none of them is there: the request stays as it is. Else the lines that replace all
/// `Cookie` lines, which may be none. The kept cookies keep every byte, and so does what lies
/// between two of them.
pub fn without(headers: &HeaderMap, unwanted: impl Fn(&[u8]) -> bool) -> Option<Vec<HeaderValue>> {
    let drops = |segment: &[u8]| split(segment).is_some_and(|pair| unwanted(pair.0));
    let lines = headers.get_all(COOKIE);
    if !lines.iter().any(|line| segments(line).any(drops)) {
        return None;
    }
    let mut left = Vec::new();
    for line in lines {
        if !segments(line).any(drops) {
            left.push(line.clone());
            continue;
        }
        let kept: Vec<&[u8]> = segments(line).filter(|segment| !drops(segment)).collect();
        let joined = kept.join(&b';');
        // The blank after the separator of a removed first cookie goes with it.
        let joined = if segments(line).next().is_some_and(drops) {
            joined.trim_ascii_start()
        } else {
            &joined
        };
        if joined.is_empty() {
            continue;
        }
        // A part of a header value is a header value; were it not, the cookies would be dropped.
        left.extend(HeaderValue::from_bytes(joined));
    }
    Some(left)
}

/// A `Set-Cookie` line with the gateway's attributes. `name` and `value` are the gateway's own; a
/// byte that a header cannot hold makes it `None`.
#[must_use]
pub fn set(name: &str, value: &str, max_age: Duration, https: bool) -> Option<HeaderValue> {
    let max_age = cookie::time::Duration::try_from(max_age).ok()?;
    let cookie = Cookie::build((name, value))
        .max_age(max_age)
        .path("/")
        .secure(https)
        .http_only(true)
        .same_site(SameSite::Lax);
    HeaderValue::try_from(cookie.to_string()).ok()
}

/// A `Set-Cookie` line that makes the browser forget `name`, with the attributes it was set with:
/// a browser ignores a `__Host-` name without them.
#[must_use]
pub fn clear(name: &str, https: bool) -> Option<HeaderValue> {
    set(name, "", Duration::ZERO, https)
}

/// The name that a `Set-Cookie` line sets, as a browser would send it back.
#[must_use]
pub fn set_cookie_name(line: &HeaderValue) -> &[u8] {
    let pair = segments(line).next().unwrap_or_default();
    // A cookie without a name goes back as its bare value, which may hold an `=` itself.
    let blank = pair.iter().take_while(|byte| matches!(byte, b'=' | b' ' | b'\t')).count();
    let pair = &pair[blank..];
    split(pair).map_or(pair.trim_ascii(), |(name, _)| name)
}

#[cfg(test)]
mod tests;
