//! Who somebody is: JSON Web Tokens, a header of a trusted proxy, the visitor cookie, several.

use serde_json::{Value, json};

use crate::shop::{
    BROWSER, Gateway, JWT_IDENTITY, json as body, jwt, on_both_stores, signed, signed_in, sold,
};

const ROUTE: &str = "[[route]]\npath = \"/checkout/*\"\nupstream = \"shop\"\nqueue = \"checkout\"\n\
    when_waiting = \"reject\"\n";
const QUEUE: &str = "[[queue]]\nname = \"checkout\"\ncapacity = 50\n";

/// JSON Web Tokens that must not be believed.
fn bad_tokens() -> Vec<String> {
    let good = json!({
        "iss": "https://id.example", "aud": "shop", "sub": "alice", "exp": 4_102_444_800_u64,
    });
    let with = |key: &str, value: Value| {
        let mut claims = good.clone();
        claims[key] = value;
        signed(&claims)
    };
    let without = |key: &str| {
        let mut claims = good.clone();
        claims.as_object_mut().unwrap().remove(key);
        signed(&claims)
    };
    let token = jwt("alice");
    let (head_and_claims, _) = token.rsplit_once('.').unwrap();
    let (_, claims) = head_and_claims.split_once('.').unwrap();
    let mut bad = vec![
        "x".into(),
        "a.b.c".into(),
        format!("{head_and_claims}."),
        format!("{head_and_claims}.AAAA"),
        // {"alg":"none"} and {"alg":"NoNe"}
        format!("eyJhbGciOiJub25lIn0.{claims}."),
        format!("eyJhbGciOiJOb05lIn0.{claims}."),
        // {"alg":"HS512"}
        format!("eyJhbGciOiJIUzUxMiJ9.{claims}.{}", token.rsplit('.').next().unwrap()),
        with("iss", json!("https://evil.example")),
        with("aud", json!("other-service")),
        with("sub", json!("")),
        with("sub", json!(42)),
        with("sub", json!("anon:1")),
        with("exp", json!(1)),
        with("exp", json!("never")),
        with("exp", json!(null)),
        with("exp", json!([9_999_999_999_u64])),
        with("exp", json!(-1)),
        with("nbf", json!("99999999999")),
        with("nbf", json!(99_999_999_999_u64)),
    ];
    bad.extend(["iss", "aud", "sub", "exp"].map(without));
    bad
}

