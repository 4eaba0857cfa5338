//! The store is away: what each policy answers, and what becomes of those who come meanwhile.

use crate::attacks::{Answer, GATED, Site, plain};

#[tokio::test]
async fn open_lets_everybody_pass_while_the_store_is_away_waiting_or_not() {
    let queue = "capacity = 0\non_store_failure = \"open\"";
    let site = plain(queue, &format!("{GATED}when_waiting = \"reject\"\n")).await;
    let waiting = site.token().await;
    let carried = [("x-queue-token", waiting.as_str())];
    assert_eq!(site.ask("GET", "/checkout/x", &carried).await.status, 429);
    site.lose_store().await;
    assert_eq!(site.ask("GET", "/checkout/x", &carried).await.status, 200);
    assert_eq!(site.ask("POST", "/checkout/x", &[]).await.status, 200);
    assert_eq!(site.browse("/checkout/x", "").await.status, 200);
    // Who sits in the waiting room is sent on, too.
    let room = site.browse("/_queue/deal-1/page?return=/checkout/x", "").await;
    assert_eq!((room.status, room.location()), (303, "/checkout/x"));
}

#[tokio::test]
async fn hold_and_closed_tell_everybody_else_that_the_store_is_away() {
    for policy in ["hold", "closed"] {
        let queue = format!("capacity = 1\non_store_failure = \"{policy}\"");
        let site = plain(&queue, GATED).await;
        let active = site.token().await;
        let waiting = site.token().await;
        let active = [("x-queue-token", active.as_str())];
        assert_eq!(site.ask("GET", "/checkout/x", &active).await.status, 200);
        site.lose_store().await;
        let carried = [("x-queue-token", waiting.as_str())];
        for headers in [&carried[..], &[]] {
            let answer = site.ask("POST", "/checkout/x", headers).await;
            assert_eq!((answer.status, answer.code().as_str()), (503, "STORE_UNAVAILABLE"));
        }
        let known = site.ask("GET", "/checkout/x", &active).await;
        assert_eq!(known.status, if policy == "hold" { 200 } else { 503 }, "{policy}");
        // People get a page, without a number, wherever they are; a new visitor with one redirect,
        // so that it is known again.
        let visitor = site.browse("/checkout/x", "").await.cookies();
        for target in ["/checkout/x", "/_queue/deal-1/page"] {
            let answer = site.browse(target, &visitor).await;
            assert!(answer.body.starts_with("<!doctype html>"), "{target}: {answer:?}");
        }
    }
}

/// Cookies of a visitor who has not entered.
async fn visitor(site: &Site) -> String {
    site.browse("/checkout/x", "").await.cookies()
}

fn rank(answer: &Answer) -> u64 {
    let body: serde_json::Value = serde_json::from_str(&answer.body).expect("JSON");
    body["rank"].as_u64().unwrap_or_else(|| panic!("{answer:?}"))
}

#[tokio::test]
async fn who_comes_while_the_store_is_away_keeps_the_order_of_arrival() {
    let site = plain("capacity = 0", GATED).await;
    let before = visitor(&site).await;
    let known = site.browse("/_queue/deal-1/page", &before).await;
    assert_eq!(known.status, 200);
    let (one, two, three) = (visitor(&site).await, visitor(&site).await, visitor(&site).await);
    site.lose_store().await;
    // By whatever door, and however often.
    let page = site.browse("/_queue/deal-1/page", &two).await;
    assert!(page.body.starts_with("<!doctype html>"), "{page:?}");
    let entered = site.ask("POST", "/_queue/deal-1/enter", &[("cookie", &one)]).await;
    assert_eq!((entered.status, entered.code().as_str()), (503, "STORE_UNAVAILABLE"));
    site.browse("/_queue/deal-1/page", &three).await;
    site.browse("/_queue/deal-1/page", &two).await;
    let late = visitor(&site).await;
    site.find_store().await;
    let mut ranks = Vec::new();
    for cookie in [&late, &three, &two, &one, &before] {
        let entered = site.ask("POST", "/_queue/deal-1/enter", &[("cookie", cookie)]).await;
        ranks.push(rank(&entered));
    }
    assert_eq!(ranks, [5, 4, 2, 3, 1]);
}

#[tokio::test]
async fn who_leaves_while_the_store_is_away_does_not_enter_when_it_is_back() {
    let site = plain("capacity = 0", GATED).await;
    let (one, two) = (visitor(&site).await, visitor(&site).await);
    site.lose_store().await;
    for cookie in [&one, &two] {
        site.browse("/_queue/deal-1/page", cookie).await;
    }
    site.ask("POST", "/_queue/deal-1/leave", &[("cookie", &one)]).await;
    site.find_store().await;
    let entered = site.ask("POST", "/_queue/deal-1/enter", &[("cookie", &two)]).await;
    assert_eq!((entered.status, rank(&entered)), (200, 1));
}

#[tokio::test]
async fn a_new_visitor_of_the_api_is_known_again_when_the_store_is_back() {
    let site = plain("capacity = 0", GATED).await;
    site.lose_store().await;
    let own = ("sec-fetch-site", "same-origin");
    let first = site.ask("POST", "/_queue/deal-1/enter", &[own]).await;
    assert_eq!(first.status, 503);
    let cookie = first.cookies();
    assert!(cookie.starts_with("queue_token-visitor="), "{cookie}");
    site.ask("POST", "/_queue/deal-1/enter", &[own]).await;
    site.find_store().await;
    let entered = site.ask("POST", "/_queue/deal-1/enter", &[own, ("cookie", &cookie)]).await;
    assert_eq!((entered.status, rank(&entered)), (200, 1));
}
