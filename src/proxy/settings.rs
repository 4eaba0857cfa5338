//! What can be set about the public side: listeners, limits and upstreams.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use crate::identity::client_address::TrustedProxies;

/// Where the gateway listens.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Listen {
    /// A TCP address; port 0 takes a free port.
    Tcp(SocketAddr),
    /// A Unix socket.
    Unix(PathBuf),
}

/// The public side as a whole.
#[derive(Clone, PartialEq, Debug)]
pub struct ServerSettings {
    /// Public listeners, at least one.
    pub listen: Vec<Listen>,
    /// The second listener: health, metrics, administration.
    pub admin_listen: Option<SocketAddr>,
    /// Origins of this site, each `scheme://host[:port]`, lower case.
    pub public_origins: Vec<String>,
    /// Whose forwarding headers are believed.
    pub trusted_proxies: TrustedProxies,
    /// Worker threads. Default: the number of cores.
    pub threads: Option<usize>,
    /// How long requests in flight may go on after SIGTERM. Default 30 s.
    pub drain_timeout: Duration,
    /// How long the gateway stays up, not ready, before it stops accepting. Default 0 s.
    pub shutdown_delay: Duration,
    /// Limits on what a client may send.
    pub limits: Limits,
}

/// Limits on what a client may send.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Request line and header block together, bytes. Default 16 KiB.
    pub head_bytes: usize,
    /// Header fields. Default 64, at most 128.
    pub header_fields: usize,
    /// Request target, bytes. Default 8 KiB.
    pub target_bytes: usize,
    /// From the first byte of a request to the end of its head. Default 10 s.
    pub header_deadline: Duration,
    /// Idle time of a kept-alive connection. Default 15 s.
    pub keepalive_idle: Duration,
    /// Largest proxied request body, bytes; `None` for no limit. Default none.
    pub body_bytes: Option<u64>,
    /// Connections at once. Default 100 000.
    pub connections: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            head_bytes: 16 * 1024,
            header_fields: 64,
            target_bytes: 8 * 1024,
            header_deadline: Duration::from_secs(10),
            keepalive_idle: Duration::from_secs(15),
            body_bytes: None,
            connections: 100_000,
        }
    }
}

/// A group of equal servers behind the gateway.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UpstreamSettings {
    /// Its name, as routes use it.
    pub name: String,
    /// `host:port` or an address with port, at least one.
    pub servers: Vec<String>,
    /// Time to connect. Default 2 s.
    pub connect_timeout: Duration,
    /// Longest silence of the upstream while it is to answer. Default 60 s.
    pub read_timeout: Duration,
    /// Longest stall while sending to the upstream. Default 60 s.
    pub write_timeout: Duration,
    /// Idle time of a pooled connection; keep it below the upstream's own keep-alive. Default 4 s:
    /// common servers close after 5.
    pub idle_timeout: Duration,
    /// Longest silence on an upgraded connection (WebSocket). Default 1 h.
    pub upgrade_timeout: Duration,
    /// TLS towards the upstream: the name that is sent and verified.
    pub tls_server_name: Option<String>,
}
