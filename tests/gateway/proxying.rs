//! What the proxy owes to clients and upstreams, whatever the gate decides: a stand-in gate refuses
//! `/deny`, panics at `/panic`, leaves `/_queue/` to a small API, and forwards the rest.

mod answers;
mod connections;
mod forwarding;
mod limits;
mod streams;

use std::convert::Infallible;

use anteroom::gate::headers::Passage;
use anteroom::gate::{Forward, HeaderEdits, Verdict};
use anteroom::identity::client_address::{Client, Connection, TrustedProxies};
use anteroom::problem::{Code, Problem};
use anteroom::proxy::{Api, Judge};
use axum::body::Body;
use bytes::Bytes;
use http::request::Parts;
use http::{HeaderName, HeaderValue, Request, Response};

use crate::support::{RunningGateway, Setup, shop_route};

/// The stand-in.
#[derive(Debug, Default)]
pub struct TestGate(pub TrustedProxies);

impl Judge for TestGate {
    async fn judge(&self, parts: &Parts, connection: &Connection) -> Verdict {
        let path = parts.uri.path();
        assert!(!path.starts_with("/panic"), "the gate was asked to panic");
        if path.starts_with("/_queue/") {
            return Verdict::Api;
        }
        if path.starts_with("/deny") {
            return Verdict::Answer(Problem::new(Code::QueueTokenRequired).into_response());
        }
        let header = |name| HeaderName::from_static(name);
        Verdict::Forward(Box::new(Forward {
            route: shop_route(),
            target: parts.uri.path_and_query().map_or("/", |target| target.as_str()).to_owned(),
            request: HeaderEdits {
                remove: vec![header("x-queue-token")],
                set: vec![(header("x-queue-user"), HeaderValue::from_static("alice"))],
                append: Vec::new(),
            },
            passage: Passage::default(),
            client: Client::resolve(&parts.headers, connection, &self.0),
        }))
    }
}

/// `/_queue/echo` answers with the method and the body, `/_queue/empty` with 204, `/_queue/file`
/// with a stated length.
pub fn test_api() -> impl Api {
    tower::service_fn(|request: Request<Bytes>| async move {
        assert!(request.extensions().get::<Connection>().is_some(), "the API knows the peer");
        let response = Response::builder();
        Ok::<_, Infallible>(match request.uri().path() {
            "/_queue/empty" => response.status(204).body(Body::empty()).unwrap(),
            "/_queue/file" => {
                response.header("x-frame", "1").body(Body::from("0123456789")).unwrap()
            }
            _ => {
                let id = request.headers()["x-request-id"].to_str().unwrap().to_owned();
                let body = String::from_utf8_lossy(request.body()).into_owned();
                let text = format!("{} {body}", request.method());
                response.header("x-seen-id", id).body(Body::from(text)).unwrap()
            }
        })
    })
}

/// A gateway with the stand-in gate and the small API.
pub async fn gateway(setup: Setup) -> RunningGateway {
    let gate = TestGate(setup.trusted_proxies.clone());
    setup.start(gate, test_api()).await
}
