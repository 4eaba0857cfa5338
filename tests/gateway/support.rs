//! The vocabulary of the stories: an upstream that records what it saw, a client that speaks raw
//! HTTP, and a gateway between them.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anteroom::identity::client_address::TrustedProxies;
use anteroom::proxy::{
    Api, Drain, Gateway, Judge, Limits, Listen, Metrics, UpstreamSettings, Upstreams,
};
use anteroom::route::{PathPattern, Route};
use anteroom::server::listener::{BoundListeners, Drained, ServeError};
use prometheus_client::registry::Registry;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// No step of a story takes this long; one that does fails instead of hanging.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// Fails the story when `future` takes longer than [`PATIENCE`].
pub async fn soon<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(PATIENCE, future).await.expect("this should have happened by now")
}

/// One HTTP message head with its body, as it came over the wire.
#[derive(Clone, Debug, Default)]
pub struct Message {
    /// The request or status line.
    pub first_line: String,
    /// Names in lower case, in order.
    pub headers: Vec<(String, String)>,
    /// The body without its framing.
    pub body: Vec<u8>,
}

impl Message {
    /// The only value of a header; fails the story when it is there twice.
    pub fn header(&self, name: &str) -> Option<&str> {
        let values = self.all(name);
        assert!(values.len() < 2, "{name} occurs {} times: {values:?}", values.len());
        values.first().copied()
    }

    /// All values of a header.
    pub fn all(&self, name: &str) -> Vec<&str> {
        self.headers
            .iter()
            .filter(|(have, _)| have == name)
            .map(|(_, value)| value.as_str())
            .collect()
    }

    /// The status of a response.
    pub fn status(&self) -> u16 {
        self.first_line.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status")
    }

    /// The target of a request.
    pub fn target(&self) -> &str {
        self.first_line.split(' ').nth(1).expect("a target")
    }

    /// The body as text.
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("UTF-8")
    }

    /// A member of a problem+json body.
    pub fn problem(&self) -> String {
        assert_eq!(self.header("content-type"), Some("application/problem+json"), "{self:?}");
        let body: serde_json::Value = serde_json::from_slice(&self.body).expect("JSON");
        body["code"].as_str().expect("a code").to_owned()
    }

    fn parse(head: &[u8]) -> Self {
        let text = String::from_utf8_lossy(head);
        let mut lines = text.trim_end().split("\r\n");
        let first_line = lines.next().unwrap_or_default().to_owned();
        let headers = lines
            .filter_map(|line| line.split_once(':'))
            .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
            .collect();
        Self { first_line, headers, body: Vec::new() }
    }
}

/// One end of a connection that speaks HTTP by hand.
#[derive(Debug)]
pub struct Wire {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Wire {
    /// Connects to `address`.
    pub async fn connect(address: SocketAddr) -> Self {
        Self::over(TcpStream::connect(address).await.expect("it listens"))
    }

    /// Speaks over `stream`.
    pub fn over(stream: TcpStream) -> Self {
        stream.set_nodelay(true).expect("a TCP socket");
        Self { stream, buffer: Vec::new() }
    }

    /// Sends bytes as they are.
    pub async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        soon(self.stream.write_all(bytes.as_ref())).await.expect("the peer reads");
    }

    /// Sends bytes, unless the peer is gone.
    pub async fn try_send(&mut self, bytes: impl AsRef<[u8]>) -> std::io::Result<()> {
        soon(self.stream.write_all(bytes.as_ref())).await
    }

    /// Sends a `GET` and reads the answer.
    pub async fn get(&mut self, target: &str) -> Message {
        self.send(format!("GET {target} HTTP/1.1\r\nHost: shop.example\r\n\r\n")).await;
        self.answer().await
    }

    /// Reads one answer to a request that was no `HEAD`.
    pub async fn answer(&mut self) -> Message {
        let mut message = self.head().await.expect("an answer");
        message.body = self.body(&message).await;
        message
    }

    /// Reads a message head; `None` at the end of the connection.
    pub async fn head(&mut self) -> Option<Message> {
        loop {
            if let Some(end) = find(&self.buffer, b"\r\n\r\n") {
                let rest = self.buffer.split_off(end + 4);
                let head = std::mem::replace(&mut self.buffer, rest);
                return Some(Message::parse(&head));
            }
            if !self.fill().await {
                assert!(self.buffer.is_empty(), "cut head: {}", self.buffer.escape_ascii());
                return None;
            }
        }
    }

    /// Reads the head of an answer, unless the peer is gone.
    pub async fn try_head(&mut self) -> Option<Message> {
        while find(&self.buffer, b"\r\n\r\n").is_none() {
            if !self.fill().await {
                return None;
            }
        }
        self.head().await
    }

