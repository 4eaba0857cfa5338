//! The vocabulary of the queue's stories: a whole gateway before a shop that records what reaches
//! it, and shoppers with a cookie jar.
//!
//! Every answer a [`Shopper`] gets is checked for what all answers owe: those of the gateway have
//! the headers that keep them out of caches, frames and sniffing; those of the shop come without
//! the names that only the gateway may use.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use anteroom::config::Config;
use anteroom::proxy::Listen;
use anteroom::server::BoundGateway;
use anteroom::server::shutdown::{self, Signal};
use jsonwebtoken::{EncodingKey, Header};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::redis_server::RedisServer;
use crate::support::{Message, Recorder, Upstream, Wire, script, soon};

/// What the JWTs of the stories are signed with.
pub const JWT_SECRET: &str = "the stories' secret: 32 bytes or more of it";

/// The bearer token of the operator.
pub const OPERATOR: &str = "the-operators-secret-word";

/// The bearer token of somebody who may only look.
pub const VIEWER: &str = "the-viewers-secret-word";

/// What a browser accepts.
pub const BROWSER: (&str, &str) =
    ("Accept", "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8");

/// Runs each story on the embedded store and on Redis.
macro_rules! on_both_stores {
    ($($(#[$meta:meta])* async fn $story:ident($store:ident) $body:block)+) => {$(
        $(#[$meta])*
        mod $story {
            #[allow(unused_imports, reason = "not every story uses everything of its file")]
            use super::*;

            async fn story($store: crate::shop::Store) $body

            #[tokio::test]
            async fn embedded() {
                Box::pin(story(crate::shop::Store::Embedded)).await;
            }

            #[tokio::test]
            async fn redis() {
                Box::pin(story(crate::shop::Store::redis())).await;
            }
        }
    )+};
}
pub(crate) use on_both_stores;

/// Where the line of a story lives.
#[derive(Clone, Debug)]
pub enum Store {
    /// In the gateway.
    Embedded,
    /// In a Redis, under keys of the story's own.
    Redis(Arc<RedisServer>, String),
}

impl Store {
    /// A corner of the Redis that all stories running now share.
    pub fn redis() -> Self {
        static SERVER: Mutex<Weak<RedisServer>> = Mutex::new(Weak::new());
        let mut shared = SERVER.lock().unwrap();
        let server = shared.upgrade().unwrap_or_else(|| Arc::new(RedisServer::start()));
        *shared = Arc::downgrade(&server);
        Self::corner(server)
    }

    /// A store of the same kind that holds nothing yet.
    pub fn fresh(&self) -> Self {
        match self {
            Self::Embedded => Self::Embedded,
            Self::Redis(server, _) => Self::corner(Arc::clone(server)),
        }
    }

    fn corner(server: Arc<RedisServer>) -> Self {
        Self::Redis(server, format!("story{:016x}:", rand::random::<u64>()))
    }

    fn section(&self) -> String {
        match self {
            Self::Embedded => "[store]\nkind = \"embedded\"\n".into(),
            Self::Redis(server, prefix) => format!(
                "[store]\nkind = \"redis\"\nurl = \"redis+unix://{}\"\nkey_prefix = \"{prefix}\"\n\
                 connect_timeout = \"5s\"\nresponse_timeout = \"5s\"\n",
                server.socket().display()
            ),
        }
    }
}

/// A queue `checkout` for signed-in users before `/checkout/*`, which refuses, and the open rest.
/// `queue` and `route` are further keys, one a line, each no second time.
pub fn signed_in(queue: &str, route: &str) -> String {
    format!(
        "{JWT_IDENTITY}\n[[queue]]\nname = \"checkout\"\n{}\n{}",
        with(queue, "capacity", "1"),
        gated(&with(route, "when_waiting", "\"reject\""))
    )
}

/// The same for anonymous visitors, who are redirected.
pub fn anonymous(queue: &str, route: &str) -> String {
    let queue = with(queue, "capacity", "1");
    format!("[[queue]]\nname = \"checkout\"\n{queue}\n{}", gated(route))
}

/// Users are known by JSON Web Tokens.
pub const JWT_IDENTITY: &str = r#"
[identity]
sources = ["jwt"]

[identity.jwt]
algorithm = "HS256"
secret_env = "JWT_SECRET"
issuer = "https://id.example"
audience = "shop"
"#;

fn gated(route: &str) -> String {
    format!(
        "[[route]]\npath = \"/checkout/*\"\nupstream = \"shop\"\nqueue = \"checkout\"\n{route}\n\
         [[route]]\npath = \"/*\"\nupstream = \"shop\"\n"
    )
}

/// The lines with a default for `key`.
fn with(lines: &str, key: &str, default: &str) -> String {
    let named = lines.lines().any(|line| line.split('=').next().is_some_and(|k| k.trim() == key));
    if named { lines.to_owned() } else { format!("{key} = {default}\n{lines}") }
}

/// A running gateway before a running shop.
#[derive(Debug)]
pub struct Gateway {
    /// Where clients find it.
    pub address: SocketAddr,
    /// The shop behind it.
    pub shop: Arc<Upstream>,
    /// Ends it when dropped with the runtime; kept so that it goes on.
    _signals: mpsc::Sender<Signal>,
    _serving: JoinHandle<()>,
}

impl Gateway {
    /// Starts one. `config` is a configuration without store and upstream; what stands before its
    /// first header belongs to `[server]`.
    pub async fn start(store: &Store, config: &str) -> Self {
        Self::before(Arc::new(shop().await), store, config).await
    }

    /// The same before a shop that is there.
    pub async fn before(shop: Arc<Upstream>, store: &Store, config: &str) -> Self {
        let text = format!(
            "[server]\nlisten = [\"127.0.0.1:0\"]\n{config}\n{}\n[[upstream]]\nname = \"shop\"\n\
             servers = [\"{}\"]\n",
            store.section(),
            shop.address
        );
        let env = |name: &str| match name {
            "JWT_SECRET" => Some(JWT_SECRET.to_owned()),
            "OPERATOR" => Some(OPERATOR.to_owned()),
            "VIEWER" => Some(VIEWER.to_owned()),
            _ => None,
        };
        let (config, _) = Config::parse(&text, "gateway.toml", &env)
            .unwrap_or_else(|report| panic!("{report}\n{text}"));
        let gateway = soon(BoundGateway::bind(&config)).await.expect("it starts");
        let Listen::Tcp(address) = gateway.addresses()[0] else { panic!("a TCP listener") };
        let (signals, heard) = mpsc::channel(1);
        let shutdown = shutdown::follow(heard, Duration::ZERO, None);
        let serving =
            tokio::spawn(async move { gateway.run(shutdown).await.expect("told to stop") });
        Self { address, shop, _signals: signals, _serving: serving }
    }

    /// Somebody who keeps cookies and has none yet.
    pub fn shopper(&self) -> Shopper {
        Shopper::at(self.address)
    }

    /// Somebody who is signed in.
    pub fn user(&self, name: &str) -> Shopper {
        self.shopper().with("Authorization", &format!("Bearer {}", jwt(name)))
    }

    /// Somebody with a browser.
    pub fn visitor(&self) -> Shopper {
        self.shopper().with(BROWSER.0, BROWSER.1)
    }

    /// A connection for bytes as they are.
    pub async fn connect(&self) -> Wire {
        Wire::connect(self.address).await
    }

    /// What has reached the shop so far.
    pub fn hits(&self) -> usize {
        self.shop.seen.requests().len()
    }

    /// The newest request that reached the shop.
    pub fn last_hit(&self) -> Message {
        self.shop.seen.requests().pop().expect("a request reached the shop")
    }
}

/// A shop that answers everything with 200, or an upgrade with an echo, and tries to speak in the
/// gateway's name.
async fn shop() -> Upstream {
    Upstream::run(script(serve)).await
}

async fn serve(mut wire: Wire, seen: Recorder) {
    while let Some(mut request) = wire.head().await {
        request.body = wire.body(&request).await;
        let upgrades = request.header("upgrade").is_some();
        let head = request.first_line.starts_with("HEAD ");
        seen.record(request);
        if upgrades {
            wire.send(
                "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\n\
                 Upgrade: websocket\r\nX-Shop: 1\r\n\r\n",
            )
            .await;
            loop {
                let bytes = wire.exactly(5).await;
                if wire.try_send(&bytes).await.is_err() {
                    return;
                }
            }
        }
        let body = if head { "" } else { "sold" };
        wire.send(format!(
            "HTTP/1.1 200 OK\r\nX-Shop: 1\r\nCache-Control: public, max-age=60\r\n\
             Set-Cookie: basket=7\r\nSet-Cookie: queue_token-checkout=theirs\r\n\
             X-Queue-User: theirs\r\nx_queue_token: theirs\r\nContent-Length: 4\r\n\r\n{body}"
        ))
        .await;
    }
}

/// A JSON Web Token of this user.
pub fn jwt(user: &str) -> String {
    signed(&json!({
        "iss": "https://id.example", "aud": "shop", "sub": user, "exp": 4_102_444_800_u64,
    }))
}

/// A JSON Web Token with these claims.
pub fn signed(claims: &Value) -> String {
    let key = EncodingKey::from_secret(JWT_SECRET.as_bytes()).expect("a secret");
    jsonwebtoken::encode(&Header::default(), claims, &key).expect("claims")
}

/// A client.
#[derive(Clone, Debug)]
pub struct Shopper {
    address: SocketAddr,
    headers: Vec<(String, String)>,
    /// Its cookie jar.
    pub cookies: BTreeMap<String, String>,
    keeps_cookies: bool,
}

impl Shopper {
    /// Somebody at this gateway, who keeps cookies and has none yet.
    pub fn at(address: SocketAddr) -> Self {
        Self { address, headers: Vec::new(), cookies: BTreeMap::new(), keeps_cookies: true }
    }

    /// The same with a header on every request.
    pub fn with(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The same with cookies switched off.
    pub fn without_cookies(mut self) -> Self {
        self.keeps_cookies = false;
        self
    }

    /// Sends a `GET`.
    pub async fn get(&mut self, target: &str) -> Message {
        self.send("GET", target, &[]).await
    }

    /// Sends a `GET` with a queue token.
    pub async fn get_with(&mut self, target: &str, token: &str) -> Message {
        self.send("GET", target, &[("X-Queue-Token", token)]).await
    }

    /// Sends a `POST` without a body.
    pub async fn post(&mut self, target: &str) -> Message {
        self.send("POST", target, &[("Content-Length", "0")]).await
    }

    /// Enters a queue that takes this shopper; the token.
    pub async fn enter(&mut self, queue: &str) -> String {
        let entered = self.post(&format!("/_queue/{queue}/enter")).await;
        assert!(matches!(entered.status(), 200 | 201), "{entered:?}");
        json(&entered)["token"].as_str().expect("a token").to_owned()
    }

    /// The body of rank.
    pub async fn rank(&mut self, queue: &str, token: &str) -> Value {
        let answer = self.get_with(&format!("/_queue/{queue}/rank"), token).await;
        assert_eq!(answer.status(), 200, "{answer:?}");
        json(&answer)
    }

    /// Leaves a queue.
    pub async fn leave(&mut self, queue: &str, token: &str) {
        let headers = [("X-Queue-Token", token), ("Content-Length", "0")];
        let left = self.send("POST", &format!("/_queue/{queue}/leave"), &headers).await;
        assert_eq!((left.status(), left.text()), (204, ""), "{left:?}");
    }

    /// Sends a request with these headers beside its own, and reads the answer.
    pub async fn send(&mut self, method: &str, target: &str, headers: &[(&str, &str)]) -> Message {
        let mut head = vec![format!("{method} {target} HTTP/1.1")];
        let own = self.headers.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let all: Vec<(&str, &str)> = own.chain(headers.iter().copied()).collect();
        let has = |name: &str| all.iter().any(|(have, _)| have.eq_ignore_ascii_case(name));
        if !has("host") {
            head.push("Host: shop.example".into());
        }
        if self.keeps_cookies && !self.cookies.is_empty() {
            let jar: Vec<String> =
                self.cookies.iter().map(|(name, value)| format!("{name}={value}")).collect();
            head.push(format!("Cookie: {}", jar.join("; ")));
        }
        head.extend(all.iter().map(|(name, value)| format!("{name}: {value}")));
        let without_body = method == "HEAD";
        // The buffers of a connection are large, and the futures of a whole story are nested.
        let answer =
            Box::pin(exchange(self.address, head.join("\r\n") + "\r\n\r\n", without_body)).await;
        check(&answer, target);
        for line in answer.all("set-cookie") {
            self.take(line);
        }
        answer
    }

    fn take(&mut self, line: &str) {
        let (pair, attributes) = line.split_once(';').unwrap_or((line, ""));
        let (name, value) = pair.split_once('=').expect("a cookie");
        if attributes.contains("Max-Age=0") {
            self.cookies.remove(name);
        } else {
            self.cookies.insert(name.to_owned(), value.to_owned());
        }
    }
}

async fn exchange(address: SocketAddr, request: String, without_body: bool) -> Message {
    let mut wire = Wire::connect(address).await;
    wire.send(request).await;
    if without_body { wire.head().await.expect("an answer") } else { wire.answer().await }
}

/// Asks until the answer is the wanted one.
pub async fn until<T, F: Future<Output = T>>(
    mut ask: impl FnMut() -> F,
    wanted: impl Fn(&T) -> bool,
) -> T {
    soon(async {
        loop {
            let answer = ask().await;
            if wanted(&answer) {
                return answer;
            }
            // Between two questions others get a turn; what is waited for takes its own time.
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await
}

/// A body as JSON.
pub fn json(answer: &Message) -> Value {
    serde_json::from_slice(&answer.body).unwrap_or_else(|error| panic!("{error}: {answer:?}"))
}

/// Whether the shop gave this answer.
pub fn sold(answer: &Message) -> bool {
    answer.header("x-shop").is_some()
}

/// The state that a waiting room page shows; `None` for anything else.
pub fn page_state(answer: &Message) -> Option<String> {
    let body = std::str::from_utf8(&answer.body).ok()?;
    let (_, rest) = body.split_once("data-state=\"")?;
    rest.split('"').next().map(str::to_owned)
}

/// A token that looks right and was not issued.
pub fn forged(token: &str) -> String {
    let mut bytes = token.as_bytes().to_vec();
    bytes[60] = if bytes[60] == b'A' { b'B' } else { b'A' };
    String::from_utf8(bytes).expect("ASCII")
}

/// What every answer owes to whoever gets it.
fn check(answer: &Message, target: &str) {
    let cache = answer.header("cache-control").unwrap_or_default();
    if sold(answer) {
        let theirs = answer.headers.iter().find(|(name, value)| {
            value.contains("theirs") && (name != "set-cookie" || value.starts_with("queue_token"))
        });
        assert_eq!(theirs, None, "the shop spoke in the gateway's name");
        let own = answer.all("set-cookie").iter().any(|line| line.starts_with("queue_token"));
        let private = own || answer.header("x-queue-token").is_some();
        assert!(!private || cache.contains("no-store"), "{answer:?}");
        return;
    }
    let policy = answer.header("content-security-policy").unwrap_or_default();
    assert_eq!(answer.header("x-content-type-options"), Some("nosniff"), "{target}: {answer:?}");
    assert!(policy.contains("frame-ancestors"), "{target}: {answer:?}");
    assert!(answer.header("referrer-policy").is_some(), "{target}: {answer:?}");
    let path = target.split('?').next().unwrap_or_default();
    let cacheable = path.ends_with("/status") || path.ends_with("/openapi.json");
    assert!(
        cacheable && answer.status() == 200 || cache.contains("no-store"),
        "{target}: {answer:?}"
    );
    for name in ["etag", "last-modified", "expires", "age"] {
        assert_eq!(answer.header(name), None, "{target}: {answer:?}");
    }
    if answer.status() >= 400
        && page_state(answer).is_none()
        && answer.header("content-type").is_some_and(|kind| !kind.starts_with("text/html"))
    {
        assert_eq!(answer.header("content-type"), Some("application/problem+json"), "{answer:?}");
    }
    let closed = page_state(answer).is_none() && answer.text().contains("\"QUEUE_CLOSED\"");
    if [429, 503].contains(&answer.status()) && !closed {
        let after = answer.header("retry-after").and_then(|secs| secs.parse::<u64>().ok());
        assert!(after.is_some_and(|secs| (1..=20).contains(&secs)), "{target}: {answer:?}");
    }
    let line = answer.headers.iter().find(|(_, value)| value.contains(['\r', '\n']));
    assert_eq!(line, None);
}
