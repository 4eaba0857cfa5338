//! What the upstream is told about a user who passes, and what it must never hear or say.

use std::sync::Arc;

use http::header::{CACHE_CONTROL, COOKIE, SET_COOKIE};
use http::{HeaderMap, HeaderName, HeaderValue};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};

use crate::clock::Timestamp;
use crate::identity::cookies;
use crate::queue::command::ProvenLease;
use crate::queue::{Place, QueueName, UserId, UserSource};
use crate::route::Route;
use crate::store::mirror::LocalQueue;
use crate::token::{Claims, Keyring, Proof};

use super::credentials::{Carrier, Carriers};

/// Names that only the gateway may use, in any spelling a back end could fold into them.
const RESERVED_PREFIX: &[u8] = b"x-queue-";

const QUEUE_USER: HeaderName = HeaderName::from_static("x-queue-user");
const QUEUE_NAME: HeaderName = HeaderName::from_static("x-queue-name");
const QUEUE_STATUS: HeaderName = HeaderName::from_static("x-queue-status");
const QUEUE_ENTERED_AT: HeaderName = HeaderName::from_static("x-queue-entered-at");

/// What stays as it is in `X-Queue-User`.
const IN_HEADER: &AsciiSet =
    &CONTROLS.add(b' ').add(b'"').add(b'%').add(b',').add(b';').add(b'\\').add(b'<').add(b'>');

/// Ends of the names of headers that some caches obey before `Cache-Control`, also with a vendor's
/// name in front.
const CACHE_WORDS: [&str; 5] =
    ["cdn-cache-control", "surrogate-control", "edge-control", "expires", "pragma"];

/// Changes to a set of headers: removals first, then what is set, then what is added.
#[derive(Clone, Debug, Default)]
pub struct HeaderEdits {
    /// Names that must not go on.
    pub remove: Vec<HeaderName>,
    /// Names that get exactly one value.
    pub set: Vec<(HeaderName, HeaderValue)>,
    /// Values added to what is there, such as `Set-Cookie`.
    pub append: Vec<(HeaderName, HeaderValue)>,
}

impl HeaderEdits {
    /// Makes the changes.
    pub fn apply(&self, headers: &mut HeaderMap) {
        for name in &self.remove {
            headers.remove(name);
        }
        for (name, value) in &self.set {
            headers.insert(name, value.clone());
        }
        for (name, value) in &self.append {
            headers.append(name, value.clone());
        }
    }
}

/// A request's way through: who passes, and the fresher token that goes back.
#[derive(Debug, Default)]
pub struct Passage {
    active: Option<Active>,
    /// How the fresher token goes back, once it is signed.
    offer: HeaderEdits,
    carriers: Option<Arc<Carriers>>,
}

#[derive(Debug)]
struct Active {
    queue: QueueName,
    /// The value of `X-Queue-User`; `None` if it cannot be one, which no sound id does.
    user: Option<HeaderValue>,
    place: Place,
    carrier: Carrier,
    /// The token to offer, if a fresher one is useful.
    renewed: Option<Claims>,
}

/// The header in which trusted proxies name a user.
#[derive(Clone, Copy, Debug)]
pub(super) struct IdentityHeader<'a> {
    pub(super) name: &'a HeaderName,
    /// Whether this request came from one of them.
    pub(super) from_trusted: bool,
}

impl IdentityHeader<'_> {
    /// Whether a back end could take `other` for the header although no trusted proxy wrote it.
    fn is_strangers(self, other: &HeaderName) -> bool {
        folds_into(other, self.name.as_str().as_bytes())
            && !(self.from_trusted && other == self.name)
    }
}

impl Passage {
    /// The passage of an active user.
    pub(super) fn active(
        queue: &LocalQueue,
        claims: &Claims,
        owner: Option<&UserId>,
        place: Place,
        until: Timestamp,
        carrier: Carrier,
    ) -> Self {
        let user = match owner.filter(|user| user.source() != UserSource::Visitor) {
            Some(user) => utf8_percent_encode(user.id(), IN_HEADER).to_string(),
            None => claims.owner.push_hex(String::from("anon:")),
        };
        let user = HeaderValue::try_from(user).ok();
        let proof = Proof::Lease(ProvenLease { until, claimed: true });
        let renewed = (claims.proof != proof).then_some(Claims { place, proof, ..*claims });
        let queue = queue.name().clone();
        let active = Active { queue, user, place, carrier, renewed };
        Self { active: Some(active), ..Self::default() }
    }

    /// The same without a fresher token: while the store is away nothing is prolonged.
    pub(super) fn unrenewed(mut self) -> Self {
        if let Some(active) = &mut self.active {
            active.renewed = None;
        }
        self
    }