    /// Reads a body with a length, unless the peer is gone.
    pub async fn try_body(&mut self, head: &Message) -> Option<Vec<u8>> {
        let length =
            head.header("content-length").map_or(0, |length| length.parse().expect("a length"));
        while self.buffer.len() < length {
            if !self.fill().await {
                return None;
            }
        }
        let rest = self.buffer.split_off(length);
        Some(std::mem::replace(&mut self.buffer, rest))
    }

    /// Reads the body that belongs to `head`: by length, by chunks, or for an answer without
    /// either to the end of the connection.
    pub async fn body(&mut self, head: &Message) -> Vec<u8> {
        if head.header("transfer-encoding") == Some("chunked") {
            let mut body = Vec::new();
            while let Some(chunk) = self.chunk().await {
                body.extend(chunk);
            }
            return body;
        }
        if let Some(length) = head.header("content-length") {
            return self.exactly(length.parse().expect("a length")).await;
        }
        let is_answer = head.first_line.starts_with("HTTP/");
        if !is_answer || [101, 204, 304].contains(&head.status()) || head.status() < 200 {
            return Vec::new();
        }
        while self.fill().await {}
        std::mem::take(&mut self.buffer)
    }

    /// Reads one chunk; `None` for the last.
    pub async fn chunk(&mut self) -> Option<Vec<u8>> {
        let end = loop {
            if let Some(end) = find(&self.buffer, b"\r\n") {
                break end;
            }
            assert!(self.fill().await, "cut chunk");
        };
        let size = std::str::from_utf8(&self.buffer[..end]).expect("hexadecimal");
        let size = usize::from_str_radix(size.trim(), 16).expect("hexadecimal");
        self.buffer.drain(..end + 2);
        let mut chunk = self.exactly(size + 2).await;
        chunk.truncate(size);
        (size > 0).then_some(chunk)
    }

    /// Reads exactly `length` bytes.
    pub async fn exactly(&mut self, length: usize) -> Vec<u8> {
        while self.buffer.len() < length {
            assert!(self.fill().await, "cut after {} of {length} bytes", self.buffer.len());
        }
        let rest = self.buffer.split_off(length);
        std::mem::replace(&mut self.buffer, rest)
    }

    /// Whether the peer ends the connection now, without another byte.
    pub async fn is_closed(&mut self) -> bool {
        self.buffer.is_empty() && !self.fill().await
    }

    async fn fill(&mut self) -> bool {
        self.buffer.reserve(64 * 1024);
        // A reset is an end, too.
        soon(self.stream.read_buf(&mut self.buffer)).await.unwrap_or(0) > 0
    }
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack.windows(needle.len()).position(|window| window == needle)
}

/// What an upstream does with a connection.
pub type Script = Arc<dyn Fn(Wire, Recorder) -> JoinHandle<()> + Send + Sync>;

/// What an upstream saw, in order.
#[derive(Clone, Debug, Default)]
pub struct Recorder(Arc<Mutex<Vec<Message>>>);

impl Recorder {
    /// Adds a request.
    pub fn record(&self, message: Message) {
        self.0.lock().unwrap().push(message);
    }

    /// All requests so far.
    pub fn requests(&self) -> Vec<Message> {
        self.0.lock().unwrap().clone()
    }

    /// The one request there was.
    pub fn only(&self) -> Message {
        let mut requests = self.requests();
        assert_eq!(requests.len(), 1, "{requests:#?}");
        requests.remove(0)
    }
}

/// A server behind the gateway.
#[derive(Debug)]
pub struct Upstream {
    /// Where it listens.
    pub address: SocketAddr,
    /// What it saw.
    pub seen: Recorder,
    accepting: JoinHandle<()>,
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl Upstream {
    /// Answers every request with 200 and `hello from <its port>`, keeping connections.
    pub async fn hello() -> Self {
        Self::run(script(|mut wire, seen| async move {
            let port = wire.stream.local_addr().unwrap().port();
            while let Some(mut request) = wire.head().await {
                request.body = wire.body(&request).await;
                seen.record(request);
                let body = format!("hello from {port}");
                let head = format!(
                    "HTTP/1.1 200 OK\r\nX-Queue-Status: ACTIVE\r\nContent-Length: {}\r\n\r\n",
                    body.len()
                );
                wire.send(head + &body).await;
            }
        }))
        .await
    }

    /// Does what `script` says with every connection.
    pub async fn run(script: Script) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let seen = Recorder::default();
        let recorder = seen.clone();
        let accepting = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                script(Wire::over(stream), recorder.clone());
            }
        });
        Self { address, seen, accepting }
    }
}

