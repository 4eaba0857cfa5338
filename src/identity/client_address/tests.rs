//! Walks over forwarding headers, honest and forged.

use http::{HeaderName, HeaderValue};
use proptest::prelude::*;

use super::*;

fn trusted(networks: &[&str]) -> TrustedProxies {
    let networks = networks.iter().map(|network| network.parse().unwrap()).collect();
    TrustedProxies { networks, unix: false }
}

fn from(peer: &str) -> Connection {
    Connection { peer: Some(peer.parse().unwrap()), tls: false }
}

fn headers(lines: &[(&str, &str)]) -> HeaderMap {
    lines
        .iter()
        .map(|(name, value)| {
            (name.parse::<HeaderName>().unwrap(), HeaderValue::from_str(value).unwrap())
        })
        .collect()
}

fn address(lines: &[(&str, &str)]) -> String {
    let proxies = trusted(&["127.0.0.1/32", "10.0.0.0/8"]);
    let client = Client::resolve(&headers(lines), &from("127.0.0.1"), &proxies);
    client.address.unwrap().to_string()
}

#[test]
fn an_untrusted_peer_is_the_client_whatever_it_sends() {
    let lines = [
        ("x-forwarded-for", "203.0.113.1"),
        ("x-forwarded-proto", "https"),
        ("x-forwarded-host", "evil.example"),
        ("forwarded", "for=203.0.113.2;proto=https;host=evil.example"),
        ("host", "Shop.Example"),
    ];
    let client =
        Client::resolve(&headers(&lines), &from("198.51.100.9"), &trusted(&["10.0.0.0/8"]));
    let expected = Client {
        address: Some("198.51.100.9".parse().unwrap()),
        https: false,
        host: Some("shop.example".into()),
    };
    assert_eq!(client, expected);
}

/// A limit keyed on the left-most entry gave every request a fresh bucket.
#[test]
fn the_right_most_untrusted_hop_is_the_client() {
    for (line, expected) in [
        ("198.51.100.7", "198.51.100.7"),
        ("203.0.113.5, 198.51.100.7", "198.51.100.7"),
        ("203.0.113.5, 198.51.100.7, 10.1.2.3,10.0.0.1", "198.51.100.7"),
        ("10.9.9.9, 10.0.0.1", "10.9.9.9"),
        ("198.51.100.7:4711", "198.51.100.7"),
        ("2001:db8::1", "2001:db8::1"),
        ("[2001:db8::1]", "2001:db8::1"),
        ("[2001:db8::1]:4711, ::ffff:10.0.0.4", "2001:db8::1"),
        ("::ffff:198.51.100.7", "198.51.100.7"),
    ] {
        assert_eq!(address(&[("x-forwarded-for", line)]), expected, "{line}");
    }
}

#[test]
fn an_entry_that_cannot_be_read_ends_the_walk_at_the_last_good_hop() {
    for (line, expected) in [
        ("garbage, 198.51.100.8", "198.51.100.8"),
        ("198.51.100.8, garbage", "127.0.0.1"),
        ("198.51.100.8, garbage, 10.0.0.1", "10.0.0.1"),
        ("198.51.100.8, unknown, 10.0.0.1", "10.0.0.1"),
        ("198.51.100.8,, 10.0.0.1", "10.0.0.1"),
        ("198.51.100.8, fe80::1%eth0", "127.0.0.1"),
        ("198.51.100.08", "127.0.0.1"),
        ("", "127.0.0.1"),
    ] {
        assert_eq!(address(&[("x-forwarded-for", line)]), expected, "{line}");
    }
}

#[test]
fn several_lines_of_a_header_are_read_as_one() {
    let lines = [("x-forwarded-for", "203.0.113.5"), ("x-forwarded-for", "198.51.100.7, 10.0.0.1")];
    assert_eq!(address(&lines), "198.51.100.7");
}

#[test]
fn forwarded_is_read_by_the_same_walk() {
    for (line, expected) in [
        ("for=198.51.100.7", "198.51.100.7"),
        ("for=203.0.113.5, FOR=198.51.100.7;proto=https;by=10.0.0.2, for=10.0.0.1", "198.51.100.7"),
        ("for=\"[2001:db8::1]:4711\"", "2001:db8::1"),
        ("for=_hidden, for=10.0.0.1", "10.0.0.1"),
        ("for=\"198.51.100.9, for=198.51.100.7", "198.51.100.7"),
        ("for=198.51.100.9;for=198.51.100.8, for=10.0.0.1", "10.0.0.1"),
        ("198.51.100.9, for=10.0.0.1", "10.0.0.1"),
        ("for=", "127.0.0.1"),
        ("proto=https", "127.0.0.1"),
    ] {
        assert_eq!(address(&[("forwarded", line)]), expected, "{line}");
    }
}

