//! Servers by name, looked up through the system's resolver.

use std::collections::{BTreeSet, HashMap};
use std::net::SocketAddr;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use pingora::lb::discovery::ServiceDiscovery;
use pingora::lb::{Backend, Extensions};
use pingora::protocols::l4::socket;
use tracing::warn;

/// How long one look-up may take.
const LOOK_UP_TIME: Duration = Duration::from_secs(5);

/// One configured server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Server {
    /// An address, used as it is.
    Address(SocketAddr),
    /// `host:port`; all addresses of the host are servers.
    Name(String),
}

impl Server {
    /// Reads `host:port`; `None` when it is not that.
    pub(super) fn parse(text: &str) -> Option<Self> {
        if let Ok(address) = text.parse() {
            return Some(Self::Address(address));
        }
        let (host, port) = text.rsplit_once(':')?;
        let port: u16 = port.parse().ok()?;
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
        (port != 0 && !host.is_empty() && host.bytes().all(plain))
            .then(|| Self::Name(text.to_owned()))
    }

    /// Whether it has to be looked up.
    pub(super) fn is_named(&self) -> bool {
        matches!(self, Self::Name(_))
    }
}

/// The servers of one upstream, and what their names resolved to last.
#[derive(Debug)]
pub(super) struct Names {
    upstream: String,
    servers: Vec<Server>,
    known: Mutex<HashMap<String, Vec<SocketAddr>>>,
}

impl Names {
    pub(super) fn new(upstream: String, servers: Vec<Server>) -> Self {
        Self { upstream, servers, known: Mutex::default() }
    }

    /// The addresses of `name`: as they are now, or as they were last when the resolver fails.
    async fn look_up(&self, name: &str) -> Vec<SocketAddr> {
        let found = tokio::time::timeout(LOOK_UP_TIME, tokio::net::lookup_host(name)).await;
        let found = found.unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into()));
        match found.map(Iterator::collect::<Vec<_>>) {
            Ok(found) if !found.is_empty() => {
                self.known.lock().insert(name.to_owned(), found.clone());
                found
            }
            found => {
                let known = self.known.lock().get(name).cloned().unwrap_or_default();
                warn!(
                    upstream.name = %self.upstream,
                    upstream.server = name,
                    error = found.err().map(tracing::field::display),
                    "`{name}` of upstream `{}` does not resolve; keeping {} addresses",
                    self.upstream,
                    known.len()
                );
                known
            }
        }
    }
}

#[async_trait]
impl ServiceDiscovery for Names {
    async fn discover(&self) -> pingora::Result<(BTreeSet<Backend>, HashMap<u64, bool>)> {
        let mut backends = BTreeSet::new();
        for server in &self.servers {
            let addresses = match server {
                Server::Address(address) => vec![*address],
                Server::Name(name) => self.look_up(name).await,
            };
            backends.extend(addresses.into_iter().map(|address| Backend {
                addr: socket::SocketAddr::Inet(address),
                weight: 1,
                ext: Extensions::new(),
            }));
        }
        Ok((backends, HashMap::new()))
    }
}
