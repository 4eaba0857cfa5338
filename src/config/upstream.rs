//! `[[upstream]]`: the servers behind the gateway.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::time::Duration;

use crate::proxy::{Listen, UpstreamSettings};

use super::origin;
use super::raw::{Table, Value};
use super::server::{self, Server};

const SHORTEST: Duration = Duration::from_millis(10);
const DAY: Duration = Duration::from_secs(24 * 3600);

/// An upstream with the places that are compared with others later.
pub(super) struct Upstream<'a> {
    /// Its name, if it could be read.
    pub(super) name: Option<String>,
    pub(super) settings: UpstreamSettings,
    servers: Vec<Value<'a>>,
    table: Table<'a>,
}

pub(super) fn read<'a>(root: &mut Table<'a>) -> Vec<Upstream<'a>> {
    let mut upstreams: Vec<Upstream<'a>> = Vec::new();
    for table in root.tables("upstream") {
        let (name, upstream) = read_one(table);
        let twin =
            upstreams.iter().find(|other| other.name.is_some() && other.name == upstream.name);
        if let Some(twin) = twin {
            name.refuse(
                format_args!(
                    "{} a second time (first in line {})",
                    name.shown(),
                    twin.table.line()
                ),
                "a name of its own for each upstream",
            );
        }
        upstreams.push(upstream);
    }
    upstreams
}

fn read_one(mut table: Table<'_>) -> (Value<'_>, Upstream<'_>) {
    let name = table.take("name");
    let servers = table.take("servers");
    let connect_timeout = table.take("connect_timeout");
    let read_timeout = table.take("read_timeout");
    let write_timeout = table.take("write_timeout");
    let idle_timeout = table.take("idle_timeout");
    let upgrade_timeout = table.take("upgrade_timeout");
    let tls_server_name = table.take("tls_server_name");
    table.done();

    let range = || -> RangeInclusive<Duration> { SHORTEST..=DAY };
    let span = |value: &Value<'_>, default| value.duration(range()).unwrap_or(default);
    let form = "a name of 1 to 64 letters, digits, `-`, `_` and `.`";
    let own_name = name.clone().required(form).parsed(form, |text| {
        let sound = (1..=64).contains(&text.len())
            && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b));
        sound.then(|| text.to_owned())
    });
    let (places, addresses) = read_servers(&servers);
    let settings = UpstreamSettings {
        name: own_name.clone().unwrap_or_default(),
        servers: addresses,
        connect_timeout: span(&connect_timeout, Duration::from_secs(2)),
        read_timeout: span(&read_timeout, Duration::from_secs(60)),
        write_timeout: span(&write_timeout, Duration::from_secs(60)),
        idle_timeout: span(&idle_timeout, Duration::from_secs(4)),
        upgrade_timeout: span(&upgrade_timeout, Duration::from_secs(3600)),
        // Never empty: an empty name would turn verification off.
        tls_server_name: tls_server_name.parsed("the name on the upstream's certificate", |text| {
            let sound = origin::is_host_name(text) && text.parse::<IpAddr>().is_err();
            sound.then(|| text.to_ascii_lowercase())
        }),
    };
    (name, Upstream { name: own_name, settings, servers: places, table })
}

fn read_servers<'a>(value: &Value<'a>) -> (Vec<Value<'a>>, Vec<String>) {
    let expected = "servers such as \"10.0.0.5:8080\" or \"shop.internal:80\"";
    let Some(elements) = value.clone().required(expected).list() else { return Default::default() };
    if elements.is_empty() {
        value.refuse("an empty list", expected);
    }
    let mut places = Vec::new();
    let mut servers: Vec<String> = Vec::new();
    for element in elements {
        let server = element.parsed(
            "a host and a port without scheme and path, such as \"10.0.0.5:8080\"",
            |text| matches!(origin::host_and_port(text), Some((_, Some(_)))).then_some(text),
        );
        let Some(server) = server else { continue };
        if servers.iter().any(|other| other == server) {
            element.refuse("a server that is listed twice", "each server once");
        }
        servers.push(server.to_owned());
        places.push(element);
    }
    (places, servers)
}

impl Upstream<'_> {
    /// Reports servers that are this gateway itself: the admin listener behind a public route would
    /// be open to everybody, and a public listener would be a loop.
    pub(super) fn check_loops(&self, own: &Server<'_>) {
        for (server, place) in self.settings.servers.iter().zip(&self.servers) {
            let Some(address) = address_of(server) else { continue };
            if own.settings.admin_listen.is_some_and(|admin| server::is_reached(admin, address)) {
                place.contradicts(
                    format_args!("{}, which is this gateway's admin_listen", place.shown()),
                    "a server of its own",
                );
            } else if own.settings.listen.iter().any(
                |listen| matches!(listen, Listen::Tcp(own) if server::is_reached(*own, address)),
            ) {
                place.contradicts(
                    format_args!("{}, where this gateway itself listens", place.shown()),
                    "a server of its own",
                );
            }
        }
    }

    /// Warns when no route uses it.
    pub(super) fn warn_unused(&self) {
        self.table.warn("no route uses this upstream");
    }
}

/// The address behind a server as far as it can be told without asking a name server.
fn address_of(server: &str) -> Option<SocketAddr> {
    if let Ok(address) = server.parse() {
        return Some(address);
    }
    let (host, port) = origin::host_and_port(server)?;
    let local = host.eq_ignore_ascii_case("localhost");
    local.then_some(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port?))
}
