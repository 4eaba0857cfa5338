//! Tokens that are somebody else's, made up, damaged, doubled, over, or of another queue.

use crate::shop::{
    Gateway, Shopper, anonymous, forged, json, on_both_stores, signed_in, sold, until,
};
use crate::support::Message;

/// Two queues for signed-in users, and room in both.
fn two_queues() -> String {
    signed_in("capacity = 5", "")
        + "[[queue]]\nname = \"deal-9\"\ncapacity = 5\n\
           [[route]]\npath = \"/deal/*\"\nupstream = \"shop\"\nqueue = \"deal-9\"\n\
           when_waiting = \"reject\"\n"
}

/// What the gate says to these token headers.
async fn gate(shopper: &mut Shopper, tokens: &[&str]) -> (u16, String) {
    let headers: Vec<(&str, &str)> = tokens.iter().map(|token| ("X-Queue-Token", *token)).collect();
    refusal(&shopper.send("GET", "/checkout/pay", &headers).await)
}

/// What rank says to them.
async fn rank(shopper: &mut Shopper, tokens: &[&str]) -> (u16, String) {
    let headers: Vec<(&str, &str)> = tokens.iter().map(|token| ("X-Queue-Token", *token)).collect();
    refusal(&shopper.send("GET", "/_queue/checkout/rank", &headers).await)
}

fn refusal(answer: &Message) -> (u16, String) {
    let code = if answer.status() < 400 { String::new() } else { answer.problem() };
    (answer.status(), code)
}

fn is(status: u16, code: &str) -> (u16, String) {
    (status, code.to_owned())
}

