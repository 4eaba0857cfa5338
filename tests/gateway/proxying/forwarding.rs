//! Requests that go upstream.

use std::time::Duration;

use anteroom::identity::client_address::TrustedProxies;

use crate::proxying::gateway;
use crate::support::{Setup, Upstream, nobody, script};

#[tokio::test]
async fn the_upstream_sees_the_judged_target_the_host_and_the_gates_headers() {
    let shop = Upstream::hello().await;
    let gateway = gateway(Setup::with_shop(&[shop.address])).await;
    let mut client = gateway.connect().await;
    client
        .send(
            "GET http://shop.example/a/b?x=%20&y HTTP/1.1\r\nHost: shop.example\r\n\
             X-Queue-Token: secret\r\nX-Queue-User: admin\r\nX-Request-Id: forged\r\n\
             X-Forwarded-For: 10.9.9.9\r\nX_Forwarded_For: 10.9.9.9\r\nX-Rewrite-URL: /admin\r\n\
             Keep-Alive: timeout=5\r\nProxy-Connection: close\r\n\
             Connection: close, X-Queue-User, X-Forwarded-For, X-Request-Id\r\n\r\n",
        )
        .await;
    let answer = client.answer().await;
    assert_eq!(answer.status(), 200);
    assert_eq!(answer.header("x-queue-status"), None, "the upstream has no say in that");
    let seen = shop.seen.only();
    assert_eq!(seen.first_line, "GET /a/b?x=%20&y HTTP/1.1");
    assert_eq!(seen.header("host"), Some("shop.example"));
    assert_eq!(seen.header("x-queue-user"), Some("alice"));
    assert_eq!(seen.header("x-forwarded-for"), Some("127.0.0.1"));
    assert_eq!(seen.header("x-forwarded-proto"), Some("http"));
    assert_eq!(seen.header("x-forwarded-host"), Some("shop.example"));
    assert_eq!(seen.header("forwarded"), Some("for=127.0.0.1;proto=http;host=\"shop.example\""));
    assert_ne!(seen.header("x-request-id"), Some("forged"));
    assert_eq!(seen.header("x-request-id"), answer.header("x-request-id"));
    for gone in
        ["x-queue-token", "x_forwarded_for", "x-rewrite-url", "keep-alive", "proxy-connection"]
    {
        assert_eq!(seen.header(gone), None, "{gone}");
    }
    // The client's `Connection: close` was about its own connection.
    assert_ne!(seen.header("connection"), Some("close"));
}

#[tokio::test]
async fn a_trusted_peers_request_id_and_client_are_passed_on() {
    let shop = Upstream::hello().await;
    let mut setup = Setup::with_shop(&[shop.address]);
    setup.trusted_proxies =
        TrustedProxies { networks: vec!["127.0.0.0/8".parse().unwrap()], unix: false };
    let gateway = gateway(setup).await;
    let mut client = gateway.connect().await;
    client
        .send(
            "GET /open HTTP/1.1\r\nHost: inner\r\nX-Request-Id: abc-1\r\n\
             X-Forwarded-For: 6.6.6.6, 198.51.100.7\r\nX-Forwarded-Proto: https\r\n\r\n",
        )
        .await;
    assert_eq!(client.answer().await.header("x-request-id"), Some("abc-1"));
    let seen = shop.seen.only();
    assert_eq!(seen.header("x-request-id"), Some("abc-1"));
    assert_eq!(seen.header("x-forwarded-for"), Some("198.51.100.7, 127.0.0.1"));
    assert_eq!(seen.header("x-forwarded-proto"), Some("https"));
}

#[tokio::test]
async fn an_upstream_that_is_down_is_a_502_problem() {
    let gateway = gateway(Setup::with_shop(&[nobody().await])).await;
    let answer = gateway.connect().await.get("/open").await;
    assert_eq!((answer.status(), answer.problem().as_str()), (502, "UPSTREAM_UNAVAILABLE"));
    assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
    assert_eq!(answer.header("connection"), Some("close"));
    let down = r#"upstream_failures_total{upstream="shop",fault="Connect"}"#;
    assert_eq!(gateway.metric(down), 1);
    // A client that posts to it sees the answer, too.
    let mut client = gateway.connect().await;
    client.send("POST /open HTTP/1.1\r\nHost: a\r\nContent-Length: 3000000\r\n\r\n").await;
    client.send(vec![b'x'; 3_000_000]).await;
    assert_eq!(client.answer().await.status(), 502);
}

