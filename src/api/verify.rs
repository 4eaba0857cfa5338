//! `GET {prefix}/{queue}/verify`: for back ends that check a token themselves. Counts as use.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Path, State};
use http::request::Parts;
use http::{Request, Response, StatusCode};
use serde::Serialize;

use crate::gate::credentials::{Ownership, Presented};
use crate::problem::{Code, Problem};
use crate::queue::{UserId, UserSource};
use crate::store::mirror::Seen;
use crate::token::Claims;

use super::caller::{Early, Opening, early};
use super::{Api, answer};

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Verified<'a> {
    queue: &'a str,
    user: String,
    status: &'static str,
    entered_at: String,
    expires_at: String,
}

pub(super) async fn serve(
    State(api): State<Arc<Api>>,
    Path(queue): Path<String>,
    request: Request<Body>,
) -> Response<Body> {
    let (parts, _) = request.into_parts();
    verify(&api, &queue, &parts).await.unwrap_or_else(Early::into_response)
}

async fn verify(api: &Api, name: &str, parts: &Parts) -> Result<Response<Body>, Early> {
    let call = api.call(name, Opening::TokenHolder, parts).await?;
    let queue = &call.queue;
    let refused = |code: Code| {
        early(Problem::new(code).with_status(StatusCode::FORBIDDEN).with_queue(queue.name()))
    };
    let claims = match api.gate.presented(parts, &call.caller, queue.name()) {
        Presented::Token { claims, .. } => claims,
        Presented::Nothing => return Err(refused(Code::QueueTokenRequired)),
        Presented::Malformed => return Err(refused(Code::TokenInvalid)),
        Presented::Conflict => return Err(refused(Code::TokenConflict)),
        Presented::Forged | Presented::Foreign => return Err(refused(Code::TokenOwnerNotMatch)),
    };
    // A back end that asks for itself sends no identity; one that passes its caller's on has it
    // checked.
    let owner = match api.gate.ownership(&claims, &call.identities, queue) {
        Ownership::Proven(owner) => owner,
        Ownership::Unproven if call.identities.verified.is_empty() => None,
        Ownership::Unproven | Ownership::Foreign => return Err(refused(Code::TokenOwnerNotMatch)),
    };
    let seen = queue.pass(&claims).await;
    match seen? {
        Seen::Active { place, until, .. } => {
            let verified = Verified {
                queue: queue.name().as_str(),
                user: shown(&claims, owner.as_ref()),
                status: "ACTIVE",
                entered_at: place.entered.to_rfc3339(),
                expires_at: until.to_rfc3339(),
            };
            Ok(answer::value(StatusCode::OK, &verified))
        }
        Seen::Waiting { .. } => Err(refused(Code::QueueWaiting)),
        Seen::Gone(gone) => Err(refused(crate::gate::answer::code_of(gone))),
    }
}

/// The user as upstreams see it; where only the token is known, its tag after its source.
fn shown(claims: &Claims, owner: Option<&UserId>) -> String {
    match (claims.source, owner) {
        (UserSource::Visitor, _) => format!("anon:{}", claims.owner.to_hex()),
        (_, Some(user)) => user.id().to_owned(),
        (source, None) => format!("{}:{}", source.as_str(), claims.owner.to_hex()),
    }
}
