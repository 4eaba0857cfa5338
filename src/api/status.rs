//! `GET {prefix}/{queue}/status`: the numbers everybody shares. The only cacheable answer about a
//! queue.

use axum::body::Body;
use http::header::CACHE_CONTROL;
use http::request::Parts;
use http::{HeaderValue, Method, Response, StatusCode};
use serde::Serialize;

use crate::clock::Timestamp;
use crate::problem::{Code, Problem};
use crate::queue::schedule::Phase;
use crate::queue::settings::Mode;

use super::caller::Opening;
use super::{Api, answer};

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct StatusBody<'a> {
    queue: &'a str,
    state: &'static str,
    waiting: u64,
    active: u64,
    capacity: u64,
    admit_per_second: Option<f64>,
    opens_at: Option<String>,
    closes_at: Option<String>,
}

pub(super) async fn serve(api: &Api, queue: &str, parts: &Parts) -> Response<Body> {
    if !matches!(parts.method, Method::GET | Method::HEAD) {
        return answer::problem(Problem::new(Code::MethodNotAllowed));
    }
    let queue = match api.queue(queue, Opening::Nobody, parts).await {
        Ok(queue) => queue,
        Err(response) => return response.into_response(),
    };
    let picture = queue.picture();
    let settings = &picture.settings;
    let state = match (settings.phase(queue.now()), settings.mode) {
        (Phase::Closed, _) => "CLOSED",
        (Phase::NotOpen { .. }, _) => "NOT_OPEN",
        (Phase::Open, Mode::Paused) => "PAUSED",
        (Phase::Open, _) => "OPEN",
    };
    let body = StatusBody {
        queue: queue.name().as_str(),
        state,
        waiting: picture.waiting(),
        active: picture.active,
        capacity: settings.capacity,
        admit_per_second: settings.rate.as_per_second(),
        opens_at: settings.opens_at.map(Timestamp::to_rfc3339),
        closes_at: settings.closes_at.map(Timestamp::to_rfc3339),
    };
    let mut response = answer::value(StatusCode::OK, &body);
    let shared = HeaderValue::from_static("public, max-age=1");
    response.headers_mut().insert(CACHE_CONTROL, shared);
    response
}
