//! Writes an answer made here, and deals with a request body that nobody wants.
//!
//! An answer keeps the connection whenever that is honest: under a rush most answers are refusals,
//! and a new connection for each would cost more than the refusal. A client that sends a body with
//! a refused request would not see the answer if the socket were closed with unread bytes (the
//! kernel resets it), so the rest of the body is read and dropped, within bounds.

use std::time::Duration;

use bytes::Bytes;
use http::response::Parts;
use http::{HeaderName, HeaderValue, Method, Response, StatusCode, Version, header};
use pingora::Error;
use pingora::http::ResponseHeader;
use pingora::proxy::Session;

use super::headers::REQUEST_ID;
use crate::gate::answer::harden;

/// A refused body this long at most is read to its end, and the connection kept.
const KEEP_BYTES: u64 = 1024 * 1024;

/// Of a longer body, or one of unknown length, this much is read before the connection is closed
/// all the same. Some clients send everything before they read: 8 MiB covers a photo.
const DRAIN_BYTES: u64 = 8 * 1024 * 1024;

/// How long either may take. A client that needs longer sees a reset.
const DRAIN_TIME: Duration = Duration::from_secs(2);

/// Headers of the connection and of the form in which a body goes over it.
const WRITERS: [HeaderName; 7] = [
    header::CONNECTION,
    header::CONTENT_LENGTH,
    HeaderName::from_static("keep-alive"),
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

/// Writes `response` to the client of `session`, with the request id, what every answer of the
/// gateway has, and the framing the client's protocol version needs. `HEAD` gets the head only.
///
/// # Errors
/// When the client is gone; marked as its fault.
pub(super) async fn answer(
    session: &mut Session,
    response: Response<Bytes>,
    request_id: &HeaderValue,
) -> pingora::Result<()> {
    let (parts, body) = response.into_parts();
    let plan = Plan::of(session);
    if plan == Plan::Keep {
        session.set_close_on_response_before_downstream_finish(false);
    }
    let has_body = may_have_body(session, parts.status) && !body.is_empty();
    let mut head = head_of(parts, request_id);
    if may_have_length(head.status) {
        head.insert_header(header::CONTENT_LENGTH, body.len())?;
    }
    session.write_response_header(Box::new(head), !has_body).await.map_err(Error::into_down)?;
    if has_body {
        session.write_response_body(Some(body), true).await.map_err(Error::into_down)?;
    }
    discard_body(session, plan).await
}

/// The head of an answer: without framing and hop-by-hop headers, which are the writer's.
pub(super) fn head_of(mut parts: Parts, request_id: &HeaderValue) -> ResponseHeader {
    harden(&mut parts.headers);
    let is_the_writers = |name: &&HeaderName| WRITERS.contains(name);
    while let Some(name) = parts.headers.keys().find(is_the_writers).cloned() {
        parts.headers.remove(name);
    }
    parts.headers.insert(REQUEST_ID, request_id.clone());
    parts.into()
}

/// Whether the answer to this request with this status has a body on the wire.
pub(super) fn may_have_body(session: &Session, status: StatusCode) -> bool {
    session.req_header().method != Method::HEAD && may_have_length(status)
}

/// Whether an answer with this status says how long its body is (or would be).
pub(super) fn may_have_length(status: StatusCode) -> bool {
    !status.is_informational()
        && !matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED)
}

/// Whether the client waits for a `100 Continue` before it sends its body.
pub(super) fn expects_continue(session: &Session) -> bool {
    let head = session.req_header();
    head.version == Version::HTTP_11
        && head
            .headers
            .get(header::EXPECT)
            .is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"100-continue"))
}

/// The body's length as the request states it.
pub(super) fn content_length(session: &Session) -> Option<u64> {
    session.req_header().headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.trim().parse().ok()
}

/// What becomes of a request body that is not read yet when the answer is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Plan {
    /// There is none left.
    Nothing,
    /// It is read to its end and the connection kept.
    Keep,
    /// Some of it is read, then the connection is closed.
    Linger,
    /// It was never sent and will not be: the connection is closed at once.
    Close,
}

impl Plan {
    /// The plan for a request, before its answer is written.
    pub(super) fn of(session: &mut Session) -> Self {
        if session.is_http2() || session.is_body_done() {
            Self::Nothing
        } else if expects_continue(session) && session.response_written().is_none() {
            Self::Close
        } else if content_length(session).is_some_and(|length| length <= KEEP_BYTES) {
            Self::Keep
        } else {
            Self::Linger
        }
    }
}

/// Carries out `plan` after the answer was written.
///
/// # Errors
/// None of its own: a client that breaks off here has its answer.
pub(super) async fn discard_body(session: &mut Session, plan: Plan) -> pingora::Result<()> {
    if matches!(plan, Plan::Nothing | Plan::Close) {
        return Ok(());
    }
    // The answer may still be in a buffer; the client is to see it before it is waited for.
    session.finish_body().await.map_err(Error::into_down)?;
    let mut left = DRAIN_BYTES;
    let drained = tokio::time::timeout(DRAIN_TIME, async {
        loop {
            match session.read_request_body().await {
                Ok(Some(bytes)) => {
                    left = left.saturating_sub(bytes.len() as u64);
                    if left == 0 {
                        return false;
                    }
                }
                Ok(None) => return true,
                Err(_) => return false,
            }
        }
    })
    .await
    .unwrap_or(false);
    if !drained {
        session.set_keepalive(None);
    }
    Ok(())
}
