//! Which route a request takes, whatever the order and the spelling.

use http::StatusCode;
use proptest::prelude::*;

use super::*;
use crate::queue::{ParameterKind, QueueName};
use crate::route::WhenWaiting;

pub(super) fn gate(queue: QueueTemplate, parameter: ParameterSource) -> Gated {
    Gated {
        queue,
        parameter,
        when_waiting: WhenWaiting::Redirect,
        refuse_status: StatusCode::TOO_MANY_REQUESTS,
        page_status: StatusCode::SERVICE_UNAVAILABLE,
        auto_enter: true,
    }
}

pub(super) fn open(path: &str) -> Route {
    Route {
        label: path.to_owned(),
        hosts: Vec::new(),
        path: PathPattern::parse(path).unwrap(),
        methods: Vec::new(),
        case_insensitive: false,
        allow_encoded_slash: false,
        upstream: "shop".to_owned(),
        gated: None,
        forward_token: false,
        cors: None,
    }
}

pub(super) fn gated(path: &str) -> Route {
    let queue = QueueTemplate::Fixed(QueueName::new("deal-1").unwrap());
    Route { gated: Some(gate(queue, ParameterSource::Path)), ..open(path) }
}

fn per_deal(path: &str, parameter: ParameterSource) -> Route {
    let queue = QueueTemplate::PerParameter {
        prefix: "deal-".to_owned(),
        parameter: "id".to_owned(),
        suffix: String::new(),
        kind: ParameterKind::Slug,
    };
    Route { gated: Some(gate(queue, parameter)), ..open(path) }
}

fn on(hosts: &[&str], route: Route) -> Route {
    let hosts: Vec<_> = hosts.iter().map(|host| HostPattern::parse(host).unwrap()).collect();
    Route { label: format!("{hosts:?}{}", route.label), hosts, ..route }
}

fn with(methods: &[Method], route: Route) -> Route {
    Route { label: format!("{methods:?}{}", route.label), methods: methods.to_vec(), ..route }
}

pub(super) fn table(routes: Vec<Route>) -> RouteTable {
    RouteTable::new(routes, Vec::new(), "/_queue", None).unwrap()
}

pub(super) fn get(target: &str) -> RouteRequest<'_> {
    RouteRequest { method: &Method::GET, target, host: Some("shop.example") }
}

/// The label of the route, `reserved`, `nothing` or `400`.
pub(super) fn label(table: &RouteTable, request: RouteRequest<'_>) -> String {
    match table.resolve(request) {
        Ok(Matched::Route { route, .. }) => route.label.clone(),
        Ok(Matched::Reserved { .. }) => "reserved".to_owned(),
        Ok(Matched::Nothing { .. }) => "nothing".to_owned(),
        Err(_) => "400".to_owned(),
    }
}

fn bypassed(table: &RouteTable, method: &Method, target: &str) -> bool {
    match table.resolve(RouteRequest { method, ..get(target) }) {
        Ok(Matched::Route { bypassed, .. }) => bypassed,
        _ => false,
    }
}

#[test]
fn segment_by_segment_the_more_specific_path_wins() {
    let paths = [
        "/*",
        "/{shop}",
        "/{shop}/*",
        "/deal/*",
        "/deal/{id}",
        "/deal/{id}/pay",
        "/deal/7/{what}",
        "/deal",
    ];
    let mut routes: Vec<Route> = paths.iter().map(|path| open(path)).collect();
    for _ in 0..routes.len() {
        routes.rotate_left(1);
        let table = table(routes.clone());
        for (target, route) in [
            ("/", "/*"),
            ("/a", "/{shop}"),
            ("/a/", "/{shop}"),
            ("/a/b", "/{shop}/*"),
            ("/deal", "/deal"),
            ("/deal/", "/deal"),
            ("/deal/1", "/deal/{id}"),
            ("/deal/1/pay", "/deal/{id}/pay"),
            ("/deal/7/pay", "/deal/7/{what}"),
            ("/deal/7/pay/x", "/deal/*"),
            ("/deal/1/x", "/deal/*"),
        ] {
            assert_eq!(label(&table, get(target)), route, "{target}");
        }
    }
}