on_both_stores! {
    async fn a_stolen_token_can_be_neither_used_nor_read_nor_ended(store) {
        let gateway = Gateway::start(&store, &two_queues()).await;
        let (mut alice, mut bob) = (gateway.user("alice"), gateway.user("bob"));
        let token = alice.enter("checkout").await;
        let theft = is(403, "TOKEN_OWNER_NOT_MATCH");
        assert_eq!(gate(&mut bob, &[&token]).await, theft);
        assert_eq!(rank(&mut bob, &[&token]).await, theft);
        for (method, call) in
            [("POST", "leave"), ("DELETE", "token"), ("GET", "verify"), ("GET", "events")]
        {
            let headers = [("X-Queue-Token", token.as_str()), ("Content-Length", "0")];
            let answer = bob.send(method, &format!("/_queue/checkout/{call}"), &headers).await;
            assert_eq!(refusal(&answer), theft, "{call}");
        }
        // Nor does it work with nobody's identity.
        let mut nobody = gateway.shopper();
        assert_eq!(gate(&mut nobody, &[&token]).await, is(429, "QUEUE_TOKEN_REQUIRED"));
        assert_eq!(rank(&mut nobody, &[&token]).await, is(401, "UNAUTHENTICATED"));
        assert_eq!(gateway.hits(), 0);
        assert_eq!(gate(&mut alice, &[&token]).await, is(200, ""));
        assert_eq!(gateway.hits(), 1);
    }

    async fn forged_and_damaged_tokens_are_told_apart_from_none(store) {
        let gateway = Gateway::start(&store, &two_queues()).await;
        let mut alice = gateway.user("alice");
        let token = alice.enter("checkout").await;
        alice.cookies.clear();
        let fake = forged(&token);
        assert_eq!(gate(&mut alice, &[&fake]).await, is(400, "TOKEN_INVALID"));
        // As the token of somebody else: nobody learns which tokens were issued.
        assert_eq!(rank(&mut alice, &[&fake]).await, is(403, "TOKEN_OWNER_NOT_MATCH"));
        let damaged =
            [&token[..74], "", " ", "x", "queue", ",", &format!("{token}A"), &format!("{token}=")];
        for damaged in damaged {
            assert_eq!(gate(&mut alice, &[damaged]).await, is(400, "TOKEN_INVALID"), "{damaged:?}");
            assert_eq!(rank(&mut alice, &[damaged]).await, is(400, "TOKEN_INVALID"), "{damaged:?}");
        }
        // A cookie never heals a bad header.
        let good = format!("queue_token-checkout={token}");
        let headers = [("X-Queue-Token", fake.as_str()), ("Cookie", good.as_str())];
        let answer = alice.send("GET", "/checkout/pay", &headers).await;
        assert_eq!(refusal(&answer), is(400, "TOKEN_INVALID"));
        assert_eq!(gateway.hits(), 0);
    }

    async fn of_two_header_values_the_order_changes_nothing(store) {
        let gateway = Gateway::start(&store, &two_queues()).await;
        let mut alice = gateway.user("alice");
        let (good, other) = (alice.enter("checkout").await, alice.enter("deal-9").await);
        let bobs = gateway.user("bob").enter("checkout").await;
        alice.cookies.clear();
        let fake = forged(&good);
        for pair in [[good.as_str(), &fake], [fake.as_str(), &good]] {
            assert_eq!(gate(&mut alice, &pair).await, is(400, "TOKEN_INVALID"), "two headers");
            assert_eq!(
                gate(&mut alice, &[&pair.join(", ")]).await,
                is(400, "TOKEN_INVALID"),
                "a list"
            );
            assert_eq!(rank(&mut alice, &pair).await, is(403, "TOKEN_OWNER_NOT_MATCH"));
        }
        for pair in [[good.as_str(), &bobs], [bobs.as_str(), &good]] {
            assert_eq!(gate(&mut alice, &pair).await, is(400, "TOKEN_CONFLICT"));
            assert_eq!(rank(&mut alice, &pair).await, is(400, "TOKEN_CONFLICT"));
        }
        assert_eq!(gateway.hits(), 0);
        for list in [vec![good.as_str(), &other], vec![other.as_str(), &good], vec![&good, &good]] {
            assert_eq!(gate(&mut alice, &list).await, is(200, ""), "tokens of two queues");
            assert_eq!(gate(&mut alice, &[&list.join(" ,\t")]).await, is(200, ""));
        }
        assert_eq!(gateway.hits(), 6);
    }

    async fn a_token_of_another_queue_is_none(store) {
        let gateway = Gateway::start(&store, &two_queues()).await;
        let mut alice = gateway.user("alice");
        let other = alice.enter("deal-9").await;
        assert_eq!(gate(&mut alice, &[&other]).await, is(429, "QUEUE_TOKEN_REQUIRED"));
        assert_eq!(rank(&mut alice, &[&other]).await, is(403, "TOKEN_OWNER_NOT_MATCH"));
        let renamed = format!("queue_token-checkout={other}");
        let answer = alice.send("GET", "/checkout/pay", &[("Cookie", &renamed)]).await;
        assert_eq!(refusal(&answer), is(429, "QUEUE_TOKEN_REQUIRED"));
        assert_eq!(gateway.hits(), 0);
        assert!(sold(&alice.get_with("/deal/x", &other).await));
    }

    async fn a_token_that_is_over_never_passes_again(store) {
        let config = signed_in("active_ttl = \"1s\"\nclaim_ttl = \"1s\"\nlate_grace = \"0s\"", "");
        let gateway = Gateway::start(&store, &config).await;
        let mut alice = gateway.user("alice");
        let token = alice.enter("checkout").await;
        assert!(sold(&alice.get_with("/checkout/pay", &token).await));
        let ask = || {
            let (mut alice, token) = (alice.clone(), token.clone());
            async move { gate(&mut alice, &[&token]).await }
        };
        assert_eq!(
            until(ask, |answer| answer.0 != 200).await,
            is(429, "QUEUE_TOKEN_NOT_AVAILABLE")
        );
        let hits = gateway.hits();
        assert_eq!(rank(&mut alice, &[&token]).await, is(410, "QUEUE_TOKEN_NOT_AVAILABLE"));
        assert_eq!(gate(&mut alice, &[&token]).await.0, 429);
        assert_eq!(gateway.hits(), hits, "nothing passed since");
        // A new place is another token.
        assert_ne!(alice.enter("checkout").await, token);
    }

    async fn an_admitted_place_that_nobody_uses_goes_to_the_next(store) {
        let config = signed_in("active_ttl = \"10m\"\nclaim_ttl = \"1s\"\nlate_grace = \"0s\"", "");
        let gateway = Gateway::start(&store, &config).await;
        let (mut sleeper, mut bob) = (gateway.user("sleeper"), gateway.user("bob"));
        let unused = sleeper.enter("checkout").await;
        let token = bob.enter("checkout").await;
        let ask = || {
            let (mut bob, token) = (bob.clone(), token.clone());
            async move { gate(&mut bob, &[&token]).await }
        };
        until(ask, |answer| answer.0 == 200).await;
        assert_eq!(gate(&mut sleeper, &[&unused]).await, is(429, "QUEUE_TOKEN_NOT_AVAILABLE"));
        assert_eq!(gateway.last_hit().header("x-queue-user"), Some("bob"));
    }

    async fn who_misses_the_turn_and_comes_back_in_time_is_late_not_lost(store) {
        let config = signed_in("active_ttl = \"10m\"\nclaim_ttl = \"1s\"", "");
        let gateway = Gateway::start(&store, &config).await;
        let (mut sleeper, mut bob) = (gateway.user("sleeper"), gateway.user("bob"));
        let unused = sleeper.enter("checkout").await;
        let token = bob.enter("checkout").await;
        let ask = || {
            let (mut bob, token) = (bob.clone(), token.clone());
            async move { gate(&mut bob, &[&token]).await }
        };
        until(ask, |answer| answer.0 == 200).await;
        assert_eq!(sleeper.rank("checkout", &unused).await["rank"], 1);
        assert_eq!(sleeper.enter("checkout").await, unused, "the same place");
        bob.leave("checkout", &token).await;
        let ask = || {
            let (mut sleeper, unused) = (sleeper.clone(), unused.clone());
            async move { gate(&mut sleeper, &[&unused]).await }
        };
        until(ask, |answer| answer.0 == 200).await;
        assert_eq!(gateway.last_hit().header("x-queue-user"), Some("sleeper"));
    }

    async fn a_token_in_a_cookie_passes_and_is_made_fresh_by_cookie(store) {
        let gateway = Gateway::start(&store, &two_queues()).await;
        let mut alice = gateway.user("alice");
        let token = alice.enter("checkout").await;
        assert_eq!(alice.cookies["queue_token-checkout"], token);
        let paid = alice.get("/checkout/pay").await;
        assert!(sold(&paid));
        let renewed =
            paid.all("set-cookie").into_iter().find(|line| line.starts_with("queue_token"));
        let renewed = renewed.expect("a fresher token goes back by cookie");
        for part in ["HttpOnly", "SameSite=Lax", "Path=/"] {
            assert!(renewed.contains(part), "{renewed}");
        }
        assert!(!renewed.contains("Secure") && !renewed.contains("Domain"), "{renewed}");
        assert_eq!(paid.header("x-queue-token"), None, "by the carrier it came in");
        assert_eq!(paid.header("cache-control"), Some("private, no-store"));
        assert!(paid.all("set-cookie").contains(&"basket=7"), "the shop's own cookies stay");
        // With the fresher one nothing is added, and the shop's caching rules stand.
        let again = alice.get("/checkout/pay").await;
        assert!(sold(&again));
        assert_eq!(again.header("cache-control"), Some("public, max-age=60"));
        assert_eq!(again.all("set-cookie"), ["basket=7"]);

        alice.cookies.clear();
        let by_header = alice.get_with("/checkout/pay", &token).await;
        assert!(by_header.header("x-queue-token").is_some_and(|fresh| fresh != token));
        assert_eq!(by_header.all("set-cookie"), ["basket=7"]);
    }

    async fn bad_and_contradicting_cookies_are_none_and_cleared(store) {
        let gateway = Gateway::start(&store, &two_queues()).await;
        let (mut alice, mut bob) = (gateway.user("alice"), gateway.user("bob"));
        let token = alice.enter("checkout").await;
        let bobs = bob.enter("checkout").await;
        alice.cookies.clear();
        let fake = forged(&token);
        let name = "queue_token-checkout";
        let bad = [
            format!("{name}={fake}"),
            format!("{name}=not-a-token"),
            format!("{name}="),
            format!("{name}={token}; {name}={bobs}"),
            format!("{name}={bobs}; {name}={token}"),
        ];
        for cookies in &bad {
            let answer = alice.send("GET", "/checkout/pay", &[("Cookie", cookies)]).await;
            assert_eq!(refusal(&answer), is(429, "QUEUE_TOKEN_REQUIRED"), "{cookies}");
            let cleared = answer.all("set-cookie");
            assert!(
                cleared
                    .iter()
                    .any(|line| line.starts_with("queue_token-checkout=;")
                        && line.contains("Max-Age=0")),
                "{cookies}: {answer:?}"
            );
        }
        assert_eq!(gateway.hits(), 0);
        // A planted cookie beside the good one locks nobody out, in either order.
        for cookies in
            [format!("{name}={fake}; {name}={token}"), format!("{name}={token}; {name}={fake}")]
        {
            let answer = alice.send("GET", "/checkout/pay", &[("Cookie", &cookies)]).await;
            assert!(sold(&answer), "{cookies}: {answer:?}");
        }
        // In two lines, and twice the same.
        alice.cookies.clear();
        let pair = format!("{name}={token}");
        let headers = [("Cookie", "a=1"), ("Cookie", pair.as_str()), ("Cookie", pair.as_str())];
        assert!(sold(&alice.send("GET", "/checkout/pay", &headers).await));
        assert_eq!(gateway.last_hit().all("cookie"), ["a=1"]);
        assert_eq!(gateway.hits(), 3);
    }

    async fn a_valid_header_beats_any_cookie(store) {
        let gateway = Gateway::start(&store, &two_queues()).await;
        let mut alice = gateway.user("alice");
        let token = alice.enter("checkout").await;
        let bobs = gateway.user("bob").enter("checkout").await;
        alice.cookies.clear();
        for cookie in [&bobs, &forged(&token), "x"] {
            let cookie = format!("queue_token-checkout={cookie}");
            let headers = [("X-Queue-Token", token.as_str()), ("Cookie", cookie.as_str())];
            assert!(sold(&alice.send("GET", "/checkout/pay", &headers).await), "{cookie}");
            assert_eq!(gateway.last_hit().header("x-queue-user"), Some("alice"));
        }
    }

    async fn a_token_in_the_query_is_not_a_token(store) {
        let gateway = Gateway::start(&store, &two_queues()).await;
        let mut alice = gateway.user("alice");
        let token = alice.enter("checkout").await;
        alice.cookies.clear();
        for name in ["queue_token", "token", "X-Queue-Token", "queue_token-checkout"] {
            let answer = alice.get(&format!("/checkout/pay?{name}={token}")).await;
            assert_eq!(refusal(&answer), is(429, "QUEUE_TOKEN_REQUIRED"), "{name}");
        }
        assert_eq!(gateway.hits(), 0);
    }

    async fn a_visitors_token_is_its_own_credential_and_nobody_elses(store) {
        let gateway = Gateway::start(&store, &anonymous("capacity = 5", "")).await;
        let mut visitor = gateway.shopper().without_cookies();
        let token = visitor.enter("checkout").await;
        assert!(sold(&visitor.get_with("/checkout/pay", &token).await));
        let user = gateway.last_hit().header("x-queue-user").unwrap().to_owned();
        assert!(user.starts_with("anon:"), "{user}");
        // Another visitor, known by its own cookie, cannot use it.
        let mut other = gateway.shopper();
        other.enter("checkout").await;
        other.cookies.retain(|name, _| name.ends_with("-visitor"));
        assert_eq!(gate(&mut other, &[&token]).await, is(403, "TOKEN_OWNER_NOT_MATCH"));
        assert_eq!(gateway.hits(), 1);
    }

    async fn odd_bytes_cost_nobody_a_place_and_crash_nothing(store) {
        let gateway = Gateway::start(&store, &anonymous("capacity = 5", "")).await;
        let token = gateway.shopper().enter("checkout").await;
        let raw = |line: &[u8]| {
            let mut request = b"GET /checkout/pay HTTP/1.1\r\nHost: shop.example\r\n".to_vec();
            request.extend_from_slice(line);
            request.extend_from_slice(b"\r\n\r\n");
            request
        };
        let mut wire = gateway.connect().await;
        wire.send(raw(b"X-Queue-Token: \xff\xfe")).await;
        assert_eq!(refusal(&wire.answer().await), is(400, "TOKEN_INVALID"));
        let mut wire = gateway.connect().await;
        wire.send(raw(format!("Cookie: a=\u{80}(; queue_token-checkout={token}").as_bytes())).await;
        assert_eq!(wire.answer().await.status(), 200);
        let mut line = b"Cookie: queue_token-checkout=\xff; queue_token-visitor=\xff".to_vec();
        let mut wire = gateway.connect().await;
        wire.send(raw(&line)).await;
        assert_eq!(refusal(&wire.answer().await), is(429, "QUEUE_TOKEN_REQUIRED"));
        line.extend([b'A'; 3000]);
        let mut wire = gateway.connect().await;
        wire.send(raw(&line)).await;
        assert_eq!(wire.answer().await.status(), 429);
        assert_eq!(json(&gateway.shopper().get("/_queue/checkout/status").await)["waiting"], 0);
    }
}
