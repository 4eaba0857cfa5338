//! Every refusal and error as `application/problem+json` (RFC 9457): the only place with statuses.

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, Response, StatusCode};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::clock::Timestamp;
use crate::queue::QueueName;

/// What went wrong, by its stable code. Clients may rely on the codes; titles may change.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Code {
    /// No identity where one is needed, or one that does not verify.
    Unauthenticated,
    /// The token belongs to somebody else, or was not issued here.
    TokenOwnerNotMatch,
    /// The token is malformed, or forged where only its form could be told.
    TokenInvalid,
    /// Two valid tokens of one queue contradict each other.
    TokenConflict,
    /// The gate needs a token and got none.
    QueueTokenRequired,
    /// The token waits.
    QueueWaiting,
    /// The token is over: enter again.
    QueueTokenNotAvailable,
    /// The user is in line already and the queue refuses duplicates.
    AlreadyQueued,
    /// No such queue.
    QueueNotFound,
    /// Before `opens_at`.
    QueueNotOpen,
    /// After `closes_at`.
    QueueClosed,
    /// `max_waiting` reached.
    QueueFull,
    /// Too many requests.
    RateLimited,
    /// The store does not answer.
    StoreUnavailable,
    /// No upstream took the request.
    UpstreamUnavailable,
    /// The upstream did not answer in time.
    UpstreamTimeout,
    /// The request cannot be read one way only.
    BadRequest,
    /// Not for this caller: a cross-site call, or a compatibility call from outside.
    Forbidden,
    /// Nothing is served under this path.
    NotFound,
    /// Not with this method.
    MethodNotAllowed,
    /// The body is larger than the limit.
    ContentTooLarge,
    /// The request line or the header block is larger than the limit.
    HeaderTooLarge,
    /// The body did not arrive in time.
    RequestTimeout,
    /// A fault of the gateway itself.
    Internal,
}

impl Code {
    /// All codes, for the documentation's test.
    pub const ALL: [Self; 24] = [
        Self::Unauthenticated,
        Self::TokenOwnerNotMatch,
        Self::TokenInvalid,
        Self::TokenConflict,
        Self::QueueTokenRequired,
        Self::QueueWaiting,
        Self::QueueTokenNotAvailable,
        Self::AlreadyQueued,
        Self::QueueNotFound,
        Self::QueueNotOpen,
        Self::QueueClosed,
        Self::QueueFull,
        Self::RateLimited,
        Self::StoreUnavailable,
        Self::UpstreamUnavailable,
        Self::UpstreamTimeout,
        Self::BadRequest,
        Self::Forbidden,
        Self::NotFound,
        Self::MethodNotAllowed,
        Self::ContentTooLarge,
        Self::HeaderTooLarge,
        Self::RequestTimeout,
        Self::Internal,
    ];

    /// The code as clients see it, its usual status, and its title.
    const fn parts(self) -> (&'static str, StatusCode, &'static str) {
        use StatusCode as S;
        match self {
            Self::Unauthenticated => ("UNAUTHENTICATED", S::UNAUTHORIZED, "Who are you?"),
            Self::TokenOwnerNotMatch => {
                ("TOKEN_OWNER_NOT_MATCH", S::FORBIDDEN, "This token is not yours")
            }
            Self::TokenInvalid => ("TOKEN_INVALID", S::BAD_REQUEST, "The token is not valid"),
            Self::TokenConflict => {
                ("TOKEN_CONFLICT", S::BAD_REQUEST, "Two tokens contradict each other")
            }
            Self::QueueTokenRequired => {
                ("QUEUE_TOKEN_REQUIRED", S::TOO_MANY_REQUESTS, "Enter the queue first")
            }
            Self::QueueWaiting => {
                ("QUEUE_WAITING", S::TOO_MANY_REQUESTS, "It is not your turn yet")
            }
            Self::QueueTokenNotAvailable => {
                ("QUEUE_TOKEN_NOT_AVAILABLE", S::GONE, "The token is over: enter again")
            }
            Self::AlreadyQueued => ("ALREADY_QUEUED", S::CONFLICT, "You are in line already"),
            Self::QueueNotFound => ("QUEUE_NOT_FOUND", S::NOT_FOUND, "There is no such queue"),
            Self::QueueNotOpen => ("QUEUE_NOT_OPEN", S::FORBIDDEN, "The queue is not open yet"),
            Self::QueueClosed => ("QUEUE_CLOSED", S::FORBIDDEN, "The queue is closed"),
            Self::QueueFull => ("QUEUE_FULL", S::SERVICE_UNAVAILABLE, "The line is full"),
            Self::RateLimited => ("RATE_LIMITED", S::TOO_MANY_REQUESTS, "Too many requests"),
            Self::StoreUnavailable => {
                ("STORE_UNAVAILABLE", S::SERVICE_UNAVAILABLE, "The line cannot be reached")
            }
            Self::UpstreamUnavailable => {
                ("UPSTREAM_UNAVAILABLE", S::BAD_GATEWAY, "The service cannot be reached")
            }
            Self::UpstreamTimeout => {
                ("UPSTREAM_TIMEOUT", S::GATEWAY_TIMEOUT, "The service did not answer in time")
            }
            Self::BadRequest => ("BAD_REQUEST", S::BAD_REQUEST, "The request cannot be understood"),
            Self::Forbidden => ("FORBIDDEN", S::FORBIDDEN, "Not allowed"),
            Self::NotFound => ("NOT_FOUND", S::NOT_FOUND, "Nothing here"),
            Self::MethodNotAllowed => {
                ("METHOD_NOT_ALLOWED", S::METHOD_NOT_ALLOWED, "Not with this method")
            }
            Self::ContentTooLarge => {
                ("CONTENT_TOO_LARGE", S::PAYLOAD_TOO_LARGE, "The body is too large")
            }
            Self::HeaderTooLarge => (
                "HEADER_TOO_LARGE",
                S::REQUEST_HEADER_FIELDS_TOO_LARGE,
                "The request head is too large",
            ),
            Self::RequestTimeout => {
                ("REQUEST_TIMEOUT", S::REQUEST_TIMEOUT, "The body did not arrive in time")
            }
            Self::Internal => ("INTERNAL", S::INTERNAL_SERVER_ERROR, "The gateway failed"),
        }
    }