/// Makes a [`Script`] of an async closure.
pub fn script<F>(serve: impl Fn(Wire, Recorder) -> F + Send + Sync + 'static) -> Script
where
    F: Future<Output = ()> + Send + 'static,
{
    Arc::new(move |wire, recorder| tokio::spawn(serve(wire, recorder)))
}

/// An address where nobody listens.
pub async fn nobody() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap()
}

/// How a gateway is set up; change what the story needs.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Limits on clients.
    pub limits: Limits,
    /// Whose forwarding headers count.
    pub trusted_proxies: TrustedProxies,
    /// The upstream called `shop`.
    pub shop: UpstreamSettings,
    /// How long a drain may take.
    pub drain_timeout: Duration,
}

impl Setup {
    /// The defaults, with these servers behind the upstream `shop`.
    pub fn with_shop(servers: &[SocketAddr]) -> Self {
        Self {
            limits: Limits::default(),
            trusted_proxies: TrustedProxies::default(),
            shop: UpstreamSettings {
                name: "shop".into(),
                servers: servers.iter().map(ToString::to_string).collect(),
                connect_timeout: Duration::from_secs(2),
                read_timeout: Duration::from_secs(60),
                write_timeout: Duration::from_secs(60),
                idle_timeout: Duration::from_secs(4),
                upgrade_timeout: Duration::from_secs(3600),
                tls_server_name: None,
            },
            drain_timeout: PATIENCE,
        }
    }

    /// Starts a gateway with this gate and this queue API on a free port.
    pub async fn start<G: Judge, A: Api>(self, gate: G, api: A) -> RunningGateway {
        let listen = [Listen::Tcp(SocketAddr::from(([127, 0, 0, 1], 0)))];
        self.start_on(&listen, gate, api).await
    }

    /// The same on given listeners.
    pub async fn start_on<G: Judge, A: Api>(
        self,
        listen: &[Listen],
        gate: G,
        api: A,
    ) -> RunningGateway {
        let bound = BoundListeners::bind(listen).expect("free addresses");
        let addresses = bound.addresses().to_vec();
        let drain = Drain::default();
        let mut registry = Registry::default();
        let gateway = Gateway {
            gate: Arc::new(gate),
            api,
            upstreams: Upstreams::resolve(std::slice::from_ref(&self.shop)).await.unwrap(),
            limits: self.limits,
            trusted_proxies: self.trusted_proxies,
            metrics: Metrics::register(&mut registry),
            drain: drain.clone(),
        };
        let (stop, stopped) = watch::channel(false);
        let serving = tokio::spawn({
            let drain = drain.clone();
            async move { bound.serve(gateway.into_app(2), stopped, &drain, self.drain_timeout).await }
        });
        RunningGateway { addresses, drain, registry, stop, serving }
    }
}

/// A gateway that serves.
#[derive(Debug)]
pub struct RunningGateway {
    /// Where it listens.
    pub addresses: Vec<Listen>,
    /// Its requests in flight.
    pub drain: Drain,
    registry: Registry,
    stop: watch::Sender<bool>,
    serving: JoinHandle<Result<Drained, ServeError>>,
}

impl RunningGateway {
    /// Its first TCP address.
    pub fn address(&self) -> SocketAddr {
        let tcp = self.addresses.iter().find_map(|listen| match listen {
            Listen::Tcp(address) => Some(*address),
            Listen::Unix(_) => None,
        });
        tcp.expect("a TCP listener")
    }

    /// A new connection to it.
    pub async fn connect(&self) -> Wire {
        Wire::connect(self.address()).await
    }

    /// Says that it is to stop.
    pub fn stop(&self) {
        self.stop.send_replace(true);
    }

    /// Waits until it has stopped.
    pub async fn stopped(self) -> Drained {
        soon(self.serving).await.expect("no panic").expect("told to stop")
    }

    /// The value of a metric line, e.g. `requests_in_flight`, with labels as exported; 0 if absent.
    pub fn metric(&self, line: &str) -> u64 {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry).unwrap();
        text.lines()
            .find_map(|have| have.strip_prefix(line)?.strip_prefix(' '))
            .map_or(0, |value| value.parse().expect("a number"))
    }

    /// Waits until `condition` holds, for effects that follow an answer.
    pub async fn until(&self, condition: impl Fn(&Self) -> bool) {
        soon(async {
            while !condition(self) {
                tokio::task::yield_now().await;
            }
        })
        .await;
    }
}

/// A route to the upstream `shop`.
pub fn shop_route() -> Arc<Route> {
    Arc::new(Route {
        label: "everything".into(),
        hosts: Vec::new(),
        path: PathPattern::parse("/*").unwrap(),
        methods: Vec::new(),
        case_insensitive: false,
        allow_encoded_slash: false,
        upstream: "shop".into(),
        gated: None,
        forward_token: false,
        cors: None,
    })
}
