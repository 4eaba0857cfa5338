//! The decision on one request: forward it, or answer it here.
//!
//! Everything that keeps a protected service safe is in this module, so that the tower
//! [`GateLayer`] alone is as safe as the whole proxy: routing by the strictest reading, identity,
//! tokens and their owners, stripping and setting identity headers, and the answers.

pub mod answer;
pub mod credentials;
mod entry;
mod failure;
pub mod headers;
mod layer;
pub mod metrics;
mod preflight;
mod request;
mod service;
mod waiting;

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, Response, Uri};

use crate::clock::Clock;
use crate::identity::client_address::{Client, Connection, TrustedProxies};
use crate::identity::cookie::VisitorCookies;
use crate::identity::{Chain, Identities, IdentityRequest};
use crate::page::Page;
use crate::problem::{Code, Problem};
use crate::queue::settings::{Mode, OnStoreFailure};
use crate::queue::{QueueName, UserId, UserSource, UserTag};
use crate::route::{CanonicalTarget, Gated, Matched, Route, RouteRequest, RouteTable, TargetError};
use crate::store::mirror::{LocalQueue, Mirror, Seen};
use crate::token::{Claims, Keyring};

use self::credentials::{Carrier, Carriers, Ownership, Presented};
use self::headers::{IdentityHeader, Passage};
use self::metrics::{Decision, GateMetrics};

pub use self::entry::Entry;
pub use self::headers::HeaderEdits;
pub use self::layer::GateLayer;
pub use self::request::{Caller, Navigation, Site, accepts_html};
pub use self::service::GateService;

/// What happens to a request.
#[derive(Debug)]
pub enum Verdict {
    /// It goes to the route's upstream.
    Forward(Box<Forward>),
    /// It is for the queue API, which this gateway serves itself.
    Api,
    /// It is answered here and now.
    Answer(Response<Bytes>),
}

/// How a request goes on.
#[derive(Debug)]
pub struct Forward {
    /// The route that was matched; names the upstream.
    pub route: Arc<Route>,
    /// The canonical path and query that were judged. Exactly these bytes go upstream.
    pub target: String,
    /// Changes to the request's headers.
    pub request: HeaderEdits,
    /// What has to happen to the response's headers.
    pub passage: Passage,
    /// Who is calling, as far as it is known, for forwarding headers and logs.
    pub client: Client,
}

/// What the gate is made of.
pub struct GateParts {
    /// All routes.
    pub routes: Arc<RouteTable>,
    /// Who is calling.
    pub chain: Arc<Chain>,
    /// The identity sources of queues that do not name their own, in order.
    pub sources: Vec<UserSource>,
    /// This gateway's copy of the queues.
    pub mirror: Arc<Mirror>,
    /// Keys of the tokens.
    pub keyring: Keyring,
    /// Salt of the user tags; one per store.
    pub user_salt: [u8; 32],
    /// Whose forwarding headers are believed.
    pub trusted_proxies: TrustedProxies,
    /// Origins of this site.
    pub public_origins: Vec<String>,
    /// How tokens travel.
    pub carriers: Arc<Carriers>,
    /// The waiting room page.
    pub page: Page,
    /// The reserved path prefix.
    pub prefix: String,
    /// The gateway's clock.
    pub clock: Arc<dyn Clock>,
    /// What is counted.
    pub metrics: GateMetrics,
}

/// The gate.
pub struct Gate {
    parts: GateParts,
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gate").field("prefix", &self.parts.prefix).finish_non_exhaustive()
    }
}

impl Gate {
    /// A gate of these parts.
    #[must_use]
    pub const fn new(parts: GateParts) -> Self {
        Self { parts }
    }

    /// This gateway's copy of the queues.
    #[must_use]
    pub fn mirror(&self) -> &Mirror {
        &self.parts.mirror
    }

    /// The waiting room page.
    #[must_use]
    pub const fn page(&self) -> &Page {
        &self.parts.page
    }