    /// Signs the token that is offered.
    pub(super) fn prepare(&mut self, keyring: &Keyring, carriers: &Arc<Carriers>, https: bool) {
        self.carriers = Some(Arc::clone(carriers));
        let Some(Active { queue, carrier, renewed: Some(claims), .. }) = &self.active else {
            return;
        };
        let token = keyring.sign(queue, claims);
        let line = match carrier {
            Carrier::Header => HeaderValue::from_str(&token)
                .map(|value| self.offer.set.push((carriers.header.clone(), value)))
                .ok(),
            Carrier::Cookie => {
                let mut lines = HeaderMap::new();
                carriers.set_cookie(&mut lines, &HeaderMap::new(), queue, &token, https);
                self.offer.append.extend(lines.remove(SET_COOKIE).map(|line| (SET_COOKIE, line)));
                Some(())
            }
        };
        if line.is_some() {
            // Nobody else may be given this answer.
            let private = HeaderValue::from_static("private, no-store");
            self.offer.set.push((CACHE_CONTROL, private));
        }
    }

    /// Changes to the request before it goes upstream: the gateway's names are taken from the
    /// client on every route and given their values on a passage.
    pub(super) fn request_edits(
        &self,
        carriers: &Carriers,
        route: &Route,
        headers: &HeaderMap,
        identity: Option<IdentityHeader<'_>>,
    ) -> HeaderEdits {
        let mut edits = HeaderEdits::default();
        for name in headers.keys() {
            let token = folds_into(name, carriers.header.as_str().as_bytes());
            let exact = *name == carriers.header;
            let reserved = starts_folded(name, RESERVED_PREFIX);
            let strangers = identity.is_some_and(|identity| identity.is_strangers(name));
            if strangers || (reserved || token) && !(exact && route.forward_token) {
                edits.remove.push(name.clone());
            }
        }
        if !route.forward_token
            && let Some(lines) = cookies::without(headers, |name| carriers.is_our_cookie(name))
        {
            edits.remove.push(COOKIE);
            edits.append.extend(lines.into_iter().map(|line| (COOKIE, line)));
        }
        if let Some(active) = &self.active {
            let text = |text: &str| HeaderValue::from_str(text).ok();
            let told = [
                (QUEUE_USER, active.user.clone()),
                (QUEUE_NAME, text(active.queue.as_str())),
                (QUEUE_STATUS, Some(HeaderValue::from_static("ACTIVE"))),
                (QUEUE_ENTERED_AT, text(active.place.entered.rfc3339().as_str())),
            ];
            edits.set.extend(told.into_iter().filter_map(|(name, value)| Some((name, value?))));
        }
        edits
    }

    /// Changes to the upstream's answer: its own `X-Queue-*` and cookies under the gateway's names
    /// are dropped, and the fresher token is added.
    #[must_use]
    pub fn response_edits(&self, upstream: &HeaderMap) -> HeaderEdits {
        let mut edits = self.offer.clone();
        edits
            .remove
            .extend(upstream.keys().filter(|name| starts_folded(name, RESERVED_PREFIX)).cloned());
        if edits.set.iter().any(|(name, _)| *name == CACHE_CONTROL) {
            let for_caches =
                |name: &&HeaderName| CACHE_WORDS.iter().any(|end| name.as_str().ends_with(end));
            edits.remove.extend(upstream.keys().filter(for_caches).cloned());
        }
        if let Some(carriers) = &self.carriers {
            let ours = |line: &HeaderValue| carriers.is_our_cookie(cookies::set_cookie_name(line));
            if upstream.get_all(SET_COOKIE).iter().any(ours) {
                edits.remove.push(SET_COOKIE);
                let kept = upstream.get_all(SET_COOKIE).iter().filter(|line| !ours(line));
                let mut append: Vec<_> = kept.map(|line| (SET_COOKIE, line.clone())).collect();
                append.append(&mut edits.append);
                edits.append = append;
            }
        }
        edits
    }
}

/// Back ends fold `_` and `.` into `-`, some (CGI and friends) everything but letters and digits,
/// and ignore letter case.
const fn fold(byte: u8) -> u8 {
    if byte.is_ascii_alphanumeric() { byte.to_ascii_lowercase() } else { b'-' }
}

/// Takes the gateway's names from the client of a request that the gateway serves itself; the
/// token stays.
pub(super) fn reserve(headers: &mut HeaderMap, carriers: &Carriers) {
    let reserved =
        |name: &&HeaderName| starts_folded(name, RESERVED_PREFIX) && **name != carriers.header;
    let doomed: Vec<HeaderName> = headers.keys().filter(reserved).cloned().collect();
    for name in doomed {
        headers.remove(name);
    }
}

/// Whether a back end could take the beginning of `name` for `prefix`.
pub(crate) fn starts_folded(name: &HeaderName, prefix: &[u8]) -> bool {
    let name = name.as_str().as_bytes();
    name.len() >= prefix.len() && name.iter().zip(prefix).all(|(a, b)| fold(*a) == fold(*b))
}

/// Whether a back end could take `name` for `other`.
pub(crate) fn folds_into(name: &HeaderName, other: &[u8]) -> bool {
    name.as_str().len() == other.len() && starts_folded(name, other)
}