#[tokio::test]
async fn an_upstream_that_is_silent_is_a_504_problem() {
    let shop = Upstream::run(script(|mut wire, seen| async move {
        while let Some(request) = wire.head().await {
            seen.record(request);
        }
    }))
    .await;
    let mut setup = Setup::with_shop(&[shop.address]);
    setup.shop.read_timeout = Duration::from_millis(100);
    let gateway = gateway(setup).await;
    let answer = gateway.connect().await.get("/open").await;
    assert_eq!((answer.status(), answer.problem().as_str()), (504, "UPSTREAM_TIMEOUT"));
    assert_eq!(shop.seen.requests().len(), 1, "not sent twice");
    let silent = r#"upstream_failures_total{upstream="shop",fault="Timeout"}"#;
    assert_eq!(gateway.metric(silent), 1);
}

#[tokio::test]
async fn an_upstream_that_breaks_off_is_a_502_problem_and_a_post_is_not_repeated() {
    let shop = Upstream::run(script(|mut wire, seen| async move {
        let mut request = wire.head().await.unwrap();
        request.body = wire.body(&request).await;
        seen.record(request);
    }))
    .await;
    let gateway = gateway(Setup::with_shop(&[shop.address, shop.address])).await;
    let mut client = gateway.connect().await;
    client.send("POST /buy HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi").await;
    let answer = client.answer().await;
    assert_eq!((answer.status(), answer.problem().as_str()), (502, "UPSTREAM_UNAVAILABLE"));
    assert_eq!(shop.seen.only().body, b"hi");
}

#[tokio::test]
async fn a_request_fails_over_to_the_next_server_whatever_its_method() {
    let shop = Upstream::hello().await;
    let gateway = gateway(Setup::with_shop(&[nobody().await, shop.address])).await;
    let mut client = gateway.connect().await;
    for round in 0..4 {
        let body = format!("order {round}");
        client
            .send(format!(
                "POST /buy HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n{body}",
                body.len()
            ))
            .await;
        assert_eq!(client.answer().await.status(), 200);
    }
    let bodies: Vec<_> = shop.seen.requests().into_iter().map(|request| request.body).collect();
    assert_eq!(bodies, [b"order 0", b"order 1", b"order 2", b"order 3"]);
}

#[tokio::test]
async fn servers_take_turns() {
    let (one, two) = (Upstream::hello().await, Upstream::hello().await);
    let gateway = gateway(Setup::with_shop(&[one.address, two.address])).await;
    let mut client = gateway.connect().await;
    for _ in 0..6 {
        assert_eq!(client.get("/open").await.status(), 200);
    }
    assert_eq!((one.seen.requests().len(), two.seen.requests().len()), (3, 3));
}

#[tokio::test]
async fn a_client_that_was_told_to_go_on_gets_a_final_answer_even_if_the_upstream_dies() {
    let shop = Upstream::run(script(|mut wire, seen| async move {
        seen.record(wire.head().await.unwrap());
        wire.send("HTTP/1.1 100 Continue\r\n\r\n").await;
        wire.exactly(1).await;
    }))
    .await;
    let gateway = gateway(Setup::with_shop(&[shop.address])).await;
    let mut client = gateway.connect().await;
    client
        .send("POST /buy HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n")
        .await;
    let interim = client.head().await.unwrap();
    assert_eq!(interim.status(), 100);
    assert_eq!(interim.header("x-request-id"), None, "interim answers are not changed");
    client.send("hello").await;
    assert_eq!(client.answer().await.status(), 502);
}

#[tokio::test]
async fn a_request_hidden_behind_an_upgrade_or_odd_framing_never_reaches_the_upstream() {
    let shop = Upstream::hello().await;
    let gateway = gateway(Setup::with_shop(&[shop.address])).await;
    let hidden = "GET /deny/hidden HTTP/1.1\r\nHost: shop.example\r\n\r\n";
    for head in [
        "GET /open HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: foo\r\n\r\n",
        "GET /open HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n",
        "POST /open HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n\
         0\r\n\r\n",
        "POST /open HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
        "POST /open HTTP/1.1\r\nHost: a\r\nContent-Length: +5\r\n\r\nhello",
        "POST /open HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "POST /open HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: identity, chunked\r\n\r\n0\r\n\r\n",
        "GET /open HTTP/1.1\r\nHost: a\r\n\r\n",
    ] {
        let mut client = gateway.connect().await;
        client.send(format!("{head}{hidden}")).await;
        // An answer, or the end of the connection; what counts is what the upstream saw.
        let _ = client.head().await;
    }
    for request in shop.seen.requests() {
        assert_eq!(request.target(), "/open");
        assert!(request.body.is_empty(), "{request:?}");
        let framings = request.all("content-length").len() + request.all("transfer-encoding").len();
        assert!(framings < 2, "{request:?}");
    }
}

