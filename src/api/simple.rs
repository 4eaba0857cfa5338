//! The compatibility set: a user id in the query, for back ends that are trusted to name users.
//!
//! Answered only to listed peers, and not to what a proxy passes on for somebody else; or to an
//! operator. Its identity never passes the gate.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use http::header::{AUTHORIZATION, FORWARDED};
use http::request::Parts;
use http::{Request, Response, StatusCode};
use serde::Serialize;

use crate::admin::Role;
use crate::gate::answer::see_other;
use crate::gate::{Entry, Site};
use crate::identity::client_address::Connection;
use crate::identity::{Finding, query};
use crate::page::PageContext;
use crate::problem::{Code, Problem};
use crate::queue::UserId;
use crate::queue::command::AdmitBy;
use crate::route::return_target::ReturnTarget;
use crate::store::StoreError;
use crate::store::mirror::{LocalQueue, Seen};

use super::caller::{Early, Opening, early};
use super::page::pairs;
use super::{Api, answer};

/// The queue where none is named.
const DEFAULT_QUEUE: &str = "default";

/// The most one call may ask to admit.
const MAX_COUNT: u64 = 1_000_000;

/// Users admitted by one command of the store.
const BATCH: u64 = 500;

#[derive(Serialize)]
struct RankAnswer {
    rank: i64,
}

#[derive(Serialize)]
struct AllowedAnswer {
    allowed: bool,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct AllowAnswer {
    request_count: u64,
    allowed_count: u64,
}

type Shared = State<Arc<Api>>;

/// `GET /rank`: the position in line; −1 for who is not in line.
pub(super) async fn rank(State(api): Shared, request: Request<Body>) -> Response<Body> {
    let (parts, _) = request.into_parts();
    let answer = async {
        let (queue, user) = api.named(&parts).await?;
        let seen = queue.lookup(api.gate.tag(&user)).await?;
        Ok(answer::value(StatusCode::OK, &RankAnswer { rank: position(seen) }))
    };
    answer.await.unwrap_or_else(Early::into_response)
}

/// `POST /queue`: enters; the position in line, 0 for who was admitted at once.
pub(super) async fn enter(State(api): Shared, request: Request<Body>) -> Response<Body> {
    let (parts, _) = request.into_parts();
    let answer = async {
        let (queue, user) = api.named(&parts).await?;
        match api.gate.enter_user(&queue, &user).await? {
            Entry::Placed { seen: Seen::Active { .. }, .. } => {
                Ok(answer::value(StatusCode::OK, &RankAnswer { rank: 0 }))
            }
            Entry::Placed { seen, .. } => {
                Ok(answer::value(StatusCode::OK, &RankAnswer { rank: position(seen) }))
            }
            Entry::Refused(status) => Err(api.refusal(&queue.view_of(status)).into()),
            Entry::NeedsVisitor | Entry::Nobody => Err(early(Problem::new(Code::BadRequest))),
        }
    };
    answer.await.unwrap_or_else(Early::into_response)
}

/// `GET /allowed`: whether the user may go in now. Counts as use, as `verify` does.
pub(super) async fn allowed(State(api): Shared, request: Request<Body>) -> Response<Body> {
    let (parts, _) = request.into_parts();
    let answer = async {
        let (queue, user) = api.named(&parts).await?;
        let allowed = api.admitted(&queue, &user).await?;
        Ok(answer::value(StatusCode::OK, &AllowedAnswer { allowed }))
    };
    answer.await.unwrap_or_else(Early::into_response)
}

/// `POST /allow`: admits by hand; says how many really moved. Needs an operator.
pub(super) async fn allow(State(api): Shared, request: Request<Body>) -> Response<Body> {
    let (parts, _) = request.into_parts();
    let answer = async {
        if !api.is_operator(&parts) {
            return Err(early(Problem::new(Code::Unauthenticated)));
        }
        let queue = api.queue_in(&parts).await?;
        let count = parameter(&parts, "count")?
            .and_then(|count| count.parse::<u64>().ok())
            .filter(|count| *count <= MAX_COUNT);
        let Some(request_count) = count else {
            let detail = format!("count is a whole number from 0 to {MAX_COUNT}");
            return Err(early(Problem::new(Code::BadRequest).with_detail(detail)));
        };
        let mut allowed_count = 0;
        while allowed_count < request_count {
            let wanted = (request_count - allowed_count).min(BATCH);
            let admitted = queue.admit(wanted, AdmitBy::Operator).await?;
            allowed_count += admitted.count;
            if admitted.count < wanted {
                break;
            }
        }
        Ok(answer::value(StatusCode::OK, &AllowAnswer { request_count, allowed_count }))
    };
    answer.await.unwrap_or_else(Early::into_response)
}

/// `GET /waiting-room`: sends on who is allowed, enters everybody else and shows the page.
pub(super) async fn waiting_room(State(api): Shared, request: Request<Body>) -> Response<Body> {
    let (parts, _) = request.into_parts();
    let answer = async {
        let (queue, user) = api.named(&parts).await?;
        let back = parameter(&parts, "redirect_url")?.and_then(|target| {
            ReturnTarget::parse(&target, api.gate.public_origins(), api.gate.prefix())
        });
        if api.admitted(&queue, &user).await? {
            let location = back.as_ref().map_or("/", ReturnTarget::as_str);
            return Ok(see_other(location).map(Body::from));
        }
        let entry = api.gate.enter_user(&queue, &user).await?;
        let (view, claims) = match entry {
            Entry::Placed { seen: Seen::Active { .. }, .. } => {
                let location = back.as_ref().map_or("/", ReturnTarget::as_str);
                return Ok(see_other(location).map(Body::from));
            }
            Entry::Placed { claims, seen, .. } => (queue.view(seen), Some(claims)),
            Entry::Refused(status) => (queue.view_of(status), None),
            Entry::NeedsVisitor | Entry::Nobody => {
                return Err(early(Problem::new(Code::BadRequest)));
            }
        };
        let page_url = parts.uri.path_and_query().map_or("/", |target| target.as_str());
        let context = PageContext {
            status: StatusCode::OK,
            page_url,
            return_target: back.as_ref().map(ReturnTarget::as_str),
        };
        let mut response = api.gate.page().render(&view, &context);
        if let Some(claims) = claims {
            let https = api.gate.caller(&parts, &Connection::of(&parts.extensions)).https();
            api.gate.add_token_cookie(&mut response, &parts, &queue, &claims, https);
        }
        Ok(response.map(Body::from))
    };
    answer.await.unwrap_or_else(Early::into_response)
}

/// The position of who is in line.
fn position(seen: Seen) -> i64 {
    match seen {
        Seen::Waiting { rank, .. } => i64::try_from(rank).unwrap_or(i64::MAX),
        Seen::Active { .. } | Seen::Gone(_) => -1,
    }
}

/// A query parameter that may be there once.
fn parameter(parts: &Parts, name: &str) -> Result<Option<String>, Early> {
    let mut values = pairs(parts.uri.query().unwrap_or_default())
        .filter(|(key, _)| key == name)
        .map(|(_, value)| value.into_owned());
    let value = values.next();
    if values.next().is_some() {
        let detail = format!("{name} is there twice");
        return Err(early(Problem::new(Code::BadRequest).with_detail(detail)));
    }
    Ok(value)
}

impl Api {
    /// The queue and the user named in the query, if the caller may name them.
    async fn named(&self, parts: &Parts) -> Result<(Arc<LocalQueue>, UserId), Early> {
        if !self.may_name_users(parts) && !self.is_operator(parts) {
            return Err(early(Problem::new(Code::Forbidden)));
        }
        // A browser on a trusted machine is not to act for whatever site it shows.
        let caller = self.gate.caller(parts, &Connection::of(&parts.extensions));
        let public = self.gate.public_origins();
        let site = caller.site(&parts.headers, public, &self.settings.cors_origins);
        if !parts.method.is_safe() && site == Site::Foreign {
            return Err(early(Problem::new(Code::Forbidden)));
        }
        let queue = self.queue_in(parts).await?;
        match query::user_id(parts.uri.query()) {
            Finding::Verified(user) => Ok((queue, user)),
            Finding::Absent | Finding::Rejected => {
                let detail = "user_id is there once, 1 to 256 bytes";
                Err(early(Problem::new(Code::BadRequest).with_detail(detail)))
            }
        }
    }

