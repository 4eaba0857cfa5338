//! Every spelling under which a protected path could be reached, and what the shop sees of it.

use crate::shop::{
    BROWSER, Gateway, Shopper, anonymous, json, on_both_stores, page_state, signed_in, sold,
};
use crate::support::Message;

/// Answered here: the waiting room, a refusal, or "this cannot be read".
fn is_safe(answer: &Message) -> bool {
    !sold(answer) && matches!(answer.status(), 303 | 400 | 429 | 503)
}

async fn browse(shopper: &mut Shopper, target: &str) -> Message {
    shopper.send("GET", target, &[BROWSER]).await
}

/// Beside the queue's route: encoded slashes, letter case, and what needs no token.
const ROUTES: &str = r#"
[[route]]
path = "/files/*"
upstream = "shop"
allow_encoded_slash = true

[[route]]
path = "/caf%C3%A9/*"
upstream = "shop"
queue = "checkout"
case_insensitive = true
when_waiting = "reject"

[[bypass]]
path = "/static/*"
extensions = ["css", "js", "png"]

[[bypass]]
path = "/checkout/assets/*"
extensions = ["css"]
methods = ["GET"]
"#;

/// A line for each product.
const PRODUCTS: &str = r#"
[[queue]]
name = "deal-{product_id}"
parameters = { product_id = "uuid" }
capacity = 1
max_instances = 2

[[route]]
path = "/products/{product_id}/order"
upstream = "shop"
queue = "deal-{product_id}"
when_waiting = "reject"

[[route]]
path = "/*"
upstream = "shop"
"#;

/// The same with a number in the query.
const IN_QUERY: &str = r#"
[[queue]]
name = "deal-{id}"
parameters = { id = "integer" }
capacity = 1

[[route]]
path = "/buy"
upstream = "shop"
queue = "deal-{id}"
query_parameter = true
when_waiting = "reject"
"#;

/// Hosts that are open.
const HOSTS: &str = r#"
[[route]]
host = ["static.example", "*.cdn.example"]
path = "/*"
upstream = "shop"
"#;