#[tokio::test]
async fn an_upstreams_early_answer_reaches_a_client_that_sends_first_and_reads_later() {
    let shop = Upstream::run(script(|mut wire, seen| async move {
        while let Some(request) = wire.head().await {
            wire.send("HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno").await;
            // It reads on, as a server should; the gateway must not cut the client short.
            wire.body(&request).await;
            seen.record(request);
        }
    }))
    .await;
    let gateway = gateway(Setup::with_shop(&[shop.address])).await;
    for _ in 0..5 {
        let mut client = gateway.connect().await;
        client.send("POST /buy HTTP/1.1\r\nHost: a\r\nContent-Length: 3000000\r\n\r\n").await;
        client.send(vec![b'x'; 3_000_000]).await;
        let answer = client.answer().await;
        assert_eq!((answer.status(), answer.text()), (403, "no"));
    }
}

#[tokio::test]
async fn an_upstream_that_answers_early_and_closes_still_has_its_answer_delivered() {
    let shop = Upstream::run(script(|mut wire, seen| async move {
        seen.record(wire.head().await.unwrap());
        wire.send("HTTP/1.1 413 Too Large\r\nConnection: close\r\nContent-Length: 2\r\n\r\nno")
            .await;
    }))
    .await;
    let gateway = gateway(Setup::with_shop(&[shop.address])).await;
    for _ in 0..5 {
        let mut client = gateway.connect().await;
        client.send("POST /buy HTTP/1.1\r\nHost: a\r\nContent-Length: 3000000\r\n\r\n").await;
        client.send(vec![b'x'; 3_000_000]).await;
        let answer = client.answer().await;
        assert_eq!((answer.status(), answer.text()), (413, "no"));
    }
}

#[tokio::test]
async fn a_tls_upstream_that_does_not_speak_tls_is_a_502_and_hears_no_request() {
    let shop = Upstream::hello().await;
    let mut setup = Setup::with_shop(&[shop.address]);
    setup.shop.tls_server_name = Some("shop.example".into());
    setup.shop.connect_timeout = Duration::from_millis(200);
    let gateway = gateway(setup).await;
    let answer = gateway.connect().await.get("/open").await;
    assert_eq!((answer.status(), answer.problem().as_str()), (502, "UPSTREAM_UNAVAILABLE"));
    assert!(shop.seen.requests().is_empty());
}

#[tokio::test]
async fn answers_are_framed_for_the_clients_version_and_method() {
    let shop = Upstream::run(script(|mut wire, seen| async move {
        while let Some(request) = wire.head().await {
            let answer = match request.target() {
                "/chunked" => {
                    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"
                }
                "/nothing" => "HTTP/1.1 204 No Content\r\n\r\n",
                "/cached" => "HTTP/1.1 304 Not Modified\r\nETag: \"a\"\r\n\r\n",
                _ => "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n",
            };
            seen.record(request);
            wire.send(answer).await;
        }
    }))
    .await;
    let gateway = gateway(Setup::with_shop(&[shop.address])).await;
    let mut old = gateway.connect().await;
    old.send("GET /chunked HTTP/1.0\r\n\r\n").await;
    let answer = old.answer().await;
    assert_eq!((answer.text(), answer.header("transfer-encoding")), ("ok", None));

    let mut client = gateway.connect().await;
    for round in 0..2 {
        client.send("HEAD /head HTTP/1.1\r\nHost: a\r\n\r\n").await;
        assert_eq!(client.head().await.unwrap().header("content-length"), Some("2"), "{round}");
        assert_eq!(client.get("/nothing").await.status(), 204);
        assert_eq!(client.get("/cached").await.header("etag"), Some("\"a\""));
        assert_eq!(client.get("/chunked").await.text(), "ok");
    }
}
