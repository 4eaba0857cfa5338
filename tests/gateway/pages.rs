//! What people with a browser see: the way to the waiting room and back.

use crate::shop::{
    BROWSER, Gateway, anonymous, forged, json, on_both_stores, page_state, signed_in, sold, until,
};

/// Both seats taken by somebody who uses them.
async fn busy(gateway: &Gateway) {
    let mut shopper = gateway.shopper();
    let token = shopper.enter("checkout").await;
    assert!(sold(&shopper.get_with("/checkout/pay", &token).await));
}

on_both_stores! {
    async fn a_visitor_is_sent_to_the_waiting_room_and_back_to_the_same_address(store) {
        let gateway = Gateway::start(&store, &anonymous("", "")).await;
        let mut inside = gateway.shopper();
        let token = inside.enter("checkout").await;
        assert!(sold(&inside.get_with("/checkout/pay", &token).await));
        let mut visitor = gateway.visitor();
        let target =
            "/checkout/item?q=a%26b&r=1+1&n=%E2%9C%93&u=https%3A%2F%2Fx.example%2F%3Fa%3D1&e=";

        // First the cookie ...
        let sent = visitor.get(target).await;
        assert_eq!((sent.status(), sent.text()), (303, ""));
        assert!(visitor.cookies.contains_key("queue_token-visitor"), "{sent:?}");
        assert_eq!(visitor.cookies.len(), 1);
        assert_eq!(json(&gateway.shopper().get("/_queue/checkout/status").await)["waiting"], 0);
        let location = sent.header("location").unwrap().to_owned();
        assert!(
            location
                .starts_with("/_queue/checkout/page?c=1&return=%2Fcheckout%2Fitem%3Fq%3Da%2526b"),
            "{location}"
        );

        // ... then the place.
        let page = visitor.get(&location).await;
        assert_eq!((page.status(), page_state(&page).as_deref()), (200, Some("waiting")));
        assert!(visitor.cookies.contains_key("queue_token-checkout"));
        assert!(page.header("content-type").unwrap().starts_with("text/html"));
        let again = visitor.get(&location).await;
        assert_eq!(page_state(&again).as_deref(), Some("waiting"));
        let back = visitor.get(target).await;
        assert_eq!(back.status(), 303);
        assert!(!back.header("location").unwrap().contains("c=1"));

        inside.leave("checkout", &token).await;
        let ask = || {
            let (mut visitor, location) = (visitor.clone(), location.clone());
            async move { visitor.get(&location).await }
        };
        let admitted = until(ask, |answer| answer.status() == 303).await;
        assert_eq!(admitted.header("location"), Some(target), "not one byte changed");
        assert!(sold(&visitor.get(target).await));
        let hit = gateway.last_hit();
        assert_eq!(hit.target(), target);
        assert!(hit.header("x-queue-user").unwrap().starts_with("anon:"));
        assert_eq!(hit.all("cookie"), Vec::<&str>::new(), "no cookie of ours");
    }

    async fn with_room_a_visitor_needs_two_redirects_to_the_shop(store) {
        let gateway = Gateway::start(&store, &anonymous("", "")).await;
        let mut visitor = gateway.visitor();
        let mut target = "/checkout/pay".to_owned();
        let mut hops = 0;
        loop {
            let answer = visitor.get(&target).await;
            if sold(&answer) {
                break;
            }
            assert_eq!(answer.status(), 303, "{answer:?}");
            answer.header("location").unwrap().clone_into(&mut target);
            hops += 1;
            assert!(hops <= 2, "{answer:?}");
        }
        assert_eq!(gateway.hits(), 1);
    }

    async fn who_keeps_no_cookies_is_told_so_and_takes_no_place(store) {
        let gateway = Gateway::start(&store, &anonymous("", "")).await;
        busy(&gateway).await;
        let mut visitor = gateway.visitor().without_cookies();
        for _ in 0..5 {
            let sent = visitor.get("/checkout/pay").await;
            assert_eq!(sent.status(), 303);
            let page = visitor.get(sent.header("location").unwrap()).await;
            assert_eq!((page.status(), page_state(&page).as_deref()), (200, Some("cookies")));
            assert_eq!(page.header("refresh"), None);
        }
        // The page itself leads to the same in one step.
        let sent = visitor.get("/_queue/checkout/page").await;
        assert_eq!(
            (sent.status(), sent.header("location")),
            (303, Some("/_queue/checkout/page?c=1"))
        );
        let status = json(&gateway.shopper().get("/_queue/checkout/status").await);
        assert_eq!((status["waiting"].as_u64(), gateway.hits()), (Some(0), 1));
    }

    async fn the_page_under_the_shops_own_address(store) {
        let gateway = Gateway::start(&store, &anonymous("", "when_waiting = \"page\"")).await;
        busy(&gateway).await;
        let mut visitor = gateway.visitor();
        let joining = visitor.get("/checkout/pay?x=1").await;
        assert_eq!((joining.status(), page_state(&joining).as_deref()), (503, Some("joining")));
        assert_eq!(
            (joining.header("refresh"), joining.header("retry-after")),
            (Some("1"), Some("1"))
        );
        let waiting = visitor.get("/checkout/pay?x=1").await;
        assert_eq!((waiting.status(), page_state(&waiting).as_deref()), (503, Some("waiting")));
        assert_eq!(waiting.header("cache-control"), Some("no-store"));
        assert!(waiting.header("retry-after").is_some());
        assert!(visitor.cookies.contains_key("queue_token-checkout"));
        // Conditional and partial requests change nothing.
        for header in [("If-None-Match", "\"x\""), ("Range", "bytes=0-10")] {
            assert_eq!(visitor.send("GET", "/checkout/pay", &[header]).await.status(), 503);
        }
        let head = visitor.send("HEAD", "/checkout/pay", &[]).await;
        assert_eq!((head.status(), head.body.len()), (503, 0));
        assert_eq!(gateway.hits(), 1);
    }

    async fn programs_and_unsafe_methods_are_refused_not_redirected(store) {
        for way in ["redirect", "page"] {
            let config = anonymous("", &format!("when_waiting = \"{way}\""));
            let gateway = Gateway::start(&store.fresh(), &config).await;
            busy(&gateway).await;
            for headers in [
                vec![("Accept", "application/json")],
                vec![("Accept", "*/*"), ("Sec-Fetch-Mode", "cors"), ("Sec-Fetch-Dest", "empty")],
                vec![BROWSER, ("Sec-Fetch-Mode", "no-cors"), ("Sec-Fetch-Dest", "image")],
                vec![],
                vec![("Accept", "image/*")],
                vec![("TE", "trailers"), ("Content-Type", "application/grpc")],
            ] {
                let answer = gateway.shopper().send("GET", "/checkout/pay", &headers).await;
                assert_eq!(
                    (answer.status(), answer.problem()),
                    (429, "QUEUE_TOKEN_REQUIRED".into())
                );
                assert_eq!(answer.header("set-cookie"), None, "{headers:?}");
            }
            for method in ["POST", "PUT", "DELETE", "PATCH"] {
                let headers = [BROWSER, ("Sec-Fetch-Mode", "navigate"), ("Content-Length", "0")];
                let answer = gateway.shopper().send(method, "/checkout/pay", &headers).await;
                assert_eq!(
                    (answer.status(), answer.problem()),
                    (429, "QUEUE_TOKEN_REQUIRED".into())
                );
            }
            let status = json(&gateway.shopper().get("/_queue/checkout/status").await);
            assert_eq!((status["waiting"].as_u64(), gateway.hits()), (Some(0), 1));
        }
    }

    async fn a_program_that_accepts_html_least_gets_json(store) {
        let gateway = Gateway::start(&store, &anonymous("", "")).await;
        busy(&gateway).await;
        for accept in ["text/html;q=0.1, application/json", "application/json, text/html;q=0.5"] {
            let answer =
                gateway.shopper().send("GET", "/checkout/pay", &[("Accept", accept)]).await;
            assert_eq!((answer.status(), answer.problem()), (429, "QUEUE_TOKEN_REQUIRED".into()));
        }
    }

    async fn heads_and_prefetches_never_enter(store) {
        for way in ["redirect", "page"] {
            let config = anonymous("", &format!("when_waiting = \"{way}\""));
            let gateway = Gateway::start(&store.fresh(), &config).await;
            busy(&gateway).await;
            // With a visitor cookie at hand, the next navigation would enter.
            let mut visitor = gateway.visitor();
            visitor.get("/checkout/pay").await;
            assert!(visitor.cookies.contains_key("queue_token-visitor"));
            for (method, header) in [
                ("HEAD", ("X-A", "b")),
                ("GET", ("Sec-Purpose", "prefetch")),
                ("GET", ("Sec-Purpose", "prefetch;prerender")),
                ("GET", ("Purpose", "prefetch")),
                ("GET", ("X-Moz", "prefetch")),
            ] {
                for target in ["/checkout/pay", "/_queue/checkout/page"] {
                    let answer = visitor.send(method, target, &[header]).await;
                    assert!(
                        !sold(&answer) && answer.status() != 429,
                        "{target} {header:?}: {answer:?}"
                    );
                    assert_eq!(answer.header("set-cookie"), None, "{target} {header:?}");
                }
            }
            let status = json(&gateway.shopper().get("/_queue/checkout/status").await);
            assert_eq!((status["waiting"].as_u64(), gateway.hits()), (Some(0), 1), "{way}");
        }
    }

    async fn without_auto_enter_a_navigation_takes_no_place(store) {
        let gateway = Gateway::start(&store, &anonymous("", "auto_enter = false")).await;
        busy(&gateway).await;
        let mut visitor = gateway.visitor();
        visitor.get("/_queue/checkout/page").await;
        assert!(visitor.cookies.contains_key("queue_token-visitor"));
        let sent = visitor.get("/checkout/pay").await;
        assert_eq!(sent.status(), 303);
        assert_eq!(sent.header("location"), Some("/_queue/checkout/page?return=%2Fcheckout%2Fpay"));
        assert_eq!(json(&gateway.shopper().get("/_queue/checkout/status").await)["waiting"], 0);
    }

    async fn a_signed_in_user_passes_by_navigation_alone(store) {
        let gateway = Gateway::start(&store, &signed_in("", "when_waiting = \"redirect\"")).await;
        let mut alice = gateway.user("alice").with(BROWSER.0, BROWSER.1);
        let paid = alice.get("/checkout/pay").await;
        assert!(sold(&paid), "there is room: {paid:?}");
        assert!(alice.cookies.contains_key("queue_token-checkout"));
        alice.cookies.clear();
        assert!(sold(&alice.get("/checkout/pay").await), "the place is found by the identity");
        // Nobody's navigation needs an identity first.
        let nobody = gateway.visitor().get("/checkout/pay").await;
        assert_eq!((nobody.status(), nobody.problem()), (401, "UNAUTHENTICATED".into()));
        assert_eq!(nobody.header("set-cookie"), None);
        assert_eq!(gateway.hits(), 2);
    }

    async fn a_bad_cookie_leads_to_the_waiting_room_in_two_hops(store) {
        let gateway = Gateway::start(&store, &anonymous("", "")).await;
        let mut inside = gateway.shopper();
        let token = inside.enter("checkout").await;
        assert!(sold(&inside.get_with("/checkout/pay", &token).await));
        for bad in [forged(&token), "not-a-token".into(), String::new()] {
            let mut visitor = gateway.visitor();
            visitor.cookies.insert("queue_token-checkout".into(), bad.clone());
            visitor.cookies.insert("queue_token-visitor".into(), bad.clone());
            let sent = visitor.get("/checkout/pay").await;
            assert_eq!(sent.status(), 303, "{bad:?}");
            assert_ne!(visitor.cookies.get("queue_token-checkout"), Some(&bad));
            let page = visitor.get(sent.header("location").unwrap()).await;
            assert_eq!(page_state(&page).as_deref(), Some("waiting"), "{bad:?}");
        }
        assert_eq!(gateway.hits(), 1);
    }

    async fn nobody_is_sent_off_this_site(store) {
        let config = anonymous("capacity = 100", "");
        let gateway = Gateway::start(&store, &config).await;
        let mut visitor = gateway.visitor();
        visitor.get("/checkout/pay").await;
        for (asked, location) in [
            ("%2F%2Fevil.example%2F", "/"),
            ("%2F%5Cevil.example", "/"),
            ("https%3A%2F%2Fevil.example", "/"),
            ("javascript%3Aalert(1)", "/"),
            ("data%3Atext%2Fhtml%2Cx", "/"),
            ("%5C%5Cevil.example", "/"),
            ("https%3Aevil.example", "/"),
            ("%2F%09%2Fevil.example", "/"),
            ("%2F%0A%2Fevil.example", "/"),
            ("%2F%0D%2Fevil.example", "/"),
            ("%20%2F%2Fevil.example", "/"),
            ("%2F%0B%5Cevil.example", "/"),
            ("%2F.%2F%2Fevil.example", "/"),
            ("%2Fx%2F..%2F%2Fevil.example", "/"),
            ("%2Fa%0D%0ASet-Cookie%3A%20x%3D1", "/"),
            ("%2Fa%E5%98%8A%E5%98%8DSet-Cookie%3Ax", "/"),
            ("%2F_queue%2Fcheckout%2Fpage", "/"),
            ("%2F%5Fqueue%2Fcheckout%2Fpage", "/"),
            ("", "/"),
            ("%2Fcheckout%2Fpay", "/checkout/pay"),
            ("/checkout/pay%3Fa=1", "/checkout/pay?a=1"),
            ("%2Fcheckout%2Fpay&return=%2F%2Fevil.example", "/checkout/pay"),
            ("%2Fcheckout%2F%252e", "/checkout/%2e"),
        ] {
            for name in ["return", "redirect_url"] {
                let page = visitor.get(&format!("/_queue/checkout/page?{name}={asked}")).await;
                assert_eq!(page.status(), 303, "{asked}");
                assert_eq!(page.header("location"), Some(location), "{name}={asked}");
            }
        }
        // Nor does the host end up in an answer.
        for header in [("Host", "evil.example"), ("X-Forwarded-Host", "evil.example")] {
            let answer = gateway.visitor().send("GET", "/checkout/pay", &[header]).await;
            assert_eq!(answer.status(), 303);
            assert!(!format!("{answer:?}").contains("evil"), "{answer:?}");
        }
    }

    async fn an_own_origin_is_a_way_back_and_https_has_cookies_of_its_own(store) {
        let config = format!(
            "public_origins = [\"https://shop.example\"]\n{}",
            anonymous("capacity = 100", "")
        );
        let gateway = Gateway::start(&store, &config).await;
        let mut visitor = gateway.visitor();
        let sent = visitor.get("/checkout/pay").await;
        let cookie = sent.header("set-cookie").unwrap();
        assert!(
            cookie.starts_with("__Host-queue_token-visitor=") && cookie.contains("Secure"),
            "{cookie}"
        );
        let page = visitor
            .get("/_queue/checkout/page?return=https%3A%2F%2Fshop.example%2Fcheckout%2Fpay")
            .await;
        assert_eq!(page.header("location"), Some("https://shop.example/checkout/pay"));
        assert!(visitor.cookies.contains_key("__Host-queue_token-checkout"), "{page:?}");
        assert!(sold(&visitor.get("/checkout/pay").await));
        // Under the name for http the same token is none.
        let token = visitor.cookies["__Host-queue_token-checkout"].clone();
        let mut plain = gateway.shopper();
        plain.cookies.insert("queue_token-checkout".into(), token);
        assert_eq!(plain.get("/checkout/pay").await.status(), 429);
        let evil =
            visitor.get("/_queue/checkout/page?return=https%3A%2F%2Fshop.example.evil%2Fx").await;
        assert_eq!(evil.header("location"), Some("/"));
    }

    async fn leaving_from_the_page_shows_that_it_worked(store) {
        let gateway = Gateway::start(&store, &anonymous("", "")).await;
        busy(&gateway).await;
        let mut visitor = gateway.visitor();
        let sent = visitor.get("/checkout/pay").await;
        visitor.get(sent.header("location").unwrap()).await;
        let headers = [
            ("Content-Length", "0"),
            ("Origin", "http://shop.example"),
            ("Sec-Fetch-Site", "same-origin"),
        ];
        let left = visitor.send("POST", "/_queue/checkout/leave", &headers).await;
        assert_eq!((left.status(), page_state(&left).as_deref()), (200, Some("left")));
        assert!(!visitor.cookies.contains_key("queue_token-checkout"));
        let ask = || {
            let mut anybody = gateway.shopper();
            async move { json(&anybody.get("/_queue/checkout/status").await) }
        };
        until(ask, |status| status["waiting"] == 0).await;
    }
}
