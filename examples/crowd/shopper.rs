//! One shopper: enters, waits, pushes against the gate now and then, shops, leaves.

use std::sync::Arc;
use std::time::Duration;

use rand::RngExt;
use rand::rngs::StdRng;
use reqwest::Method;
use tokio::time::{Instant, sleep};

use super::Arguments;
use super::client::{Answer, Client, Place, Pockets};

/// How a visit ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Ending {
    /// It had not ended when the time was up.
    #[default]
    Unfinished,
    /// Got in, shopped, left.
    Served,
    /// Was called and did not come, as it was told to.
    DidNotCome,
}

/// What one shopper saw.
#[derive(Clone, Debug, Default)]
pub(crate) struct Visit {
    /// How it ended.
    pub(crate) ending: Ending,
    /// `enteredAt` of its first place.
    pub(crate) entered_at: Option<String>,
    /// From the start of the run to the answer that said ACTIVE first.
    pub(crate) admitted_at: Option<Duration>,
    /// From entering to that answer.
    pub(crate) waited: Option<Duration>,
    /// Polls made.
    pub(crate) polls: u64,
    /// Attempts at the gate that were refused while waiting.
    pub(crate) refused: u64,
    /// Ranks that were worse than the one shown before: both.
    pub(crate) worse_ranks: Vec<(u64, u64)>,
    /// Times the place was lost and a new one had to be made.
    pub(crate) entered_again: u64,
    /// Answers that came, but were neither a place nor a documented refusal.
    pub(crate) unexpected: Vec<String>,
    /// Requests without an answer.
    pub(crate) unanswered: u64,
    /// Broken promises.
    pub(crate) violations: Vec<String>,
}

/// A pause before trying again what was not answered.
const RETRY: Duration = Duration::from_millis(500);

/// One shopper with its cookies and its token.
pub(crate) struct Shopper {
    /// What it saw so far.
    pub(crate) seen: Visit,
    client: Arc<Client>,
    random: StdRng,
    pockets: Pockets,
    gateway: usize,
    switches: bool,
    comes: bool,
    path: String,
    stay: Duration,
    push: f64,
    rank: Option<u64>,
}

impl Shopper {
    /// Shopper `number`, who will come when called or not.
    pub(crate) fn new(
        arguments: &Arguments,
        number: u32,
        comes: bool,
        client: Arc<Client>,
        random: StdRng,
    ) -> Self {
        Self {
            seen: Visit::default(),
            gateway: number as usize % client.gateways(),
            client,
            random,
            pockets: Pockets::default(),
            switches: arguments.switch,
            comes,
            path: arguments.path.clone(),
            stay: arguments.stay,
            push: arguments.push.clamp(0.0, 1.0),
            rank: None,
        }
    }

    /// The whole visit. Ends with [`Ending::Served`] or [`Ending::DidNotCome`], or is cut off.
    pub(crate) async fn visit(&mut self, start: Instant) {
        let mut place = self.enter().await;
        self.seen.entered_at = Some(place.entered_at.clone());
        let entered = Instant::now();
        loop {
            while !place.is_active() {
                place = self.wait(place).await;
            }
            self.seen.admitted_at.get_or_insert(start.elapsed());
            self.seen.waited.get_or_insert(entered.elapsed());
            if !self.comes {
                self.seen.ending = Ending::DidNotCome;
                return;
            }
            match self.shop().await {
                Some(missed) => place = missed,
                None => break,
            }
        }
        self.leave().await;
        self.seen.ending = Ending::Served;
    }

    /// Enters until there is a place.
    async fn enter(&mut self) -> Place {
        self.pockets.token = None;
        self.rank = None;
        loop {
            let answer = self.api(Method::POST, "enter").await;
            if let Some(place) = self.adopt(&answer) {
                return place;
            }
            if !["QUEUE_FULL", "STORE_UNAVAILABLE"].iter().any(|code| answer.is_problem(code)) {
                self.unexpected("enter", &answer);
            }
            sleep(RETRY).await;
        }
    }

