//! The queue API, as `http` responses: it knows no socket and no pingora.
//!
//! `rank` and `status`, which a crowd asks for, are answered by a plain service; everything else
//! goes through an axum router. One file an endpoint.

mod answer;
mod caller;
mod enter;
mod events;
mod leave;
pub mod openapi;
mod page;
mod rank;
mod settings;
mod simple;
mod status;
mod verify;

use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::Router;
use axum::body::Body;
use axum::routing::{any, delete, get, post};
use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, Method, Request, Response};
use tokio::sync::Semaphore;
use tower::{Service, ServiceExt};
use tower_http::cors::{AllowOrigin, CorsLayer};

use crate::admin::AdminToken;
use crate::gate::Gate;
use crate::identity::client_address::Connection;
use crate::problem::{Code, Problem};

pub use settings::{ApiSettings, SimpleSettings};

/// What the endpoints share.
pub(crate) struct Api {
    gate: Arc<Gate>,
    settings: ApiSettings,
    /// Who may call the operator's part of the compatibility set.
    admins: Vec<AdminToken>,
    event_streams: Arc<Semaphore>,
}

/// The queue API as a tower service. Bodies of requests are small and arrive whole. The connection
/// is taken from the request's extensions.
#[derive(Clone)]
pub struct QueueApi {
    api: Arc<Api>,
    router: Router,
    cors: Option<CorsLayer>,
}

impl fmt::Debug for QueueApi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueueApi").field("settings", &self.api.settings).finish_non_exhaustive()
    }
}

impl QueueApi {
    /// The API of the queues behind `gate`.
    #[must_use]
    pub fn new(gate: Arc<Gate>, settings: ApiSettings, admins: Vec<AdminToken>) -> Self {
        let cors = cors_layer(&gate, &settings);
        let event_streams = Arc::new(Semaphore::new(settings.max_event_streams));
        let api = Arc::new(Api { gate, settings, admins, event_streams });
        let mut router = Router::new()
            .route(&api.path("openapi.json"), get(openapi::serve))
            .route(&api.path("{queue}/enter"), post(enter::serve))
            .route(&api.path("{queue}/leave"), post(leave::serve))
            .route(&api.path("{queue}/token"), delete(leave::serve))
            .route(&api.path("{queue}/verify"), get(verify::serve))
            .route(&api.path("{queue}/events"), get(events::serve))
            .route(&api.path("{queue}/page"), get(page::serve));
        if let Some(simple) = &api.settings.simple {
            let at = |call: &str| format!("{}/{call}", simple.prefix);
            router = router
                .route(&at("rank"), get(simple::rank))
                .route(&at("queue"), post(simple::enter))
                .route(&at("allowed"), get(simple::allowed))
                .route(&at("allow"), post(simple::allow))
                .route(&at("waiting-room"), get(simple::waiting_room));
        }
        let router = router
            .fallback(any(|| async { answer::problem(Problem::new(Code::NotFound)) }))
            .method_not_allowed_fallback(|| async {
                answer::problem(Problem::new(Code::MethodNotAllowed))
            })
            .with_state(Arc::clone(&api));
        Self { api, router, cors }
    }

    async fn serve(self, request: Request<Bytes>) -> Response<Body> {
        let (mut parts, body) = request.into_parts();
        // What a router outside left there, such as its own path parameters, is not ours.
        let connection = parts.extensions.remove::<Connection>();
        parts.extensions.clear();
        if let Some(connection) = connection {
            parts.extensions.insert(connection);
        }
        let hot = parts
            .uri
            .path()
            .strip_prefix(self.api.settings.prefix.as_str())
            .and_then(|rest| rest.strip_prefix('/'))
            .and_then(|rest| rest.split_once('/'));
        let mut response = match hot {
            Some((queue, "rank")) => rank::serve(&self.api, queue, &parts).await,
            Some((queue, "status")) => status::serve(&self.api, queue, &parts).await,
            _ => {
                let request = Request::from_parts(parts, Body::from(body));
                // The router's error is `Infallible`.
                match self.router.oneshot(request).await {
                    Ok(response) => response,
                    Err(never) => match never {},
                }
            }
        };
        crate::gate::answer::harden(response.headers_mut());
        response
    }
}

impl Api {
    fn path(&self, rest: &str) -> String {
        format!("{}/{rest}", self.settings.prefix)
    }
}

impl Service<Request<Bytes>> for QueueApi {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Bytes>) -> Self::Future {
        let this = self.clone();
        match &self.cors {
            None => Box::pin(async move { Ok(this.serve(request).await) }),
            Some(cors) => {
                let service = tower::service_fn(move |request| {
                    let this = this.clone();
                    async move { Ok::<_, Infallible>(this.serve(request).await) }
                });
                let service = tower::ServiceBuilder::new().layer(cors.clone()).service(service);
                Box::pin(service.oneshot(request))
            }
        }
    }
}

/// Cross-origin rules of the API: only listed origins, with credentials.
fn cors_layer(gate: &Gate, settings: &ApiSettings) -> Option<CorsLayer> {
    if settings.cors_origins.is_empty() {
        return None;
    }
    let origins: Vec<HeaderValue> = settings
        .cors_origins
        .iter()
        .filter_map(|origin| HeaderValue::from_str(origin).ok())
        .collect();
    let token = gate.carriers().header.clone();
    Some(
        CorsLayer::new()
            .allow_origin(AllowOrigin::list(origins))
            .allow_methods([Method::GET, Method::POST, Method::DELETE])
            .allow_headers([ACCEPT, AUTHORIZATION, CONTENT_TYPE, token.clone()])
            .expose_headers([RETRY_AFTER, token])
            .allow_credentials(true),
    )
}
