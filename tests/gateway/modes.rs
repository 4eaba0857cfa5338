//! Queues that are not simply open: modes, schedules, full lines.

use std::time::Duration;

use anteroom::clock::{Clock, SystemClock};
use serde_json::json;

use crate::shop::{Gateway, anonymous, json, on_both_stores, page_state, signed_in, sold, until};

/// A moment from now, as TOML writes it; negative is past.
fn at(offset_secs: i64) -> String {
    let now = SystemClock.now().as_millis();
    let moment = now.saturating_add_signed(offset_secs * 1000);
    anteroom::clock::Timestamp::from_millis(moment).to_rfc3339()
}

on_both_stores! {
    async fn pass_all_opens_the_gate_and_still_tells_the_shop_nothing_false(store) {
        let gateway = Gateway::start(&store, &signed_in("mode = \"pass_all\"", "")).await;
        let mut anybody = gateway.shopper();
        let headers = [("X-Queue-User", "admin"), ("X-Queue-Token", "rubbish")];
        assert!(sold(&anybody.send("GET", "/checkout/pay", &headers).await));
        let hit = gateway.last_hit();
        assert_eq!((hit.header("x-queue-user"), hit.header("x-queue-token")), (None, None));
        // The line is frozen: entering is possible, being admitted is not.
        let mut alice = gateway.user("alice");
        let entered = json(&alice.post("/_queue/checkout/enter").await);
        assert_eq!(entered["status"], "WAITING");
        let page = gateway.visitor().get("/_queue/checkout/page?return=%2Fcheckout%2Fpay").await;
        assert_eq!((page.status(), page.header("location")), (303, Some("/checkout/pay")));
    }

    async fn closed_takes_nobody_and_passes_nobody(store) {
        let gateway = Gateway::start(&store, &signed_in("mode = \"closed\"", "")).await;
        let mut alice = gateway.user("alice");
        let refused = alice.post("/_queue/checkout/enter").await;
        assert_eq!((refused.status(), refused.problem()), (403, "QUEUE_CLOSED".into()));
        assert_eq!(refused.header("retry-after"), None, "waiting does not help");
        let refused = alice.get("/checkout/pay").await;
        assert_eq!(refused.status(), 429);
        let status = json(&alice.get("/_queue/checkout/status").await);
        assert_eq!(status["state"], "CLOSED");
        assert_eq!(gateway.hits(), 0);
    }

    async fn paused_takes_people_and_admits_nobody(store) {
        let gateway =
            Gateway::start(&store, &signed_in("mode = \"paused\"\ncapacity = 5", "")).await;
        let mut alice = gateway.user("alice");
        let token = alice.enter("checkout").await;
        let place = alice.rank("checkout", &token).await;
        assert_eq!((&place["status"], &place["rank"]), (&json!("WAITING"), &json!(1)));
        assert_eq!(alice.get_with("/checkout/pay", &token).await.problem(), "QUEUE_WAITING");
        let status = json(&alice.get("/_queue/checkout/status").await);
        assert_eq!(status["state"], "PAUSED");
        assert_eq!(gateway.hits(), 0);
    }

    async fn queue_all_makes_the_first_one_wait_and_then_admits(store) {
        let gateway = Gateway::start(&store, &signed_in("mode = \"queue_all\"", "")).await;
        let mut alice = gateway.user("alice");
        let entered = json(&alice.post("/_queue/checkout/enter").await);
        assert_eq!((&entered["status"], &entered["rank"]), (&json!("WAITING"), &json!(1)));
        let token = entered["token"].as_str().unwrap();
        until(
            || {
                let mut alice = alice.clone();
                async move { alice.rank("checkout", token).await }
            },
            |body| body["status"] == "ACTIVE",
        )
        .await;
        assert!(sold(&alice.get_with("/checkout/pay", token).await));
    }

    async fn before_the_opening_everybody_is_told_when(store) {
        let opens = at(3600);
        let keys = format!("opens_at = {opens}");
        let gateway = Gateway::start(&store, &anonymous(&keys, "when_waiting = \"page\"")).await;
        let mut visitor = gateway.visitor();
        let refused = gateway.shopper().post("/_queue/checkout/enter").await;
        assert_eq!((refused.status(), refused.problem()), (403, "QUEUE_NOT_OPEN".into()));
        assert_eq!(json(&refused)["opensAt"], opens.as_str());
        assert!(refused.header("retry-after").is_some());
        assert_eq!(page_state(&visitor.get("/checkout/pay").await).as_deref(), Some("joining"));
        let page = visitor.get("/checkout/pay").await;
        assert_eq!((page.status(), page_state(&page).as_deref()), (503, Some("not-open")));
        assert!(page.text().contains(&opens), "{}", page.text());
        let api = visitor.send("GET", "/checkout/pay", &[("Sec-Fetch-Mode", "cors")]).await;
        assert_eq!(api.status(), 429);
        let status = json(&visitor.get("/_queue/checkout/status").await);
        assert_eq!((&status["state"], &status["opensAt"]), (&json!("NOT_OPEN"), &json!(opens)));
        assert_eq!(gateway.hits(), 0);
    }

    async fn a_queue_opens_by_itself(store) {
        let keys = format!("opens_at = {}", at(2));
        let gateway = Gateway::start(&store, &signed_in(&keys, "")).await;
        let alice = gateway.user("alice");
        let entered = until(
            || {
                let mut alice = alice.clone();
                async move { alice.post("/_queue/checkout/enter").await }
            },
            |answer| answer.status() != 403,
        )
        .await;
        assert_eq!((entered.status(), &json(&entered)["status"]), (201, &json!("ACTIVE")));
    }

    async fn after_the_closing_it_is_over(store) {
        let keys = format!("closes_at = {}", at(-5));
        let gateway = Gateway::start(&store, &signed_in(&keys, "when_waiting = \"page\"")).await;
        let mut alice = gateway.user("alice");
        let refused = alice.post("/_queue/checkout/enter").await;
        assert_eq!((refused.status(), refused.problem()), (403, "QUEUE_CLOSED".into()));
        let page = alice.send("GET", "/checkout/pay", &[crate::shop::BROWSER]).await;
        assert_eq!((page.status(), page_state(&page).as_deref()), (503, Some("closed")));
        let status = json(&alice.get("/_queue/checkout/status").await);
        assert_eq!(status["state"], "CLOSED");
        assert!(status["closesAt"].is_string());
        assert_eq!(gateway.hits(), 0);
    }

    async fn closing_ends_the_line_and_lets_those_inside_finish(store) {
        let keys = format!("closes_at = {}\nactive_ttl = \"10m\"", at(2));
        let gateway = Gateway::start(&store, &signed_in(&keys, "")).await;
        let (mut alice, mut bob) = (gateway.user("alice"), gateway.user("bob"));
        let token = alice.enter("checkout").await;
        assert!(sold(&alice.get_with("/checkout/pay", &token).await));
        let waits = bob.enter("checkout").await;
        let ask = || {
            let (mut bob, waits) = (bob.clone(), waits.clone());
            async move { bob.get_with("/_queue/checkout/rank", &waits).await }
        };
        let closed = until(ask, |answer| answer.status() != 200).await;
        assert_eq!((closed.status(), closed.problem()), (403, "QUEUE_CLOSED".into()));
        let refused = bob.get_with("/checkout/pay", &waits).await;
        assert_eq!((refused.status(), refused.problem()), (429, "QUEUE_CLOSED".into()));
        assert!(sold(&alice.get_with("/checkout/pay", &token).await), "the lease runs on");
    }

    async fn a_full_line_says_so_and_keeps_those_in_it(store) {
        let gateway = Gateway::start(&store, &signed_in("max_waiting = 2", "")).await;
        gateway.user("inside").enter("checkout").await;
        let mut first = gateway.user("first");
        let token = first.enter("checkout").await;
        gateway.user("second").enter("checkout").await;
        let mut third = gateway.user("third");
        let refused = third.post("/_queue/checkout/enter").await;
        assert_eq!((refused.status(), refused.problem()), (503, "QUEUE_FULL".into()));
        assert_eq!(first.enter("checkout").await, token, "who is in line stays");
        first.leave("checkout", &token).await;
        assert_eq!(third.post("/_queue/checkout/enter").await.status(), 201);
    }

    async fn capacity_is_never_exceeded_and_order_is_kept(store) {
        let gateway = Gateway::start(&store, &signed_in("capacity = 2", "")).await;
        let mut line = Vec::new();
        for at in 0..6 {
            let mut user = gateway.user(&format!("user{at}"));
            let token = user.enter("checkout").await;
            line.push((user, token));
        }
        let mut left = 0;
        for next in 2..6 {
            let (leaver, token) = &mut line[left];
            leaver.leave("checkout", token).await;
            left += 1;
            let ask = || {
                let (mut user, token) = line[next].clone();
                async move { user.rank("checkout", &token).await }
            };
            until(ask, |body| body["status"] == "ACTIVE").await;
            let mut active = 0;
            for (at, (user, token)) in line.iter_mut().enumerate().skip(left) {
                let place = user.rank("checkout", token).await;
                active += u64::from(place["status"] == "ACTIVE");
                assert_eq!(place["status"] == "ACTIVE", at <= next, "{at}: {place}");
            }
            assert!(active <= 2);
        }
    }

    async fn the_rate_limits_who_goes_in_at_once(store) {
        let gateway =
            Gateway::start(&store, &signed_in("capacity = 100\nadmit_per_second = 1", "")).await;
        let mut active = 0;
        let started = std::time::Instant::now();
        for at in 0..5 {
            let place =
                json(&gateway.user(&format!("user{at}")).post("/_queue/checkout/enter").await);
            active += u64::from(place["status"] == "ACTIVE");
        }
        let secs = started.elapsed().as_secs() + 1;
        assert!((1..=secs + 1).contains(&active), "{active} in {:?}", Duration::from_secs(secs));
    }
}
