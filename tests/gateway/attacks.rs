//! What somebody tries who does not want to wait: around the gate, with others' places, with
//! requests that cost more than they should. The gate is worn as a layer, before a shop that
//! answers everything it is asked.

use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anteroom::api::QueueApi;
use anteroom::clock::{Clock, ManualClock, SystemClock, Timestamp};
use anteroom::config::Config;
use anteroom::gate::credentials::Carriers;
use anteroom::gate::metrics::GateMetrics;
use anteroom::gate::{Gate, GateLayer, GateParts};
use anteroom::identity::Chain;
use anteroom::identity::client_address::Connection;
use anteroom::identity::cookie::VisitorCookies;
use anteroom::identity::cookies::CookieNames;
use anteroom::page::Page;
use anteroom::queue::command::{
    AdmitBy, Admitted, Configured, Entered, Evidence, Heartbeat, HeldLease, Left, Origin, Purpose,
    Reaped, Rebuilt, Recollection, Sighting, Standing, Synced, Versioned, Versions,
};
use anteroom::queue::settings::Settings;
use anteroom::queue::{QueueName, Seq, UserTag};
use anteroom::store::mirror::Mirror;
use anteroom::store::{QueueStore, SharedSecret, SharedStore, StoreError, embedded};
use anteroom::token::{Keyring, TokenKey};
use async_trait::async_trait;
use axum::body::Body;
use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, Request, Response};
use http_body_util::BodyExt;
use tokio::sync::watch;
use tower::{Layer, Service, ServiceExt};

use crate::support::soon;

/// A store that can go away, and counts what it is asked.
#[derive(Debug)]
pub(crate) struct Flaky {
    pub(crate) inner: SharedStore,
    away: AtomicBool,
    /// Whether the part of the store with the queues `lost-…` is away, and how often it was asked.
    lost: AtomicBool,
    lost_asked: AtomicUsize,
    standings: AtomicUsize,
}

impl Flaky {
    fn check(&self) -> Result<(), StoreError> {
        if self.away.load(Ordering::SeqCst) { Err(StoreError::away()) } else { Ok(()) }
    }
}

#[async_trait]
impl QueueStore for Flaky {
    fn kind(&self) -> &'static str {
        "flaky"
    }

    async fn secret(&self, name: SharedSecret, proposal: [u8; 32]) -> Result<[u8; 32], StoreError> {
        self.check()?;
        self.inner.secret(name, proposal).await
    }

    async fn configure(
        &self,
        queue: &QueueName,
        settings: &Settings,
        origin: Origin,
    ) -> Result<Configured, StoreError> {
        self.check()?;
        self.inner.configure(queue, settings, origin).await
    }

    async fn enter(
        &self,
        queue: &QueueName,
        users: &[UserTag],
    ) -> Result<Versioned<Vec<Entered>>, StoreError> {
        self.check()?;
        self.inner.enter(queue, users).await
    }

    async fn standing(
        &self,
        queue: &QueueName,
        user: UserTag,
        seq: Option<Seq>,
        purpose: Purpose,
    ) -> Result<Versioned<Standing>, StoreError> {
        self.check()?;
        self.standings.fetch_add(1, Ordering::SeqCst);
        // As a store over the network would: others run meanwhile.
        tokio::task::yield_now().await;
        self.inner.standing(queue, user, seq, purpose).await
    }

    async fn leave(
        &self,
        queue: &QueueName,
        user: UserTag,
        seq: Option<Seq>,
    ) -> Result<Versioned<Left>, StoreError> {
        self.check()?;
        self.inner.leave(queue, user, seq).await
    }

    async fn admit(
        &self,
        queue: &QueueName,
        max: u64,
        by: AdmitBy,
    ) -> Result<Versioned<Admitted>, StoreError> {
        self.check()?;
        self.inner.admit(queue, max, by).await
    }

    async fn heartbeat(&self, queue: &QueueName, heartbeat: &Heartbeat) -> Result<(), StoreError> {
        self.check()?;
        self.inner.heartbeat(queue, heartbeat).await
    }

    async fn reap(&self, queue: &QueueName) -> Result<Reaped, StoreError> {
        self.check()?;
        self.inner.reap(queue).await
    }

    async fn sync(&self, queue: &QueueName, known: Versions) -> Result<Synced, StoreError> {
        self.check()?;
        if self.lost.load(Ordering::SeqCst) && queue.as_str().starts_with("lost-") {
            self.lost_asked.fetch_add(1, Ordering::SeqCst);
            return Err(StoreError::away());
        }
        self.inner.sync(queue, known).await
    }

    async fn compact(&self, queue: &QueueName, keep: u64) -> Result<(), StoreError> {
        self.check()?;
        self.inner.compact(queue, keep).await
    }

    async fn fence(&self, queue: &QueueName, seen: &Sighting) -> Result<Versioned<()>, StoreError> {
        self.check()?;
        self.inner.fence(queue, seen).await
    }

    async fn revive(
        &self,
        queue: &QueueName,
        user: UserTag,
        evidence: &Evidence,
    ) -> Result<Versioned<Standing>, StoreError> {
        self.check()?;
        self.inner.revive(queue, user, evidence).await
    }

    async fn restore(
        &self,
        queue: &QueueName,
        leases: &[HeldLease],
    ) -> Result<Versioned<u64>, StoreError> {
        self.check()?;
        self.inner.restore(queue, leases).await
    }

    async fn rebuild(
        &self,
        queue: &QueueName,
        settings: &Settings,
        origin: Origin,
        from: &Recollection,
    ) -> Result<Rebuilt, StoreError> {
        self.check()?;
        self.inner.rebuild(queue, settings, origin, from).await
    }
}

