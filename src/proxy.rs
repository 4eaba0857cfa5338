//! pingora carries the bytes; each phase is one call into the stages named in the crate's picture.
//!
//! | pingora's phase | what happens in it |
//! |---|---|
//! | connection accepted | [`guard`]: connection limit, deadline and size of the request head |
//! | `early_request_filter` | request id, who the peer is, keep-alive and write limits |
//! | `request_filter` | `dispatch`: limits, the gate's verdict; answers made here are written |
//! | `upstream_peer` | `upstream`: the next server that has not failed for this request |
//! | `upstream_request_filter` | `headers`: exactly the judged target, identity and forwarding headers |
//! | `request_body_filter` | the size limit of proxied bodies |
//! | `response_filter` | the gate's changes to the response, the request id |
//! | `fail_to_connect` | fail over to the next server |
//! | `fail_to_proxy` | the error as `application/problem+json` |
//! | `logging` | metrics |
//!
//! It decides nothing about queues: the gate does, through [`Judge`].

mod bridge;
mod context;
mod dispatch;
mod drain;
pub mod guard;
mod headers;
mod metrics;
mod phases;
mod reply;
mod settings;
mod upstream;

use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;

use axum::body::Body;
use bytes::Bytes;
use http::request::Parts;
use http::{Request, Response};
use pingora::proxy::HttpProxy;
use pingora::server::configuration::ServerConf;

use crate::gate::{Gate, Verdict};
use crate::identity::client_address::{Connection, TrustedProxies};

pub use drain::Drain;
pub use metrics::Metrics;
pub use settings::{Limits, Listen, ServerSettings, UpstreamSettings};
pub use upstream::{Upstream, UpstreamError, Upstreams};

use guard::Guard;

/// Who decides about a request: the gate, or a test's stand-in for it.
pub trait Judge: Send + Sync + 'static {
    /// The verdict on one request. Sees the head only; it is asked exactly once per request.
    fn judge(&self, parts: &Parts, connection: &Connection)
    -> impl Future<Output = Verdict> + Send;
}

impl Judge for Gate {
    async fn judge(&self, parts: &Parts, connection: &Connection) -> Verdict {
        Self::judge(self, parts, connection).await
    }
}

/// The queue API as the proxy sees it: a tower service over whole request bodies, cloned per
/// request, that never fails. Its requests carry the [`Connection`] in their extensions and the
/// request id as `X-Request-Id`.
pub trait Api:
    tower::Service<
        Request<Bytes>,
        Response = Response<Body>,
        Error = Infallible,
        Future: Future<Output = Result<Response<Body>, Infallible>> + Send,
    > + Clone
    + Send
    + Sync
    + 'static
{
}

impl<S> Api for S where
    S: tower::Service<
            Request<Bytes>,
            Response = Response<Body>,
            Error = Infallible,
            Future: Future<Output = Result<Response<Body>, Infallible>> + Send,
        > + Clone
        + Send
        + Sync
        + 'static
{
}

/// Tries per request: the first server and two others.
const MAX_TRIES: usize = 3;

/// Idle connections to upstreams kept in the pool, over all upstreams and threads.
const UPSTREAM_POOL: usize = 1024;

/// Everything one request needs on its way through.
#[derive(Debug)]
pub struct Gateway<G, A> {
    /// Decides.
    pub gate: Arc<G>,
    /// Serves the reserved prefix.
    pub api: A,
    /// Where requests go.
    pub upstreams: Upstreams,
    /// What a client may send.
    pub limits: Limits,
    /// Whose forwarding headers are believed.
    pub trusted_proxies: TrustedProxies,
    /// What is counted.
    pub metrics: Metrics,
    /// Requests in flight, and the word that the gateway is going away.
    pub drain: Drain,
}

impl<G: Judge, A: Api> Gateway<G, A> {
    /// The gateway as a pingora application, with the connection guard around it.
    ///
    /// - `threads`: worker threads of the runtime it will run on; only sizes internal tables.
    pub fn into_app(self, threads: usize) -> Guard<HttpProxy<Self>> {
        let conf = ServerConf {
            threads,
            max_retries: MAX_TRIES,
            upstream_keepalive_pool_size: UPSTREAM_POOL,
            ..ServerConf::default()
        };
        let (limits, metrics) = (self.limits.clone(), self.metrics.clone());
        let mut proxy = HttpProxy::new(self, Arc::new(conf));
        proxy.handle_init_modules();
        Guard::new(proxy, limits, metrics)
    }
}
