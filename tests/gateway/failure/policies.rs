//! What everybody is told while the store is away, by policy, and that it is over when it is back.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::Value;

use super::origin::Origin;
use super::process::Process;
use super::scene::config;
use crate::redis_server::RedisServer;
use crate::shop::{BROWSER, Shopper, json, page_state, sold, until};
use crate::support::Message;

/// Connecting and answering take half a second at most; the rest is for a busy machine.
const BUDGET: Duration = Duration::from_secs(5);

/// Somebody at a gateway, with what they carry.
#[derive(Clone)]
struct Guest {
    shopper: Shopper,
    token: Option<String>,
}

impl Guest {
    fn new(gateway: SocketAddr, name: &str) -> Self {
        Self { shopper: Shopper::at(gateway).with("X-User-Id", name), token: None }
    }

    async fn entered(mut self) -> Self {
        self.token = Some(self.shopper.enter("checkout").await);
        self
    }

    fn with_token(&self, token: &str) -> Self {
        Self { token: Some(token.to_owned()), ..self.clone() }
    }

    fn at(&self, gateway: SocketAddr, name: &str) -> Self {
        Self { token: self.token.clone(), ..Self::new(gateway, name) }
    }

    /// An answer, which comes within the budget whatever the store does.
    async fn ask(&self, method: &str, target: &str, browser: bool) -> Message {
        let mut headers = vec![];
        if method == "POST" {
            headers.push(("Content-Length", "0"));
        }
        headers.extend(self.token.as_deref().map(|token| ("X-Queue-Token", token)));
        headers.extend(browser.then_some(BROWSER));
        let mut shopper = self.shopper.clone();
        let answer = shopper.send(method, target, &headers);
        tokio::time::timeout(BUDGET, answer).await.expect("nobody waits for the store")
    }

    async fn pay(&self) -> Message {
        self.ask("GET", "/checkout/pay", false).await
    }

    async fn rank(&self) -> Message {
        self.ask("GET", "/_queue/checkout/rank", false).await
    }
}

fn is_away(answer: &Message) -> bool {
    answer.status() == 503 && answer.problem() == "STORE_UNAVAILABLE"
}

/// One policy while Redis stands still: Alice is inside, Bob waits, Carol comes.
async fn story(policy: &str, alice_passes: bool, others_pass: bool) {
    let redis = RedisServer::start();
    let origin = Origin::open().await;
    let url = format!("redis+unix://{}", redis.socket().display());
    let queue = format!("on_store_failure = \"{policy}\"");
    let text = config(&url, origin.address, &queue, "when_waiting = \"page\"");
    let text = text.replace("capacity = 6", "capacity = 1");
    let (here, there) = (Process::start(&text).await, Process::start(&text).await);

    let alice = Guest::new(here.address, "alice").entered().await;
    let first = alice.pay().await;
    assert!(sold(&first), "{first:?}");
    let proof = first.header("x-queue-token").expect("a fresher token").to_owned();
    let bob = Guest::new(here.address, "bob").entered().await;
    let carol = Guest::new(here.address, "carol");
    let rank = |answer: &Message| json(answer)["rank"].clone();
    assert_eq!(rank(&bob.rank().await), Value::from(1));

    redis.signal("STOP");
    // A copy up to half a second old answers as usual; then both gateways know.
    for gateway in [&here, &there] {
        let bob = bob.at(gateway.address, "bob");
        until(|| bob.pay(), |answer| answer.status() != 429).await;
    }
    let passed = origin.hits().len();
    for (who, passes) in [(&alice, alice_passes), (&bob, others_pass), (&carol, others_pass)] {
        for method in ["GET", "POST"] {
            let answer = who.ask(method, "/checkout/pay", false).await;
            assert!(if passes { sold(&answer) } else { is_away(&answer) }, "{policy}: {answer:?}");
        }
        let page = who.ask("GET", "/checkout/pay", true).await;
        if passes {
            assert!(sold(&page), "{policy}: {page:?}");
        } else {
            assert_eq!(page_state(&page).as_deref(), Some("away"), "{policy}: {page:?}");
        }
    }
    let expected = 3 * (usize::from(alice_passes) + 2 * usize::from(others_pass));
    assert_eq!(origin.hits().len() - passed, expected, "{policy}");
    // A gateway that has never seen Alice passes her if her token proves that she is inside.
    let elsewhere = alice.at(there.address, "alice");
    assert_eq!(sold(&elsewhere.pay().await), others_pass, "{policy}");
    assert_eq!(sold(&elsewhere.with_token(&proof).pay().await), alice_passes, "{policy}");
    // The line itself stands still for everybody, and a waiter keeps what was last known.
    assert_eq!(rank(&bob.rank().await), Value::from(1));
    assert_eq!(rank(&bob.ask("POST", "/_queue/checkout/enter", false).await), Value::from(1));
    for (who, call) in [(&bob, "leave"), (&carol, "enter")] {
        let answer = who.ask("POST", &format!("/_queue/checkout/{call}"), false).await;
        assert!(is_away(&answer), "{policy}: {call}: {answer:?}");
    }

    redis.signal("CONT");
    until(|| carol.pay(), |answer| answer.status() == 429).await;
    assert!(sold(&alice.pay().await), "{policy}");
    let carol = carol.entered().await;
    assert_eq!((rank(&bob.rank().await), rank(&carol.rank().await)), (1.into(), 2.into()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hold_passes_who_is_inside_and_lets_everybody_else_wait() {
    story("hold", true, false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn open_passes_everybody_while_the_store_is_away() {
    story("open", true, true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn closed_passes_nobody_while_the_store_is_away() {
    story("closed", false, false).await;
}
