//! The gate as a tower service around another one.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::uri::PathAndQuery;
use http::{Request, Response, Uri};
use http_body_util::{Either, Full};
use tower::Service;

use crate::identity::client_address::Connection;
use crate::problem::{Code, Problem};

use super::{Gate, Verdict, answer};

/// A service behind the gate: it sees only requests that may pass, with their canonical target and
/// the gateway's identity headers, and the requests of the queue API below the gate's prefix, their
/// target canonical, too.
///
/// The connection is taken from the request's extensions ([`Connection`]); a request without it
/// comes from nobody who is trusted.
#[derive(Clone, Debug)]
pub struct GateService<S> {
    gate: Arc<Gate>,
    inner: S,
}

impl<S> GateService<S> {
    /// `inner` behind `gate`.
    pub const fn new(gate: Arc<Gate>, inner: S) -> Self {
        Self { gate, inner }
    }
}

type Answer<B> = Response<Either<B, Full<Bytes>>>;

impl<S, B, R> Service<Request<B>> for GateService<S>
where
    S: Service<Request<B>, Response = Response<R>, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send,
    B: Send + 'static,
    R: Send + 'static,
{
    type Response = Answer<R>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let gate = Arc::clone(&self.gate);
        // The service that was polled ready is the one to call.
        let clone = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, clone);
        Box::pin(async move {
            let (mut parts, body) = request.into_parts();
            let connection = Connection::of(&parts.extensions);
            let forward = match gate.judge(&parts, &connection).await {
                Verdict::Answer(response) => return Ok(response.map(Full::new).map(Either::Right)),
                Verdict::Api => {
                    // A service behind routes by what it is given: never by what was not judged.
                    gate.reserve(&mut parts.headers);
                    let target = gate.canonical_target(&parts, &connection);
                    let Some(uri) = target.and_then(|target| with_target(&parts.uri, &target))
                    else {
                        return Ok(bad_target());
                    };
                    parts.uri = uri;
                    let response = inner.call(Request::from_parts(parts, body)).await?;
                    return Ok(response.map(Either::Left));
                }
                Verdict::Forward(forward) => forward,
            };
            forward.request.apply(&mut parts.headers);
            let Some(uri) = with_target(&parts.uri, &forward.target) else {
                return Ok(bad_target());
            };
            parts.uri = uri;
            let mut response = inner.call(Request::from_parts(parts, body)).await?;
            forward.passage.response_edits(response.headers()).apply(response.headers_mut());
            Ok(response.map(Either::Left))
        })
    }
}

fn with_target(uri: &Uri, target: &str) -> Option<Uri> {
    let mut uri = uri.clone().into_parts();
    uri.path_and_query = Some(PathAndQuery::try_from(target).ok()?);
    Uri::from_parts(uri).ok()
}

fn bad_target<B>() -> Answer<B> {
    let response = answer::hardened(Problem::new(Code::BadRequest).into_response());
    response.map(Full::new).map(Either::Right)
}