#[test]
fn an_exact_host_beats_a_wildcard_and_that_beats_none() {
    let table = table(vec![
        open("/checkout/pay"),
        on(&["*.shop.example"], open("/a")),
        on(&["*.eu.shop.example", "x.example"], open("/*")),
        on(&["www.eu.shop.example"], open("/b")),
    ]);
    let label = |host, target| label(&table, RouteRequest { host, ..get(target) });
    assert!(label(Some("www.eu.shop.example"), "/b").ends_with("/b"));
    assert!(label(Some("WWW.EU.shop.example.:8080"), "/b").ends_with("/b"));
    assert!(label(Some("www.eu.shop.example"), "/checkout/pay").ends_with("/*"));
    assert!(label(Some("x.example"), "/a").ends_with("/*"));
    assert!(label(Some("a.shop.example"), "/a").ends_with("/a"));
    assert_eq!(label(Some("a.shop.example"), "/b"), "nothing");
    assert_eq!(label(None, "/checkout/pay"), "/checkout/pay");
    assert_eq!(label(Some("evil@x.example"), "/checkout/pay"), "400");
}

#[test]
fn a_method_that_a_route_does_not_list_takes_a_less_specific_route() {
    let table = table(vec![
        open("/*"),
        with(&[Method::POST], gated("/cart")),
        with(&[Method::GET], open("/cart")),
        with(&[Method::HEAD], open("/head")),
        with(&[Method::GET], open("/head")),
        open("/head"),
    ]);
    let label = |method: &Method, target| label(&table, RouteRequest { method, ..get(target) });
    assert_eq!(label(&Method::POST, "/cart"), "[POST]/cart");
    assert_eq!(label(&Method::HEAD, "/cart"), "[GET]/cart");
    assert_eq!(label(&Method::PUT, "/cart"), "/*");
    assert_eq!(label(&Method::HEAD, "/head"), "[HEAD]/head");
    assert_eq!(label(&Method::GET, "/head"), "[GET]/head");
    assert_eq!(label(&Method::from_bytes(b"PURGE").unwrap(), "/head"), "/head");
}

#[test]
fn letter_case_counts_unless_the_route_says_otherwise() {
    let any_case = |route| Route { case_insensitive: true, ..route };
    let table = table(vec![
        open("/*"),
        gated("/strict/*"),
        any_case(gated("/checkout/*")),
        any_case(gated("/caf%C3%A9/*")),
        with(&[Method::GET], any_case(open("/Both"))),
        open("/both"),
    ]);
    for target in ["/CHECKOUT/pay", "/%43heckout", "/checkout"] {
        assert_eq!(label(&table, get(target)), "/checkout/*", "{target}");
    }
    for target in ["/CAF%C3%A9/x", "/caf%c3%a9/x", "/CAF%C3%89/x", "/café"] {
        assert_eq!(label(&table, get(target)), "/caf%C3%A9/*", "{target}");
    }
    assert_eq!(label(&table, get("/STRICT/x")), "/*");
    assert_eq!(label(&table, get("/both")), "[GET]/Both");
}