    /// The cookies of anonymous visitors.
    #[must_use]
    pub fn visitors(&self) -> &VisitorCookies {
        self.parts.chain.visitors()
    }

    /// The reserved path prefix.
    #[must_use]
    pub fn prefix(&self) -> &str {
        &self.parts.prefix
    }

    /// How tokens travel.
    #[must_use]
    pub fn carriers(&self) -> &Carriers {
        &self.parts.carriers
    }

    /// Origins of this site.
    #[must_use]
    pub fn public_origins(&self) -> &[String] {
        &self.parts.public_origins
    }

    /// Decides on one request. `parts.uri` is the target as it came; its body is not looked at.
    pub async fn judge(&self, parts: &Parts, connection: &Connection) -> Verdict {
        let caller = self.caller(parts, connection);
        let target = raw_target(&parts.uri);
        let matched = match self.resolve(parts, &target, caller.host()) {
            Ok(matched) => matched,
            Err(error) => {
                return self
                    .refuse(None, Problem::new(Code::BadRequest).with_detail(error.to_string()));
            }
        };
        let parameter = matched.queue_parameter();
        let (route, target, bypassed) = match matched {
            Matched::Reserved { .. } => return Verdict::Api,
            Matched::Nothing { .. } => {
                return self.refuse(None, Problem::new(Code::NotFound));
            }
            Matched::Route { route, target, bypassed, .. } => (route, target, bypassed),
        };
        if let Some(answer) = preflight::answer(parts, &route) {
            return Verdict::Answer(answer);
        }
        let visit = Visit { parts, caller, route: Arc::clone(&route), target };
        let mut verdict = self.judge_route(visit, &route, parameter, bypassed).await;
        if let Verdict::Answer(response) = &mut verdict {
            preflight::share(parts, &route, response.headers_mut());
        }
        verdict
    }

    async fn judge_route(
        &self,
        visit: Visit<'_>,
        route: &Route,
        parameter: Result<Option<String>, TargetError>,
        bypassed: bool,
    ) -> Verdict {
        let Some(gated) = route.gated.as_ref().filter(|_| !bypassed) else {
            return self.forward(visit, None, None);
        };
        let name = match parameter {
            Ok(value) => gated.queue.instance(value.as_deref()),
            Err(_) => None,
        };
        let Some(name) = name else {
            let problem = Problem::new(Code::BadRequest)
                .with_detail("the address does not name a queue of this route");
            return self.refuse(None, problem);
        };
        match self.parts.mirror.queue(&name).await {
            Ok(Some(queue)) => {
                let (headers, https) = (&visit.parts.headers, visit.caller.https());
                let mut verdict = self.judge_gated(visit, gated, &queue).await;
                if let Verdict::Answer(response) = &mut verdict {
                    self.clear_useless_cookie(response, headers, &queue, https);
                }
                verdict
            }
            Ok(None) => self.refuse(None, Problem::new(Code::QueueNotFound).with_queue(&name)),
            Err(_) if self.parts.mirror.failure_policy(&name) == Some(OnStoreFailure::Open) => {
                self.forward(visit, None, None)
            }
            Err(_) => {
                let problem = Problem::new(Code::StoreUnavailable).with_queue(&name);
                self.refuse(None, problem.with_retry_after(2))
            }
        }
    }

    /// Where a request goes. A preflight goes where the request it announces would go, unless no
    /// rule answers it there and its own method leads to a gate.
    fn resolve(
        &self,
        parts: &Parts,
        target: &str,
        host: Option<&str>,
    ) -> Result<Matched, TargetError> {
        let of = |method| self.parts.routes.resolve(RouteRequest { method, target, host });
        let Some(announced) = preflight::judged_method(parts) else { return of(&parts.method) };
        let announced = of(announced)?;
        let answered = match &announced {
            Matched::Route { route, .. } => preflight::answer(parts, route).is_some(),
            Matched::Reserved { .. } | Matched::Nothing { .. } => true,
        };
        let own = if answered { None } else { Some(of(&parts.method)?) };
        let gated = |matched: &Matched| matches!(matched, Matched::Route { route, bypassed: false, .. } if route.gated.is_some());
        Ok(own.filter(gated).unwrap_or(announced))
    }

