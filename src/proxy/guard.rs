//! The connection guard: how many connections, how long and how large a request head.
//!
//! It sits between the socket and pingora. A request head is collected here and handed over whole,
//! so its time is bounded from the first byte to the last, on first and later requests alike, and
//! its size exactly; a client that trickles costs one small buffer and is gone at the deadline.
//! What follows a head (bodies, upgraded connections) passes untouched and without a deadline of
//! the guard. Refusals that pingora would write by itself, before any filter runs, are replaced by
//! answers in the form of all others.
//!
//! It parses nothing but the end of a head, and never decides about a request it has handed over.

mod head;
mod stream;

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

use async_trait::async_trait;
use bytes::{BufMut, Bytes, BytesMut};
use http::{HeaderValue, Response, StatusCode, header};
use pingora::apps::{HttpServerApp, ReusedHttpStream, ServerApp};
use pingora::protocols::http::ServerSession;
use pingora::protocols::{ALPN, Stream};
use pingora::server::ShutdownWatch;
use tokio::io::AsyncWriteExt;

use super::context::fresh_request_id;
use super::headers::REQUEST_ID;
use super::metrics::{Metrics, Refusal};
use super::settings::Limits;
use crate::gate::answer::harden;
use crate::problem::{Code, Problem};
use stream::GuardedStream;

/// A pingora application behind the guard.
pub struct Guard<A> {
    app: Arc<PerRequest<A>>,
    limits: Limits,
    metrics: Metrics,
    open: AtomicUsize,
}

impl<A> Guard<A> {
    /// Puts the guard around `app`.
    pub(super) fn new(app: A, limits: Limits, metrics: Metrics) -> Self {
        Self {
            app: Arc::new(PerRequest(Arc::new(app))),
            limits,
            metrics,
            open: AtomicUsize::new(0),
        }
    }
}

impl<A> fmt::Debug for Guard<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard").field("limits", &self.limits).finish_non_exhaustive()
    }
}

#[async_trait]
impl<A: HttpServerApp + Send + Sync + 'static> ServerApp for Guard<A> {
    async fn process_new(
        self: &Arc<Self>,
        mut stream: Stream,
        shutdown: &ShutdownWatch,
    ) -> Option<Stream> {
        let Some(_place) = Place::take(&self.open, self.limits.connections) else {
            self.metrics.refused(Refusal::ConnectionLimit);
            let problem = Problem::new(Code::RateLimited)
                .with_status(StatusCode::SERVICE_UNAVAILABLE)
                .with_detail("too many connections")
                .with_retry_after(1);
            // A client that does not take even this little is not worth waiting for.
            let _ = stream.write_all(&wire(problem)).await;
            let _ = stream.flush().await;
            let _ = AsyncWriteExt::shutdown(&mut stream).await;
            return None;
        };
        let _counted = self.metrics.enter_connection();
        let link = Arc::new(Link::default());
        if matches!(stream.selected_alpn_proto(), Some(ALPN::H2)) {
            // HTTP/2 has frames, limits and deadlines of its own.
            link.set(Stage::Open);
        }
        let guarded =
            GuardedStream::new(stream, Arc::clone(&link), &self.limits, self.metrics.clone());
        LINK.scope(link, ServerApp::process_new(&self.app, Box::new(guarded), shutdown)).await
    }

    async fn cleanup(&self) {
        self.app.http_cleanup().await;
    }
}

/// One of the connections allowed at once.
struct Place<'a>(&'a AtomicUsize);

impl<'a> Place<'a> {
    fn take(open: &'a AtomicUsize, limit: usize) -> Option<Self> {
        open.fetch_update(Ordering::AcqRel, Ordering::Acquire, |open| {
            (open < limit).then_some(open + 1)
        })
        .ok()
        .map(|_| Self(open))
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Where a connection stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
enum Stage {
    /// A head is being collected.
    Head,
    /// A head was handed over; pingora has not accepted it yet.
    Handed,
    /// A request is being served, or the connection was upgraded.
    Open,
}

/// What the stream and pingora's side of one connection tell each other. HTTP/1 runs a whole
/// connection in one task, so it is reached through a task-local.
#[derive(Debug, Default)]
struct Link(AtomicU8);

impl Link {
    fn set(&self, stage: Stage) {
        self.0.store(stage as u8, Ordering::Relaxed);
    }

    fn stage(&self) -> Stage {
        match self.0.load(Ordering::Relaxed) {
            0 => Stage::Head,
            1 => Stage::Handed,
            _ => Stage::Open,
        }
    }
}

tokio::task_local! {
    static LINK: Arc<Link>;
}

/// Says that pingora has accepted the head it was handed: from here on what it writes is an answer
/// to a request, and what it reads is a body.
pub(super) fn head_accepted() {
    // Absent on HTTP/2, whose requests run in tasks of their own, and needed there by nobody.
    let _ = LINK.try_with(|link| link.set(Stage::Open));
}

/// Tells the guard where one request ends and the next begins.
struct PerRequest<A>(Arc<A>);

#[async_trait]
impl<A: HttpServerApp + Send + Sync + 'static> HttpServerApp for PerRequest<A> {
    // Written out instead of `async`, so that the application's future is handed on as it is: one
    // around it would be another allocation, and another copy of the session, for each request.
    fn process_new_http<'app, 'watch, 'future>(
        self: &'app Arc<Self>,
        session: ServerSession,
        shutdown: &'watch ShutdownWatch,
    ) -> Pin<Box<dyn Future<Output = Option<ReusedHttpStream>> + Send + 'future>>
    where
        'app: 'future,
        'watch: 'future,
    {
        if !session.is_http2() {
            let _ = LINK.try_with(|link| link.set(Stage::Head));
        }
        self.0.process_new_http(session, shutdown)
    }

    fn h2_options(&self) -> Option<pingora::protocols::http::v2::server::H2Options> {
        self.0.h2_options()
    }

    fn server_options(&self) -> Option<&pingora::apps::HttpServerOptions> {
        self.0.server_options()
    }

    async fn http_cleanup(&self) {
        self.0.http_cleanup().await;
    }
}

/// A whole answer as it goes over an HTTP/1 connection that ends with it.
fn wire(problem: Problem) -> Bytes {
    let mut response: Response<Bytes> = problem.into_response();
    harden(response.headers_mut());
    let length = HeaderValue::from(response.body().len());
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_LENGTH, length);
    headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    headers.insert(REQUEST_ID, fresh_request_id());
    let status = response.status();
    let mut out = BytesMut::with_capacity(512);
    out.put_slice(b"HTTP/1.1 ");
    out.put_slice(status.as_str().as_bytes());
    out.put_u8(b' ');
    out.put_slice(status.canonical_reason().unwrap_or_default().as_bytes());
    out.put_slice(b"\r\n");
    for (name, value) in response.headers() {
        out.put_slice(name.as_str().as_bytes());
        out.put_slice(b": ");
        out.put_slice(value.as_bytes());
        out.put_slice(b"\r\n");
    }
    out.put_slice(b"\r\n");
    out.put_slice(response.body());
    out.freeze()
}
