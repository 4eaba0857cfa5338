//! Bodies that come as they come: uploads, downloads, event streams, tunnels.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use futures_util::stream;
use http::{Request, Response};
use tokio::sync::{Mutex, mpsc};

use crate::proxying::{TestGate, gateway};
use crate::support::{Setup, Upstream, nobody, script, soon};

#[tokio::test]
async fn chunks_pass_in_both_directions_as_they_come() {
    let shop = Upstream::run(script(|mut wire, seen| async move {
        let request = wire.head().await.unwrap();
        wire.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").await;
        seen.record(request);
        while let Some(chunk) = wire.chunk().await {
            wire.send(format!("{:x}\r\n", chunk.len())).await;
            wire.send(&chunk).await;
            wire.send("\r\n").await;
        }
        wire.send("0\r\n\r\n").await;
    }))
    .await;
    let gateway = gateway(Setup::with_shop(&[shop.address])).await;
    let mut client = gateway.connect().await;
    client.send("POST /talk HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n").await;
    let head = client.head().await.unwrap();
    assert_eq!((head.status(), head.header("transfer-encoding")), (200, Some("chunked")));
    for word in ["one", "two", "three"] {
        // Each is only sent once the one before has come back.
        client.send(format!("{:x}\r\n{word}\r\n", word.len())).await;
        assert_eq!(client.chunk().await.unwrap(), word.as_bytes());
    }
    client.send("0\r\n\r\n").await;
    assert_eq!(client.chunk().await, None);
}

#[tokio::test]
async fn a_large_body_arrives_whole() {
    let shop = Upstream::hello().await;
    let gateway = gateway(Setup::with_shop(&[shop.address])).await;
    let mut client = gateway.connect().await;
    let body: Vec<u8> = (0..5_000_000_u32).map(|i| i.to_le_bytes()[1]).collect();
    client
        .send(format!("PUT /big HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n", body.len()))
        .await;
    client.send(&body).await;
    assert_eq!(client.answer().await.status(), 200);
    assert!(shop.seen.only().body == body);
}

#[tokio::test]
async fn a_websocket_passes_and_outlives_every_deadline_of_plain_requests() {
    let shop = Upstream::run(script(|mut wire, seen| async move {
        seen.record(wire.head().await.unwrap());
        wire.send(
            "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
        )
        .await;
        loop {
            let frame = wire.exactly(4).await;
            wire.send(frame).await;
        }
    }))
    .await;
    let mut setup = Setup::with_shop(&[shop.address]);
    setup.shop.read_timeout = Duration::from_millis(100);
    setup.limits.header_deadline = Duration::from_millis(300);
    setup.limits.body_bytes = Some(6);
    let gateway = gateway(setup).await;
    let mut client = gateway.connect().await;
    client
        .send(
            "GET /chat HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n",
        )
        .await;
    let answer = client.head().await.unwrap();
    assert_eq!(answer.status(), 101);
    assert_eq!(answer.header("upgrade"), Some("websocket"));
    assert_eq!(shop.seen.only().header("x-queue-user"), Some("alice"));
    client.send("ping").await;
    assert_eq!(client.exactly(4).await, b"ping");
    // Another connection is the clock: it is closed when all the deadlines are over.
    assert!(gateway.connect().await.is_closed().await);
    for _ in 0..3 {
        client.send("pong").await;
        assert_eq!(client.exactly(4).await, b"pong");
    }
    assert_eq!(gateway.metric("requests_in_flight"), 1);
    drop(client);
    gateway.until(|gateway| gateway.drain.in_flight() == 0).await;
}

/// An API whose only answer is a stream of what the test sends; the test hears when it is dropped.
fn stream_api(events: mpsc::Receiver<&'static str>) -> impl anteroom::proxy::Api {
    let events = std::sync::Arc::new(Mutex::new(Some(events)));
    tower::service_fn(move |_: Request<Bytes>| {
        let events = events.clone();
        async move {
            let events = events.lock().await.take().expect("one request");
            let body = stream::unfold(events, |mut events| async move {
                let event = events.recv().await?;
                Some((Ok::<_, Infallible>(Bytes::from_static(event.as_bytes())), events))
            });
            let response = Response::builder().header("content-type", "text/event-stream");
            Ok::<_, Infallible>(response.body(Body::from_stream(body)).unwrap())
        }
    })
}

const EVENTS: &str = "GET /_queue/events HTTP/1.1\r\nHost: a\r\n\r\n";

#[tokio::test]
async fn events_are_sent_one_by_one_and_the_connection_is_kept_after_the_last() {
    let (send, events) = mpsc::channel(1);
    let setup = Setup::with_shop(&[nobody().await]);
    let gateway = setup.start(TestGate::default(), stream_api(events)).await;
    let mut client = gateway.connect().await;
    client.send(EVENTS).await;
    let head = client.head().await.unwrap();
    assert_eq!(head.header("content-type"), Some("text/event-stream"));
    for event in ["data: 2\n\n", "data: 1\n\n"] {
        send.send(event).await.unwrap();
        assert_eq!(client.chunk().await.unwrap(), event.as_bytes());
    }
    drop(send);
    assert_eq!(client.chunk().await, None);
    assert_eq!(client.get("/deny").await.status(), 429);
}

#[tokio::test]
async fn http_1_0_gets_a_stream_that_ends_with_the_connection() {
    let (send, events) = mpsc::channel(1);
    let setup = Setup::with_shop(&[nobody().await]);
    let gateway = setup.start(TestGate::default(), stream_api(events)).await;
    let mut client = gateway.connect().await;
    client.send("GET /_queue/events HTTP/1.0\r\n\r\n").await;
    send.send("data: 1\n\n").await.unwrap();
    drop(send);
    let answer = client.answer().await;
    assert_eq!(answer.header("transfer-encoding"), None);
    assert_eq!(answer.text(), "data: 1\n\n");
}

#[tokio::test]
async fn a_client_that_leaves_a_stream_is_noticed_at_once() {
    let (send, events) = mpsc::channel(1);
    let setup = Setup::with_shop(&[nobody().await]);
    let gateway = setup.start(TestGate::default(), stream_api(events)).await;
    let mut client = gateway.connect().await;
    client.send(EVENTS).await;
    client.head().await.unwrap();
    drop(client);
    soon(send.closed()).await;
    gateway.until(|gateway| gateway.drain.in_flight() == 0).await;
    assert_eq!(gateway.metric(r#"requests_total{outcome="ClientGone",status="Success"}"#), 1);
}

#[tokio::test]
async fn a_stop_ends_event_streams_instead_of_waiting_for_them() {
    let (send, events) = mpsc::channel(1);
    let setup = Setup::with_shop(&[nobody().await]);
    let gateway = setup.start(TestGate::default(), stream_api(events)).await;
    let mut client = gateway.connect().await;
    client.send(EVENTS).await;
    client.head().await.unwrap();
    gateway.stop();
    assert_eq!(client.chunk().await, None, "a clean end, so that the client comes back elsewhere");
    assert_eq!(gateway.stopped().await, anteroom::server::listener::Drained::Clean);
    soon(send.closed()).await;
}
