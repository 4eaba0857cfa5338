//! The gate's own answers: the refusal, the way to the page, and what every answer carries.

use bytes::Bytes;
use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, LOCATION, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use serde::Serialize;

use crate::problem::{Code, Problem};
use crate::queue::QueueName;
use crate::queue::command::Gone;
use crate::queue::view::{Status, View};
use crate::route::return_target::ReturnTarget;

/// Adds to an answer made here what protects it in a browser, unless it says so itself: no
/// sniffing, no framing, no referrer, no cache.
pub fn harden(headers: &mut HeaderMap) {
    let fixed = [
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (CONTENT_SECURITY_POLICY, "default-src 'none'; frame-ancestors 'none'"),
        (REFERRER_POLICY, "no-referrer"),
        (CACHE_CONTROL, "no-store"),
    ];
    for (name, value) in fixed {
        headers.entry(name).or_insert(HeaderValue::from_static(value));
    }
}

pub(super) fn hardened(mut response: Response<Bytes>) -> Response<Bytes> {
    harden(response.headers_mut());
    response
}

/// Where a client finds the queue's API.
#[derive(Serialize)]
struct Links {
    enter: String,
    rank: String,
    page: String,
}

/// Adds the queue and the links to its API.
#[must_use]
pub fn with_links(problem: Problem, prefix: &str, queue: &QueueName) -> Problem {
    let at = |call: &str| format!("{prefix}/{queue}/{call}");
    let links = Links { enter: at("enter"), rank: at("rank"), page: at("page") };
    problem.with_queue(queue).with_field("links", links)
}

/// The refusal that tells a program what a person would see.
#[must_use]
pub fn refusal(prefix: &str, view: &View) -> Problem {
    let code = match view.status {
        // Nobody who is active is refused; if it happened, asking again would be right.
        Status::Waiting | Status::Late | Status::Paused | Status::Active => Code::QueueWaiting,
        Status::Joining | Status::CookiesNeeded | Status::Left => Code::QueueTokenRequired,
        Status::NotOpen { .. } => Code::QueueNotOpen,
        Status::Closed => Code::QueueClosed,
        Status::Full => Code::QueueFull,
        Status::StoreAway => Code::StoreUnavailable,
        Status::Over => Code::QueueTokenNotAvailable,
    };
    let mut problem = with_links(Problem::new(code), prefix, &view.queue);
    if let Status::NotOpen { opens_at } = view.status {
        problem = problem.with_opens_at(opens_at);
    }
    if code != Code::QueueClosed {
        problem = problem.with_retry_after(view.retry_after_secs());
    }
    if let Some(rank) = view.rank {
        problem = problem
            .with_field("rank", rank)
            .with_field("pollAfterMs", u64::try_from(view.poll_after.as_millis()).ok());
    }
    problem
}

/// The code that says how a token ended.
#[must_use]
pub const fn code_of(gone: Gone) -> Code {
    match gone {
        Gone::Unknown | Gone::Expired | Gone::Missed | Gone::Lost => Code::QueueTokenNotAvailable,
        Gone::Closed => Code::QueueClosed,
    }
}

/// The address of the waiting room page. `joining` says that the visitor cookie has just been set
/// and should be back with the next request.
#[must_use]
pub fn page_location(
    prefix: &str,
    queue: &QueueName,
    back: Option<&ReturnTarget>,
    joining: bool,
) -> String {
    let mut location = format!("{prefix}/{queue}/page");
    let mut separator = '?';
    if joining {
        location.push_str("?c=1");
        separator = '&';
    }
    if let Some(back) = back {
        location.push(separator);
        location.push_str("return=");
        location.push_str(&back.encoded().to_string());
    }
    location
}

/// 303 to `location`, which must be fit for a header.
#[must_use]
pub fn see_other(location: &str) -> Response<Bytes> {
    let mut response = Response::new(Bytes::new());
    *response.status_mut() = StatusCode::SEE_OTHER;
    let to = HeaderValue::from_str(location).unwrap_or(HeaderValue::from_static("/"));
    response.headers_mut().insert(LOCATION, to);
    harden(response.headers_mut());
    response
}