#[test]
fn forwarded_is_not_read_beside_the_other_dialect() {
    let lines = [("forwarded", "for=203.0.113.5;proto=https"), ("x-forwarded-for", "198.51.100.7")];
    assert_eq!(address(&lines), "198.51.100.7");
    let client = Client::resolve(&headers(&lines), &from("127.0.0.1"), &trusted(&["127.0.0.1/32"]));
    assert!(!client.https);
}

#[test]
fn a_trusted_proxy_says_scheme_and_host() {
    let proxies = trusted(&["10.0.0.0/8"]);
    for (lines, https, host) in [
        (
            &[("x-forwarded-proto", "https"), ("x-forwarded-host", "Shop.Example:8443")][..],
            true,
            Some("shop.example:8443"),
        ),
        (&[("x-forwarded-proto", "http, HTTPS"), ("host", "inner")], true, Some("inner")),
        (&[("x-forwarded-proto", "https, http")], false, None),
        (&[("x-forwarded-proto", "gopher"), ("x-forwarded-host", "a b")], false, None),
        (&[("x-forwarded-host", "a/b"), ("host", "inner")], false, Some("inner")),
        (&[("host", "one"), ("host", "two")], false, None),
        (
            &[("forwarded", "for=198.51.100.7;proto=https;host=\"shop.example\"")],
            true,
            Some("shop.example"),
        ),
        (&[("forwarded", "for=198.51.100.7;proto=http, for=203.0.113.5;proto=https")], true, None),
    ] {
        let client = Client::resolve(&headers(lines), &from("10.0.0.1"), &proxies);
        assert_eq!((client.https, client.host.as_deref()), (https, host), "{lines:?}");
    }
}

#[test]
fn a_trusted_proxys_scheme_counts_more_than_its_own_encryption() {
    let connection = Connection { tls: true, ..from("10.0.0.1") };
    let proxies = trusted(&["10.0.0.0/8"]);
    let plain = headers(&[("x-forwarded-proto", "http")]);
    assert!(!Client::resolve(&plain, &connection, &proxies).https);
    assert!(Client::resolve(&HeaderMap::new(), &connection, &proxies).https);
}

#[test]
fn mapped_addresses_are_trusted_as_ipv4_and_all_of_ipv6_is_not() {
    assert!(trusted(&["10.0.0.0/8"]).trusts(&from("::ffff:10.1.2.3")));
    assert!(trusted(&["::ffff:10.0.0.0/104"]).trusts(&from("10.1.2.3")));
    assert!(!trusted(&["::ffff:10.0.0.0/104"]).trusts(&from("11.1.2.3")));
    assert!(!trusted(&["::/0"]).trusts(&from("10.1.2.3")));
    assert!(!TrustedProxies::default().trusts(&from("127.0.0.1")));
}

#[test]
fn unix_peers_are_trusted_only_by_name() {
    let socket = Connection { peer: None, tls: false };
    let line = headers(&[("x-forwarded-for", "198.51.100.7")]);
    let everybody = trusted(&["0.0.0.0/0", "::/0"]);
    assert_eq!(Client::resolve(&line, &socket, &everybody).address, None);
    let unix = TrustedProxies { unix: true, ..TrustedProxies::default() };
    assert_eq!(
        Client::resolve(&line, &socket, &unix).address,
        Some("198.51.100.7".parse().unwrap())
    );
    assert_eq!(Client::resolve(&HeaderMap::new(), &socket, &unix).address, None);
}

proptest! {
    #[test]
    fn no_bytes_in_a_forwarding_header_panic_or_name_a_client_left_of_the_last_word(
        bytes in proptest::collection::vec(any::<u8>(), 0..200),
        name in prop_oneof![
            Just("x-forwarded-for"), Just("forwarded"), Just("x-forwarded-proto"),
            Just("x-forwarded-host"), Just("host"),
        ],
    ) {
        let Ok(value) = HeaderValue::from_bytes(&bytes) else { return Ok(()) };
        let mut map = HeaderMap::new();
        map.append(name, value);
        map.append("x-forwarded-for", HeaderValue::from_static("198.51.100.7"));
        let proxies = trusted(&["10.0.0.0/8"]);
        let client = Client::resolve(&map, &from("10.0.0.1"), &proxies);
        prop_assert_eq!(client.address, Some("198.51.100.7".parse().unwrap()));
    }
}