    /// The code as clients see it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        self.parts().0
    }

    /// The status it usually has. At the gate a route's `refuse_status` replaces it.
    #[must_use]
    pub const fn status(self) -> StatusCode {
        self.parts().1
    }
}

/// One refusal, ready to be answered.
#[derive(Clone, Debug)]
pub struct Problem {
    code: Code,
    status: StatusCode,
    retry_after_secs: Option<u64>,
    fields: Map<String, Value>,
}

impl Problem {
    /// A problem with the code's usual status and no detail.
    #[must_use]
    pub fn new(code: Code) -> Self {
        Self { code, status: code.status(), retry_after_secs: None, fields: Map::new() }
    }

    /// Its code.
    #[must_use]
    pub const fn code(&self) -> Code {
        self.code
    }

    /// Answers with another status than the code's usual one.
    #[must_use]
    pub const fn with_status(mut self, status: StatusCode) -> Self {
        self.status = status;
        self
    }

    /// A sentence for people. Never holds anything secret or anything of another user.
    #[must_use]
    pub fn with_detail(self, detail: impl Into<String>) -> Self {
        self.with_field("detail", detail.into())
    }

    /// Adds `Retry-After` in whole seconds (at least 1).
    #[must_use]
    pub fn with_retry_after(mut self, secs: u64) -> Self {
        self.retry_after_secs = Some(secs.max(1));
        self
    }

    /// Names the queue.
    #[must_use]
    pub fn with_queue(self, queue: &QueueName) -> Self {
        self.with_field("queue", queue.as_str())
    }

    /// Says when the queue opens.
    #[must_use]
    pub fn with_opens_at(self, opens_at: Timestamp) -> Self {
        self.with_field("opensAt", opens_at.to_rfc3339())
    }

    /// Adds a member to the body. A value that cannot be written as JSON is left out.
    #[must_use]
    pub fn with_field(mut self, name: &'static str, value: impl Serialize) -> Self {
        if let Ok(value) = serde_json::to_value(value) {
            self.fields.insert(name.to_owned(), value);
        }
        self
    }

    /// The answer: problem+json, never cached.
    #[must_use]
    pub fn into_response(self) -> Response<Bytes> {
        let mut body = Map::new();
        let (code, _, title) = self.code.parts();
        body.insert("type".into(), Value::from("about:blank"));
        body.insert("title".into(), Value::from(title));
        body.insert("status".into(), Value::from(self.status.as_u16()));
        body.insert("code".into(), Value::from(code));
        body.extend(self.fields);
        let mut response = Response::new(Bytes::from(Value::Object(body).to_string()));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if let Some(secs) = self.retry_after_secs {
            headers.insert(RETRY_AFTER, HeaderValue::from(secs));
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_is_json_with_code_and_status_and_is_never_cached() {
        let response = Problem::new(Code::QueueWaiting)
            .with_status(StatusCode::SERVICE_UNAVAILABLE)
            .with_retry_after(0)
            .with_detail("quote \" and \u{0}")
            .into_response();
        assert_eq!(response.status(), 503);
        assert_eq!(response.headers()["content-type"], "application/problem+json");
        assert_eq!(response.headers()["cache-control"], "no-store");
        assert_eq!(response.headers()["retry-after"], "1");
        let body: Value = serde_json::from_slice(response.body()).unwrap();
        assert_eq!(body["code"], "QUEUE_WAITING");
        assert_eq!(body["status"], 503);
        assert_eq!(body["detail"], "quote \" and \u{0}");
    }

    #[test]
    fn codes_are_distinct() {
        let mut codes: Vec<_> = Code::ALL.iter().map(|code| code.as_str()).collect();
        codes.sort_unstable();
        codes.dedup();
        assert_eq!(codes.len(), Code::ALL.len());
    }
}
