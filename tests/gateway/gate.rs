//! The whole way of a shopper: enter, wait, be admitted, pass, leave; and what the shop sees of it.

use serde_json::json;

use crate::shop::{Gateway, json, jwt, on_both_stores, signed_in, sold, until};

/// Every spelling of the gateway's names that a back end could fold into them.
const SPOOFS: [(&str, &str); 9] = [
    ("X-Queue-User", "admin"),
    ("X_Queue_User", "admin"),
    ("x-queue-entered-at", "1970-01-01T00:00:00Z"),
    ("X-Queue_Name", "vip"),
    ("X.Queue.Status", "ACTIVE"),
    ("X-QUEUE-ANYTHING", "1"),
    ("X_Queue_Token", "stolen"),
    ("X_Forwarded_For", "10.0.0.1"),
    ("X-Forwarded-For", "10.0.0.1"),
];

on_both_stores! {
    async fn a_shopper_enters_waits_is_admitted_passes_and_leaves(store) {
        let gateway = Gateway::start(&store, &signed_in("", "")).await;
        let (mut alice, mut bob) = (gateway.user("alice"), gateway.user("bob"));

        let entered = alice.post("/_queue/checkout/enter").await;
        assert_eq!(entered.status(), 201);
        let place = json(&entered);
        assert_eq!((&place["status"], &place["rank"]), (&json!("ACTIVE"), &json!(0)));
        assert_eq!(place["queue"], "checkout");
        assert!(place["expiresAt"].is_string(), "{place}");
        let token = place["token"].as_str().unwrap();

        let waits = bob.post("/_queue/checkout/enter").await;
        assert_eq!(waits.status(), 201);
        let bobs_place = json(&waits);
        assert_eq!((&bobs_place["status"], &bobs_place["rank"]), (&json!("WAITING"), &json!(1)));
        assert_eq!(bobs_place["expiresAt"], json!(null));
        assert!(bobs_place["pollAfterMs"].as_u64().unwrap() >= 500);
        let seconds = waits.header("retry-after").unwrap().parse::<u64>().unwrap();
        assert_eq!(seconds, bobs_place["pollAfterMs"].as_u64().unwrap().div_ceil(1000));
        let bobs = bobs_place["token"].as_str().unwrap();
        assert_eq!(bob.rank("checkout", bobs).await["rank"], 1);

        let refused = bob.get_with("/checkout/pay", bobs).await;
        assert_eq!((refused.status(), refused.problem()), (429, "QUEUE_WAITING".into()));
        let body = json(&refused);
        assert_eq!(body["queue"], "checkout");
        assert_eq!(body["status"], 429);
        assert_eq!(body["rank"], 1);
        assert_eq!(body["links"]["enter"], "/_queue/checkout/enter");
        assert_eq!(body["links"]["rank"], "/_queue/checkout/rank");
        assert_eq!(refused.header("cache-control"), Some("no-store"));
        assert_eq!(gateway.hits(), 0, "nobody has passed yet");

        let paid = alice.get_with("/checkout/pay?item=%2F7", token).await;
        assert!(sold(&paid), "{paid:?}");
        let hit = gateway.shop.seen.only();
        assert_eq!(hit.first_line, "GET /checkout/pay?item=%2F7 HTTP/1.1");
        assert_eq!(hit.header("x-queue-user"), Some("alice"));
        assert_eq!(hit.header("x-queue-name"), Some("checkout"));
        assert_eq!(hit.header("x-queue-status"), Some("ACTIVE"));
        assert_eq!(hit.header("x-queue-entered-at"), place["enteredAt"].as_str());
        assert_eq!(hit.header("x-queue-token"), None);

        alice.leave("checkout", token).await;
        let over = alice.get_with("/checkout/pay", token).await;
        assert_eq!((over.status(), over.problem()), (429, "QUEUE_TOKEN_NOT_AVAILABLE".into()));
        let over = alice.get_with("/_queue/checkout/rank", token).await;
        assert_eq!((over.status(), over.problem()), (410, "QUEUE_TOKEN_NOT_AVAILABLE".into()));
        alice.leave("checkout", token).await;

        let admitted = until(
            || {
                let mut bob = bob.clone();
                async move { bob.rank("checkout", bobs).await }
            },
            |body| body["status"] == "ACTIVE",
        )
        .await;
        assert_eq!(admitted["rank"], 0);
        assert_eq!(admitted["enteredAt"], bobs_place["enteredAt"], "entry time stays");
        assert!(sold(&bob.get_with("/checkout/pay", bobs).await));
        assert_eq!(gateway.last_hit().header("x-queue-user"), Some("bob"));
        assert_eq!(gateway.hits(), 2);
    }

    async fn a_second_enter_gives_the_same_token_and_the_same_place(store) {
        let gateway = Gateway::start(&store, &signed_in("", "")).await;
        gateway.user("first").enter("checkout").await;
        let mut alice = gateway.user("alice");
        let token = alice.enter("checkout").await;
        gateway.user("bob").enter("checkout").await;
        // A new JSON Web Token of the same user, and no cookie of before.
        let claims = json!({
            "iss": "https://id.example", "aud": ["x", "shop"], "sub": "alice",
            "exp": 4_102_444_801_u64, "iat": 1,
        });
        let bearer = format!("Bearer {}", crate::shop::signed(&claims));
        let mut again = gateway.shopper().with("Authorization", &bearer);
        for _ in 0..2 {
            let answer = again.post("/_queue/checkout/enter").await;
            assert_eq!(answer.status(), 200);
            let body = json(&answer);
            assert_eq!((&body["token"], &body["rank"]), (&json!(token), &json!(1)));
        }
        // The place is found by the identity alone, too.
        let found = gateway.user("alice").get("/_queue/checkout/rank").await;
        assert_eq!((found.status(), &json(&found)["rank"]), (200, &json!(1)));
        assert_eq!(json(&found).get("token"), None, "the token goes back by its carrier only");
    }

    async fn parallel_enters_of_one_user_are_one_place(store) {
        let gateway = Gateway::start(&store, &signed_in("capacity = 5", "")).await;
        let enters = (0..20).map(|_| {
            let mut alice = gateway.user("alice");
            tokio::spawn(async move { alice.enter("checkout").await })
        });
        let mut tokens = Vec::new();
        for enter in enters.collect::<Vec<_>>() {
            tokens.push(enter.await.unwrap());
        }
        tokens.dedup();
        assert_eq!(tokens.len(), 1);
        let status = gateway.shopper().get("/_queue/checkout/status").await;
        assert!(json(&status)["active"].as_u64().unwrap() <= 1);
    }

    async fn a_queue_that_refuses_duplicates_says_so(store) {
        let gateway = Gateway::start(&store, &signed_in("on_duplicate = \"reject\"", "")).await;
        let mut alice = gateway.user("alice");
        let token = alice.enter("checkout").await;
        let again = alice.post("/_queue/checkout/enter").await;
        assert_eq!((again.status(), again.problem()), (409, "ALREADY_QUEUED".into()));
        // Once the place is given back, there is no duplicate.
        alice.leave("checkout", &token).await;
        assert_eq!(alice.post("/_queue/checkout/enter").await.status(), 201);
    }

    async fn nobody_speaks_to_the_shop_in_the_gateways_name(store) {
        let gateway = Gateway::start(&store, &signed_in("", "")).await;
        let mut alice = gateway.user("alice");
        let token = alice.enter("checkout").await;
        let cookies = "a=1; queue_token-checkout=x;b=\"q; r\";  queue_token-visitor=v; \
                       __Host-queue_token-checkout=x; c=a=b==; queue_tokens=kept; d";
        for (target, gated) in [("/checkout/pay", true), ("/open/page", false)] {
            let mut headers = SPOOFS.to_vec();
            headers.extend([("Cookie", cookies), ("X-Queue-Token", token.as_str())]);
            alice.cookies.clear();
            let answer = alice.send("GET", target, &headers).await;
            assert!(sold(&answer), "{target}: {answer:?}");
            let hit = gateway.last_hit();
            for (name, value) in &hit.headers {
                let folded = name.replace(['_', '.'], "-");
                let ours = ["x-queue-user", "x-queue-name", "x-queue-status", "x-queue-entered-at"];
                let told = gated && ours.contains(&name.as_str());
                assert!(told || !folded.starts_with("x-queue-"), "{target}: {name}: {value}");
                assert!(!value.contains("admin") && !value.contains("vip"), "{name}: {value}");
                assert!(!value.contains("10.0.0.1"), "{target}: {name}: {value}");
                assert!(!value.contains(&token), "{target}: {name}");
            }
            assert_eq!(hit.header("x-queue-user"), gated.then_some("alice"));
            // What is kept is kept byte for byte.
            assert_eq!(
                hit.header("cookie"),
                Some("a=1;b=\"q; r\"; c=a=b==; queue_tokens=kept; d"),
                "{target}"
            );
        }
        assert_eq!(gateway.hits(), 2);
    }

    async fn a_route_may_let_the_shop_see_the_token(store) {
        let gateway = Gateway::start(&store, &signed_in("", "forward_token = true")).await;
        let mut alice = gateway.user("alice");
        let token = alice.enter("checkout").await;
        let headers = [("X-Queue-Token", token.as_str()), ("X_Queue_Token", "x")];
        assert!(sold(&alice.send("GET", "/checkout/pay", &headers).await));
        let hit = gateway.last_hit();
        assert_eq!(hit.header("x-queue-token"), Some(token.as_str()));
        assert_eq!(hit.header("x_queue_token"), None);
        assert!(hit.header("cookie").unwrap().contains(&token));
    }

    async fn connection_headers_do_not_remove_what_the_gateway_says(store) {
        let gateway = Gateway::start(&store, &signed_in("", "")).await;
        let mut alice = gateway.user("alice");
        let token = alice.enter("checkout").await;
        let headers = [
            ("X-Queue-Token", token.as_str()),
            ("Connection", "close, X-Queue-User, X-Forwarded-For, X-Queue-Token, authorization"),
        ];
        assert!(sold(&alice.send("GET", "/checkout/pay", &headers).await));
        let hit = gateway.last_hit();
        assert_eq!(hit.header("x-queue-user"), Some("alice"));
        assert_eq!(hit.header("x-forwarded-for"), Some("127.0.0.1"));
    }

    async fn a_user_id_reaches_the_shop_as_one_harmless_value(store) {
        let gateway = Gateway::start(&store, &signed_in("", "")).await;
        let mut user = gateway.user("Jü, \"x\"; 100%");
        let token = user.enter("checkout").await;
        assert!(sold(&user.get_with("/checkout/pay", &token).await));
        assert_eq!(
            gateway.last_hit().header("x-queue-user"),
            Some("J%C3%BC%2C%20%22x%22%3B%20100%25")
        );
        let refused = gateway.user("anon:1").post("/_queue/checkout/enter").await;
        assert_eq!((refused.status(), refused.problem()), (401, "UNAUTHENTICATED".into()));
    }

    async fn unsafe_and_odd_methods_need_a_token_as_well(store) {
        let gateway = Gateway::start(&store, &signed_in("", "")).await;
        let mut alice = gateway.user("alice");
        for method in ["HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "PURGE"] {
            let refused = alice.send(method, "/checkout/pay", &[("Content-Length", "0")]).await;
            assert_eq!(refused.status(), 429, "{method}");
            assert!(refused.body.is_empty() || method != "HEAD");
        }
        for method in ["TRACE", "CONNECT"] {
            let target = if method == "CONNECT" { "shop.example:443" } else { "/checkout/pay" };
            let refused = alice.send(method, target, &[]).await;
            assert!((400..502).contains(&refused.status()), "{method}: {refused:?}");
        }
        let mut wire = gateway.connect().await;
        wire.send("get /checkout/pay HTTP/1.1\r\nHost: shop.example\r\n\r\n").await;
        assert!(wire.answer().await.status() >= 400);
        assert_eq!(gateway.hits(), 0);

        let token = alice.enter("checkout").await;
        let headers = [("X-Queue-Token", token.as_str()), ("Content-Length", "0")];
        assert!(sold(&alice.send("POST", "/checkout/pay", &headers).await));
        assert!(sold(&alice.send("HEAD", "/checkout/pay", &headers[..1]).await));
        assert_eq!(gateway.hits(), 2);
    }

    async fn a_refused_body_is_never_read_as_the_next_request(store) {
        let gateway = Gateway::start(&store, &signed_in("", "")).await;
        let mut wire = gateway.connect().await;
        let inner = "GET /admin HTTP/1.1\r\nHost: shop.example\r\nX: yyyyyyyy";
        wire.send(format!(
            "POST /checkout/pay HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n{inner}",
            inner.len()
        )).await;
        assert_eq!(wire.answer().await.status(), 429);
        assert_eq!(wire.get("/open").await.status(), 200);
        assert_eq!(gateway.shop.seen.only().target(), "/open");
    }

    async fn an_upgrade_needs_a_token_and_passes_with_one(store) {
        let gateway = Gateway::start(&store, &signed_in("", "when_waiting = \"redirect\"")).await;
        let mut alice = gateway.user("alice");
        let token = alice.enter("checkout").await;
        let upgrade = "GET /checkout/ws HTTP/1.1\r\nHost: shop.example\r\nConnection: Upgrade\r\n\
                       Upgrade: websocket\r\nAccept: text/html\r\nSec-WebSocket-Version: 13\r\n\
                       Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n";
        let mut wire = gateway.connect().await;
        wire.send(format!("{upgrade}\r\n")).await;
        let refused = wire.answer().await;
        assert_eq!((refused.status(), refused.problem()), (429, "QUEUE_TOKEN_REQUIRED".into()));
        assert_eq!(gateway.hits(), 0);

        let mut wire = gateway.connect().await;
        let bearer = jwt("alice");
        wire.send(format!(
            "{upgrade}X-Queue-Token: {token}\r\nAuthorization: Bearer {bearer}\r\n\r\n"
        ))
        .await;
        assert_eq!(wire.head().await.unwrap().status(), 101);
        wire.send("hello").await;
        assert_eq!(wire.exactly(5).await, b"hello");
        assert_eq!(gateway.shop.seen.only().header("x-queue-user"), Some("alice"));
    }

    async fn a_request_behind_an_upgrade_is_judged_as_well(store) {
        let gateway = Gateway::start(&store, &signed_in("", "")).await;
        let mut wire = gateway.connect().await;
        wire.send(
            "GET /checkout/pay HTTP/1.1\r\nHost: shop.example\r\nConnection: Upgrade\r\n\
                   Upgrade: foo\r\n\r\nGET /checkout/pay HTTP/1.1\r\nHost: shop.example\r\n\r\n",
        )
        .await;
        assert_eq!(wire.answer().await.status(), 429);
        assert_eq!(gateway.hits(), 0);
    }
}