/// One gateway around a shop, in this process.
pub(crate) struct Site {
    gate: Arc<Gate>,
    api: QueueApi,
    pub(crate) mirror: Arc<Mirror>,
    pub(crate) store: Arc<Flaky>,
    /// What came through to the shop or, below the prefix, to the queue API.
    through: Arc<Mutex<Vec<Parts>>>,
    _stop: watch::Sender<bool>,
}

pub(crate) const QUEUE: &str = "deal-1";

/// A gateway with this configuration behind the usual beginning; `queue` goes into the only queue.
async fn site(queue: &str, rest: &str, clock: Arc<dyn Clock>) -> Site {
    let text = format!(
        "[server]\nlisten = [\"127.0.0.1:0\"]\n[store]\nkind = \"embedded\"\n\
         [[upstream]]\nname = \"shop\"\nservers = [\"127.0.0.1:9\"]\n\
         [[queue]]\nname = \"{QUEUE}\"\n{queue}\n{rest}\n\
         [[route]]\npath = \"/*\"\nupstream = \"shop\"\n"
    );
    let (config, _) = Config::parse(&text, "test.toml", &|_| None).expect("a good configuration");
    let store = Arc::new(Flaky {
        inner: embedded(Arc::clone(&clock)),
        away: AtomicBool::new(false),
        lost: AtomicBool::new(false),
        lost_asked: AtomicUsize::new(0),
        standings: AtomicUsize::new(0),
    });
    let shared = Arc::clone(&store) as SharedStore;
    let mirror = Arc::new(Mirror::new(shared, Arc::clone(&clock), 1, config.queues.clone()));
    mirror.open().await.expect("the store is there");
    let keyring = Keyring::new(vec![TokenKey::new(1, [7; 32])]).expect("one key");
    let cookies = CookieNames::new(&config.tokens.cookie).expect("the default");
    let visitors = VisitorCookies::new(cookies.clone(), &keyring);
    let gate = Arc::new(Gate::new(GateParts {
        routes: Arc::clone(&config.routes),
        chain: Arc::new(Chain::new(config.identity.clone(), visitors).expect("sources")),
        sources: config.identity.sources.clone(),
        mirror: Arc::clone(&mirror),
        keyring,
        user_salt: [9; 32],
        trusted_proxies: config.server.trusted_proxies.clone(),
        public_origins: config.server.public_origins.clone(),
        carriers: Arc::new(Carriers { header: config.tokens.header.clone(), cookies }),
        page: Page::new(config.page.clone(), &config.api.prefix),
        prefix: config.api.prefix.clone(),
        clock,
        metrics: GateMetrics::default(),
    }));
    let api = QueueApi::new(Arc::clone(&gate), config.api.clone(), config.admin.clone());
    let (stop, stopped) = watch::channel(false);
    tokio::spawn(Arc::clone(&mirror).run(stopped));
    Site { gate, api, mirror, store, through: Arc::default(), _stop: stop }
}

