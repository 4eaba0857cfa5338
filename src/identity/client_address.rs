//! Which address a request comes from, and whose word about it counts.
//!
//! A forwarding header is a rumour: anybody can write one. So it is read from its right end, where
//! the nearest proxy wrote, and only as far as each writer is a trusted proxy. The first entry that
//! cannot be read ends the walk at the last hop that could. Peers that are not trusted are taken
//! for the client themselves, whatever they send. `Forwarded` is read only when the request holds
//! none of the `X-Forwarded-*` three: a proxy keeps one dialect up to date, and the other then
//! comes from the client.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use http::header::{FORWARDED, HOST};
use http::{Extensions, HeaderMap};
use ipnet::IpNet;

const X_FORWARDED_FOR: &str = "x-forwarded-for";
const X_FORWARDED_PROTO: &str = "x-forwarded-proto";
const X_FORWARDED_HOST: &str = "x-forwarded-host";

/// The longest host that is believed, bytes: a DNS name of 253, a colon and a port.
const MAX_HOST_BYTES: usize = 259;

/// Whose forwarding and identity headers are believed.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TrustedProxies {
    /// Networks of trusted peers. Empty trusts nobody.
    pub networks: Vec<IpNet>,
    /// Whether peers on Unix sockets are trusted; written `unix` in the list.
    pub unix: bool,
}

impl TrustedProxies {
    /// Whether the peer of `connection` is a trusted proxy.
    #[must_use]
    pub fn trusts(&self, connection: &Connection) -> bool {
        connection.peer.map_or(self.unix, |peer| self.trusts_address(peer))
    }

    /// Whether `address` is a trusted proxy. An IPv4 address mapped into IPv6 counts as IPv4, on
    /// both sides.
    #[must_use]
    pub fn trusts_address(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.networks.iter().any(|network| contains(network, address))
    }
}

/// Whether `network` holds the canonical `address`. Only a network that lies wholly within
/// `::ffff:0:0/96` speaks of IPv4: whoever trusts `::/0` has not said anything about IPv4.
fn contains(network: &IpNet, address: IpAddr) -> bool {
    match (network, address) {
        (IpNet::V6(network), IpAddr::V4(address)) => {
            network.prefix_len() >= 96 && network.contains(&address.to_ipv6_mapped())
        }
        _ => network.contains(&address),
    }
}

/// The connection a request came over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Connection {
    /// The peer's address; `None` on a Unix socket.
    pub peer: Option<IpAddr>,
    /// Whether the connection itself is encrypted.
    pub tls: bool,
}

impl Connection {
    /// The address of a peer whose own is not known: nobody trusts it.
    pub const NOBODY: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

    /// The connection that a request's extensions name; one that is not named comes from nobody
    /// who is trusted.
    #[must_use]
    pub fn of(extensions: &Extensions) -> Self {
        extensions.get().copied().unwrap_or(Self { peer: Some(Self::NOBODY), tls: false })
    }
}

/// The client's side of a request, as far as trusted parties know it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Client {
    /// Its address: the right-most hop that is not a trusted proxy. IPv4 in IPv6 is shown as IPv4.
    /// `None` when the peer is a Unix socket and nobody trusted named an address.
    pub address: Option<IpAddr>,
    /// Whether the client speaks https. A trusted proxy's word counts more than the connection's
    /// own encryption, which may only reach as far as that proxy.
    pub https: bool,
    /// The host the client asked for, lower case, with its port if it has one: a trusted proxy's
    /// word, else the one `Host` header. `None` when there is none, several, or one that is no
    /// host; over HTTP/2 the caller has the target's authority instead.
    pub host: Option<String>,
}

impl Client {
    /// Reads who the client is. Never fails: what cannot be believed or read is passed over.
    #[must_use]
    pub fn resolve(headers: &HeaderMap, connection: &Connection, trusted: &TrustedProxies) -> Self {
        let told =
            if trusted.trusts(connection) { told(headers, trusted) } else { Told::default() };
        Self {
            address: told.address.or(connection.peer).map(|address| address.to_canonical()),
            https: told.https.unwrap_or(connection.tls),
            host: told.host.or_else(|| own_host(headers)),
        }
    }
}

/// What trusted proxies say about the client.
#[derive(Default)]
struct Told {
    address: Option<IpAddr>,
    https: Option<bool>,
    host: Option<String>,
}

