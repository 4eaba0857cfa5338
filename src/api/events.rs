//! `GET {prefix}/{queue}/events`: the same as rank, pushed (server-sent events). Ends when the
//! user is admitted or the place is over.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Path, State};
use bytes::Bytes;
use futures_util::stream;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::request::Parts;
use http::{HeaderValue, Request, Response};
use tokio::sync::OwnedSemaphorePermit;

use crate::problem::{Code, Problem};
use crate::queue::view::Status;
use crate::store::mirror::LocalQueue;
use crate::token::Claims;

use super::Api;
use super::caller::{Asker, Early, Opening, early};

/// How often a stream looks whether something changed.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Looks without news after which a comment shows that the stream is alive, and finds out whether
/// the client still is.
const SILENT_LOOKS: u32 = 15;

pub(super) async fn serve(
    State(api): State<Arc<Api>>,
    Path(queue): Path<String>,
    request: Request<Body>,
) -> Response<Body> {
    let (parts, _) = request.into_parts();
    open(&api, &queue, &parts).await.unwrap_or_else(Early::into_response)
}

async fn open(api: &Api, name: &str, parts: &Parts) -> Result<Response<Body>, Early> {
    let call = api.call(name, Opening::TokenHolder, parts).await?;
    let Asker::Token { claims, .. } = api.asker(&call)? else {
        return Err(early(Problem::new(Code::Unauthenticated).with_queue(call.queue.name())));
    };
    let permit = Arc::clone(&api.event_streams).try_acquire_owned().map_err(|_| {
        let secs = call.queue.view_of(Status::Over).retry_after_secs();
        early(Problem::new(Code::RateLimited).with_retry_after(secs))
    })?;
    // What is over at the start is an error, not a stream.
    let seen = call.queue.poll(&claims).await;
    let view = call.queue.view(seen?);
    if view.rank_body(None).is_none() {
        return Err(api.refusal(&view).into());
    }
    let watch = Watch {
        queue: Arc::clone(&call.queue),
        claims,
        last: None,
        silent: 0,
        over: false,
        _permit: permit,
    };
    let mut response = Response::new(Body::from_stream(stream::unfold(watch, Watch::next)));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    // Buffering proxies in front would hold events back.
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    Ok(response)
}

/// One stream.
struct Watch {
    queue: Arc<LocalQueue>,
    claims: Claims,
    /// Status and rank as last told.
    last: Option<(Status, Option<u64>)>,
    silent: u32,
    over: bool,
    _permit: OwnedSemaphorePermit,
}

impl Watch {
    /// The next piece of the stream.
    async fn next(mut self) -> Option<(Result<Bytes, std::convert::Infallible>, Self)> {
        if self.over {
            return None;
        }
        loop {
            if self.last.is_some() {
                tokio::time::sleep(LOOK_EVERY).await;
            }
            // While the store is away the place is kept: say nothing rather than something wrong.
            if let Ok(seen) = self.queue.poll(&self.claims).await {
                let view = self.queue.view(seen);
                let now = (view.status, view.rank);
                if self.last != Some(now) {
                    self.last = Some(now);
                    self.silent = 0;
                    let name = match view.status {
                        Status::Active => "admitted",
                        Status::Waiting | Status::Late | Status::Paused => "rank",
                        _ => "closed",
                    };
                    self.over = name != "rank";
                    let data = view.rank_body(None).map_or(b"{}".to_vec(), |body| body.to_json());
                    let mut event = format!("event: {name}\ndata: ").into_bytes();
                    event.extend(data);
                    event.extend_from_slice(b"\n\n");
                    return Some((Ok(Bytes::from(event)), self));
                }
            }
            self.silent += 1;
            if self.silent >= SILENT_LOOKS {
                self.silent = 0;
                return Some((Ok(Bytes::from_static(b": still here\n\n")), self));
            }
        }
    }
}
