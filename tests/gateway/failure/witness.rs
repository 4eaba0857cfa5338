//! Shoppers who come all the time, through whichever gateway answers, and write down what they
//! were told.
//!
//! Each visit is one user: enter, wait, pass the gate a few times, leave. A shopper takes no answer
//! for an error that a patient client would repeat, and tries the next gateway when one does not
//! answer, as a balancer does. It judges nothing; the [`verdict`](super::verdict) does.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use reqwest::{Method, StatusCode};
use serde_json::Value;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::facts::{Fact, Number, What, name_of};
use super::origin::MARK;

/// Nothing a story waits for takes this long.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A request without an answer for this long is one that the gateway let wait.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// The longest a shopper waits between two questions, whatever it is told.
const PACE: Duration = Duration::from_millis(60);

/// What happened so far, in numbers.
#[derive(Debug, Default)]
pub struct Tally {
    /// Requests that were answered, whatever the answer.
    pub answered: AtomicU64,
    /// Acknowledged operations.
    pub acknowledged: AtomicU64,
    /// Visits that ended with leaving.
    pub served: AtomicU64,
    /// Answers saying that the store is away.
    pub away: AtomicU64,
    /// Requests that no gateway took; the shopper tried again.
    pub failed: AtomicU64,
    /// Requests that were let wait.
    pub unanswered: AtomicU64,
}

/// The crowd.
#[derive(Debug)]
pub struct Witness {
    shared: Arc<Shared>,
    crowd: JoinSet<()>,
}

#[derive(Debug)]
struct Shared {
    http: reqwest::Client,
    gateways: Vec<SocketAddr>,
    facts: Mutex<Vec<Fact>>,
    tally: Tally,
    users: AtomicU32,
    inside: AtomicU32,
    closing: AtomicBool,
}

impl Witness {
    /// Sends `shoppers` to these gateways.
    pub fn send(shoppers: u32, gateways: Vec<SocketAddr>, seed: u64) -> Self {
        let http = reqwest::Client::builder()
            .timeout(ANSWER_WITHIN)
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .build()
            .expect("a client");
        let shared = Arc::new(Shared {
            http,
            gateways,
            facts: Mutex::default(),
            tally: Tally::default(),
            users: AtomicU32::new(0),
            inside: AtomicU32::new(0),
            closing: AtomicBool::new(false),
        });
        let mut random = StdRng::seed_from_u64(seed);
        let mut crowd = JoinSet::new();
        for number in 0..shoppers {
            let shopper = Shopper {
                shared: Arc::clone(&shared),
                random: StdRng::seed_from_u64(random.random()),
                gateway: number as usize % shared.gateways.len(),
                user: 0,
                token: String::new(),
                number: None,
            };
            crowd.spawn(shopper.come_again_and_again());
        }
        Self { shared, crowd }
    }

    /// What happened so far, in numbers.
    pub fn tally(&self) -> &Tally {
        &self.shared.tally
    }

    /// Waits until `of` has grown by `more`.
    pub async fn grows(&self, of: impl Fn(&Tally) -> &AtomicU64, more: u64) {
        let wanted = of(self.tally()).load(Ordering::Relaxed) + more;
        self.reaches(|tally| of(tally).load(Ordering::Relaxed) >= wanted).await;
    }

    /// Waits until so many more answers said that the store is away, or so many were given that
    /// nobody can be left who needs it: who waits does not.
    pub async fn is_refused(&self, away: u64, answered: u64) {
        let now = |of: &AtomicU64| of.load(Ordering::Relaxed);
        let (away, answered) =
            (now(&self.tally().away) + away, now(&self.tally().answered) + answered);
        self.reaches(|tally| now(&tally.away) >= away || now(&tally.answered) >= answered).await;
    }

    async fn reaches(&self, is_there: impl Fn(&Tally) -> bool) {
        let reached = async {
            while !is_there(self.tally()) {
                sleep(Duration::from_millis(5)).await;
            }
        };
        let reached = timeout(PATIENCE, reached).await;
        assert!(reached.is_ok(), "nothing moves any more: {:?}", self.tally());
    }