fn told(headers: &HeaderMap, trusted: &TrustedProxies) -> Told {
    let de_facto = [X_FORWARDED_FOR, X_FORWARDED_PROTO, X_FORWARDED_HOST];
    if !de_facto.iter().any(|name| headers.contains_key(*name)) {
        return forwarded(headers, trusted);
    }
    let mut told = Told::default();
    for entry in from_the_right(headers, X_FORWARDED_FOR) {
        let Some(address) = node(entry) else { break };
        told.address = Some(address);
        if !trusted.trusts_address(address) {
            break;
        }
    }
    told.https = from_the_right(headers, X_FORWARDED_PROTO).next().and_then(scheme);
    told.host = from_the_right(headers, X_FORWARDED_HOST).next().and_then(host);
    told
}

/// The same out of `Forwarded` (RFC 7239). Scheme and host are taken from the last element read,
/// which a trusted proxy wrote about the hop named in it.
fn forwarded(headers: &HeaderMap, trusted: &TrustedProxies) -> Told {
    let mut told = Told::default();
    for entry in from_the_right(headers, FORWARDED.as_str()) {
        let Some(element) = Element::parse(entry) else { break };
        told.https = element.proto.and_then(scheme).or(told.https);
        told.host = element.host.and_then(host).or(told.host);
        let Some(address) = element.node.and_then(node) else { break };
        told.address = Some(address);
        if !trusted.trusts_address(address) {
            break;
        }
    }
    told
}

/// The elements of a comma-separated header, last one first, over all its lines. A comma inside
/// quotes separates too: no address, scheme or host holds one, and an opening quote that a client
/// slipped in must not swallow what the proxies wrote after it.
fn from_the_right<'a>(
    headers: &'a HeaderMap,
    name: &'static str,
) -> impl Iterator<Item = &'a [u8]> {
    headers
        .get_all(name)
        .iter()
        .rev()
        .flat_map(|line| line.as_bytes().rsplit(|byte| *byte == b','))
        .map(<[u8]>::trim_ascii)
}

/// An address with or without a port, IPv6 with or without brackets.
fn node(entry: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(entry).ok()?;
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    let address = bare
        .parse::<IpAddr>()
        .or_else(|_| text.parse::<SocketAddr>().map(|socket| socket.ip()))
        .ok()?;
    Some(address.to_canonical())
}

/// Whether a scheme is https; `None` for anything but the two.
fn scheme(entry: &[u8]) -> Option<bool> {
    if entry.eq_ignore_ascii_case(b"https") {
        Some(true)
    } else if entry.eq_ignore_ascii_case(b"http") {
        Some(false)
    } else {
        None
    }
}

/// A host with an optional port, in lower case. Checked for its alphabet only: it is compared, and
/// never resolved.
fn host(entry: &[u8]) -> Option<String> {
    let sound = !entry.is_empty()
        && entry.len() <= MAX_HOST_BYTES
        && entry.iter().all(|byte| {
            byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b':' | b'[' | b']')
        });
    let text = std::str::from_utf8(entry).ok().filter(|_| sound)?;
    Some(text.to_ascii_lowercase())
}

fn own_host(headers: &HeaderMap) -> Option<String> {
    let mut lines = headers.get_all(HOST).iter();
    match (lines.next(), lines.next()) {
        (Some(line), None) => host(line.as_bytes()),
        _ => None,
    }
}

/// One element of `Forwarded`.
#[derive(Default)]
struct Element<'a> {
    node: Option<&'a [u8]>,
    proto: Option<&'a [u8]>,
    host: Option<&'a [u8]>,
}

impl<'a> Element<'a> {
    /// `None` when a parameter has no value, comes twice or is not quoted as a whole.
    fn parse(entry: &'a [u8]) -> Option<Self> {
        let mut element = Self::default();
        for pair in entry.split(|byte| *byte == b';') {
            let at = pair.iter().position(|byte| *byte == b'=')?;
            let value = unquote(pair[at + 1..].trim_ascii())?;
            let slot = match pair[..at].trim_ascii().to_ascii_lowercase().as_slice() {
                b"for" => &mut element.node,
                b"proto" => &mut element.proto,
                b"host" => &mut element.host,
                _ => continue,
            };
            if slot.replace(value).is_some() {
                return None;
            }
        }
        Some(element)
    }
}

/// A value without its quotes. Escapes are refused: nothing that is read here needs one.
fn unquote(value: &[u8]) -> Option<&[u8]> {
    let bare = match value {
        [b'"', inner @ .., b'"'] => inner,
        _ => value,
    };
    let sound = !bare.is_empty() && !bare.iter().any(|byte| matches!(byte, b'"' | b'\\'));
    sound.then_some(bare)
}

#[cfg(test)]
mod tests;
