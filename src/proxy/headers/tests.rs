//! Which headers go on, which are dropped, which are rebuilt.

use std::sync::Arc;

use super::*;
use crate::gate::HeaderEdits;
use crate::gate::headers::Passage;
use crate::identity::client_address::{Connection, TrustedProxies};
use crate::proxy::drain::Drain;
use crate::proxy::metrics::Metrics;
use crate::route::{PathPattern, Route};

fn request(headers: &[(&str, &str)]) -> RequestHeader {
    let mut request = RequestHeader::build("GET", b"/as/sent", None).unwrap();
    for (name, value) in headers {
        request.append_header((*name).to_owned(), HeaderValue::from_str(value).unwrap()).unwrap();
    }
    request
}

/// What is known about `sent` when it comes from `peer`; peers in 10.0.0.0/8 are trusted.
fn context(sent: &RequestHeader, peer: Option<&str>) -> Context {
    let proxies = TrustedProxies { networks: vec!["10.0.0.0/8".parse().unwrap()], unix: false };
    let connection = Connection { peer: peer.map(|peer| peer.parse().unwrap()), tls: false };
    let client = Client::resolve(&sent.headers, &connection, &proxies);
    let mut context = Context::new(Drain::default().enter(), Metrics::default().enter_request());
    context.connection = connection;
    context.trusted = proxies.trusts(&connection);
    context.forward = Some(Box::new(crate::gate::Forward {
        route: Arc::new(test_route()),
        target: "/as/judged?q=1".into(),
        request: HeaderEdits::default(),
        passage: Passage::default(),
        client,
    }));
    context
}

fn prepared(sent: &RequestHeader, context: &Context) -> RequestHeader {
    let mut request = sent.clone();
    prepare_request(&mut request, sent, context).unwrap();
    request
}

fn all<'a>(request: &'a RequestHeader, name: &str) -> Vec<&'a str> {
    request.headers.get_all(name).iter().map(|value| value.to_str().unwrap()).collect()
}

#[test]
fn the_judged_target_is_sent() {
    let sent = request(&[("host", "shop.example")]);
    let request = prepared(&sent, &context(&sent, Some("203.0.113.9")));
    assert_eq!(request.raw_path(), b"/as/judged?q=1");
    assert_eq!(all(&request, "host"), ["shop.example"]);
}

#[test]
fn claims_of_an_untrusted_peer_are_removed_in_every_spelling() {
    let sent = request(&[
        ("host", "shop.example"),
        ("x-forwarded-for", "10.0.0.1"),
        ("X_Forwarded_For", "10.0.0.1"),
        ("x.forwarded.for", "10.0.0.1"),
        ("x-forwarded-proto", "https"),
        ("x-forwarded-host", "evil.example"),
        ("x-forwarded-uri", "/open"),
        ("x-forwarded-prefix", "/a"),
        ("x-original-url", "/open"),
        ("x_original_url", "/open"),
        ("x-rewrite-url", "/open"),
        ("x-http-method-override", "DELETE"),
        ("x-real-ip", "10.0.0.1"),
        ("forwarded", "for=10.0.0.1"),
        ("accept", "text/html"),
    ]);
    let request = prepared(&sent, &context(&sent, Some("203.0.113.9")));
    assert_eq!(all(&request, "x-forwarded-for"), ["203.0.113.9"]);
    assert_eq!(all(&request, "x-forwarded-proto"), ["http"]);
    assert_eq!(all(&request, "x-forwarded-host"), ["shop.example"]);
    assert_eq!(all(&request, "forwarded"), ["for=203.0.113.9;proto=http;host=\"shop.example\""]);
    assert_eq!(all(&request, "accept"), ["text/html"]);
    let mut names: Vec<_> = request.headers.keys().map(HeaderName::as_str).collect();
    names.sort_unstable();
    assert_eq!(
        names,
        [
            "accept",
            "forwarded",
            "host",
            "x-forwarded-for",
            "x-forwarded-host",
            "x-forwarded-proto",
            "x-request-id"
        ]
    );
}

#[test]
fn a_trusted_peer_is_believed_as_far_back_as_the_client() {
    let sent = request(&[
        ("host", "inner"),
        ("x-forwarded-for", "1.1.1.1, 198.51.100.7"),
        ("x-forwarded-for", "10.0.0.2"),
        ("x-forwarded-proto", "https"),
        ("x-forwarded-host", "shop.example"),
        ("x-forwarded-port", "443"),
        ("x_forwarded_for", "6.6.6.6"),
    ]);
    let request = prepared(&sent, &context(&sent, Some("10.0.0.1")));
    assert_eq!(all(&request, "x-forwarded-for"), ["198.51.100.7, 10.0.0.2, 10.0.0.1"]);
    assert_eq!(all(&request, "x-forwarded-proto"), ["https"]);
    assert_eq!(all(&request, "x-forwarded-host"), ["shop.example"]);
    assert_eq!(all(&request, "x-forwarded-port"), ["443"]);
    assert!(all(&request, "x_forwarded_for").is_empty());
    assert_eq!(
        all(&request, "forwarded"),
        ["for=198.51.100.7;proto=https;host=\"shop.example\", for=10.0.0.2, for=10.0.0.1"]
    );
}