on_both_stores! {
    async fn a_token_that_does_not_verify_is_refused_by_the_api_and_nobody_at_the_gate(store) {
        let gateway = Gateway::start(&store, &signed_in("", "")).await;
        let token = gateway.user("alice").enter("checkout").await;
        let mut bodies = Vec::new();
        for bad in bad_tokens() {
            let mut mallory = gateway.shopper().with("Authorization", &format!("Bearer {bad}"));
            for (method, call) in
                [("POST", "enter"), ("GET", "rank"), ("POST", "leave"), ("GET", "verify")]
            {
                let headers = [("Content-Length", "0"), ("X-Queue-Token", token.as_str())];
                let answer =
                    mallory.send(method, &format!("/_queue/checkout/{call}"), &headers).await;
                assert_eq!(
                    (answer.status(), answer.problem()),
                    (401, "UNAUTHENTICATED".into()),
                    "{bad}"
                );
                bodies.push(answer.body);
            }
            let refused = mallory.get_with("/checkout/pay", &token).await;
            assert_eq!((refused.status(), refused.problem()), (429, "QUEUE_TOKEN_REQUIRED".into()));
        }
        bodies.dedup();
        assert_eq!(bodies.len(), 1, "nobody is told why");
        assert_eq!(gateway.hits(), 0);
        let status = body(&gateway.shopper().get("/_queue/checkout/status").await);
        assert_eq!(status["waiting"], 0);
        assert_eq!(gateway.user("alice").rank("checkout", &token).await["rank"], 0, "untouched");
    }

    async fn a_trusted_proxys_header_counts_and_nobody_elses(store) {
        let rest = format!(
            "[identity]\nsources = [\"header\"]\nheader.name = \"X-User-Id\"\n{QUEUE}{ROUTE}"
        );
        let behind =
            Gateway::start(&store, &format!("trusted_proxies = [\"127.0.0.0/8\"]\n{rest}")).await;
        let mut alice = behind.shopper().with("X-User-Id", "alice");
        let token = alice.enter("checkout").await;
        assert!(sold(&alice.get_with("/checkout/pay", &token).await));
        assert_eq!(behind.last_hit().header("x-queue-user"), Some("alice"));
        let mut bob = behind.shopper().with("X-User-Id", "bob");
        assert_eq!(bob.get_with("/checkout/pay", &token).await.problem(), "TOKEN_OWNER_NOT_MATCH");
        let mut twice = alice.clone().with("X-User-Id", "alice");
        assert_eq!(twice.get_with("/checkout/pay", &token).await.problem(), "QUEUE_TOKEN_REQUIRED");
        assert_eq!(twice.post("/_queue/checkout/enter").await.status(), 401);

        let open =
            Gateway::start(&store, &format!("trusted_proxies = [\"10.0.0.0/8\"]\n{rest}")).await;
        let mut mallory =
            open.shopper().with("X-User-Id", "alice").with("X-Forwarded-For", "10.0.0.1");
        let refused = mallory.post("/_queue/checkout/enter").await;
        assert_eq!((refused.status(), refused.problem()), (401, "UNAUTHENTICATED".into()));
        // The stores of the two gateways may be one or two.
        assert!(matches!(mallory.get_with("/checkout/pay", &token).await.status(), 400 | 429));
        assert_eq!(open.hits(), 0);
    }

    async fn of_two_sources_enter_takes_the_first_and_either_owns_a_token(store) {
        let identity = JWT_IDENTITY.replace("[\"jwt\"]", "[\"jwt\", \"cookie\"]");
        let gateway = Gateway::start(&store, &format!("{identity}{QUEUE}{ROUTE}")).await;
        let mut visitor = gateway.shopper();
        let before = visitor.enter("checkout").await;
        // After signing in the place of before still counts ...
        let mut alice = visitor.clone().with("Authorization", &format!("Bearer {}", jwt("alice")));
        assert!(sold(&alice.get_with("/checkout/pay", &before).await));
        assert!(gateway.last_hit().header("x-queue-user").unwrap().starts_with("anon:"));
        // ... and entering takes the account.
        let after = alice.enter("checkout").await;
        assert_ne!(after, before);
        assert!(sold(&alice.get_with("/checkout/pay", &after).await));
        assert_eq!(gateway.last_hit().header("x-queue-user"), Some("alice"));
        // The account's token is nothing without the account.
        visitor.cookies.remove("queue_token-checkout");
        let hits = gateway.hits();
        assert_eq!(
            visitor.get_with("/checkout/pay", &after).await.problem(),
            "QUEUE_TOKEN_REQUIRED"
        );
        let refused = visitor.get_with("/_queue/checkout/rank", &after).await;
        assert_eq!((refused.status(), refused.problem()), (401, "UNAUTHENTICATED".into()));
        // A signed-in user without the visitor cookie does not own the visitor's token.
        let mut other = gateway.user("bob");
        assert_eq!(
            other.get_with("/checkout/pay", &before).await.problem(),
            "TOKEN_OWNER_NOT_MATCH"
        );
        assert_eq!(gateway.hits(), hits);
    }

    async fn a_queue_may_ask_for_sources_of_its_own(store) {
        let config = format!(
            "{}{QUEUE}identity = [\"jwt\"]\n{ROUTE}[[queue]]\nname = \"open\"\ncapacity = 5\n\
             [[route]]\npath = \"/open/*\"\nupstream = \"shop\"\nqueue = \"open\"\n",
            JWT_IDENTITY.replace("[\"jwt\"]", "[\"cookie\"]")
        );
        let gateway = Gateway::start(&store, &config).await;
        let mut visitor = gateway.shopper();
        let refused = visitor.post("/_queue/checkout/enter").await;
        assert_eq!((refused.status(), refused.problem()), (401, "UNAUTHENTICATED".into()));
        assert_eq!(refused.header("set-cookie"), None);
        let token = visitor.enter("open").await;
        assert!(sold(&visitor.get_with("/open/x", &token).await));
        let mut alice = gateway.user("alice");
        let hers = alice.enter("checkout").await;
        assert!(sold(&alice.get_with("/checkout/pay", &hers).await));
        // The other queue does not listen to it.
        let mut bad = gateway.shopper().with("Authorization", "Bearer rubbish");
        assert_eq!(bad.post("/_queue/open/enter").await.status(), 201);
        assert_eq!(bad.post("/_queue/checkout/enter").await.status(), 401);
    }

    async fn a_json_web_token_may_come_by_cookie(store) {
        let identity = format!("{JWT_IDENTITY}cookie = \"session\"\n");
        let gateway = Gateway::start(&store, &format!("{identity}{QUEUE}{ROUTE}")).await;
        let mut alice = gateway.shopper();
        alice.cookies.insert("session".into(), jwt("alice"));
        let token = alice.enter("checkout").await;
        assert!(sold(&alice.get_with("/checkout/pay", &token).await));
        let hit = gateway.last_hit();
        assert_eq!(hit.header("x-queue-user"), Some("alice"));
        assert!(
            hit.header("cookie").unwrap().starts_with("session="),
            "the shop's own cookie stays"
        );
        assert_eq!(gateway.user("alice").post("/_queue/checkout/enter").await.status(), 401);
    }

    async fn a_visitor_cookie_cannot_be_made_up(store) {
        let gateway = Gateway::start(&store, &format!("{QUEUE}{ROUTE}")).await;
        let mut visitor = gateway.shopper();
        let token = visitor.enter("checkout").await;
        let good = visitor.cookies["queue_token-visitor"].clone();
        assert_eq!(visitor.enter("checkout").await, token);
        let mut made_up = good.clone();
        made_up.replace_range(3..4, if good.as_bytes()[3] == b'A' { "B" } else { "A" });
        for bad in [made_up, good[..42].to_owned(), "anon:1".into(), String::new()] {
            let mut mallory = gateway.shopper();
            mallory.cookies.insert("queue_token-visitor".into(), bad.clone());
            let entered = mallory.post("/_queue/checkout/enter").await;
            assert_eq!(entered.status(), 201, "a newcomer: {bad:?}");
            assert_ne!(mallory.cookies["queue_token-visitor"], bad);
        }
    }

    async fn a_strangers_identity_header_never_reaches_the_shop(store) {
        let rest = format!(
            "[identity]\nsources = [\"header\"]\n{QUEUE}\
             [[route]]\npath = \"/*\"\nupstream = \"shop\"\n"
        );
        let gateway =
            Gateway::start(&store, &format!("trusted_proxies = [\"10.0.0.0/8\"]\n{rest}")).await;
        let headers = [("X-User-Id", "admin"), ("X_User_Id", "admin"), BROWSER];
        assert!(sold(&gateway.shopper().send("GET", "/open", &headers).await));
        let hit = gateway.last_hit();
        assert!(!hit.headers.iter().any(|(_, value)| value == "admin"), "{hit:?}");
        let trusting =
            Gateway::start(&store, &format!("trusted_proxies = [\"127.0.0.1\"]\n{rest}")).await;
        assert!(sold(&trusting.shopper().send("GET", "/open", &headers).await));
        let hit = trusting.last_hit();
        assert_eq!((hit.header("x-user-id"), hit.header("x_user_id")), (Some("admin"), None));
    }
}
