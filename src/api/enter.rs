//! `POST {prefix}/{queue}/enter`: a place in line, or the place the user has already.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Path, State};
use http::header::SET_COOKIE;
use http::request::Parts;
use http::{Request, Response, StatusCode};

use crate::gate::{Entry, Site};
use crate::identity::client_address::Connection;
use crate::problem::{Code, Problem};
use crate::queue::UserSource;
use crate::queue::command::Freshness;
use crate::queue::settings::OnDuplicate;

use super::Api;
use super::caller::{Asker, Call, Early, Opening, early};

pub(super) async fn serve(
    State(api): State<Arc<Api>>,
    Path(queue): Path<String>,
    request: Request<Body>,
) -> Response<Body> {
    let (parts, _) = request.into_parts();
    let entered = async {
        let site = api.check_site(&parts)?;
        let call = api.call(&queue, Opening::Anyone, &parts).await?;
        enter(&api, &call, site).await
    };
    entered.await.unwrap_or_else(Early::into_response)
}

async fn enter(api: &Api, call: &Call<'_>, site: Site) -> Result<Response<Body>, Early> {
    let queue = &call.queue;
    let mut visitor_cookie = None;
    let entry = match (call.identities.first(), api.asker(call)) {
        // A place is shown before another is asked for: the store may have lost it, and this gateway
        // not have heard of that. A visitor without cookies is known by the token alone.
        (user, Ok(Asker::Token { claims, .. }))
            if user.is_none_or(|user| api.gate.tag(user) == claims.owner) =>
        {
            api.gate.enter_again(queue, &claims, user.cloned()).await
        }
        (Some(user), _) => api.gate.enter_user(queue, user).await,
        (None, _) if api.gate.sources(queue).contains(&UserSource::Visitor) => {
            let (user, cookie) = api.gate.visitors().issue(call.caller.https());
            visitor_cookie = Some(cookie);
            api.gate.enter_user(queue, &user).await
        }
        (None, _) => {
            return Err(early(Problem::new(Code::Unauthenticated).with_queue(queue.name())));
        }
    };
    let entry = match entry {
        Ok(entry) => entry,
        Err(error) => {
            // Who tries again is to be known as the one who came first.
            let mut response = Early::from(error).into_response();
            if site == Site::Own {
                response.headers_mut().extend(visitor_cookie.map(|cookie| (SET_COOKIE, cookie)));
            }
            return Ok(response);
        }
    };
    let (claims, seen, freshness) = match entry {
        Entry::Placed { claims, seen, freshness, .. } => (claims, seen, freshness),
        Entry::Refused(status) => {
            let view = queue.view_of(status);
            return Err(api.refusal(&view).into());
        }
        Entry::NeedsVisitor | Entry::Nobody => {
            return Err(early(Problem::new(Code::Unauthenticated).with_queue(queue.name())));
        }
    };
    let known = freshness == Freshness::Known;
    if known && queue.settings().on_duplicate == OnDuplicate::Reject {
        return Err(early(Problem::new(Code::AlreadyQueued).with_queue(queue.name())));
    }
    let status = if known { StatusCode::OK } else { StatusCode::CREATED };
    let token = api.gate.sign(queue.name(), &claims);
    let mut response = api.place(status, &queue.view(seen), Some(&token));
    if site == Site::Own {
        let https = call.caller.https();
        api.gate.add_token_cookie(&mut response, call.parts, queue, &claims, https);
        response.headers_mut().extend(visitor_cookie.map(|cookie| (SET_COOKIE, cookie)));
    }
    Ok(response.map(Body::from))
}

impl Api {
    /// Where an unsafe call comes from. Calls that a browser makes for another site are refused
    /// before anybody's identity is used.
    pub(super) fn check_site(&self, parts: &Parts) -> Result<Site, Early> {
        let caller = self.gate.caller(parts, &Connection::of(&parts.extensions));
        let public = self.gate.public_origins();
        let site = caller.site(&parts.headers, public, &self.settings.cors_origins);
        if site == Site::Foreign {
            let problem = Problem::new(Code::Forbidden).with_detail("a call from another site");
            return Err(early(problem));
        }
        Ok(site)
    }
}
