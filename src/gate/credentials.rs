//! Carriers, tokens, owners: what a request presents for one queue, and whether it is its own.

use std::time::Duration;

use http::header::SET_COOKIE;
use http::{HeaderMap, HeaderName, HeaderValue};

use crate::identity::Identities;
use crate::identity::cookies::{self, CookieNames};
use crate::queue::{QueueName, UserId, UserSource, UserTag};
use crate::token::{Claims, Keyring, TokenError, UnverifiedToken};

/// How a token came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Carrier {
    /// In the token header.
    Header,
    /// In the queue's cookie.
    Cookie,
}

/// What a request presents for one queue.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Presented {
    /// No token at all.
    Nothing,
    /// Tokens in the header, but none for this queue.
    Foreign,
    /// Something in the header that is no token.
    Malformed,
    /// Something in the header that says it is for this queue and was not issued for it.
    Forged,
    /// Two genuine tokens in the header that contradict each other.
    Conflict,
    /// A genuine token for this queue.
    Token {
        /// What it says.
        claims: Claims,
        /// How it came.
        carrier: Carrier,
    },
}

/// Whether a token is the caller's.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Ownership {
    /// It is; the user is known unless the token of a visitor came without its cookie.
    Proven(Option<UserId>),
    /// Nothing on the request proves that it is.
    Unproven,
    /// It is somebody else's.
    Foreign,
}

/// The most tokens a request may carry in its header.
const MAX_TOKENS: usize = 16;

/// The most token cookies a browser keeps; the oldest goes first.
const MAX_COOKIES: usize = 8;

/// How long a browser keeps a token cookie. The store decides how long the token is worth
/// anything; a day outlives any sale.
const COOKIE_MAX_AGE: Duration = Duration::from_secs(24 * 3600);

/// How tokens travel.
#[derive(Clone, Debug)]
pub struct Carriers {
    /// The request and response header.
    pub header: HeaderName,
    /// The cookies.
    pub cookies: CookieNames,
}

impl Carriers {
    /// What a request presents for `queue`. A genuine token in the header wins over a cookie; a
    /// bad header is never healed by a cookie; a bad or contradicting cookie counts as absent.
    #[must_use]
    pub fn presented(
        &self,
        keyring: &Keyring,
        queue: &QueueName,
        headers: &HeaderMap,
        https: bool,
    ) -> Presented {
        let in_header = self.in_header(keyring, queue, headers);
        if !matches!(in_header, Presented::Nothing | Presented::Foreign) {
            return in_header;
        }
        match self.in_cookie(keyring, queue, headers, https) {
            Some(claims) => Presented::Token { claims, carrier: Carrier::Cookie },
            None => in_header,
        }
    }

    /// Whether the request has cookies of `queue` of which none counts: the browser is to forget
    /// them.
    #[must_use]
    pub fn has_useless_cookie(
        &self,
        keyring: &Keyring,
        queue: &QueueName,
        headers: &HeaderMap,
        https: bool,
    ) -> bool {
        self.cookie_values(queue, headers, https).next().is_some()
            && self.in_cookie(keyring, queue, headers, https).is_none()
    }

    fn in_header(&self, keyring: &Keyring, queue: &QueueName, headers: &HeaderMap) -> Presented {
        let mut found: Option<Claims> = None;
        let mut seen = 0;
        for line in headers.get_all(&self.header) {
            let Ok(line) = line.to_str() else { return Presented::Malformed };
            for element in line.split(',') {
                seen += 1;
                let token = match UnverifiedToken::parse(element.trim_matches([' ', '\t'])) {
                    Ok(token) if seen <= MAX_TOKENS => token,
                    _ => return Presented::Malformed,
                };
                if !token.hints_at(queue) {
                    continue;
                }
                let claims = match keyring.verify(queue, &token) {
                    Ok(claims) => claims,
                    Err(TokenError::Malformed) => return Presented::Malformed,
                    Err(TokenError::Forged) => return Presented::Forged,
                };
                match &mut found {
                    None => found = Some(claims),
                    Some(other) if !same_place(other, &claims) => return Presented::Conflict,
                    // Of one place the token that proves more counts.
                    Some(other) if claims.issued() > other.issued() => *other = claims,
                    Some(_) => {}
                }
            }
        }
        match found {
            Some(claims) => Presented::Token { claims, carrier: Carrier::Header },
            None if seen > 0 => Presented::Foreign,
            None => Presented::Nothing,
        }
    }