    /// The canonical form of a request's target.
    fn canonical_target(&self, parts: &Parts, connection: &Connection) -> Option<String> {
        let caller = self.caller(parts, connection);
        let target = CanonicalTarget::parse(&raw_target(&parts.uri), caller.host());
        target.ok().map(CanonicalTarget::into_string)
    }

    /// Takes the gateway's header names from a client; the token stays.
    fn reserve(&self, headers: &mut HeaderMap) {
        headers::reserve(headers, &self.parts.carriers);
    }

    async fn judge_gated(&self, visit: Visit<'_>, gated: &Gated, queue: &LocalQueue) -> Verdict {
        if queue.mode() == Mode::PassAll {
            return self.forward(visit, Some((queue, Decision::Open)), None);
        }
        if queue.fails_open() {
            return self.forward(visit, Some((queue, Decision::FailedOpen)), None);
        }
        let presented = self.parts.carriers.presented(
            &self.parts.keyring,
            queue.name(),
            &visit.parts.headers,
            visit.caller.https(),
        );
        let (claims, carrier) = match presented {
            Presented::Token { claims, carrier } => (claims, carrier),
            Presented::Malformed | Presented::Forged => {
                return self.refuse(
                    Some(queue),
                    Problem::new(Code::TokenInvalid).with_queue(queue.name()),
                );
            }
            Presented::Conflict => {
                return self.refuse(
                    Some(queue),
                    Problem::new(Code::TokenConflict).with_queue(queue.name()),
                );
            }
            Presented::Nothing | Presented::Foreign => {
                return self.without_token(visit, gated, queue, Code::QueueTokenRequired).await;
            }
        };
        if queue.outlived(&claims) {
            let code = Code::QueueTokenNotAvailable;
            return self.without_token(visit, gated, queue, code).await;
        }
        let identities = self.identities(&visit.caller, visit.parts, queue);
        let owner = match self.ownership(&claims, &identities, queue) {
            Ownership::Proven(owner) => owner,
            Ownership::Unproven => {
                return self.without_token(visit, gated, queue, Code::QueueTokenRequired).await;
            }
            Ownership::Foreign => {
                if Navigation::of(visit.parts) == Navigation::No || carrier == Carrier::Header {
                    let problem = Problem::new(Code::TokenOwnerNotMatch).with_queue(queue.name());
                    return self.refuse(Some(queue), problem);
                }
                return self.without_token(visit, gated, queue, Code::TokenOwnerNotMatch).await;
            }
        };
        match queue.pass(&claims).await {
            Ok(Seen::Active { place, until, .. }) => {
                let passage =
                    Passage::active(queue, &claims, owner.as_ref(), place, until, carrier);
                self.forward(visit, Some((queue, Decision::Pass)), Some(passage))
            }
            Ok(seen @ Seen::Waiting { .. }) => {
                self.wait(&visit, gated, queue, &queue.view(seen), None)
            }
            Ok(Seen::Gone(gone)) => {
                let code = answer::code_of(gone);
                self.without_token(visit, gated, queue, code).await
            }
            Err(error) => self.store_away(
                visit,
                gated,
                queue,
                Some((&claims, owner.as_ref(), carrier)),
                &error,
            ),
        }
    }