#[test]
fn a_host_that_could_break_a_header_is_left_out() {
    let sent = request(&[("host", "a\"b;c")]);
    let request = prepared(&sent, &context(&sent, Some("2001:db8::1")));
    assert!(all(&request, "x-forwarded-host").is_empty());
    assert_eq!(all(&request, "forwarded"), ["for=\"[2001:db8::1]\";proto=http"]);
}

#[test]
fn a_unix_peer_has_no_address() {
    let sent = request(&[("host", "shop.example")]);
    let request = prepared(&sent, &context(&sent, None));
    assert!(all(&request, "x-forwarded-for").is_empty());
    assert_eq!(all(&request, "forwarded"), ["for=unknown;proto=http;host=\"shop.example\""]);
}

#[test]
fn the_gates_changes_come_after_the_clients_headers() {
    let sent = request(&[("host", "a"), ("x-queue-user", "admin"), ("cookie", "a=b")]);
    let mut context = context(&sent, Some("203.0.113.9"));
    if let Some(forward) = context.forward.as_mut() {
        forward.request.remove.push(HeaderName::from_static("cookie"));
        let user = (HeaderName::from_static("x-queue-user"), HeaderValue::from_static("alice"));
        forward.request.set.push(user);
    }
    let request = prepared(&sent, &context);
    assert_eq!(all(&request, "x-queue-user"), ["alice"]);
    assert!(all(&request, "cookie").is_empty());
}

#[test]
fn a_connection_header_has_no_power_over_the_gateways_headers() {
    let mut sent = request(&[
        ("connection", "close, X-Forwarded-For"),
        ("connection", "host,x-request-id , X-Other"),
        ("connection", "forwarded"),
    ]);
    keep_own_headers(&mut sent).unwrap();
    assert_eq!(all(&sent, "connection"), ["close", " X-Other"]);
    let mut plain = request(&[("connection", "keep-alive,\tfoo")]);
    keep_own_headers(&mut plain).unwrap();
    assert_eq!(all(&plain, "connection"), ["keep-alive,\tfoo"]);
}

#[test]
fn a_request_id_is_taken_only_if_it_can_stand_in_a_log_line() {
    let given = |values: &[&str]| {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(REQUEST_ID, HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        given_request_id(&headers).map(|id| id.to_str().unwrap().to_owned())
    };
    assert_eq!(given(&["0190-abc_D.e~f+/="]).as_deref(), Some("0190-abc_D.e~f+/="));
    assert_eq!(given(&["a", "b"]), None);
    assert_eq!(given(&[""]), None);
    assert_eq!(given(&["a b"]), None);
    assert_eq!(given(&["é"]), None);
    assert_eq!(given(&[&"a".repeat(129)]), None);
}

#[test]
fn every_claim_begins_with_a_letter_that_is_looked_for() {
    for claim in CLAIMS.iter().chain(&OWN) {
        assert!(claim.starts_with(['f', 't', 'x']), "{claim}");
        let sent = request(&[(claim, "x")]);
        let request = prepared(&sent, &context(&sent, Some("203.0.113.9")));
        assert!(!all(&request, claim).contains(&"x"), "{claim}");
    }
}

#[test]
fn an_address_is_written_as_the_standard_library_does() {
    let every_digit = (0..=255).map(|byte| IpAddr::from([byte, 255 - byte, 10, byte]));
    let v6 = ["::1", "2001:db8::9", "::ffff:192.0.2.1"].map(|text| text.parse().unwrap());
    for address in every_digit.chain(v6) {
        let mut text = String::new();
        push_address(&mut text, &address);
        assert_eq!(text, address.to_string());
    }
}

#[test]
fn the_letter_case_of_names_is_forgotten_and_nothing_else() {
    let mut plain = request(&[("HOST", "shop.example"), ("X-Some", "1"), ("x-sOme", "2")]);
    plain.set_version(http::Version::HTTP_10);
    let before = plain.clone();
    forget_letter_case(&mut plain);
    assert!(!plain.has_case());
    assert_eq!(plain.headers, before.headers);
    assert_eq!((&plain.method, plain.version), (&before.method, before.version));
    assert_eq!(plain.raw_path(), before.raw_path());

    let mut url = RequestHeader::build("GET", b"http://shop.example/a", None).unwrap();
    forget_letter_case(&mut url);
    assert_eq!(url.raw_path(), b"http://shop.example/a");
}

/// A route; only its upstream matters here.
fn test_route() -> Route {
    Route {
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
    }
}
