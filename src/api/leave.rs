//! `POST {prefix}/{queue}/leave` and `DELETE {prefix}/{queue}/token`: gives the place back.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Path, State};
use http::header::SET_COOKIE;
use http::{Method, Request, Response, StatusCode};

use crate::gate::accepts_html;
use crate::page::PageContext;
use crate::problem::{Code, Problem};
use crate::queue::command::Left;
use crate::queue::view::Status;

use super::Api;
use super::caller::{Asker, Early, Opening, early};

pub(super) async fn serve(
    State(api): State<Arc<Api>>,
    Path(queue): Path<String>,
    request: Request<Body>,
) -> Response<Body> {
    let (parts, _) = request.into_parts();
    leave(&api, &queue, &parts).await.unwrap_or_else(Early::into_response)
}

async fn leave(
    api: &Api,
    name: &str,
    parts: &http::request::Parts,
) -> Result<Response<Body>, Early> {
    api.check_site(parts)?;
    let call = api.call(name, Opening::TokenHolder, parts).await?;
    let queue = &call.queue;
    let left = match api.asker(&call)? {
        Asker::Token { claims, .. } => queue.leave(claims.owner, Some(claims.place.seq)).await,
        Asker::User(user) => queue.leave(api.gate.tag(&user), None).await,
        Asker::Outlived => Ok(Left::Nothing),
        Asker::Nobody => {
            return Err(early(Problem::new(Code::Unauthenticated).with_queue(queue.name())));
        }
    };
    left?;
    let mut response = if parts.method == Method::POST && accepts_html(&parts.headers) {
        // The form of the page: a bare 204 would leave the person looking at the old state.
        let page_url = api.path(&format!("{}/page", queue.name()));
        let context =
            PageContext { status: StatusCode::OK, page_url: &page_url, return_target: None };
        api.gate.page().render(&queue.view_of(Status::Left), &context).map(Body::from)
    } else {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::NO_CONTENT;
        response
    };
    let cleared = api.gate.carriers().clear_cookie(queue.name(), call.caller.https());
    response.headers_mut().extend(cleared.map(|line| (SET_COOKIE, line)));
    Ok(response)
}
