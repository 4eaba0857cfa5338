//! Which address a request comes from, and whose word about it counts.

use std::net::IpAddr;

use ipnet::IpNet;

/// Whose forwarding and identity headers are believed.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TrustedProxies {
    /// Networks of trusted peers. Empty trusts nobody.
    pub networks: Vec<IpNet>,
    /// Whether peers on Unix sockets are trusted; written `unix` in the list.
    pub unix: bool,
}

/// The connection a request came over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Connection {
    /// The peer's address; `None` on a Unix socket.
    pub peer: Option<IpAddr>,
    /// Whether the connection itself is encrypted.
    pub tls: bool,
}
