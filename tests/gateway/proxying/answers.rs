//! Answers made by the gateway itself.

use crate::proxying::gateway;
use crate::support::{Message, Setup, Upstream, nobody};

fn assert_hardened(answer: &Message) {
    assert_eq!(answer.header("x-content-type-options"), Some("nosniff"), "{answer:?}");
    assert_eq!(answer.header("referrer-policy"), Some("no-referrer"));
    assert!(answer.header("content-security-policy").unwrap().contains("frame-ancestors"));
    assert_eq!(answer.header("x-request-id").map(str::len), Some(36));
}

#[tokio::test]
async fn a_refusal_keeps_the_connection() {
    let shop = Upstream::hello().await;
    let gateway = gateway(Setup::with_shop(&[shop.address])).await;
    let mut client = gateway.connect().await;
    for _ in 0..3 {
        let refusal = client.get("/deny").await;
        assert_eq!(refusal.status(), 429);
        assert_eq!(refusal.problem(), "QUEUE_TOKEN_REQUIRED");
        assert_eq!(refusal.header("connection"), Some("keep-alive"));
        assert_hardened(&refusal);
        let api = client.get("/_queue/echo").await;
        assert_eq!((api.status(), api.text()), (200, "GET "));
        assert_eq!(api.header("connection"), Some("keep-alive"));
        assert_eq!(api.header("x-seen-id"), api.header("x-request-id"));
        assert_hardened(&api);
        assert_eq!(client.get("/open").await.status(), 200);
    }
    assert_eq!(shop.seen.requests().len(), 3);
    gateway.until(|gateway| gateway.drain.in_flight() == 0).await;
    assert_eq!(gateway.metric(r#"requests_total{outcome="Gate",status="ClientError"}"#), 3);
    assert_eq!(gateway.metric(r#"requests_total{outcome="Api",status="Success"}"#), 3);
    assert_eq!(gateway.metric(r#"requests_total{outcome="Forwarded",status="Success"}"#), 3);
    assert_eq!(gateway.metric("requests_in_flight"), 0);
    assert_eq!(gateway.metric("connections"), 1);
}

#[tokio::test]
async fn a_client_that_sends_3_mb_before_it_reads_sees_the_refusal() {
    let gateway = gateway(Setup::with_shop(&[nobody().await])).await;
    for _ in 0..5 {
        let mut client = gateway.connect().await;
        let body = vec![b'x'; 3_000_000];
        client
            .send(format!(
                "POST /deny HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n",
                body.len()
            ))
            .await;
        client.send(body).await;
        let refusal = client.answer().await;
        assert_eq!(refusal.status(), 429);
        assert_eq!(refusal.header("connection"), Some("close"));
        assert!(client.is_closed().await);
    }
}

#[tokio::test]
async fn a_small_refused_body_is_never_taken_for_a_request() {
    let shop = Upstream::hello().await;
    let gateway = gateway(Setup::with_shop(&[shop.address])).await;
    let mut client = gateway.connect().await;
    client
        .send(
            "POST /deny HTTP/1.1\r\nHost: a\r\nContent-Length: 52\r\n\r\n\
             GET /admin HTTP/1.1\r\nHost: shop.example\r\nX: yyyyyyyy",
        )
        .await;
    let refusal = client.answer().await;
    assert_eq!((refusal.status(), refusal.header("connection")), (429, Some("keep-alive")));
    // The same with the body in a later packet, and in chunks.
    client.send("POST /deny HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n").await;
    assert_eq!(client.answer().await.status(), 429);
    client.send("hello").await;
    assert_eq!(client.get("/open").await.status(), 200);
    client
        .send("POST /deny HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n")
        .await;
    let refusal = client.answer().await;
    assert_eq!((refusal.status(), refusal.header("connection")), (429, Some("close")));
    client.send("0\r\n\r\n").await;
    assert!(client.is_closed().await);
    assert_eq!(shop.seen.only().target(), "/open");
}

#[tokio::test]
async fn a_refused_client_that_waits_for_100_is_answered_at_once_and_closed() {
    let gateway = gateway(Setup::with_shop(&[nobody().await])).await;
    let mut client = gateway.connect().await;
    client
        .send(
            "POST /deny HTTP/1.1\r\nHost: a\r\nContent-Length: 10485760\r\n\
             Expect: 100-continue\r\n\r\n",
        )
        .await;
    let refusal = client.answer().await;
    assert_eq!((refusal.status(), refusal.header("connection")), (429, Some("close")));
    assert!(client.is_closed().await);
}

#[tokio::test]
async fn the_api_tells_a_client_to_go_on_and_reads_its_body() {
    let gateway = gateway(Setup::with_shop(&[nobody().await])).await;
    let mut client = gateway.connect().await;
    client
        .send(
            "POST /_queue/echo HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\
             Expect: 100-continue\r\n\r\n",
        )
        .await;
    assert_eq!(client.head().await.unwrap().status(), 100);
    client.send("hello").await;
    let answer = client.answer().await;
    assert_eq!((answer.status(), answer.text()), (200, "POST hello"));
    client
        .send("POST /_queue/echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
        .await;
    client.send("3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n").await;
    assert_eq!(client.answer().await.text(), "POST abcde");
}

#[tokio::test]
async fn a_body_too_large_for_the_api_is_413_by_length_and_by_count() {
    let gateway = gateway(Setup::with_shop(&[nobody().await])).await;
    let mut client = gateway.connect().await;
    client.send("POST /_queue/echo HTTP/1.1\r\nHost: a\r\nContent-Length: 65537\r\n\r\n").await;
    let refusal = client.answer().await;
    assert_eq!((refusal.status(), refusal.problem().as_str()), (413, "CONTENT_TOO_LARGE"));

    let mut client = gateway.connect().await;
    client
        .send("POST /_queue/echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
        .await;
    client.send("10001\r\n").await;
    client.send(vec![b'x'; 0x10001]).await;
    assert_eq!(client.answer().await.status(), 413);
}

#[tokio::test]
async fn head_has_the_headers_of_get_and_no_body() {
    let gateway = gateway(Setup::with_shop(&[nobody().await])).await;
    let mut client = gateway.connect().await;
    for target in ["/deny", "/_queue/file", "/_queue/empty"] {
        let get = client.get(target).await;
        client.send(format!("HEAD {target} HTTP/1.1\r\nHost: a\r\n\r\n")).await;
        let head = client.head().await.unwrap();
        assert_eq!(head.status(), get.status());
        assert_eq!(head.header("content-length"), get.header("content-length"), "{target}");
        assert_eq!(head.header("transfer-encoding"), None);
    }
    let empty = client.get("/_queue/empty").await;
    assert_eq!((empty.status(), empty.header("content-length")), (204, None));
    // Had a body byte followed a HEAD or 204, this answer would be garbage.
    assert_eq!(client.get("/_queue/file").await.text(), "0123456789");
}

#[tokio::test]
async fn http_1_0_is_closed_unless_it_asks_to_be_kept() {
    let gateway = gateway(Setup::with_shop(&[nobody().await])).await;
    let mut client = gateway.connect().await;
    client.send("GET /deny HTTP/1.0\r\n\r\n").await;
    let refusal = client.answer().await;
    assert_eq!((refusal.status(), refusal.header("connection")), (429, Some("close")));
    assert!(client.is_closed().await);

    let mut client = gateway.connect().await;
    for _ in 0..2 {
        client.send("GET /deny HTTP/1.0\r\nConnection: keep-alive\r\n\r\n").await;
        assert_eq!(client.answer().await.header("connection"), Some("keep-alive"));
    }
}

#[tokio::test]
async fn a_panic_in_the_gate_is_a_500_problem_for_that_client_only() {
    let shop = Upstream::hello().await;
    let gateway = gateway(Setup::with_shop(&[shop.address])).await;
    let mut client = gateway.connect().await;
    let answer = client.get("/panic").await;
    assert_eq!((answer.status(), answer.problem().as_str()), (500, "INTERNAL"));
    assert_hardened(&answer);
    assert!(client.is_closed().await);
    assert_eq!(gateway.connect().await.get("/open").await.status(), 200);
    gateway.until(|gateway| gateway.drain.in_flight() == 0).await;
}