on_both_stores! {
    async fn no_spelling_of_a_protected_path_reaches_the_shop(store) {
        let gateway = Gateway::start(&store, &(signed_in("", "") + ROUTES)).await;
        let mut anybody = gateway.shopper();
        for target in [
            "/checkout",
            "/checkout/",
            "/checkout/pay",
            "//checkout/pay",
            "/./checkout/pay",
            "/x/../checkout/pay",
            "/%63heckout/pay",
            "/checkout//pay",
            "/x/%2e%2e/checkout/pay",
            "///checkout///pay",
            "/x/..//checkout/pay",
            "/../checkout/pay",
            "/%2e/checkout/pay",
            "/%2E%2E/checkout/pay",
            "/open/.%2e/checkout/pay",
            "/checkout/.",
            "/checkout/x/..",
            "/%63%68%65%63%6b%6f%75%74/pay",
            // Encoded separators.
            "/checkout%2Fpay",
            "/shop%2f..%2fcheckout/pay",
            "/checkout%5Cpay",
            "/checkout\\pay",
            "/open%2F..%2Fcheckout%2Fpay",
            "/open/..%5ccheckout/pay",
            "/%2Fcheckout/pay",
            "/open/..%2fcheckout/pay",
            "/files/%2e%2e/checkout/pay",
            // Path parameters.
            "/checkout;x=1/pay",
            "/checkout;/pay",
            "/open/..;/checkout/pay",
            "/open/..;a=b/checkout/pay",
            "/checkout%3Bx=1/pay",
            "/;x/checkout/pay",
            "/open/%2e%2e;/checkout/pay",
            // Decoded more than once.
            "/%2563heckout/pay",
            "/open/%252e%252e/checkout/pay",
            "/checkout%252Fpay",
            "/%c1%a3heckout/pay",
            // What ends a path for somebody else.
            "/checkout%3Fx",
            "/checkout%23x",
            "/open/../checkout%3F/pay",
            // A query is never part of the path.
            "/checkout/pay?x=/static/app.css",
            "/checkout/pay?.png",
            "/checkout/pay?/../open",
            "/checkout/pay?%zz",
            "/checkout?",
            "/checkout/app.css",
            "/checkout/pay.png",
            // Where a bypass is, something else is not.
            "/checkout/assets/a.css/",
            "/checkout/assets/a.css;x",
            "/checkout/assets/..%2fa.css",
            "/checkout/assets/x%2f..%2f..%2fpay.css",
            "/checkout/assets/a.js",
            "/checkout/assets",
            "/static/../checkout/a.css",
            "/static/..;/checkout/a.css",
            "/static/%2e%2e/checkout/a.css",
            // Letter case does not count there, nor does the spelling of escapes.
            "/caf%C3%A9/x",
            "/CAF%C3%A9/x",
            "/caf%c3%a9/x",
            "/Caf%C3%A9",
            "/%43%41%46%C3%A9/x",
        ] {
            let answer = browse(&mut anybody, target).await;
            assert!(is_safe(&answer), "{target}: {answer:?}");
            assert_eq!(gateway.hits(), 0, "{target} reached the shop");
        }
    }

    async fn what_no_honest_client_sends_is_a_bad_request(store) {
        let gateway = Gateway::start(&store, &(signed_in("", "") + ROUTES)).await;
        for target in [
            "/checkout%00",
            "/checkout%",
            "/checkout%zz",
            "/checkout/%0d%0aX-Injected:%201",
            "/open%00/x",
            "/open%0a",
            "/%7f",
            "/open#/checkout",
            "/open%2500",
        ] {
            let answer = browse(&mut gateway.shopper(), target).await;
            assert_eq!(
                (answer.status(), answer.problem()),
                (400, "BAD_REQUEST".into()),
                "{target}"
            );
            assert!(answer.header("x-injected").is_none());
        }
        for head in [
            "GET http://open.example/checkout/pay HTTP/1.1\r\nHost: shop.example",
            "GET ftp://shop.example/checkout HTTP/1.1\r\nHost: shop.example",
            "GET http://169.254.169.254/ HTTP/1.1\r\nHost: shop.example",
            "GET http://shop.example@evil.example/open HTTP/1.1\r\nHost: shop.example",
            "GET http://shop.example:81/open HTTP/1.1\r\nHost: shop.example",
            "GET checkout/pay HTTP/1.1\r\nHost: shop.example",
            "GET * HTTP/1.1\r\nHost: shop.example",
            "GET /checkout/pay HTTP/1.1\r\nHost: shop.example\r\nHost: evil.example",
            "GET /open HTTP/1.1",
        ] {
            let mut wire = gateway.connect().await;
            wire.send(format!("{head}\r\n\r\n")).await;
            assert_eq!(wire.answer().await.status(), 400, "{head}");
        }
        assert_eq!(gateway.hits(), 0);
    }

    async fn an_absolute_target_is_judged_by_its_path(store) {
        let gateway = Gateway::start(&store, &signed_in("", "")).await;
        let mut wire = gateway.connect().await;
        wire.send("GET http://shop.example/checkout/pay HTTP/1.1\r\nHost: shop.example\r\n\r\n")
            .await;
        assert_eq!(wire.answer().await.status(), 429);
        assert_eq!(gateway.hits(), 0);
        wire.send("GET http://shop.example/open//x?a=%zz HTTP/1.1\r\nHost: shop.example\r\n\r\n")
            .await;
        assert_eq!(wire.answer().await.status(), 200);
        assert_eq!(gateway.shop.seen.only().target(), "/open/x?a=%zz");
    }

    async fn lookalikes_are_open_and_the_judged_path_is_the_one_that_is_sent(store) {
        let gateway = Gateway::start(&store, &(signed_in("", "") + ROUTES)).await;
        let mut anybody = gateway.shopper();
        for (target, sent) in [
            ("/checkout-faq", "/checkout-faq"),
            ("/checkouts/x", "/checkouts/x"),
            // Case counts unless the route says otherwise.
            ("/CHECKOUT/pay", "/CHECKOUT/pay"),
            ("/open//a/./b/../c?x=//../%zz", "/open/a/c?x=//../%zz"),
            ("/%6Fpen/%7euser", "/open/~user"),
            ("/files/a%2Fb", "/files/a%2Fb"),
            ("/files/a%2fb?c", "/files/a%2Fb?c"),
            ("/static/app.css", "/static/app.css"),
            ("/checkout/assets/a.css?v=1", "/checkout/assets/a.css?v=1"),
            ("/open?", "/open?"),
            ("/open%20x", "/open%20x"),
        ] {
            let answer = browse(&mut anybody, target).await;
            assert!(sold(&answer), "{target}: {answer:?}");
            assert_eq!(gateway.last_hit().target(), sent, "{target}");
        }
        let refused =
            anybody.send("POST", "/checkout/assets/a.css", &[("Content-Length", "0")]).await;
        assert_eq!(refused.status(), 429, "the bypass is for GET");
    }

    async fn headers_that_name_another_path_or_method_change_nothing(store) {
        let gateway = Gateway::start(&store, &(signed_in("", "") + ROUTES)).await;
        let mut anybody = gateway.shopper();
        for name in ["X-Forwarded-Uri", "X-Original-URL", "X-Rewrite-URL", "X-Original-Uri"] {
            let answer = anybody.send("GET", "/checkout/pay", &[(name, "/static/app.css")]).await;
            assert_eq!(answer.status(), 429, "{name}");
        }
        assert_eq!(gateway.hits(), 0);
        let claims = [
            ("X-Original-URL", "/checkout/pay"),
            ("X-Rewrite-URL", "/checkout/pay"),
            ("X_Rewrite_URL", "/checkout/pay"),
            ("X-Forwarded-Uri", "/checkout/pay"),
            ("X-HTTP-Method-Override", "DELETE"),
            ("X-Method-Override", "DELETE"),
        ];
        for (name, value) in claims {
            assert!(sold(&anybody.send("GET", "/open", &[(name, value)]).await));
            let hit = gateway.last_hit();
            assert!(hit.headers.iter().all(|(_, sent)| sent != value), "{name}: {hit:?}");
        }
    }

    async fn the_reserved_prefix_is_never_proxied(store) {
        let gateway = Gateway::start(&store, &signed_in("", "")).await;
        let mut anybody = gateway.shopper();
        for (target, status) in [
            ("/_queue", 404),
            ("/_queue/", 404),
            ("/_queue/x", 404),
            ("/_queue/checkout/x", 404),
            ("/_queue/nothing/rank", 404),
            ("/_queue/checkout/enter", 405),
            ("//_queue/checkout/nope", 404),
            ("/x/../_queue/nope", 404),
            ("/%5Fqueue/nope", 404),
        ] {
            let answer = anybody.get(target).await;
            assert_eq!(answer.status(), status, "{target}: {answer:?}");
        }
        for target in
            ["/_queue%2Fcheckout/rank", "/x/..;/_queue/checkout/rank", "/_queue;x/checkout/rank"]
        {
            let answer = browse(&mut anybody, target).await;
            assert!(answer.status() == 400 || answer.status() == 404, "{target}: {answer:?}");
        }
        assert!(sold(&anybody.get("/_queues").await));
        assert_eq!(gateway.hits(), 1);
    }

    async fn an_unknown_queue_and_an_unrouted_path_are_not_found(store) {
        let config =
            anonymous("", "").replace("[[route]]\npath = \"/*\"\nupstream = \"shop\"\n", "");
        let gateway = Gateway::start(&store, &config).await;
        let mut anybody = gateway.shopper();
        let answer = anybody.get("/elsewhere").await;
        assert_eq!((answer.status(), answer.problem()), (404, "NOT_FOUND".into()));
        for name in ["deal-1", "CHECKOUT", "checkout%20", "..", "%2e%2e", &"x".repeat(65)] {
            let answer = anybody.post(&format!("/_queue/{name}/enter")).await;
            assert!(matches!(answer.status(), 400 | 404), "{name}: {answer:?}");
        }
        assert_eq!(anybody.post("/_queue/deal-1/enter").await.problem(), "QUEUE_NOT_FOUND");
        assert_eq!(gateway.hits(), 0);
    }

    async fn one_line_for_every_spelling_of_a_product(store) {
        let gateway = Gateway::start(&store, PRODUCTS).await;
        let queue = "deal-018f3c0a-5b6e-7abc-8def-0123456789ab";
        let mut shopper = gateway.shopper();
        let token = shopper.enter(queue).await;
        shopper.cookies.clear();
        for spelling in [
            "018f3c0a-5b6e-7abc-8def-0123456789ab",
            "018F3C0A-5B6E-7ABC-8DEF-0123456789AB",
            "%30%31%38f3c0a-5b6e-7abc-8def-0123456789ab",
            "018f3c0a-5b6e-7abc-8def-0123456789a%62",
            "018f3c0a5b6e7abc8def0123456789ab",
            "%7B018f3c0a-5b6e-7abc-8def-0123456789ab%7D",
            "urn:uuid:018f3c0a-5b6e-7abc-8def-0123456789ab",
        ] {
            for target in
                [format!("/products/{spelling}/order"), format!("//products/./{spelling}/order/")]
            {
                let refused = gateway.shopper().get(&target).await;
                assert_eq!(refused.problem(), "QUEUE_TOKEN_REQUIRED", "{target}");
                assert_eq!(json(&refused)["queue"], queue, "{target}");
                let hits = gateway.hits();
                assert!(sold(&shopper.get_with(&target, &token).await), "{target}");
                assert_eq!(gateway.hits(), hits + 1);
                assert_eq!(gateway.last_hit().header("x-queue-name"), Some(queue));
            }
        }
        let hits = gateway.hits();
        for spelling in [
            "7",
            "x",
            "018f3c0a5b6e7abc8def0123456789abc",
            "018f3c0a-5b6e-7abc-8def-0123456789a",
            "018f3c0a-5b6e-7abc-8def-0123456789ag",
            "018f3c0a-5b6e-7abc-8def-0123456789ab%20",
            "018f3c0a-5b6e-7abc-8def-0123456789ab%2Forder",
            "018f3c0a-5b6e-7abc-8def-0123456789ab;x",
        ] {
            let answer = shopper.get_with(&format!("/products/{spelling}/order"), &token).await;
            assert_eq!(answer.status(), 400, "{spelling}: {answer:?}");
        }
        // Looking at made-up products opens no line for them.
        for number in 2..9 {
            let made_up = format!("/_queue/deal-{number}18f3c0a-5b6e-7abc-8def-0123456789ab");
            for call in ["status", "rank", "verify", "events"] {
                let none = gateway.shopper().get(&format!("{made_up}/{call}")).await;
                assert_eq!((none.status(), none.problem()), (404, "QUEUE_NOT_FOUND".into()));
            }
        }
        // Two products have a line; a third finds none.
        let second = "deal-118f3c0a-5b6e-7abc-8def-0123456789ab";
        gateway.shopper().enter(second).await;
        let third = "218f3c0a-5b6e-7abc-8def-0123456789ab";
        let none = gateway.shopper().get(&format!("/products/{third}/order")).await;
        assert_eq!((none.status(), none.problem()), (404, "QUEUE_NOT_FOUND".into()));
        let none = gateway.shopper().post(&format!("/_queue/deal-{third}/enter")).await;
        assert_eq!((none.status(), none.problem()), (404, "QUEUE_NOT_FOUND".into()));
        // The token of one product is none for another.
        let other =
            shopper.get_with("/products/118f3c0a-5b6e-7abc-8def-0123456789ab/order", &token).await;
        assert_eq!(other.problem(), "QUEUE_TOKEN_REQUIRED");
        assert_eq!(gateway.hits(), hits);
    }

    async fn a_product_in_the_query_counts_only_once(store) {
        let gateway = Gateway::start(&store, IN_QUERY).await;
        let token = gateway.shopper().enter("deal-7").await;
        let mut shopper = gateway.shopper();
        for target in ["/buy?id=7", "/buy?x=1&id=7&y"] {
            assert!(sold(&shopper.get_with(target, &token).await), "{target}");
        }
        let hits = gateway.hits();
        for target in [
            "/buy",
            "/buy?",
            "/buy?id=",
            "/buy?id=7&id=8",
            "/buy?id=8&id=7",
            "/buy?id=7&%69d=8",
            "/buy?id=x",
            "/buy?id=-7",
            "/buy?id=7%00",
            "/buy?ID=7",
        ] {
            let answer = shopper.get_with(target, &token).await;
            assert_eq!(answer.status(), 400, "{target}: {answer:?}");
        }
        assert_eq!(shopper.get_with("/buy?id=8", &token).await.status(), 429);
        assert_eq!(gateway.hits(), hits);
    }

    async fn hosts_have_routes_of_their_own(store) {
        let config = signed_in("", "") + HOSTS;
        let gateway = Gateway::start(&store, &config).await;
        let mut anybody = gateway.shopper();
        for (host, open) in [
            ("static.example", true),
            ("STATIC.example:80", true),
            ("a.b.cdn.example", true),
            ("cdn.example", false),
            ("xcdn.example", false),
            ("shop.example", false),
            ("static.example.evil", false),
        ] {
            let answer = anybody.send("GET", "/checkout/pay", &[("Host", host)]).await;
            assert_eq!(sold(&answer), open, "{host}: {answer:?}");
        }
        let hits = gateway.hits();
        for host in ["static.example, shop.example", "static.example/x", "", "a b", "[::1"] {
            let answer = anybody.send("GET", "/checkout/pay", &[("Host", host)]).await;
            assert!(!sold(&answer), "{host}: {answer:?}");
        }
        // What a client says about its host does not count, and is never repeated.
        let headers =
            [("X-Forwarded-Host", "static.example"), ("Forwarded", "host=static.example"), BROWSER];
        let answer = anybody.send("GET", "/checkout/pay", &headers).await;
        assert_eq!(answer.status(), 429);
        assert!(!format!("{answer:?}").contains("static.example"));
        assert_eq!(gateway.hits(), hits);
    }

    async fn a_page_status_and_a_refuse_status_are_the_routes(store) {
        let config =
            anonymous("", "when_waiting = \"page\"\npage_status = 200\nrefuse_status = 503");
        let gateway = Gateway::start(&store, &config).await;
        gateway.shopper().enter("checkout").await;
        let mut visitor = gateway.visitor();
        visitor.get("/checkout/pay").await;
        let page = visitor.get("/checkout/pay").await;
        assert_eq!((page.status(), page_state(&page).as_deref()), (200, Some("waiting")));
        assert_eq!(page.header("x-robots-tag"), Some("noindex, nofollow"));
        let refused = gateway.shopper().get("/checkout/pay").await;
        assert_eq!((refused.status(), json(&refused)["status"].as_u64()), (503, Some(503)));
        assert_eq!(gateway.hits(), 0);
    }
}