pub(crate) async fn plain(queue: &str, rest: &str) -> Site {
    site(queue, rest, Arc::new(SystemClock)).await
}

/// The route that all stories protect.
pub(crate) const GATED: &str =
    "[[route]]\npath = \"/checkout/*\"\nupstream = \"shop\"\nqueue = \"deal-1\"\n";

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn code(&self) -> String {
        let body: serde_json::Value = serde_json::from_str(&self.body).expect("JSON");
        body["code"].as_str().unwrap_or_default().to_owned()
    }

    pub(crate) fn location(&self) -> &str {
        self.headers["location"].to_str().expect("text")
    }

    /// The cookies it sets, as a browser sends them back.
    pub(crate) fn cookies(&self) -> String {
        let pairs = self.headers.get_all("set-cookie").iter().map(|line| {
            line.to_str().expect("text").split(';').next().unwrap_or_default().to_owned()
        });
        pairs.collect::<Vec<_>>().join("; ")
    }
}

impl Site {
    pub(crate) async fn ask(&self, method: &str, target: &str, headers: &[(&str, &str)]) -> Answer {
        let mut request = Request::builder().method(method).uri(target);
        for (name, value) in [("host", "shop.example")].iter().chain(headers) {
            request = request.header(*name, *value);
        }
        let peer = Connection { peer: Some(IpAddr::from([127, 0, 0, 1])), tls: false };
        let request = request.extension(peer).body(Bytes::new()).expect("a request");
        let (api, through) = (self.api.clone(), Arc::clone(&self.through));
        let shop = tower::service_fn(move |request: Request<Bytes>| {
            let (api, through) = (api.clone(), Arc::clone(&through));
            async move {
                let (parts, body) = request.into_parts();
                through.lock().expect("no panic").push(parts.clone());
                if parts.uri.path().starts_with("/_queue/") {
                    return api.oneshot(Request::from_parts(parts, body)).await;
                }
                let shared = [("cache-control", "public"), ("cdn-cache-control", "max-age=600")];
                let mut response = Response::builder().header("surrogate-control", "max-age=600");
                for (name, value) in shared {
                    response = response.header(name, value);
                }
                Ok::<_, Infallible>(response.body(Body::from("the shop")).expect("a response"))
            }
        });
        let mut gated = GateLayer::new(Arc::clone(&self.gate)).layer(shop);
        let Ok(response) = soon(gated.call(request)).await;
        let (parts, body) = response.into_parts();
        let body = soon(body.collect()).await.expect("a body").to_bytes();
        let body = String::from_utf8(body.to_vec()).expect("text");
        Answer { status: parts.status.as_u16(), headers: parts.headers, body }
    }

    pub(crate) async fn browse(&self, target: &str, cookies: &str) -> Answer {
        self.ask("GET", target, &[("accept", "text/html"), ("cookie", cookies)]).await
    }

    /// Enters as a new visitor; its token.
    pub(crate) async fn token(&self) -> String {
        let entered = self.ask("POST", "/_queue/deal-1/enter", &[]).await;
        assert_eq!(entered.status, 201, "{entered:?}");
        let body: serde_json::Value = serde_json::from_str(&entered.body).expect("JSON");
        body["token"].as_str().expect("a token").to_owned()
    }

    fn last_through(&self) -> Option<Parts> {
        self.through.lock().expect("no panic").last().cloned()
    }

