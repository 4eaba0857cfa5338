//! Listeners, and how they end.

use std::time::Duration;

use anteroom::proxy::Listen;
use anteroom::server::listener::Drained;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::Notify;

use crate::proxying::{TestGate, gateway, test_api};
use crate::support::{Setup, Upstream, script, soon};

/// An upstream that answers only once it is told to.
async fn slow_shop() -> (Upstream, std::sync::Arc<Notify>) {
    let go = std::sync::Arc::new(Notify::new());
    let told = go.clone();
    let shop = Upstream::run(script(move |mut wire, seen| {
        let told = told.clone();
        async move {
            while let Some(request) = wire.head().await {
                seen.record(request);
                told.notified().await;
                wire.send("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ndone").await;
            }
        }
    }))
    .await;
    (shop, go)
}

#[tokio::test]
async fn a_drain_waits_for_the_request_in_flight_and_takes_no_more() {
    let (shop, go) = slow_shop().await;
    let gateway = gateway(Setup::with_shop(&[shop.address])).await;
    let address = gateway.address();
    let mut idle = gateway.connect().await;
    assert_eq!(idle.get("/deny").await.status(), 429);
    let mut busy = gateway.connect().await;
    busy.send("GET /open HTTP/1.1\r\nHost: a\r\n\r\n").await;
    gateway
        .until(|gateway| !shop.seen.requests().is_empty() && gateway.drain.in_flight() == 1)
        .await;
    gateway.stop();
    assert!(idle.is_closed().await, "a connection that waits for nothing is let go");
    assert!(TcpStream::connect(address).await.is_err(), "nobody listens");
    assert_eq!(gateway.drain.in_flight(), 1);
    go.notify_one();
    let answer = busy.answer().await;
    assert_eq!((answer.status(), answer.text()), (200, "done"));
    assert_eq!(gateway.stopped().await, Drained::Clean);
}

#[tokio::test]
async fn a_drain_ends_when_its_time_is_over() {
    let (shop, _go) = slow_shop().await;
    let mut setup = Setup::with_shop(&[shop.address]);
    setup.drain_timeout = Duration::from_millis(50);
    let gateway = gateway(setup).await;
    let mut busy = gateway.connect().await;
    busy.send("GET /open HTTP/1.1\r\nHost: a\r\n\r\n").await;
    gateway.until(|_| !shop.seen.requests().is_empty()).await;
    gateway.stop();
    assert_eq!(gateway.stopped().await, Drained::Cut(1));
}

#[tokio::test]
async fn a_client_that_leaves_is_no_failure_of_anybody() {
    let (shop, _go) = slow_shop().await;
    let gateway = gateway(Setup::with_shop(&[shop.address])).await;
    let mut client = gateway.connect().await;
    client.send("GET /open HTTP/1.1\r\nHost: a\r\n\r\n").await;
    gateway.until(|_| !shop.seen.requests().is_empty()).await;
    drop(client);
    gateway.until(|gateway| gateway.drain.in_flight() == 0).await;
    assert_eq!(gateway.metric(r#"requests_total{outcome="ClientGone",status="None"}"#), 1);
}

#[tokio::test]
async fn a_unix_socket_serves_like_any_other_and_is_removed_at_the_end() {
    let shop = Upstream::hello().await;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("gateway.sock");
    let mut setup = Setup::with_shop(&[shop.address]);
    setup.trusted_proxies.unix = true;
    let gate = TestGate(setup.trusted_proxies.clone());
    let listen =
        [Listen::Unix(path.clone()), Listen::Tcp(std::net::SocketAddr::from(([127, 0, 0, 1], 0)))];
    let gateway = setup.start_on(&listen, gate, test_api()).await;
    let mut client = UnixStream::connect(&path).await.unwrap();
    client
        .write_all(
            b"GET /open HTTP/1.1\r\nHost: a\r\nConnection: close\r\nX-Request-Id: mine\r\n\r\n",
        )
        .await
        .unwrap();
    let mut answer = String::new();
    soon(client.read_to_string(&mut answer)).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let seen = shop.seen.only();
    assert_eq!(seen.header("x-request-id"), Some("mine"), "a listed unix peer is trusted");
    assert_eq!(seen.header("x-forwarded-for"), None);
    // The same gateway over TCP trusts nobody.
    let mut client = gateway.connect().await;
    client.send("GET /open HTTP/1.1\r\nHost: a\r\nX-Request-Id: mine\r\n\r\n").await;
    assert_ne!(client.answer().await.header("x-request-id"), Some("mine"));
    gateway.stop();
    assert_eq!(gateway.stopped().await, Drained::Clean);
    assert!(!path.exists());
}
