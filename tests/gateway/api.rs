//! The queue API beside enter, rank and leave: verify, status, events, the document, other sites.

use serde_json::{Value, json};

use crate::shop::{Gateway, anonymous, json as body, jwt, on_both_stores, signed_in, sold, until};

/// The next server-sent event of a stream: its name and its data.
async fn event(wire: &mut crate::support::Wire) -> Option<(String, Value)> {
    let mut text = Vec::new();
    while !text.ends_with(b"\n\n") {
        text.extend(wire.chunk().await?);
    }
    let text = String::from_utf8(text).unwrap();
    let (name, data) = text.trim_end().split_once("\ndata: ").unwrap_or_else(|| panic!("{text:?}"));
    Some((name.strip_prefix("event: ")?.to_owned(), serde_json::from_str(data).ok()?))
}

on_both_stores! {
    async fn verify_tells_a_back_end_who_stands_behind_a_token(store) {
        let gateway = Gateway::start(&store, &signed_in("", "")).await;
        let (mut alice, mut bob) = (gateway.user("alice"), gateway.user("bob"));
        let token = alice.enter("checkout").await;
        let waits = bob.enter("checkout").await;
        // A back end asks without an identity, or passes its caller's on.
        let mut shop = gateway.shopper();
        let verified = shop.get_with("/_queue/checkout/verify", &token).await;
        assert_eq!(verified.status(), 200);
        let said = body(&verified);
        assert_eq!((&said["queue"], &said["status"]), (&json!("checkout"), &json!("ACTIVE")));
        assert!(said["enteredAt"].is_string() && said["expiresAt"].is_string(), "{said}");
        let named = body(&alice.get_with("/_queue/checkout/verify", &token).await);
        assert_eq!(named["user"], "alice");
        for (token, code) in [(waits.as_str(), "QUEUE_WAITING"), (&token[..20], "TOKEN_INVALID")] {
            let refused = shop.get_with("/_queue/checkout/verify", token).await;
            assert_eq!((refused.status(), refused.problem()), (403, code.into()));
        }
        let refused = shop.get("/_queue/checkout/verify").await;
        assert_eq!((refused.status(), refused.problem()), (403, "QUEUE_TOKEN_REQUIRED".into()));
        alice.leave("checkout", &token).await;
        let over = shop.get_with("/_queue/checkout/verify", &token).await;
        assert_eq!((over.status(), over.problem()), (403, "QUEUE_TOKEN_NOT_AVAILABLE".into()));
    }

    async fn status_is_for_everybody_and_for_caches(store) {
        let gateway = Gateway::start(&store, &signed_in("admit_per_second = 5", "")).await;
        gateway.user("alice").enter("checkout").await;
        gateway.user("bob").enter("checkout").await;
        let ask = || {
            let mut anybody = gateway.shopper();
            async move { anybody.get("/_queue/checkout/status").await }
        };
        let answer = until(ask, |answer| body(answer)["waiting"] == 1).await;
        assert_eq!(answer.header("cache-control"), Some("public, max-age=1"));
        assert_eq!(answer.header("set-cookie"), None);
        assert_eq!(
            body(&answer),
            json!({
                "queue": "checkout", "state": "OPEN", "waiting": 1, "active": 1, "capacity": 1,
                "admitPerSecond": 5.0, "opensAt": null, "closesAt": null,
            })
        );
        let unknown = gateway.shopper().get("/_queue/other/status").await;
        assert_eq!((unknown.status(), unknown.problem()), (404, "QUEUE_NOT_FOUND".into()));
        let odd = gateway.shopper().post("/_queue/checkout/status").await;
        assert_eq!((odd.status(), odd.problem()), (405, "METHOD_NOT_ALLOWED".into()));
    }

    async fn the_document_is_served(store) {
        let gateway = Gateway::start(&store, &signed_in("", "")).await;
        let answer = gateway.shopper().get("/_queue/openapi.json").await;
        assert_eq!(answer.status(), 200);
        assert!(answer.header("content-type").unwrap().contains("json"));
        assert!(body(&answer)["openapi"].as_str().unwrap().starts_with("3."));
        assert!(answer.header("cache-control").unwrap().contains("max-age"));
    }

    async fn events_push_the_rank_and_end_with_the_admission(store) {
        let gateway = Gateway::start(&store, &signed_in("", "")).await;
        let (mut alice, mut bob) = (gateway.user("alice"), gateway.user("bob"));
        let token = alice.enter("checkout").await;
        let waits = bob.enter("checkout").await;
        let mut wire = gateway.connect().await;
        wire.send(format!(
            "GET /_queue/checkout/events HTTP/1.1\r\nHost: a\r\nX-Queue-Token: {waits}\r\n\
             Authorization: Bearer {}\r\n\r\n", jwt("bob")
        )).await;
        let head = wire.head().await.unwrap();
        assert_eq!((head.status(), head.header("content-type")), (200, Some("text/event-stream")));
        assert_eq!(head.header("cache-control"), Some("no-store"));
        let (name, data) = event(&mut wire).await.unwrap();
        assert_eq!(
            (name.as_str(), &data["rank"], &data["status"]),
            ("rank", &json!(1), &json!("WAITING"))
        );
        assert_eq!(data.get("token"), None);
        alice.leave("checkout", &token).await;
        let (name, data) = event(&mut wire).await.unwrap();
        assert_eq!(
            (name.as_str(), &data["rank"], &data["status"]),
            ("admitted", &json!(0), &json!("ACTIVE"))
        );
        assert_eq!(wire.chunk().await, None, "the stream ends");
        // By cookie too, never by the query, and not for what is over.
        let mut bob = gateway.user("bob");
        let mut over = gateway.user("alice");
        assert_eq!(over.get_with("/_queue/checkout/events", &token).await.status(), 410);
        let none = bob.get(&format!("/_queue/checkout/events?token={waits}")).await;
        assert_eq!((none.status(), none.problem()), (401, "UNAUTHENTICATED".into()));
        bob.cookies.insert("queue_token-checkout".into(), waits);
        let last = bob.get("/_queue/checkout/events").await;
        assert!(last.text().starts_with("event: admitted\n"), "{last:?}");
    }

    async fn the_number_of_event_streams_is_bounded(store) {
        let config = signed_in("", "") + "[api]\nmax_event_streams = 1\n";
        let gateway = Gateway::start(&store, &config).await;
        gateway.user("alice").enter("checkout").await;
        let mut bob = gateway.user("bob");
        let waits = bob.enter("checkout").await;
        let mut wire = gateway.connect().await;
        wire.send(format!(
            "GET /_queue/checkout/events HTTP/1.1\r\nHost: a\r\nX-Queue-Token: {waits}\r\n\
             Authorization: Bearer {}\r\n\r\n", jwt("bob")
        )).await;
        assert_eq!(wire.head().await.unwrap().status(), 200);
        let refused = bob.get_with("/_queue/checkout/events", &waits).await;
        assert_eq!((refused.status(), refused.problem()), (429, "RATE_LIMITED".into()));
    }

    async fn other_sites_may_not_enter_or_end_anybodys_place(store) {
        let config = anonymous("", "") + "[api]\ncors_origins = [\"https://app.example\"]\n";
        let gateway = Gateway::start(&store, &config).await;
        let mut visitor = gateway.shopper();
        let token = visitor.enter("checkout").await;
        for foreign in [
            ("Origin", "https://evil.example"),
            ("Origin", "null"),
            ("Origin", "https://shop.example"),
            ("Origin", "http://shop.example:81"),
            ("Sec-Fetch-Site", "cross-site"),
            ("Sec-Fetch-Site", "same-site"),
        ] {
            for (method, call) in [("POST", "enter"), ("POST", "leave"), ("DELETE", "token")] {
                for mut caller in [gateway.shopper(), visitor.clone()] {
                    let headers = [foreign, ("Content-Length", "0"), ("Authorization", "Bearer x")];
                    let answer =
                        caller.send(method, &format!("/_queue/checkout/{call}"), &headers).await;
                    assert_eq!(
                        (answer.status(), answer.problem()),
                        (403, "FORBIDDEN".into()),
                        "{foreign:?} {call}"
                    );
                    assert_eq!(answer.header("set-cookie"), None, "{foreign:?}");
                }
            }
        }
        assert_eq!(visitor.rank("checkout", &token).await["rank"], 0, "still there");
        for own in [
            ("Origin", "http://shop.example"),
            ("Sec-Fetch-Site", "same-origin"),
            ("Sec-Fetch-Site", "none"),
        ] {
            let answer = visitor
                .send("POST", "/_queue/checkout/enter", &[own, ("Content-Length", "0")])
                .await;
            assert_eq!(answer.status(), 200, "{own:?}");
        }
        // Nobody's identity is looked at before.
        let users = Gateway::start(&store, &signed_in("", "").replace("checkout", "members")).await;
        let headers = [
            ("Origin", "https://evil.example"),
            ("Authorization", "Bearer x"),
            ("Content-Length", "0"),
        ];
        let answer = users.shopper().send("POST", "/_queue/members/enter", &headers).await;
        assert_eq!((answer.status(), answer.problem()), (403, "FORBIDDEN".into()));
        // A listed origin may call, and is given no cookie.
        let headers = [
            ("Origin", "https://app.example"),
            ("Sec-Fetch-Site", "cross-site"),
            ("Content-Length", "0"),
        ];
        let answer = gateway.shopper().send("POST", "/_queue/checkout/enter", &headers).await;
        assert_eq!(answer.status(), 201);
        assert_eq!(answer.header("set-cookie"), None);
        assert_eq!(answer.header("access-control-allow-origin"), Some("https://app.example"));
    }

    async fn the_api_answers_preflights_of_listed_origins(store) {
        let config = signed_in("", "") + "[api]\ncors_origins = [\"https://app.example\"]\n";
        let gateway = Gateway::start(&store, &config).await;
        let ask = |origin: &'static str| {
            let mut browser = gateway.shopper();
            async move {
                let headers = [
                    ("Origin", origin),
                    ("Access-Control-Request-Method", "POST"),
                    ("Access-Control-Request-Headers", "x-queue-token,authorization"),
                ];
                browser.send("OPTIONS", "/_queue/checkout/enter", &headers).await
            }
        };
        let allowed = ask("https://app.example").await;
        assert!(matches!(allowed.status(), 200 | 204), "{allowed:?}");
        assert_eq!(allowed.header("access-control-allow-origin"), Some("https://app.example"));
        assert_eq!(allowed.header("access-control-allow-credentials"), Some("true"));
        assert!(allowed.header("access-control-allow-headers").unwrap().contains("x-queue-token"));
        let other = ask("https://evil.example").await;
        assert_eq!(other.header("access-control-allow-origin"), None);
        let status = body(&gateway.shopper().get("/_queue/checkout/status").await);
        assert_eq!((&status["waiting"], &status["active"]), (&json!(0), &json!(0)));
        assert_eq!(gateway.hits(), 0);
    }

    async fn a_gated_route_answers_preflights_by_its_rules(store) {
        let config = signed_in(
            "",
            "\n[route.cors]\norigins = [\"https://app.example\"]\nmethods = [\"POST\"]",
        );
        let gateway = Gateway::start(&store, &config).await;
        let mut browser = gateway.shopper();
        let asks = ("Access-Control-Request-Method", "POST");
        let allowed = browser
            .send("OPTIONS", "/checkout/api", &[("Origin", "https://app.example"), asks])
            .await;
        assert_eq!((allowed.status(), allowed.text()), (204, ""));
        assert_eq!(allowed.header("access-control-allow-origin"), Some("https://app.example"));
        assert_eq!(allowed.header("access-control-allow-methods"), Some("POST"));
        assert!(
            allowed
                .header("access-control-allow-headers")
                .unwrap()
                .to_lowercase()
                .contains("x-queue-token")
        );
        for headers in [
            vec![("Origin", "https://evil.example"), asks],
            vec![("Origin", "https://app.example")],
            vec![asks],
            vec![],
        ] {
            let refused = browser.send("OPTIONS", "/checkout/api", &headers).await;
            assert_eq!(
                (refused.status(), refused.problem()),
                (429, "QUEUE_TOKEN_REQUIRED".into()),
                "{headers:?}"
            );
        }
        // The refusal itself can be read by the allowed origin's script.
        let headers = [("Origin", "https://app.example"), ("Content-Length", "0")];
        let refused = browser.send("POST", "/checkout/api", &headers).await;
        assert_eq!(refused.status(), 429);
        assert_eq!(refused.header("access-control-allow-origin"), Some("https://app.example"));
        assert!(
            refused
                .header("access-control-expose-headers")
                .unwrap()
                .to_lowercase()
                .contains("retry-after")
        );
        assert_eq!(gateway.hits(), 0);
    }

    async fn leaving_by_identity_alone_ends_the_place_for_its_token_as_well(store) {
        let gateway = Gateway::start(&store, &signed_in("", "")).await;
        let (mut alice, mut bob) = (gateway.user("alice"), gateway.user("bob"));
        alice.enter("checkout").await;
        let waits = bob.enter("checkout").await;
        for mut user in [gateway.user("bob"), gateway.user("bob")] {
            let left = user.send("DELETE", "/_queue/checkout/token", &[]).await;
            assert_eq!(left.status(), 204, "idempotent: {left:?}");
        }
        let over = bob.get_with("/_queue/checkout/rank", &waits).await;
        assert_eq!((over.status(), over.problem()), (410, "QUEUE_TOKEN_NOT_AVAILABLE".into()));
        let nobody = gateway.shopper().post("/_queue/checkout/leave").await;
        assert_eq!((nobody.status(), nobody.problem()), (401, "UNAUTHENTICATED".into()));
    }

    async fn rank_gives_a_token_back_only_by_the_carrier_it_came_in(store) {
        let gateway = Gateway::start(&store, &signed_in("", "")).await;
        let mut alice = gateway.user("alice");
        let token = alice.enter("checkout").await;
        let by_cookie = alice.get("/_queue/checkout/rank").await;
        assert_eq!(body(&by_cookie).get("token"), None, "scripts cannot read it: {by_cookie:?}");
        alice.cookies.clear();
        let by_header = alice.get_with("/_queue/checkout/rank", &token).await;
        assert_eq!(by_header.header("cache-control"), Some("private, no-store"));
        let fresh = body(&by_header)["token"].as_str().unwrap().to_owned();
        assert!(sold(&alice.get_with("/checkout/pay", &fresh).await));
    }
}
