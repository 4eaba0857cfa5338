//! Who is calling: each source looks at the request, the configured order decides.
//!
//! All configured sources are asked, not only until one answers: a token belongs to whoever owns
//! it, and its owner may be any verified identity of the request, while entering uses the first.
//! The chain decides nothing else: whether a missing or refused identity matters is for the gate
//! and the API to say. It reads no clock, no file and no store.

pub mod client_address;
pub mod cookie;
pub mod cookies;
pub mod header;
pub mod jwks;
pub mod jwt;
pub mod query;

use std::fmt;

use http::{HeaderMap, HeaderName};

use crate::clock::Timestamp;
use crate::queue::{UserId, UserSource};

use self::cookie::VisitorCookies;
use self::header::{HeaderSettings, HeaderSource};
use self::jwt::{JwtSettings, JwtSettingsError, JwtVerifier};

/// What a source may look at.
#[derive(Clone, Copy, Debug)]
pub struct IdentityRequest<'a> {
    /// The request's headers.
    pub headers: &'a HeaderMap,
    /// Whether the peer is a trusted proxy.
    pub trusted_peer: bool,
    /// Whether the client speaks https, as far as is known: decides which cookie names count.
    pub https: bool,
    /// The query, without its `?`.
    pub query: Option<&'a str>,
    /// The present.
    pub now: Timestamp,
}

/// What one source found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Finding {
    /// The request says nothing this source listens to.
    Absent,
    /// The request is this user's.
    Verified(UserId),
    /// The request claims an identity that does not hold.
    Rejected,
}

/// One way to know a user.
pub trait IdentitySource: Send + Sync + fmt::Debug {
    /// Which source its users come from. Every user it verifies has this source.
    fn source(&self) -> UserSource;

    /// Looks at a request. Never fails and never panics, whatever the headers hold; a claim that
    /// cannot be checked is [`Finding::Rejected`], never a user.
    fn look(&self, request: &IdentityRequest<'_>) -> Finding;
}

/// Which sources are asked, in which order, and how.
#[derive(Clone, Debug)]
pub struct IdentitySettings {
    /// The order; each source at most once. `Query` may be listed and never answers here. Default:
    /// the visitor cookie alone.
    pub sources: Vec<UserSource>,
    /// JSON Web Tokens.
    pub jwt: Option<JwtSettings>,
    /// The header of a trusted proxy.
    pub header: Option<HeaderSettings>,
}

impl Default for IdentitySettings {
    fn default() -> Self {
        Self { sources: vec![UserSource::Visitor], jwt: None, header: None }
    }
}

/// Why settings make no chain.
#[derive(Debug, thiserror::Error)]
pub enum ChainError {
    /// A source is in the order but not set up.
    #[error("identity source `{}` is listed but `[identity.{}]` is missing", .0.as_str(), .0.as_str())]
    NotSetUp(UserSource),
    /// A source is in the order twice.
    #[error("identity source `{}` is listed twice", .0.as_str())]
    Twice(UserSource),
    /// The settings of JSON Web Tokens do not hold together.
    #[error("[identity.jwt]: {0}")]
    Jwt(#[from] JwtSettingsError),
}

/// The identities of one request.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Identities {
    /// Verified users, in the order of their sources, at most one per source.
    pub verified: Vec<UserId>,
    /// The first source whose identity was claimed but did not hold.
    pub rejected: Option<UserSource>,
}

impl Identities {
    /// The user who enters a queue with this request.
    #[must_use]
    pub fn first(&self) -> Option<&UserId> {
        self.verified.first()
    }
}

/// The configured sources.
#[derive(Debug)]
pub struct Chain {
    order: Vec<UserSource>,
    sources: Vec<Box<dyn IdentitySource>>,
    visitors: VisitorCookies,
    header: Option<HeaderName>,
}

impl Chain {
    /// A chain of the configured sources. Sources that are set up but not listed are kept, for
    /// queues that list them; visitors are always set up.
    ///
    /// # Errors
    /// [`ChainError`] when the order names a source twice or one that is not set up, or when the
    /// settings of a source do not hold together.
    pub fn new(settings: IdentitySettings, visitors: VisitorCookies) -> Result<Self, ChainError> {
        let mut sources: Vec<Box<dyn IdentitySource>> = vec![Box::new(visitors.clone())];
        if let Some(jwt) = settings.jwt {
            sources.push(Box::new(JwtVerifier::new(jwt)?));
        }
        let header_name = settings.header.as_ref().map(|header| header.name.clone());
        if let Some(header) = settings.header {
            sources.push(Box::new(HeaderSource::new(header)));
        }
        let chain = Self { order: settings.sources, sources, visitors, header: header_name };
        chain.check(&chain.order)?;
        Ok(chain)
    }

    /// Whether a queue's own order can be used with this chain.
    ///
    /// # Errors
    /// [`ChainError::Twice`] or [`ChainError::NotSetUp`].
    pub fn check(&self, order: &[UserSource]) -> Result<(), ChainError> {
        for (at, source) in order.iter().enumerate() {
            if order[..at].contains(source) {
                return Err(ChainError::Twice(*source));
            }
            if *source != UserSource::Query && self.source(*source).is_none() {
                return Err(ChainError::NotSetUp(*source));
            }
        }
        Ok(())
    }

    /// The visitor cookies, to issue one.
    #[must_use]
    pub const fn visitors(&self) -> &VisitorCookies {
        &self.visitors
    }

    /// The header in which trusted proxies name a user. From anybody else it must not go on.
    #[must_use]
    pub const fn identity_header(&self) -> Option<&HeaderName> {
        self.header.as_ref()
    }

    /// Asks the sources in `sources`, a queue's own order, or else in the configured one. `Query`
    /// and what is not set up never answer.
    #[must_use]
    pub fn identify(
        &self,
        request: &IdentityRequest<'_>,
        sources: Option<&[UserSource]>,
    ) -> Identities {
        let mut found = Identities::default();
        for source in sources.unwrap_or(&self.order) {
            let Some(asked) = self.source(*source) else { continue };
            match asked.look(request) {
                Finding::Absent => {}
                Finding::Verified(user) => found.verified.push(user),
                Finding::Rejected => found.rejected = found.rejected.or(Some(*source)),
            }
        }
        found
    }

    fn source(&self, wanted: UserSource) -> Option<&dyn IdentitySource> {
        self.sources.iter().find(|source| source.source() == wanted).map(AsRef::as_ref)
    }
}

#[cfg(test)]
mod tests;