    fn forward(
        &self,
        visit: Visit<'_>,
        decision: Option<(&LocalQueue, Decision)>,
        passage: Option<Passage>,
    ) -> Verdict {
        let mut passage = passage.unwrap_or_default();
        passage.prepare(&self.parts.keyring, &self.parts.carriers, visit.caller.https());
        let from_trusted = visit.caller.trusted_peer;
        let identity = self.parts.chain.identity_header();
        let identity = identity.map(|name| IdentityHeader { name, from_trusted });
        let headers = &visit.parts.headers;
        let request = passage.request_edits(&self.parts.carriers, &visit.route, headers, identity);
        if let Some((queue, decision)) = decision {
            self.parts.metrics.count(queue, decision);
        }
        Verdict::Forward(Box::new(Forward {
            route: visit.route,
            target: visit.target.into_string(),
            request,
            passage,
            client: visit.caller.client,
        }))
    }

    fn refuse(&self, queue: Option<&LocalQueue>, problem: Problem) -> Verdict {
        if let Some(queue) = queue {
            self.parts.metrics.count(queue, Decision::Refuse);
        }
        Verdict::Answer(answer::hardened(problem.into_response()))
    }

    /// Who is calling over which connection.
    #[must_use]
    pub fn caller(&self, parts: &Parts, connection: &Connection) -> Caller {
        let trusted = self.parts.trusted_proxies.trusts(connection);
        let client = Client::resolve(&parts.headers, connection, &self.parts.trusted_proxies);
        Caller::new(parts, client, trusted, &self.parts.public_origins)
    }

    /// The verified identities of a request, by the queue's sources.
    #[must_use]
    pub fn identities(&self, caller: &Caller, parts: &Parts, queue: &LocalQueue) -> Identities {
        let request = IdentityRequest {
            headers: &parts.headers,
            trusted_peer: caller.trusted_peer,
            https: caller.https(),
            query: parts.uri.query(),
            now: self.parts.clock.now(),
        };
        self.parts.chain.identify(&request, Some(self.sources(queue)))
    }

    /// The identity sources of a queue.
    #[must_use]
    pub fn sources<'a>(&'a self, queue: &'a LocalQueue) -> &'a [UserSource] {
        queue.identity().unwrap_or(&self.parts.sources)
    }

    /// Whether a token is the caller's.
    #[must_use]
    pub fn ownership(
        &self,
        claims: &Claims,
        identities: &Identities,
        queue: &LocalQueue,
    ) -> Ownership {
        credentials::ownership(claims, identities, self.sources(queue), &self.parts.user_salt)
    }

    /// The tag of a user in this store.
    #[must_use]
    pub fn tag(&self, user: &UserId) -> UserTag {
        UserTag::of(user, &self.parts.user_salt)
    }

    /// The token of these claims, as text.
    #[must_use]
    pub fn sign(&self, queue: &QueueName, claims: &Claims) -> String {
        self.parts.keyring.sign(queue, claims)
    }

    /// What the request presents for `queue`.
    #[must_use]
    pub fn presented(&self, parts: &Parts, caller: &Caller, queue: &QueueName) -> Presented {
        self.parts.carriers.presented(&self.parts.keyring, queue, &parts.headers, caller.https())
    }

    /// Adds the token cookie of `queue` to an answer, and clears the oldest of too many.
    pub fn add_token_cookie(
        &self,
        response: &mut Response<Bytes>,
        parts: &Parts,
        queue: &LocalQueue,
        claims: &Claims,
        https: bool,
    ) {
        let text = self.sign(queue.name(), claims);
        self.parts.carriers.set_cookie(
            response.headers_mut(),
            &parts.headers,
            queue.name(),
            &text,
            https,
        );
    }
}

/// The request target as it came.
fn raw_target(uri: &Uri) -> Cow<'_, str> {
    match (uri.scheme(), uri.authority(), uri.path_and_query()) {
        (None, None, Some(target)) => Cow::Borrowed(target.as_str()),
        _ => Cow::Owned(uri.to_string()),
    }
}

/// One request on its way through the gate.
struct Visit<'a> {
    parts: &'a Parts,
    caller: Caller,
    route: Arc<Route>,
    target: CanonicalTarget,
}