    async fn queue_in(&self, parts: &Parts) -> Result<Arc<LocalQueue>, Early> {
        let name = parameter(parts, "queue")?;
        self.queue(name.as_deref().unwrap_or(DEFAULT_QUEUE), Opening::Anyone, parts).await
    }

    /// Whether the peer itself is listed. What it passes on for others does not count: a proxy on
    /// the same machine would otherwise lend its address to the whole internet.
    fn may_name_users(&self, parts: &Parts) -> bool {
        let passed_on = ["x-forwarded-for", "x-real-ip", "via", FORWARDED.as_str()]
            .iter()
            .any(|name| parts.headers.contains_key(*name));
        let Some(simple) = &self.settings.simple else { return false };
        let peer = Connection::of(&parts.extensions).peer.map(|peer| peer.to_canonical());
        !passed_on && peer.is_some_and(|peer| simple.clients.iter().any(|net| net.contains(&peer)))
    }

    fn is_operator(&self, parts: &Parts) -> bool {
        let mut values = parts.headers.get_all(AUTHORIZATION).iter();
        let (Some(value), None) = (values.next(), values.next()) else { return false };
        value
            .to_str()
            .ok()
            .and_then(|value| value.split_once(' '))
            .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"))
            .is_some_and(|(_, secret)| {
                self.admins
                    .iter()
                    .any(|admin| admin.role == Role::Operator && admin.accepts(secret))
            })
    }

    /// Whether the user may go in now; claims the place if so.
    async fn admitted(&self, queue: &LocalQueue, user: &UserId) -> Result<bool, StoreError> {
        let pass = queue.pass_user(self.gate.tag(user)).await?;
        Ok(matches!(pass, Seen::Active { .. }))
    }
}