#[test]
fn readings_that_lead_apart_are_refused_at_a_gate_only() {
    let files = Route { allow_encoded_slash: true, ..open("/files/*") };
    let table = table(vec![gated("/checkout/*"), open("/*"), open("/a/*"), files]);
    for target in [
        "/checkout%2Fpay",
        "/shop%2f..%2fcheckout/pay",
        "/checkout%5Cpay",
        "/checkout\\pay",
        "/open/..;/checkout/pay",
        "/checkout;/pay",
        "/checkout;x=1/pay",
        "/%2563heckout",
        "/checkout%3Fx",
        "/checkout%C0%AFpay",
        "/checkout/..%2Fopen",
        "/checkout%2F..%2Fopen",
        "/files/a;/..;/..;/checkout",
        "/files\\..\\checkout",
    ] {
        assert_eq!(label(&table, get(target)), "400", "{target}");
    }
    for target in ["/checkout/a%2Fb", "/checkout/pay;jsessionid=1", "/checkout/a%5Cb"] {
        assert_eq!(label(&table, get(target)), "/checkout/*", "{target}");
    }
    assert_eq!(label(&table, get("/a%2Fb;c")), "/*");
    assert_eq!(label(&table, get("/checkout-faq")), "/*");
    let kept = table.resolve(get("/files/a%2fb")).unwrap();
    assert_eq!(kept.target().as_str(), "/files/a%2Fb");
    assert_eq!(label(&table, get("/files/..%2fcheckout")), "/files/*");
}

#[test]
fn the_gateways_own_paths_cannot_be_half_reached() {
    let routes = vec![open("/*"), open("/{x}/{y}")];
    let table = RouteTable::new(routes, Vec::new(), "/_queue/", Some("/v1")).unwrap();
    for target in
        ["/_queue", "/_queue/deal-1/enter", "//%5Fqueue/x", "/_queue/a;b", "/v1/rank", "/v1/queue/"]
    {
        assert_eq!(label(&table, get(target)), "reserved", "{target}");
    }
    for target in ["/_queue%2Fx", "/a/..;/_queue/x", "/_queue/..%2Fa", "/v1/rank;x", "/v1%2Frank"] {
        assert_eq!(label(&table, get(target)), "400", "{target}");
    }
    assert_eq!(label(&table, get("/_queued")), "/*");
    assert_eq!(label(&table, get("/v1/rank/x")), "/*");
}

#[test]
fn a_bypass_counts_only_when_every_reading_matches_all_of_it() {
    let bypass = |path: &str, extensions: &[&str], methods: &[Method]| Bypass {
        path: PathPattern::parse(path).unwrap(),
        extensions: extensions.iter().map(|&e| e.to_owned()).collect(),
        methods: methods.to_vec(),
    };
    let bypasses =
        vec![bypass("/static/*", &["css", ".js"], &[]), bypass("/health", &[], &[Method::GET])];
    let table = RouteTable::new(vec![gated("/*")], bypasses, "/_queue", None).unwrap();
    let get = &Method::GET;
    for target in [
        "/static/app.css",
        "/static/a/b.min.JS",
        "//static/app.css?x",
        "/health",
        "/static/a%20b.css",
    ] {
        assert!(bypassed(&table, get, target), "{target}");
    }
    for target in [
        "/checkout/pay?x=/static/app.css",
        "/checkout/pay?.css",
        "/checkout/app.css",
        "/static/pay?.css",
        "/static/css",
        "/static/.css",
        "/static/app.css/",
        "/static/appcss",
        "/static/app.css/x",
        "/static/pay;.css",
        "/static/pay%3B.css",
        "/static/pay%3F.css",
        "/static/pay%2F.css",
        "/static/..%2Fcheckout.css",
        "/static/..;/x.css",
        "/static/x%253F.css",
        "/healthy",
        "/static/é.cs",
    ] {
        assert!(!bypassed(&table, get, target), "{target}");
    }
    assert!(bypassed(&table, &Method::HEAD, "/health"));
    assert!(!bypassed(&table, &Method::POST, "/health"));
}

#[test]
fn one_path_names_one_queue() {
    let table = table(vec![per_deal("/deal/{id}/*", ParameterSource::Path), open("/*")]);
    let queue = |target| table.resolve(get(target)).and_then(|matched| matched.queue_parameter());
    assert_eq!(queue("/deal/a-1/pay"), Ok(Some("a-1".to_owned())));
    assert_eq!(queue("/deal/%61-1"), Ok(Some("a-1".to_owned())));
    assert_eq!(queue("/deal/1/a;b/c%2Fd"), Ok(Some("1".to_owned())));
    assert_eq!(queue("/other"), Ok(None));
    for target in ["/deal/1;x/pay", "/deal/1/..%2F..%2Fdeal%2F2/x", "/deal/%2531/x", "/deal/1%2F2"]
    {
        assert_eq!(queue(target), Err(TargetError::Ambiguous), "{target}");
    }
}