    /// Takes the store away until the gateway knows.
    pub(crate) async fn lose_store(&self) {
        self.store.away.store(true, Ordering::SeqCst);
        while self.mirror.store_answers() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Brings it back, and waits until the gateway knows.
    pub(crate) async fn find_store(&self) {
        self.store.away.store(false, Ordering::SeqCst);
        while !self.mirror.store_answers() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    async fn nobody_entered(&self) {
        let name = QueueName::new(QUEUE).expect("a name");
        let synced = self.store.inner.sync(&name, Versions::default()).await.expect("known");
        assert_eq!(synced.tail, 0, "somebody was given a number");
    }
}

#[tokio::test]
async fn a_path_under_the_prefix_reaches_a_service_behind_the_layer_in_its_canonical_form_only() {
    let site = plain("capacity = 0", GATED).await;
    for target in ["/checkout/../_queue/deal-1/status", "/checkout/%2e%2e/_queue/deal-1/status"] {
        let answer = site.ask("GET", target, &[("x-queue-user", "admin")]).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        let seen = site.last_through().expect("the queue API was asked");
        assert_eq!(seen.uri.path(), "/_queue/deal-1/status", "{target}");
        assert!(!seen.headers.contains_key("x-queue-user"));
    }
}

#[tokio::test]
async fn no_spelling_of_the_gateways_headers_comes_through() {
    let site = plain("capacity = 0", GATED).await;
    let spellings =
        ["x-queue-user", "x_queue_user", "x.queue.user", "x!queue~user", "x|queue'name"];
    let headers: Vec<_> = spellings.iter().map(|name| (*name, "admin")).collect();
    site.ask("GET", "/open", &headers).await;
    let seen = site.last_through().expect("the shop was asked");
    assert_eq!(seen.headers.len(), 1, "{:?}", seen.headers);
}

#[tokio::test]
async fn a_preflight_does_not_carry_an_options_request_past_its_own_gate() {
    let open = "[[route]]\npath = \"/checkout/*\"\nmethods = [\"GET\"]\nupstream = \"shop\"\n";
    let site = plain("capacity = 0", &format!("{GATED}when_waiting = \"reject\"\n{open}")).await;
    assert_eq!(site.ask("GET", "/checkout/x", &[]).await.status, 200);
    let plain = site.ask("OPTIONS", "/checkout/x", &[]).await;
    assert_eq!(plain.status, 429);
    let preflight = [("origin", "https://a.example"), ("access-control-request-method", "GET")];
    assert_eq!(site.ask("OPTIONS", "/checkout/x", &preflight).await.status, 429);
}

#[tokio::test]
async fn nobody_is_entered_by_what_is_no_navigation() {
    let site = plain("capacity = 0", GATED).await;
    let page = "/_queue/deal-1/page";
    let visitor = site.browse(page, "").await.cookies();
    let cases: [(&str, &[(&str, &str)]); 5] = [
        ("HEAD", &[]),
        ("HEAD", &[("accept", "text/html")]),
        ("GET", &[("accept", "text/html"), ("sec-purpose", "prefetch")]),
        ("GET", &[("sec-fetch-mode", "no-cors"), ("sec-fetch-site", "cross-site")]),
        ("GET", &[("accept", "image/*")]),
    ];
    for (method, headers) in cases {
        let mut headers = headers.to_vec();
        let unknown = site.ask(method, page, &headers).await;
        assert_eq!(unknown.status, 200, "{unknown:?}");
        assert_eq!(unknown.cookies(), "", "{method} {headers:?}");
        headers.push(("cookie", &visitor));
        assert_eq!(site.ask(method, page, &headers).await.cookies(), "", "{method} {headers:?}");
    }
    site.nobody_entered().await;
}

#[tokio::test]
async fn a_trusted_callers_browser_is_not_made_to_enter_users_by_another_site() {
    let site = plain("capacity = 0", &format!("[api]\nsimple = true\n{GATED}")).await;
    let call = "/queue?queue=deal-1&user_id=1";
    // The compatibility set has no prefix here: ask the API itself.
    let foreign = [("origin", "https://evil.example"), ("sec-fetch-site", "cross-site")];
    for headers in [&foreign[..1], &foreign[1..]] {
        let mut request = Request::builder().method("POST").uri(call).header("host", "localhost");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let peer = Connection { peer: Some(IpAddr::from([127, 0, 0, 1])), tls: false };
        let request = request.extension(peer).body(Bytes::new()).expect("a request");
        let Ok(answer) = site.api.clone().oneshot(request).await;
        assert_eq!(answer.status(), 403, "{headers:?}");
    }
    site.nobody_entered().await;
}

#[tokio::test]
async fn parallel_first_requests_of_one_user_are_one_question_to_the_store() {
    let site = plain("capacity = 1", GATED).await;
    let token = site.token().await;
    let carried = [("x-queue-token", token.as_str())];
    let asked = site.store.standings.load(Ordering::SeqCst);
    let all = (0..20).map(|_| site.ask("GET", "/checkout/x", &carried));
    for answer in futures_util::future::join_all(all).await {
        assert_eq!(answer.status, 200);
    }
    assert_eq!(site.store.standings.load(Ordering::SeqCst) - asked, 1);
}

#[tokio::test]
async fn repeated_polls_of_an_active_user_cost_the_store_one_question_a_second() {
    let clock = Arc::new(ManualClock::at(Timestamp::from_millis(1_000_000_000)));
    let site = site("capacity = 1", GATED, clock).await;
    let visitor = site.browse("/_queue/deal-1/page", "").await.cookies();
    site.browse("/_queue/deal-1/page?c=1", &visitor).await;
    let asked = site.store.standings.load(Ordering::SeqCst);
    for _ in 0..20 {
        let rank = site.ask("GET", "/_queue/deal-1/rank", &[("cookie", &visitor)]).await;
        assert!(rank.body.contains("\"status\":\"ACTIVE\""), "{rank:?}");
    }
    assert_eq!(site.store.standings.load(Ordering::SeqCst) - asked, 1);
}

#[tokio::test]
async fn nobody_is_sent_in_circles_in_the_last_moments_of_a_turn() {
    let clock = Arc::new(ManualClock::at(Timestamp::from_millis(1_000_000_000)));
    let site = site("capacity = 1", GATED, Arc::clone(&clock) as Arc<dyn Clock>).await;
    let invited = site.browse("/checkout/x", "").await;
    let visitor = invited.cookies();
    assert_eq!(site.browse(invited.location(), &visitor).await.status, 303);
    assert_eq!(site.browse("/checkout/x", &visitor).await.status, 200);
    clock.advance(Duration::from_millis(600_000 - 100));
    let mut at = "/checkout/x".to_owned();
    for _ in 0..3 {
        let answer = site.browse(&at, &visitor).await;
        if answer.status != 303 {
            assert!(answer.body.starts_with("<!doctype html>"), "{answer:?}");
            return;
        }
        at = answer.location().to_owned();
    }
    panic!("still redirected to {at}");
}

#[tokio::test]
async fn made_up_cookies_are_not_answered_with_a_cookie_each() {
    let site = plain("capacity = 0", GATED).await;
    let visitor = site.browse("/_queue/deal-1/page", "").await.cookies();
    let made_up: Vec<_> = (0..500).map(|at| format!("queue_token-{at}=")).collect();
    let answer =
        site.browse("/_queue/deal-1/page", &format!("{visitor}; {}", made_up.join("; "))).await;
    let lines = answer.headers.get_all("set-cookie").iter().count();
    assert!((2..=9).contains(&lines), "{lines}");
}

#[tokio::test]
async fn an_answer_with_a_token_in_it_is_kept_by_no_cache() {
    let site = plain("capacity = 1", GATED).await;
    let token = site.token().await;
    let first = site.ask("GET", "/checkout/x", &[("x-queue-token", &token)]).await;
    let fresher = first.headers["x-queue-token"].to_str().expect("text").to_owned();
    assert_eq!(first.headers["cache-control"], "private, no-store");
    assert!(!first.headers.contains_key("cdn-cache-control"), "{first:?}");
    assert!(!first.headers.contains_key("surrogate-control"), "{first:?}");
    // An answer to which nothing was added is the shop's.
    let second = site.ask("GET", "/checkout/x", &[("x-queue-token", &fresher)]).await;
    assert_eq!(second.headers["cache-control"], "public");
    assert!(second.headers.contains_key("cdn-cache-control"), "{second:?}");
}

#[tokio::test]
async fn a_queue_whose_part_of_the_store_is_away_opens_no_other_one() {
    let others: Vec<_> =
        (1..10).map(|at| format!("[[queue]]\nname = \"lost-{at}\"\ncapacity = 0\n")).collect();
    let others = others.concat();
    let queue = "capacity = 0\non_store_failure = \"open\"";
    let site = plain(queue, &format!("{others}{GATED}when_waiting = \"reject\"\n")).await;
    site.store.lost.store(true, Ordering::SeqCst);
    while site.store.lost_asked.load(Ordering::SeqCst) < 30 {
        assert_eq!(site.ask("POST", "/checkout/x", &[]).await.status, 429);
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}
