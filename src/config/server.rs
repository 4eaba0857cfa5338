//! `[server]` and `[server.limits]`: where the gateway listens and what a client may send.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use crate::identity::client_address::TrustedProxies;
use crate::proxy::{Limits, Listen, ServerSettings};

use super::networks;
use super::origin;
use super::raw::{Table, Value};

/// Longest path of a Unix socket on every system we know.
const MAX_SOCKET_PATH: usize = 103;

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);

/// The section with the places that are compared with others later.
pub(super) struct Server<'a> {
    pub(super) settings: ServerSettings,
    pub(super) admin_listen: Value<'a>,
}

pub(super) fn read<'a>(root: &mut Table<'a>) -> Server<'a> {
    let mut table = root.table("server");
    let listen = table.take("listen");
    let admin_listen = table.take("admin_listen");
    let public_origins = table.take("public_origins");
    let trusted_proxies = table.take("trusted_proxies");
    let threads = table.take("threads");
    let drain_timeout = table.take("drain_timeout");
    let shutdown_delay = table.take("shutdown_delay");
    table.later("tls");
    let limits = read_limits(&mut table);
    table.done();

    let settings = ServerSettings {
        listen: read_listen(&listen),
        admin_listen: admin_listen
            .parsed("an address such as \"127.0.0.1:9090\"", |text| text.parse().ok()),
        public_origins: origin::list(&public_origins),
        trusted_proxies: read_trusted(&trusted_proxies),
        threads: threads.count(1..=1024),
        drain_timeout: drain_timeout
            .duration(Duration::ZERO..=HOUR)
            .unwrap_or(Duration::from_secs(30)),
        shutdown_delay: shutdown_delay.duration(Duration::ZERO..=HOUR).unwrap_or(Duration::ZERO),
        limits,
    };
    if let Some(admin) = settings.admin_listen
        && settings.listen.iter().any(|public| collides(public, admin))
    {
        admin_listen.contradicts("an address of `listen`", "an address of its own");
    }
    Server { settings, admin_listen }
}

fn read_limits(server: &mut Table<'_>) -> Limits {
    let mut table = server.table("limits");
    let head_bytes = table.take("head_bytes");
    let header_fields = table.take("header_fields");
    let target_bytes = table.take("target_bytes");
    let header_deadline = table.take("header_deadline");
    let keepalive_idle = table.take("keepalive_idle");
    let body_bytes = table.take("body_bytes");
    let connections = table.take("connections");
    table.done();

    let default = Limits::default();
    let bytes = |value: &Value<'_>, most: u64| {
        value.size(1024..=most).and_then(|bytes| usize::try_from(bytes).ok())
    };
    let limits = Limits {
        head_bytes: bytes(&head_bytes, 1 << 20).unwrap_or(default.head_bytes),
        header_fields: header_fields.count(8..=128).unwrap_or(default.header_fields),
        target_bytes: bytes(&target_bytes, 1 << 16).unwrap_or(default.target_bytes),
        header_deadline: header_deadline.duration(SECOND..=HOUR).unwrap_or(default.header_deadline),
        keepalive_idle: keepalive_idle.duration(SECOND..=HOUR).unwrap_or(default.keepalive_idle),
        body_bytes: body_bytes.size(0..=1 << 50),
        connections: connections.count(1..=10_000_000).unwrap_or(default.connections),
    };
    if limits.target_bytes > limits.head_bytes {
        let at = if target_bytes.is_set() { &target_bytes } else { &head_bytes };
        at.contradicts(
            format_args!(
                "room for a target of {} bytes in a head of {}",
                limits.target_bytes, limits.head_bytes
            ),
            "a target that fits into the head",
        );
    }
    limits
}

fn read_listen(value: &Value<'_>) -> Vec<Listen> {
    let expected = "addresses such as \"127.0.0.1:8080\" or \"unix:/run/anteroom.sock\"";
    let Some(elements) = value.clone().required(expected).list() else { return Vec::new() };
    if elements.is_empty() {
        value.refuse("an empty list", expected);
    }
    let mut listen: Vec<Listen> = Vec::new();
    for element in elements {
        let Some(one) = element.parsed(
            "an address such as \"127.0.0.1:8080\" or \"unix:/run/anteroom.sock\"",
            parse_listen,
        ) else {
            continue;
        };
        let free_port = matches!(&one, Listen::Tcp(address) if address.port() == 0);
        if listen.contains(&one) && !free_port {
            element.refuse("an address that is listed twice", "each address once");
        } else {
            listen.push(one);
        }
    }
    listen
}

