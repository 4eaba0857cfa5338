//! The second listener: health, readiness, metrics, and who may administer.
//!
//! It shares no fate with the public side: a plain hyper server on its own socket.

mod settings;

use std::convert::Infallible;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::routing::get;
use http::header::CONTENT_TYPE;
use http::{HeaderName, Request, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tower::ServiceExt;
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::request_id::{MakeRequestUuid, PropagateRequestIdLayer, SetRequestIdLayer};
use tracing::debug;

use crate::queue::settings::OnStoreFailure;
use crate::store::mirror::Mirror;

pub use settings::{AdminToken, Role};

/// From the first byte to the end of a request's head.
const HEADER_DEADLINE: Duration = Duration::from_secs(5);

/// How long answers may take when the gateway stops.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// The content type Prometheus asks for.
const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// What the second listener shows.
#[derive(Debug, Default)]
pub struct Admin {
    /// Set once the gateway has started.
    started: OnceLock<Started>,
    leaving: AtomicBool,
}

#[derive(Debug)]
struct Started {
    registry: Registry,
    mirror: Arc<Mirror>,
}

impl Admin {
    /// The gateway has started: from now on the metrics in `registry` are shown, and it is ready as
    /// long as `mirror` is of use. A second call changes nothing.
    pub fn start(&self, registry: Registry, mirror: Arc<Mirror>) {
        let _ = self.started.set(Started { registry, mirror });
    }

    /// From now on the gateway is not ready: it is about to stop.
    pub fn leave(&self) {
        self.leaving.store(true, Ordering::Relaxed);
    }

    /// Whether requests should be sent here: not while starting or stopping, and not while the
    /// store is away if every queue's policy is to refuse then.
    fn is_ready(&self) -> bool {
        let Some(Started { mirror, .. }) = self.started.get() else { return false };
        let serves_without_store = || {
            let queues = mirror.all();
            queues.is_empty()
                || queues
                    .iter()
                    .any(|queue| queue.settings().on_store_failure != OnStoreFailure::Closed)
        };
        let leaving = self.leaving.load(Ordering::Relaxed);
        !leaving && (mirror.store_answers() || serves_without_store())
    }

    /// Serves until `stop` turns true, then lets answers in progress end.
    ///
    /// # Errors
    /// When the socket fails for good.
    pub async fn serve(
        self: Arc<Self>,
        listener: TcpListener,
        mut stop: watch::Receiver<bool>,
    ) -> io::Result<()> {
        let request_id = HeaderName::from_static("x-request-id");
        let router = Router::new()
            .route("/healthz", get(|| async { "ok\n" }))
            .route("/readyz", get(ready))
            .route("/metrics", get(metrics))
            .with_state(self)
            .layer(CatchPanicLayer::new())
            .layer(PropagateRequestIdLayer::new(request_id.clone()))
            .layer(SetRequestIdLayer::new(request_id, MakeRequestUuid));
        let graceful = GracefulShutdown::new();
        let mut http = hyper::server::conn::http1::Builder::new();
        http.timer(TokioTimer::new()).header_read_timeout(HEADER_DEADLINE);
        loop {
            let stream = tokio::select! {
                accepted = listener.accept() => match accepted {
                    Ok((stream, _)) => stream,
                    Err(error) => {
                        debug!(%error, "a connection to the admin listener failed: {error}");
                        continue;
                    }
                },
                _ = stop.wait_for(|stop| *stop) => break,
            };
            let router = router.clone();
            let service =
                hyper::service::service_fn(move |request: Request<hyper::body::Incoming>| {
                    let router = router.clone();
                    async move {
                        Ok::<_, Infallible>(
                            router.oneshot(request).await.unwrap_or_else(|never| match never {}),
                        )
                    }
                });
            let connection = graceful.watch(http.serve_connection(TokioIo::new(stream), service));
            tokio::spawn(async move {
                if let Err(error) = connection.await {
                    debug!(%error, "a connection to the admin listener broke off: {error}");
                }
            });
        }
        // What takes longer than this is not worth holding a restart up for.
        let _ = tokio::time::timeout(LAST_WORDS, graceful.shutdown()).await;
        Ok(())
    }
}

async fn ready(State(admin): State<Arc<Admin>>) -> (StatusCode, &'static str) {
    if admin.is_ready() {
        (StatusCode::OK, "ready\n")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "not ready\n")
    }
}

async fn metrics(
    State(admin): State<Arc<Admin>>,
) -> Result<([(HeaderName, &'static str); 1], String), StatusCode> {
    let started = admin.started.get().ok_or(StatusCode::SERVICE_UNAVAILABLE)?;
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &started.registry)
        .map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)?;
    Ok(([(CONTENT_TYPE, OPENMETRICS)], text))
}