    /// Lets nobody else come and waits until all who are there were served. Returns everything
    /// they were told, and how many were not served.
    pub async fn finish(mut self) -> (Vec<Fact>, u32) {
        self.shared.closing.store(true, Ordering::Relaxed);
        let all = async { while self.crowd.join_next().await.is_some() {} };
        let _ = timeout(PATIENCE, all).await;
        self.crowd.abort_all();
        let facts = std::mem::take(&mut *self.shared.facts.lock().unwrap());
        (facts, self.shared.inside.load(Ordering::Relaxed))
    }

    /// Requests that were let wait, and those that no gateway took.
    pub fn without_answer(&self) -> (u64, u64) {
        let tally = self.tally();
        (tally.unanswered.load(Ordering::Relaxed), tally.failed.load(Ordering::Relaxed))
    }
}

struct Shopper {
    shared: Arc<Shared>,
    random: StdRng,
    gateway: usize,
    user: u32,
    token: String,
    number: Option<Number>,
}

struct Answer {
    status: StatusCode,
    from_shop: bool,
    body: Value,
    came: Instant,
}

impl Answer {
    fn is_problem(&self, code: &str) -> bool {
        self.body["code"] == code
    }
}

impl std::fmt::Display for Answer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.status, self.body["code"])
    }
}

impl Shopper {
    async fn come_again_and_again(mut self) {
        while !self.shared.closing.load(Ordering::Relaxed) {
            self.user = self.shared.users.fetch_add(1, Ordering::Relaxed);
            self.number = None;
            self.token.clear();
            self.shared.inside.fetch_add(1, Ordering::Relaxed);
            self.visit().await;
            self.shared.inside.fetch_sub(1, Ordering::Relaxed);
        }
    }

    async fn visit(&mut self) {
        let mut active = self.enter().await;
        loop {
            while !active {
                self.pause().await;
                active = match self.random.random_range(0..10) {
                    0 => self.enter().await,
                    1 => match self.pass().await {
                        Passage::Lost => self.enter().await,
                        Passage::Passed | Passage::NotNow => self.poll().await,
                    },
                    _ => self.poll().await,
                };
            }
            let mut passes = 0;
            while passes < 2 && active {
                self.pause().await;
                match self.pass().await {
                    Passage::Passed => passes += 1,
                    Passage::NotNow => {}
                    Passage::Lost => active = self.enter().await,
                }
            }
            if active {
                break;
            }
        }
        self.leave().await;
    }

    async fn pause(&mut self) {
        sleep(PACE.mul_f64(self.random.random_range(0.3..1.0))).await;
    }

    /// Enters until it is acknowledged; whether the turn has come.
    async fn enter(&mut self) -> bool {
        let asked = Instant::now();
        loop {
            let answer = self.ask(Method::POST, "/_queue/checkout/enter").await;
            let token = answer.body["token"].as_str().unwrap_or_default().to_owned();
            match Number::of(&token).filter(|_| answer.status.is_success()) {
                Some(number) => {
                    if self.number.is_some_and(|had| had != number) {
                        let had = self.number;
                        self.note(asked, &answer, What::Lost(format!("{had:?} became {number:?}")));
                    }
                    self.note(asked, &answer, What::Entered(number));
                    self.number = Some(number);
                    self.token = token;
                    return self.standing(asked, &answer);
                }
                None => self.not_now(asked, "enter", &answer).await,
            }
        }
    }

    /// Asks for the rank; whether the turn has come.
    async fn poll(&mut self) -> bool {
        let asked = Instant::now();
        let answer = self.ask(Method::GET, "/_queue/checkout/rank").await;
        if answer.status.is_success() {
            if let Some(token) = answer.body["token"].as_str() {
                token.clone_into(&mut self.token);
            }
            return self.standing(asked, &answer);
        }
        if answer.is_problem("QUEUE_TOKEN_NOT_AVAILABLE") {
            self.lose(asked, "rank", &answer);
            return self.enter().await;
        }
        self.not_now(asked, "rank", &answer).await;
        false
    }

    fn standing(&self, asked: Instant, answer: &Answer) -> bool {
        let active = answer.body["status"] == "ACTIVE";
        let rank = answer.body["rank"].as_u64().unwrap_or_default();
        self.note(asked, answer, if active { What::Active } else { What::Waiting(rank) });
        active
    }

