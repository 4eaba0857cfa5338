//! pingora session <-> tower service: how the queue API is reached.
//!
//! The request body is read whole, within bounds, before the service is called; the answer is
//! streamed, so that an event stream works. A client that leaves during a stream is noticed at
//! once and the stream dropped, and a gateway that is going away ends its streams.

use std::time::Duration;

use axum::body::{Body, HttpBody};
use bytes::{Bytes, BytesMut};
use http::{HeaderValue, Request, Response, Version, header};
use http_body_util::BodyExt;
use pingora::proxy::Session;
use pingora::{Error, ErrorType};
use tower::ServiceExt;

use super::Api;
use super::context::Context;
use super::drain::Drain;
use super::headers::REQUEST_ID;
use super::reply::{self, Plan};
use crate::problem::{Code, Problem};

/// The longest body the queue API takes.
const BODY_BYTES: usize = 64 * 1024;

/// How long such a body may take to arrive as a whole.
const BODY_TIME: Duration = Duration::from_secs(10);

/// Why a body could not be had.
enum BodyError {
    TooLarge,
    Late,
    Gone(Box<Error>),
}

/// Gives the request to `api` and its answer to the client.
///
/// # Errors
/// When the client is gone, marked as its fault; when the service's body breaks off, as ours.
pub(super) async fn serve<A: Api>(
    session: &mut Session,
    api: A,
    context: &Context,
    drain: &Drain,
) -> pingora::Result<()> {
    let body = match read_body(session).await {
        Ok(body) => body,
        Err(BodyError::Gone(error)) => return Err(error),
        Err(BodyError::TooLarge) => {
            return refuse(session, Code::ContentTooLarge, &context.request_id).await;
        }
        Err(BodyError::Late) => {
            session.set_keepalive(None);
            return refuse(session, Code::RequestTimeout, &context.request_id).await;
        }
    };
    let mut parts = session.req_header().as_owned_parts();
    parts.headers.insert(REQUEST_ID, context.request_id.clone());
    parts.extensions.insert(context.connection);
    let response = match api.oneshot(Request::from_parts(parts, body)).await {
        Ok(response) => response,
        Err(never) => match never {},
    };
    write(session, response, &context.request_id, drain).await
}

async fn refuse(session: &mut Session, code: Code, id: &HeaderValue) -> pingora::Result<()> {
    reply::answer(session, Problem::new(code).into_response(), id).await
}

/// Reads the whole body. A length that is too large is refused before anything is read, and before
/// the client is told to go on.
async fn read_body(session: &mut Session) -> Result<Bytes, BodyError> {
    if session.is_body_empty() {
        return Ok(Bytes::new());
    }
    if reply::content_length(session).is_some_and(|length| length > BODY_BYTES as u64) {
        return Err(BodyError::TooLarge);
    }
    if reply::expects_continue(session) {
        // An interim answer before the body is no reason to give up the connection.
        session.set_close_on_response_before_downstream_finish(false);
        let told = session.as_downstream_mut().write_continue_response().await;
        told.map_err(|error| BodyError::Gone(error.into_down()))?;
    }
    let read = async {
        let mut body = BytesMut::new();
        loop {
            let chunk = session.read_request_body().await;
            match chunk.map_err(|error| BodyError::Gone(error.into_down()))? {
                None => return Ok(body.freeze()),
                Some(chunk) if body.len() + chunk.len() > BODY_BYTES => {
                    return Err(BodyError::TooLarge);
                }
                Some(chunk) => body.extend_from_slice(&chunk),
            }
        }
    };
    let body = tokio::time::timeout(BODY_TIME, read).await.unwrap_or(Err(BodyError::Late));
    session.set_close_on_response_before_downstream_finish(true);
    body
}

/// Writes the service's answer as its body comes.
async fn write(
    session: &mut Session,
    response: Response<Body>,
    request_id: &HeaderValue,
    drain: &Drain,
) -> pingora::Result<()> {
    let (parts, body) = response.into_parts();
    // What the service says a HEAD or an empty body would be long.
    let stated = parts.headers.get(header::CONTENT_LENGTH).cloned();
    let mut head = reply::head_of(parts, request_id);
    let exact = body.size_hint().exact();
    if reply::may_have_length(head.status) {
        if let Some(stated) = stated {
            head.insert_header(header::CONTENT_LENGTH, stated)?;
        } else if let Some(exact) = exact {
            head.insert_header(header::CONTENT_LENGTH, exact)?;
        } else if session.req_header().version == Version::HTTP_11
            && reply::may_have_body(session, head.status)
        {
            // Otherwise the body would end with the connection, as it must for HTTP/1.0.
            head.insert_header(header::TRANSFER_ENCODING, "chunked")?;
        }
    }
    let has_body = reply::may_have_body(session, head.status) && !body.is_end_stream();
    session.write_response_header(Box::new(head), !has_body).await.map_err(Error::into_down)?;
    if has_body {
        stream(session, body, exact.is_none(), drain).await?;
    }
    reply::discard_body(session, Plan::Nothing).await
}

/// Writes the frames of `body` one by one.
///
/// - `endless`: its length is not known, so it may go on for hours.
async fn stream(
    session: &mut Session,
    mut body: Body,
    endless: bool,
    drain: &Drain,
) -> pingora::Result<()> {
    loop {
        let frame = if endless {
            tokio::select! {
                biased;
                frame = body.frame() => frame,
                () = drain.closing() => None,
                gone = session.downstream_session.read_body_or_idle(true) => {
                    // Bytes instead of a farewell are a pipelined request: not during a stream.
                    let gone = gone.err().unwrap_or_else(|| Error::new(ErrorType::ConnectionClosed));
                    return Err(gone.into_down());
                }
            }
        } else {
            body.frame().await
        };
        match frame {
            None => break,
            Some(Ok(frame)) => {
                if let Ok(data) = frame.into_data()
                    && !data.is_empty()
                {
                    let written = session.write_response_body(Some(data), false).await;
                    written.map_err(Error::into_down)?;
                }
            }
            Some(Err(error)) => {
                // The status is out; a connection that ends early tells the client.
                session.set_keepalive(None);
                return Err(Error::because(ErrorType::InternalError, "body of an answer", error));
            }
        }
    }
    session.write_response_body(None, true).await.map_err(Error::into_down)
}
