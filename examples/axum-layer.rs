//! A service of one's own behind the gate, without a proxy: the gate is a tower layer.
//!
//! ```text
//! cargo run --example axum-layer -- examples/flash-sale/gateway.toml 127.0.0.1:3000
//! ```
//!
//! Routes, queues and identity come from the same `gateway.toml` as the gateway's; its `listen`
//! and `[[upstream]]` servers are not used.

use std::error::Error;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use anteroom::api::QueueApi;
use anteroom::config::Config;
use anteroom::gate::GateLayer;
use anteroom::identity::client_address::Connection;
use anteroom::server::Core;
use axum::Router;
use axum::body::Body;
use axum::extract::{ConnectInfo, Request, State};
use axum::http::HeaderMap;
use axum::middleware::{Next, from_fn};
use axum::response::Response;
use axum::routing::{any, get};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tower::ServiceExt;

/// The largest body the queue API takes.
const API_BODY_BYTES: usize = 64 * 1024;

/// Tells the gate over which connection a request came.
async fn tell_connection(mut request: Request, next: Next) -> Response {
    let peer = request.extensions().get::<ConnectInfo<SocketAddr>>().map(|peer| peer.0.ip());
    if let Some(peer) = peer {
        request.extensions_mut().insert(Connection { peer: Some(peer), tls: false });
    }
    next.run(request).await
}

/// Serves the queue API below its prefix.
async fn queue_api(State(api): State<QueueApi>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let body = axum::body::to_bytes(body, API_BODY_BYTES).await.unwrap_or_default();
    match api.oneshot(axum::http::Request::from_parts(parts, body)).await {
        Ok(response) => response,
        Err(never) => match never {},
    }
}

async fn checkout(headers: HeaderMap) -> String {
    let user = headers.get("x-queue-user").and_then(|user| user.to_str().ok()).unwrap_or("nobody");
    format!("welcome to the checkout, {user}\n")
}

/// The shop with the gate around it.
pub(crate) fn shop(core: &Core) -> Router {
    let api = any(queue_api).with_state(core.api.clone());
    let behind_the_gate = Router::new()
        .route("/checkout/{*rest}", get(checkout))
        .route(&format!("{}/{{*rest}}", core.gate.prefix()), api)
        .fallback(|| async { "everybody may read this\n" });
    let gated = tower::ServiceBuilder::new()
        .layer(GateLayer::new(Arc::clone(&core.gate)))
        .service(behind_the_gate);
    // One body type for what comes from the shop and what the gate answers itself.
    let gated = ServiceExt::<Request>::map_response(gated, |response| response.map(Body::new));
    Router::new().fallback_service(gated).layer(from_fn(tell_connection))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let file = arguments.next().unwrap_or_else(|| "examples/flash-sale/gateway.toml".into());
    let listen = arguments.next().unwrap_or_else(|| "127.0.0.1:3000".into());
    let (config, warnings) = Config::load(Path::new(&file))?;
    eprint!("{warnings}");
    anteroom::telemetry::start(&config.log)?;
    let core = Core::open(&config).await?;
    let (_stop, stopped) = watch::channel(false);
    tokio::spawn(Core::run(Arc::clone(&core.mirror), stopped));
    let listener = TcpListener::bind(&listen).await?;
    println!("listening on http://{}", listener.local_addr()?);
    let shop = shop(&core).into_make_service_with_connect_info::<SocketAddr>();
    axum::serve(listener, shop).await?;
    Ok(())
}