    async fn pass(&mut self) -> Passage {
        let asked = Instant::now();
        let answer = self.ask(Method::GET, "/checkout/pay").await;
        if answer.from_shop {
            self.note(asked, &answer, What::Passed);
            return Passage::Passed;
        }
        if answer.is_problem("QUEUE_TOKEN_NOT_AVAILABLE") {
            self.lose(asked, "the gate", &answer);
            return Passage::Lost;
        }
        if !answer.is_problem("QUEUE_WAITING") {
            self.not_now(asked, "the gate", &answer).await;
        }
        Passage::NotNow
    }

    /// Gives the place back until that is acknowledged; then the same gateway passes it no more.
    async fn leave(&mut self) {
        let asked = Instant::now();
        loop {
            let answer = self.ask(Method::POST, "/_queue/checkout/leave").await;
            if answer.status == StatusCode::NO_CONTENT {
                self.note(asked, &answer, What::Left);
                break;
            }
            self.not_now(asked, "leave", &answer).await;
        }
        self.shared.tally.served.fetch_add(1, Ordering::Relaxed);
        let (asked, gateway) = (Instant::now(), self.gateway);
        if let Ok(answer) = self.send(gateway, Method::GET, "/checkout/pay").await
            && answer.from_shop
        {
            self.note(asked, &answer, What::Intruded);
        }
    }

    fn lose(&mut self, asked: Instant, call: &str, answer: &Answer) {
        let number = self.number.take();
        self.note(asked, answer, What::Lost(format!("{number:?}: {call} says {answer}")));
        self.token.clear();
    }

    /// An answer to be asked for again.
    async fn not_now(&mut self, asked: Instant, call: &str, answer: &Answer) {
        if answer.is_problem("STORE_UNAVAILABLE") {
            self.shared.tally.away.fetch_add(1, Ordering::Relaxed);
        } else {
            self.note(asked, answer, What::Odd(format!("{call}: {answer} {}", answer.body)));
        }
        self.pause().await;
    }

    fn note(&self, asked: Instant, answer: &Answer, what: What) {
        if !matches!(what, What::Lost(_) | What::Intruded | What::Odd(_)) {
            self.shared.tally.acknowledged.fetch_add(1, Ordering::Relaxed);
        }
        let (user, gateway, came) = (self.user, self.gateway, answer.came);
        let fact = Fact { user, asked, came, gateway, what };
        self.shared.facts.lock().unwrap().push(fact);
    }

    /// An answer, from this shopper's gateway or else the next.
    async fn ask(&mut self, method: Method, path: &str) -> Answer {
        let gateways = self.shared.gateways.len();
        if self.random.random_bool(0.05) {
            self.gateway = self.random.random_range(0..gateways);
        }
        loop {
            for _ in 0..gateways {
                match self.send(self.gateway, method.clone(), path).await {
                    Ok(answer) => {
                        self.shared.tally.answered.fetch_add(1, Ordering::Relaxed);
                        return answer;
                    }
                    Err(error) => {
                        if error.is_timeout() {
                            self.shared.tally.unanswered.fetch_add(1, Ordering::Relaxed);
                        }
                        self.gateway = (self.gateway + 1) % gateways;
                    }
                }
            }
            self.shared.tally.failed.fetch_add(1, Ordering::Relaxed);
            self.pause().await;
        }
    }

    async fn send(&self, gateway: usize, method: Method, path: &str) -> reqwest::Result<Answer> {
        let url = format!("http://{}{path}", self.shared.gateways[gateway]);
        let mut request = self.shared.http.request(method, url);
        request = request.header("x-user-id", name_of(self.user));
        if !self.token.is_empty() {
            request = request.header("x-queue-token", &self.token);
        }
        let response = request.send().await?;
        let (status, from_shop) = (response.status(), response.headers().contains_key(MARK));
        let body = response.bytes().await?;
        let body = serde_json::from_slice(&body).unwrap_or_default();
        Ok(Answer { status, from_shop, body, came: Instant::now() })
    }
}

/// How a request at the gate went.
enum Passage {
    Passed,
    NotNow,
    Lost,
}
