//! One pool of connections for the whole crowd, and what an answer means to a shopper.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use reqwest::header::{ACCEPT, CONTENT_TYPE, COOKIE, SET_COOKIE};
use reqwest::{Method, StatusCode};
use serde::Deserialize;
use tokio::sync::Semaphore;

use super::Arguments;

/// The body of enter and rank.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Place {
    /// The token; rank repeats it only where it may be fresher.
    pub(crate) token: Option<String>,
    /// `WAITING` or `ACTIVE`.
    pub(crate) status: String,
    /// 0 when active.
    pub(crate) rank: u64,
    /// RFC 3339.
    pub(crate) entered_at: String,
    /// When to ask again.
    pub(crate) poll_after_ms: u64,
}

impl Place {
    /// Whether the turn has come.
    pub(crate) fn is_active(&self) -> bool {
        self.status == "ACTIVE"
    }
}

/// Numbers everybody shares.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(crate) struct Status {
    /// Tokens active.
    pub(crate) active: u64,
    /// The most there may be.
    pub(crate) capacity: u64,
}

#[derive(Deserialize)]
struct ProblemBody {
    code: String,
}

/// An answer, read whole.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    /// The status.
    pub(crate) status: StatusCode,
    /// The problem code, where the gateway refused.
    pub(crate) code: Option<String>,
    /// The body.
    pub(crate) body: Vec<u8>,
}

impl Answer {
    /// The place the body names.
    pub(crate) fn place(&self) -> Option<Place> {
        self.status.is_success().then(|| serde_json::from_slice(&self.body).ok())?
    }

    /// Whether the gateway refused with `code`.
    pub(crate) fn is_problem(&self, code: &str) -> bool {
        self.code.as_deref() == Some(code)
    }
}

/// What a shopper carries from request to request.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pockets {
    /// The queue token.
    pub(crate) token: Option<String>,
    /// Names and values of cookies.
    pub(crate) cookies: Vec<(String, String)>,
}

impl Pockets {
    fn keep(&mut self, set_cookie: &str) {
        let (pair, attributes) = set_cookie.split_once(';').unwrap_or((set_cookie, ""));
        let Some((name, value)) = pair.split_once('=') else { return };
        self.cookies.retain(|(have, _)| have != name.trim());
        let cleared = attributes.to_ascii_lowercase().replace(' ', "").contains("max-age=0");
        if !cleared {
            self.cookies.push((name.trim().to_owned(), value.trim().to_owned()));
        }
    }

    fn cookie_header(&self) -> Option<String> {
        let pairs: Vec<_> =
            self.cookies.iter().map(|(name, value)| format!("{name}={value}")).collect();
        (!pairs.is_empty()).then(|| pairs.join("; "))
    }
}

/// The crowd's way to the gateways.
#[derive(Debug)]
pub(crate) struct Client {
    http: reqwest::Client,
    in_flight: Semaphore,
    gateways: Vec<String>,
    queue_base: String,
    header: String,
    requests: AtomicU64,
}

impl Client {
    /// A client for these gateways.
    pub(crate) fn new(arguments: &Arguments) -> reqwest::Result<Self> {
        let http = reqwest::Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .pool_max_idle_per_host(arguments.connections)
            .timeout(Duration::from_secs(30))
            .no_proxy()
            .build()?;
        let gateways = arguments.gateway.iter().map(|url| url.trim_end_matches('/').to_owned());
        Ok(Self {
            http,
            in_flight: Semaphore::new(arguments.connections.max(1)),
            gateways: gateways.collect(),
            queue_base: format!("{}/{}", arguments.prefix, arguments.queue),
            header: arguments.header.clone(),
            requests: AtomicU64::new(0),
        })
    }

    /// How many gateways there are.
    pub(crate) fn gateways(&self) -> usize {
        self.gateways.len()
    }

    /// A call of the queue API.
    pub(crate) async fn api(
        &self,
        gateway: usize,
        method: Method,
        call: &str,
        pockets: &mut Pockets,
    ) -> reqwest::Result<Answer> {
        let path = format!("{}/{call}", self.queue_base);
        self.send(gateway, method, &path, pockets).await
    }

    /// A request as a program makes it: JSON, no navigation.
    pub(crate) async fn send(
        &self,
        gateway: usize,
        method: Method,
        path: &str,
        pockets: &mut Pockets,
    ) -> reqwest::Result<Answer> {
        let _permit = self.in_flight.acquire().await.expect("the semaphore is never closed");
        self.requests.fetch_add(1, Ordering::Relaxed);
        let url = format!("{}{path}", self.gateways[gateway]);
        let mut request = self.http.request(method, url).header(ACCEPT, "application/json");
        if let Some(token) = &pockets.token {
            request = request.header(&self.header, token);
        }
        if let Some(cookies) = pockets.cookie_header() {
            request = request.header(COOKIE, cookies);
        }
        let response = request.send().await?;
        let status = response.status();
        for line in response.headers().get_all(SET_COOKIE) {
            if let Ok(line) = line.to_str() {
                pockets.keep(line);
            }
        }
        let is_problem = response
            .headers()
            .get(CONTENT_TYPE)
            .is_some_and(|value| value.as_bytes().starts_with(b"application/problem+json"));
        let body = response.bytes().await?.to_vec();
        let problem = is_problem.then(|| serde_json::from_slice::<ProblemBody>(&body).ok());
        Ok(Answer { status, code: problem.flatten().map(|problem| problem.code), body })
    }

    /// The queue's shared numbers, from the first gateway.
    pub(crate) async fn status(&self) -> Option<Status> {
        let answer = self.api(0, Method::GET, "status", &mut Pockets::default()).await.ok()?;
        serde_json::from_slice(&answer.body).ok()
    }
}
