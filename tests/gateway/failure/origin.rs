//! The shop behind the gateways: it remembers who got through, and when.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// One request that got through.
#[derive(Clone, Debug)]
pub struct Hit {
    /// When.
    pub at: Instant,
    /// Who it was, as the gateway said.
    pub user: Option<String>,
    /// In which state, as the gateway said.
    pub status: Option<String>,
    /// When that place was taken, as the gateway said.
    pub entered: Option<String>,
}

/// The shop.
#[derive(Debug)]
pub struct Origin {
    /// Where gateways find it.
    pub address: SocketAddr,
    hits: Arc<Mutex<Vec<Hit>>>,
    accepting: JoinHandle<()>,
}

impl Drop for Origin {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// The header on every answer of the shop.
pub const MARK: &str = "x-shop";

impl Origin {
    /// Opens one.
    pub async fn open() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let hits = Arc::<Mutex<Vec<Hit>>>::default();
        let seen = Arc::clone(&hits);
        let accepting = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let seen = Arc::clone(&seen);
                let service = hyper::service::service_fn(move |request| {
                    seen.lock().unwrap().push(hit(&request));
                    std::future::ready(Ok::<_, Infallible>(sold()))
                });
                let http = hyper::server::conn::http1::Builder::new();
                // A gateway that is killed breaks its connections off.
                tokio::spawn(http.serve_connection(TokioIo::new(stream), service));
            }
        });
        Self { address, hits, accepting }
    }

    /// All requests that got through.
    pub fn hits(&self) -> Vec<Hit> {
        self.hits.lock().unwrap().clone()
    }
}

fn hit(request: &Request<Incoming>) -> Hit {
    let header = |name| request.headers().get(name)?.to_str().ok().map(str::to_owned);
    Hit {
        at: Instant::now(),
        user: header("x-queue-user"),
        status: header("x-queue-status"),
        entered: header("x-queue-entered-at"),
    }
}

fn sold() -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from_static(b"sold")));
    response.headers_mut().insert(MARK, http::HeaderValue::from_static("1"));
    response
}