    fn in_cookie(
        &self,
        keyring: &Keyring,
        queue: &QueueName,
        headers: &HeaderMap,
        https: bool,
    ) -> Option<Claims> {
        let mut found: Option<Claims> = None;
        for value in self.cookie_values(queue, headers, https) {
            let claims = std::str::from_utf8(value)
                .ok()
                .and_then(|text| UnverifiedToken::parse(text).ok())
                .and_then(|token| keyring.verify(queue, &token).ok());
            match (claims, &found) {
                (Some(claims), Some(other)) if !same_place(other, &claims) => return None,
                (Some(claims), _) => found = Some(claims),
                (None, _) => {}
            }
        }
        found
    }

    /// The values of all token cookies of `queue`, in order.
    fn cookie_values<'a>(
        &'a self,
        queue: &'a QueueName,
        headers: &'a HeaderMap,
        https: bool,
    ) -> impl Iterator<Item = &'a [u8]> {
        cookies::pairs(headers)
            .filter(move |pair| self.cookies.is_token(pair.0, queue, https))
            .map(|pair| pair.1)
    }

    /// Sets the cookie of `queue` on an answer. When the browser holds eight others, the
    /// one of the oldest entry is cleared.
    pub fn set_cookie(
        &self,
        response: &mut HeaderMap,
        request: &HeaderMap,
        queue: &QueueName,
        token: &str,
        https: bool,
    ) {
        let name = self.cookies.token(queue, https);
        if let Some(line) = cookies::set(&name, token, COOKIE_MAX_AGE, https) {
            response.append(SET_COOKIE, line);
        }
        let others: Vec<&[u8]> = cookies::pairs(request)
            .map(|(other, _)| other)
            .filter(|other| self.cookies.queue_of(other, https).is_some())
            .filter(|other| *other != name.as_bytes())
            .collect();
        // Browsers send the cookies of one path oldest first.
        let too_many = (others.len() + 1).saturating_sub(MAX_COOKIES);
        // A few at a time: made-up cookies are not answered with a line each.
        for old in others.iter().take(too_many.min(MAX_COOKIES)) {
            let line = std::str::from_utf8(old).ok().and_then(|old| cookies::clear(old, https));
            response.extend(line.map(|line| (SET_COOKIE, line)));
        }
    }

    /// The line that clears the cookie of `queue`.
    #[must_use]
    pub fn clear_cookie(&self, queue: &QueueName, https: bool) -> Option<HeaderValue> {
        cookies::clear(&self.cookies.token(queue, https), https)
    }

    /// Whether a cookie of this name is one of the gateway's own.
    #[must_use]
    pub fn is_our_cookie(&self, name: &[u8]) -> bool {
        self.cookies.is_ours(name)
    }
}

fn same_place(a: &Claims, b: &Claims) -> bool {
    (a.place.seq, a.owner, a.incarnation) == (b.place.seq, b.owner, b.incarnation)
}

/// Whether the token with these claims belongs to one of `identities`.
///
/// A token belongs to any verified identity with its tag. Without an identity of its source on the
/// request, only a visitor's token is its own proof, and only where no other identity is there
/// instead; with an identity of its source that is another user, it is somebody else's.
pub(super) fn ownership(
    claims: &Claims,
    identities: &Identities,
    sources: &[UserSource],
    salt: &[u8; 32],
) -> Ownership {
    let own = identities
        .verified
        .iter()
        .filter(|user| user.source() == claims.source)
        .find(|user| UserTag::of(user, salt) == claims.owner);
    if let Some(user) = own {
        return Ownership::Proven(Some(user.clone()));
    }
    if identities.verified.iter().any(|user| user.source() == claims.source) {
        return Ownership::Foreign;
    }
    if claims.source != UserSource::Visitor || !sources.contains(&UserSource::Visitor) {
        return Ownership::Unproven;
    }
    if identities.verified.is_empty() { Ownership::Proven(None) } else { Ownership::Foreign }
}