    /// Waits as told, perhaps pushes against the gate meanwhile, and asks again.
    async fn wait(&mut self, place: Place) -> Place {
        let pause = Duration::from_millis(place.poll_after_ms);
        if self.random.random_bool(self.push) {
            sleep(pause.mul_f64(0.5)).await;
            self.push_against_the_gate().await;
            sleep(pause.mul_f64(0.5)).await;
        } else {
            sleep(pause).await;
        }
        self.poll().await
    }

    async fn poll(&mut self) -> Place {
        loop {
            self.seen.polls += 1;
            let answer = self.api(Method::GET, "rank").await;
            if let Some(place) = self.adopt(&answer) {
                return place;
            }
            if answer.is_problem("QUEUE_TOKEN_NOT_AVAILABLE") {
                self.seen.entered_again += 1;
                return self.enter().await;
            }
            if !answer.is_problem("STORE_UNAVAILABLE") {
                self.unexpected("rank", &answer);
            }
            sleep(RETRY).await;
        }
    }

    /// Nobody who waits gets an answer of the upstream; who was called a moment ago may.
    async fn push_against_the_gate(&mut self) {
        let answer = self.gate().await;
        if answer.code.is_some() {
            self.seen.refused += 1;
        } else if !answer.status.is_success() {
            self.unexpected("the gate", &answer);
        } else if !self.poll().await.is_active() {
            self.violation(format!("passed while waiting: {}", answer.status));
        }
    }

    /// Two requests with a stay between them. Gives a place back if the turn was missed.
    async fn shop(&mut self) -> Option<Place> {
        let answer = self.gate().await;
        if !answer.status.is_success() {
            let place = self.poll().await;
            if place.is_active() {
                self.violation(format!("refused while active: {}", describe(&answer)));
                sleep(RETRY).await;
            }
            return Some(place);
        }
        sleep(self.stay.mul_f64(0.5)).await;
        let answer = self.gate().await;
        if !answer.status.is_success() {
            self.violation(format!("refused while shopping: {}", describe(&answer)));
        }
        sleep(self.stay.mul_f64(0.5)).await;
        None
    }

    /// Leaves; the same gateway then lets it in no more.
    async fn leave(&mut self) {
        let switches = std::mem::replace(&mut self.switches, false);
        let answer = self.api(Method::POST, "leave").await;
        if !answer.status.is_success() {
            self.unexpected("leave", &answer);
        }
        let answer = self.gate().await;
        if answer.status.is_success() {
            self.violation("passed after leaving".to_owned());
        }
        self.switches = switches;
    }

    /// The place in an answer, and what it says about order.
    fn adopt(&mut self, answer: &Answer) -> Option<Place> {
        let place = answer.place()?;
        if let Some(token) = &place.token {
            self.pockets.token = Some(token.clone());
        }
        if place.is_active() != (place.rank == 0) {
            self.violation(format!("{} with rank {}", place.status, place.rank));
        }
        if let Some(before) = self.rank.filter(|before| place.rank > *before) {
            self.seen.worse_ranks.push((before, place.rank));
        }
        self.rank = Some(place.rank);
        Some(place)
    }

    async fn gate(&mut self) -> Answer {
        let path = self.path.clone();
        self.until_answered(Method::GET, &path, true).await
    }

    async fn api(&mut self, method: Method, call: &str) -> Answer {
        self.until_answered(method, call, false).await
    }

    async fn until_answered(&mut self, method: Method, path: &str, gate: bool) -> Answer {
        loop {
            if self.switches {
                self.gateway = self.random.random_range(0..self.client.gateways());
            }
            let (at, pockets) = (self.gateway, &mut self.pockets);
            let answer = if gate {
                self.client.send(at, method.clone(), path, pockets).await
            } else {
                self.client.api(at, method.clone(), path, pockets).await
            };
            match answer {
                Ok(answer) => return answer,
                Err(_) => self.seen.unanswered += 1,
            }
            sleep(RETRY).await;
        }
    }

    fn unexpected(&mut self, call: &str, answer: &Answer) {
        self.seen.unexpected.push(format!("{call}: {}", describe(answer)));
    }

    fn violation(&mut self, what: String) {
        self.seen.violations.push(what);
    }
}

fn describe(answer: &Answer) -> String {
    format!("{} {}", answer.status, answer.code.as_deref().unwrap_or("without a code"))
}
