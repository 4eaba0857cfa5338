//! The compatibility set: a user id in the query, for back ends that are trusted to name users.

use serde_json::json;

use crate::shop::{
    BROWSER, Gateway, JWT_SECRET, OPERATOR, json as body, on_both_stores, page_state, sold, until,
};

/// A queue `default` whose line stands still unless somebody is let in by hand.
fn config(queue: &str, api: &str) -> String {
    format!(
        "[identity]\nsources = [\"cookie\", \"query\"]\n\
         [[queue]]\nname = \"default\"\n{queue}\n\
         [[route]]\npath = \"/checkout/*\"\nupstream = \"shop\"\nqueue = \"default\"\n\
         when_waiting = \"reject\"\n[[route]]\npath = \"/*\"\nupstream = \"shop\"\n\
         [api]\nsimple = true\n{api}\n[admin]\ntokens = [\n\
         {{ name = \"op\", role = \"operator\", secret_env = \"OPERATOR\" }},\n\
         {{ name = \"eye\", role = \"viewer\", secret_env = \"VIEWER\" }},\n]\n"
    )
}

fn operator() -> String {
    format!("Bearer {OPERATOR}")
}

on_both_stores! {
    async fn a_trusted_back_end_queues_its_users(store) {
        let gateway = Gateway::start(&store, &config("capacity = 3\nmode = \"paused\"", "")).await;
        let mut shop = gateway.shopper();
        let rank = body(&shop.get("/rank?queue=default&user_id=100").await);
        assert_eq!(rank, json!({"rank": -1}));
        for (user, place) in [("100", 1), ("200", 2), ("300", 3), ("100", 1)] {
            let entered = shop.post(&format!("/queue?user_id={user}")).await;
            assert_eq!((entered.status(), body(&entered)), (200, json!({"rank": place})), "{user}");
        }
        assert_eq!(body(&shop.get("/rank?user_id=300").await), json!({"rank": 3}));
        assert_eq!(body(&shop.get("/allowed?user_id=100").await), json!({"allowed": false}));

        let mut op = gateway.shopper().with("Authorization", &operator());
        let allowed = op.post("/allow?queue=default&count=2").await;
        assert_eq!(body(&allowed), json!({"requestCount": 2, "allowedCount": 2}));
        let ask = || {
            let mut shop = gateway.shopper();
            async move { body(&shop.get("/allowed?user_id=200").await) }
        };
        until(ask, |answer| answer["allowed"] == true).await;
        assert_eq!(body(&shop.get("/rank?user_id=200").await), json!({"rank": -1}));
        let ask = || {
            let mut shop = gateway.shopper();
            async move { body(&shop.get("/rank?user_id=300").await) }
        };
        until(ask, |answer| answer["rank"] == 1).await;
        // Never more than wait ...
        let allowed = op.post("/allow?queue=default&count=50").await;
        assert_eq!(body(&allowed), json!({"requestCount": 50, "allowedCount": 1}));
        let allowed = op.post("/allow?queue=default&count=50").await;
        assert_eq!(body(&allowed), json!({"requestCount": 50, "allowedCount": 0}));
        // ... and never above the capacity.
        shop.post("/queue?user_id=400").await;
        let allowed = op.post("/allow?count=1").await;
        assert_eq!(body(&allowed), json!({"requestCount": 1, "allowedCount": 0}));
        for bad in [
            "",
            "?count=",
            "?count=-1",
            "?count=x",
            "?count=1&count=2",
            "?count=1e3",
            "?count=99999999999999999999",
        ] {
            assert_eq!(op.post(&format!("/allow{bad}")).await.status(), 400, "{bad}");
        }
        assert_eq!(op.post("/allow?queue=other&count=1").await.problem(), "QUEUE_NOT_FOUND");
        assert_eq!(gateway.hits(), 0, "none of this is the shop's");
    }

    async fn letting_in_by_hand_needs_an_operator(store) {
        let gateway = Gateway::start(&store, &config("capacity = 3\nmode = \"paused\"", "")).await;
        gateway.shopper().post("/queue?user_id=1").await;
        for bearer in [None, Some("Bearer x"), Some("Bearer"), Some("Basic eDp5"), Some(JWT_SECRET)]
        {
            let mut caller = gateway.shopper();
            if let Some(bearer) = bearer {
                caller = caller.with("Authorization", bearer);
            }
            let refused = caller.post("/allow?count=1").await;
            assert_eq!(
                (refused.status(), refused.problem()),
                (401, "UNAUTHENTICATED".into()),
                "{bearer:?}"
            );
        }
        let viewer = format!("Bearer {}", crate::shop::VIEWER);
        let refused = gateway.shopper().with("Authorization", &viewer).post("/allow?count=1").await;
        assert_eq!(refused.status(), 401, "a viewer only looks");
        assert_eq!(body(&gateway.shopper().get("/rank?user_id=1").await), json!({"rank": 1}));
    }

    async fn strangers_may_not_name_users(store) {
        let elsewhere =
            Gateway::start(&store, &config("capacity = 3", "simple_clients = [\"10.0.0.0/8\"]"))
                .await;
        let here = Gateway::start(&store, &config("capacity = 3", "")).await;
        let calls = [
            ("GET", "/rank?user_id=1"),
            ("POST", "/queue?user_id=1"),
            ("GET", "/allowed?user_id=1"),
            ("GET", "/waiting-room?user_id=1"),
        ];
        for (method, target) in calls {
            let refused =
                elsewhere.shopper().send(method, target, &[("Content-Length", "0")]).await;
            assert_eq!(
                (refused.status(), refused.problem()),
                (403, "FORBIDDEN".into()),
                "{target}"
            );
            // What a proxy on this machine passes on is not this machine's.
            for passed_on in ["X-Forwarded-For", "Forwarded", "Via", "X-Real-IP"] {
                let headers = [(passed_on, "127.0.0.1"), ("Content-Length", "0")];
                let refused = here.shopper().send(method, target, &headers).await;
                assert_eq!(
                    (refused.status(), refused.problem()),
                    (403, "FORBIDDEN".into()),
                    "{target} {passed_on}"
                );
            }
            let mut op = elsewhere.shopper().with("Authorization", &operator());
            let answer = op.send(method, target, &[("Content-Length", "0"), BROWSER]).await;
            assert!(matches!(answer.status(), 200 | 303), "{target}: {answer:?}");
        }
    }

    async fn a_user_from_the_query_never_passes_the_gate(store) {
        let gateway = Gateway::start(&store, &config("capacity = 3", "")).await;
        let mut shop = gateway.shopper();
        let room = shop
            .send("GET", "/waiting-room?user_id=1&redirect_url=%2Fcheckout%2Fpay", &[BROWSER])
            .await;
        assert_eq!((room.status(), room.header("location")), (303, Some("/checkout/pay")));
        assert_eq!(body(&shop.get("/allowed?user_id=1").await), json!({"allowed": true}));
        for target in
            ["/checkout/pay", "/checkout/pay?user_id=1", "/checkout/pay?queue=default&user_id=1"]
        {
            assert_eq!(shop.get(target).await.status(), 429, "{target}");
        }
        assert_eq!(gateway.hits(), 0);
    }

    async fn the_room_shows_the_page_until_the_user_is_allowed(store) {
        let gateway = Gateway::start(&store, &config("capacity = 1\nmode = \"paused\"", "")).await;
        let mut browser = gateway.visitor();
        let target = "/waiting-room?queue=default&user_id=1&redirect_url=%2Fcheckout%2Fpay";
        let page = browser.get(target).await;
        assert_eq!((page.status(), page_state(&page).as_deref()), (200, Some("paused")));
        let token = browser.cookies["queue_token-default"].clone();
        // Its own rank may be asked for; the gate does not know it, by header or by cookie.
        assert_eq!(browser.rank("default", &token).await["rank"], 1);
        let mut op = gateway.shopper().with("Authorization", &operator());
        assert_eq!(body(&op.post("/allow?count=1").await)["allowedCount"], 1);
        let ask = || {
            let mut browser = browser.clone();
            async move { browser.get(target).await }
        };
        let sent = until(ask, |answer| answer.status() == 303).await;
        assert_eq!(sent.header("location"), Some("/checkout/pay"));
        for mut caller in [browser.clone(), gateway.shopper().with("X-Queue-Token", &token)] {
            assert!(!sold(&caller.get("/checkout/pay").await));
        }
        let evil = browser.get("/waiting-room?user_id=1&redirect_url=%2F%2Fevil.example").await;
        assert_eq!((evil.status(), evil.header("location")), (303, Some("/")));
        assert_eq!(gateway.hits(), 0);
    }

    async fn the_query_must_name_one_user_and_one_queue(store) {
        let gateway = Gateway::start(&store, &config("capacity = 1", "")).await;
        let mut shop = gateway.shopper();
        for target in [
            "/rank",
            "/rank?user_id=",
            "/rank?user_id=1&user_id=2",
            "/rank?user_id=1&user%5Fid=2",
            "/rank?user_id=%ff",
            "/rank?user_id=anon:1",
            "/rank?queue=default&queue=x&user_id=1",
        ] {
            let refused = shop.get(target).await;
            assert_eq!(
                (refused.status(), refused.problem()),
                (400, "BAD_REQUEST".into()),
                "{target}"
            );
        }
        let refused = shop.get("/rank?queue=%2e%2e&user_id=1").await;
        assert_eq!((refused.status(), refused.problem()), (404, "QUEUE_NOT_FOUND".into()));
        assert_eq!(shop.get("/queue?user_id=1").await.status(), 405);
    }

    async fn it_is_off_unless_asked_for_and_may_have_a_prefix(store) {
        let off =
            config("capacity = 1", "").replace("simple = true", "").replace(", \"query\"", "");
        let gateway = Gateway::start(&store, &off).await;
        assert!(
            sold(&gateway.shopper().get("/rank?user_id=1").await),
            "it is the shop's path then"
        );
        let gateway =
            Gateway::start(&store, &config("capacity = 1", "simple_prefix = \"/line\"")).await;
        assert!(sold(&gateway.shopper().get("/rank?user_id=1").await));
        assert_eq!(body(&gateway.shopper().get("/line/rank?user_id=1").await), json!({"rank": -1}));
        assert_eq!(gateway.hits(), 1);
    }
}