#[test]
fn a_queue_may_be_named_by_the_query() {
    let table = table(vec![per_deal("/deal", ParameterSource::Query)]);
    let queue = |target| table.resolve(get(target)).unwrap().queue_parameter();
    assert_eq!(queue("/deal?a=b&id=7"), Ok(Some("7".to_owned())));
    assert_eq!(queue("/deal?a=b"), Err(TargetError::ParameterMissing));
    assert_eq!(queue("/deal?id=7&id=8"), Err(TargetError::ParameterRepeated));
}

#[test]
fn a_table_reports_every_mistake_at_once() {
    let any_case = |route| Route { case_insensitive: true, ..route };
    let routes = vec![
        open("/a/{x}"),
        open("/a/{y}/"),
        open("/_queue/x"),
        any_case(open("/_QUEUE/*")),
        open("/rank"),
        per_deal("/deal/{other}", ParameterSource::Path),
        with(&[Method::GET, Method::POST], open("/m")),
        with(&[Method::POST], open("/m")),
        on(&["a.example", "b.example"], open("/h")),
        on(&["B.example"], any_case(open("/H"))),
        open("/*"),
    ];
    let errors = RouteTable::new(routes, Vec::new(), "/_queue", Some("")).unwrap_err();
    let places: Vec<_> = errors
        .iter()
        .map(|error| match error {
            TableError::Tie { index, first_index, .. } => ("tie", *first_index, *index),
            TableError::Reserved { index, .. } => ("reserved", *index, *index),
            TableError::Compatibility { index, .. } => ("compatibility", *index, *index),
            TableError::Parameter { index, .. } => ("parameter", *index, *index),
            TableError::Prefix { .. } => ("prefix", 0, 0),
        })
        .collect();
    assert_eq!(
        places,
        [
            ("tie", 0, 1),
            ("reserved", 2, 2),
            ("reserved", 3, 3),
            ("compatibility", 4, 4),
            ("parameter", 5, 5),
            ("tie", 6, 7),
            ("tie", 8, 9),
        ]
    );
    for prefix in ["", "/", "x", "/*", "/{x}"] {
        let errors = RouteTable::new(Vec::new(), Vec::new(), prefix, None).unwrap_err();
        assert_eq!(errors, [TableError::Prefix { prefix: prefix.to_owned() }]);
    }
}

proptest! {
    /// The router against the definition: of all patterns that match, the greatest rank.
    #[test]
    fn lookup_finds_the_greatest_rank_that_matches(
        patterns in prop::collection::vec("(/(a|ab|b|\\{p\\})){0,3}(/\\*)?", 1..12),
        path in "(/(a|ab|b|abc)){0,4}",
    ) {
        // Parameter names within a pattern must differ.
        let patterns: Vec<PathPattern> = patterns.iter().map(|text| {
            let mut parts = text.split("{p}");
            let mut named = parts.next().unwrap_or_default().to_owned();
            for (number, part) in parts.enumerate() {
                named = format!("{named}{{p{number}}}{part}");
            }
            PathPattern::parse(if named.is_empty() { "/" } else { &named }).unwrap()
        }).collect();
        let path = if path.is_empty() { "/" } else { &path };
        let lookup = Lookup::new(patterns.iter().enumerate().map(|(index, path)| Candidate {
            index, path, case_insensitive: false, method_rank: 0,
        }));
        let found = lookup.find(&Sought::new(path)).map(|index| patterns[index].rank());
        let best = patterns.iter().filter(|p| p.matches(path)).map(PathPattern::rank).max();
        prop_assert_eq!(found, best);
    }
}
