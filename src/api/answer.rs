//! Answers of the API: bodies as JSON, problems, and how a view becomes either.

use axum::body::Body;
use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, Response, StatusCode};
use serde::Serialize;

use crate::gate::answer::refusal;
use crate::problem::{Code, Problem};
use crate::queue::view::{Status, View};

use super::Api;

/// Seconds after which to try again while the store is away.
const STORE_RETRY_SECS: u64 = 3;

/// Headers that a JSON answer may end up with.
const HEADERS: usize = 12;

/// A problem as an answer.
pub(super) fn problem(problem: Problem) -> Response<Body> {
    problem.into_response().map(Body::from)
}

/// The answer while the store is away.
pub(super) fn store_away() -> Problem {
    Problem::new(Code::StoreUnavailable).with_retry_after(STORE_RETRY_SECS)
}

/// A JSON answer that nobody may keep.
pub(super) fn json(status: StatusCode, body: Vec<u8>) -> Response<Bytes> {
    let mut response = Response::new(Bytes::from(body));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    // Room for everything that is added on the way out.
    headers.reserve(HEADERS);
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("private, no-store"));
    response
}

/// A small value as JSON.
pub(super) fn value(status: StatusCode, body: &impl Serialize) -> Response<Body> {
    match serde_json::to_vec(body) {
        Ok(body) => json(status, body).map(Body::from),
        Err(_) => problem(Problem::new(Code::Internal)),
    }
}

impl Api {
    /// What enter and rank answer: the body for a live place, the problem for anything else.
    pub(super) fn place(
        &self,
        status: StatusCode,
        view: &View,
        token: Option<&str>,
    ) -> Response<Bytes> {
        let Some(body) = view.rank_body(token) else {
            return self.refusal(view).into_response();
        };
        let mut response = json(status, body.to_json());
        if view.status != Status::Active {
            let secs = HeaderValue::from(view.retry_after_secs());
            response.headers_mut().insert(RETRY_AFTER, secs);
        }
        response
    }

    /// The problem that says why there is no place.
    pub(super) fn refusal(&self, view: &View) -> Problem {
        refusal(self.gate.prefix(), view)
    }
}
