//! What a client may send, and how slowly.

use std::time::Duration;

use crate::proxying::gateway;
use crate::support::{Setup, Upstream, Wire, nobody};

#[tokio::test]
async fn a_head_may_have_exactly_its_limit_and_not_a_byte_more() {
    let shop = Upstream::hello().await;
    let gateway = gateway(Setup::with_shop(&[shop.address])).await;
    let head = |bytes: usize| {
        let mut head = "GET /open HTTP/1.1\r\nHost: shop.example\r\nX-Big: ".to_owned();
        head.push_str(&"a".repeat(bytes - head.len() - 4));
        head + "\r\n\r\n"
    };
    let mut client = gateway.connect().await;
    for _ in 0..2 {
        client.send(head(16 * 1024)).await;
        assert_eq!(client.answer().await.status(), 200);
    }
    client.send(head(16 * 1024 + 1)).await;
    let refusal = client.answer().await;
    assert_eq!((refusal.status(), refusal.problem().as_str()), (431, "HEADER_TOO_LARGE"));
    assert_eq!(refusal.header("connection"), Some("close"));
    assert_eq!(refusal.header("x-content-type-options"), Some("nosniff"));
    assert!(client.is_closed().await);
    // One that never ends does not get further, and still sees the answer.
    let mut client = gateway.connect().await;
    client.send("GET /").await;
    let _ = client.try_send("a".repeat(200_000)).await;
    assert_eq!(client.answer().await.status(), 431);
    assert_eq!(gateway.metric(r#"connections_refused_total{reason="HeadTooLarge"}"#), 2);
    assert_eq!(shop.seen.requests().len(), 2);
}

#[tokio::test]
async fn a_limit_below_one_read_holds_and_a_body_in_the_same_packet_does_not_count() {
    let shop = Upstream::hello().await;
    let mut setup = Setup::with_shop(&[shop.address]);
    setup.limits.head_bytes = 1024;
    let gateway = gateway(setup).await;
    let request = |bytes: usize| {
        let mut head =
            "POST /open HTTP/1.1\r\nHost: a\r\nContent-Length: 900\r\nX-Big: ".to_owned();
        head.push_str(&"a".repeat(bytes - head.len() - 4));
        head + "\r\n\r\n" + &"b".repeat(900)
    };
    let mut client = gateway.connect().await;
    for _ in 0..2 {
        client.send(request(1024)).await;
        assert_eq!(client.answer().await.status(), 200);
    }
    client.send(request(1025)).await;
    let refusal = client.answer().await;
    assert_eq!((refusal.status(), refusal.problem().as_str()), (431, "HEADER_TOO_LARGE"));
    assert_eq!(shop.seen.requests().len(), 2);
}

#[tokio::test]
async fn too_many_fields_or_too_long_a_target_is_refused_and_the_connection_kept() {
    let gateway = gateway(Setup::with_shop(&[nobody().await])).await;
    let mut client = gateway.connect().await;
    let fields = |count: usize| "X-A: 1\r\n".repeat(count);
    client.send(format!("GET /deny HTTP/1.1\r\nHost: a\r\n{}\r\n", fields(63))).await;
    assert_eq!(client.answer().await.status(), 429);
    client.send(format!("GET /deny HTTP/1.1\r\nHost: a\r\n{}\r\n", fields(64))).await;
    let refusal = client.answer().await;
    assert_eq!((refusal.status(), refusal.problem().as_str()), (431, "HEADER_TOO_LARGE"));
    let refusal = client.get(&format!("/deny/{}", "a".repeat(9000))).await;
    assert_eq!((refusal.status(), refusal.problem().as_str()), (414, "HEADER_TOO_LARGE"));
    // More than the parser itself takes.
    client.send(format!("GET /deny HTTP/1.1\r\nHost: a\r\n{}\r\n", fields(300))).await;
    assert_eq!(client.answer().await.status(), 400);
}

#[tokio::test]
async fn what_cannot_be_read_one_way_is_a_400_problem() {
    let shop = Upstream::hello().await;
    let gateway = gateway(Setup::with_shop(&[shop.address])).await;
    for request in [
        "GET /open#x HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET ftp://a/open HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET foo:bar://a/open HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET open HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET * HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET http://b/open HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /open HTTP/1.1\r\n\r\n",
        "GET /open HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        "GET /open HTTP/1.1\r\nHost: a\r\nX : y\r\n\r\n",
        "GET /open HTTP/1.1\r\nHost: a\r\nX: \0\r\n\r\n",
        "GET /open HTTP/3.7\r\nHost: a\r\n\r\n",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        "nonsense\r\n\r\n",
    ] {
        let mut client = gateway.connect().await;
        client.send(request).await;
        let refusal = client.answer().await;
        assert_eq!(refusal.status(), 400, "{request:?}");
        assert_eq!(refusal.problem(), "BAD_REQUEST");
        assert_eq!(refusal.header("x-content-type-options"), Some("nosniff"));
        assert_eq!(refusal.header("server"), None);
    }
    let mut client = gateway.connect().await;
    client.send(b"GET /\xff\xfe HTTP/1.1\r\nHost: a\r\n\r\n").await;
    assert_eq!(client.answer().await.status(), 400);
    // A TLS greeting is not waited for to the end of a head it will never have.
    let mut client = gateway.connect().await;
    client.send([0x16, 3, 1, 0, 200, 1, 0]).await;
    assert_eq!(client.answer().await.status(), 400);
    assert!(shop.seen.requests().is_empty(), "{:#?}", shop.seen.requests());
}

#[tokio::test]
async fn odd_bytes_in_a_header_value_cost_nobody_anything() {
    let shop = Upstream::hello().await;
    let gateway = gateway(Setup::with_shop(&[shop.address])).await;
    let mut client = gateway.connect().await;
    client
        .send(
            b"GET /open HTTP/1.1\r\nHost: a\r\nX-Queue-Token: \xff\xfe\r\nCookie: \xc3\x28\r\n\r\n",
        )
        .await;
    assert_eq!(client.answer().await.status(), 200);
}

#[tokio::test]
async fn connect_and_trace_are_405_problems() {
    let shop = Upstream::hello().await;
    let gateway = gateway(Setup::with_shop(&[shop.address])).await;
    for request in [
        "CONNECT shop.example:443 HTTP/1.1\r\nHost: shop.example:443\r\n\r\n",
        "TRACE /open HTTP/1.1\r\nHost: a\r\n\r\n",
    ] {
        let mut client = gateway.connect().await;
        client.send(request).await;
        let refusal = client.answer().await;
        assert_eq!((refusal.status(), refusal.problem().as_str()), (405, "METHOD_NOT_ALLOWED"));
    }
    assert!(shop.seen.requests().is_empty());
}

fn hasty(servers: &[std::net::SocketAddr]) -> Setup {
    let mut setup = Setup::with_shop(servers);
    setup.limits.header_deadline = Duration::from_millis(300);
    setup.limits.keepalive_idle = Duration::from_millis(150);
    setup
}

/// Sends a head that never ends, byte by byte, until the gateway has had enough.
async fn trickle(client: &mut Wire) {
    for byte in "GET /open HTTP/1.1\r\nHost: a\r\nX: ".bytes().chain(std::iter::repeat(b'a')) {
        if client.try_send([byte]).await.is_err() {
            return;
        }
        let pause = tokio::time::timeout(Duration::from_millis(10), client.is_closed());
        if pause.await.is_ok() {
            return;
        }
    }
}

#[tokio::test]
async fn a_trickled_head_is_cut_at_the_deadline_on_first_and_later_requests() {
    let shop = Upstream::hello().await;
    let gateway = gateway(hasty(&[shop.address])).await;
    for requests_before in [0, 1] {
        let mut client = gateway.connect().await;
        for _ in 0..requests_before {
            assert_eq!(client.get("/open").await.status(), 200);
        }
        trickle(&mut client).await;
        let refusal = client.answer().await;
        assert_eq!((refusal.status(), refusal.problem().as_str()), (408, "REQUEST_TIMEOUT"));
        assert!(client.is_closed().await);
    }
    assert_eq!(gateway.metric(r#"connections_refused_total{reason="HeadTimeout"}"#), 2);
}

#[tokio::test]
async fn an_idle_connection_is_closed_without_a_word() {
    let shop = Upstream::hello().await;
    let gateway = gateway(hasty(&[shop.address])).await;
    let mut silent = gateway.connect().await;
    assert!(silent.is_closed().await, "before its first request");
    let mut kept = gateway.connect().await;
    assert_eq!(kept.get("/open").await.status(), 200);
    assert!(kept.is_closed().await, "after a request");
    gateway.until(|gateway| gateway.metric("connections") == 0).await;
}

#[tokio::test]
async fn a_body_may_be_slower_than_the_head_deadline() {
    let shop = Upstream::hello().await;
    let gateway = gateway(hasty(&[shop.address])).await;
    let mut client = gateway.connect().await;
    client.send("POST /buy HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhello").await;
    // Another connection is the clock: it is closed when the deadline is over.
    assert!(gateway.connect().await.is_closed().await);
    client.send("world").await;
    assert_eq!(client.answer().await.status(), 200);
    assert_eq!(shop.seen.only().body, b"helloworld");
}

#[tokio::test]
async fn a_body_over_the_limit_is_413_by_length_and_by_count() {
    let shop = Upstream::hello().await;
    let mut setup = Setup::with_shop(&[shop.address]);
    setup.limits.body_bytes = Some(10);
    let gateway = gateway(setup).await;
    let mut client = gateway.connect().await;
    client.send("POST /buy HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n0123456789").await;
    assert_eq!(client.answer().await.status(), 200);
    client.send("POST /buy HTTP/1.1\r\nHost: a\r\nContent-Length: 11\r\n\r\n0123456789a").await;
    let refusal = client.answer().await;
    assert_eq!((refusal.status(), refusal.problem().as_str()), (413, "CONTENT_TOO_LARGE"));
    client
        .send(
            "POST /buy HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n\
             b\r\n0123456789a\r\n0\r\n\r\n",
        )
        .await;
    assert_eq!(client.answer().await.status(), 413);
    assert_eq!(shop.seen.requests().len(), 1, "an upload that is cut short is not complete");
}

#[tokio::test]
async fn one_connection_too_many_gets_503_and_is_counted() {
    let shop = Upstream::hello().await;
    let mut setup = Setup::with_shop(&[shop.address]);
    setup.limits.connections = 1;
    let gateway = gateway(setup).await;
    let mut first = gateway.connect().await;
    assert_eq!(first.get("/open").await.status(), 200);
    let mut second = gateway.connect().await;
    let refusal = second.answer().await;
    assert_eq!((refusal.status(), refusal.header("retry-after")), (503, Some("1")));
    assert!(second.is_closed().await);
    assert_eq!(gateway.metric(r#"connections_refused_total{reason="ConnectionLimit"}"#), 1);
    drop(first);
    gateway.until(|gateway| gateway.metric("connections") == 0).await;
    assert_eq!(gateway.connect().await.get("/open").await.status(), 200);
}