fn parse_listen(text: &str) -> Option<Listen> {
    match text.strip_prefix("unix:") {
        Some(path) => {
            let sound = path.starts_with('/')
                && path.len() <= MAX_SOCKET_PATH
                && !path.bytes().any(|b| b == 0);
            sound.then(|| Listen::Unix(PathBuf::from(path)))
        }
        None => text.parse().ok().map(Listen::Tcp),
    }
}

fn read_trusted(value: &Value<'_>) -> TrustedProxies {
    let mut trusted = TrustedProxies::default();
    for element in value.list().unwrap_or_default() {
        if element.is_text("unix") {
            trusted.unix = true;
        } else if let Some(network) =
            networks::one(&element, "a network such as \"10.0.0.0/8\", an address, or \"unix\"")
        {
            if network.prefix_len() == 0 {
                element.warn("everybody is trusted to say who a client is");
            }
            trusted.networks.push(network);
        }
    }
    trusted
}

/// Whether a listener and an address cannot both be bound: same port, and one address that covers
/// the other. Port 0 never is in the way.
fn collides(listener: &Listen, address: SocketAddr) -> bool {
    let Listen::Tcp(own) = listener else { return false };
    let covers =
        |one: IpAddr, other: IpAddr| one.is_unspecified() && (one.is_ipv6() || other.is_ipv4());
    let (x, y) = (own.ip().to_canonical(), address.ip().to_canonical());
    address.port() != 0 && own.port() == address.port() && (x == y || covers(x, y) || covers(y, x))
}

/// Whether a connection to `address` surely ends at a socket of this machine that is bound to `own`.
/// Other addresses of this machine are not known here.
pub(super) fn is_reached(own: SocketAddr, address: SocketAddr) -> bool {
    let (bound, to) = (own.ip().to_canonical(), address.ip().to_canonical());
    // Connecting to the unspecified address means this machine.
    let here = to.is_loopback() || to.is_unspecified();
    own.port() != 0
        && own.port() == address.port()
        && (bound == to
            || (bound.is_unspecified() && here)
            || (bound.is_loopback() && to.is_unspecified()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[test]
    fn an_unspecified_address_is_in_the_way_of_all_others_of_its_port() {
        let collide = |a: &str, b: &str| collides(&Listen::Tcp(at(a)), at(b));
        assert!(collide("127.0.0.1:1", "127.0.0.1:1"));
        assert!(collide("0.0.0.0:1", "10.0.0.1:1"));
        assert!(collide("127.0.0.1:1", "[::]:1"));
        assert!(collide("[::ffff:127.0.0.1]:1", "127.0.0.1:1"));
        assert!(!collide("127.0.0.1:1", "127.0.0.2:1"));
        assert!(!collide("127.0.0.1:1", "127.0.0.1:2"));
        assert!(!collide("127.0.0.1:0", "127.0.0.1:0"));
        assert!(!collides(&Listen::Unix("/a".into()), at("127.0.0.1:1")));
    }

    #[test]
    fn only_addresses_that_are_surely_here_reach_a_listener() {
        let reached = |own: &str, to: &str| is_reached(at(own), at(to));
        assert!(reached("127.0.0.1:1", "127.0.0.1:1"));
        assert!(reached("127.0.0.1:1", "0.0.0.0:1"));
        assert!(reached("0.0.0.0:1", "127.0.0.1:1"));
        assert!(reached("[::]:1", "[::1]:1"));
        assert!(reached("10.0.0.1:1", "10.0.0.1:1"));
        assert!(reached("0.0.0.0:1", "[::ffff:127.0.0.1]:1"));
        assert!(!reached("0.0.0.0:1", "10.0.0.1:1"));
        assert!(!reached("127.0.0.1:1", "127.0.0.1:2"));
        assert!(!reached("0.0.0.0:0", "127.0.0.1:0"));
    }
}
