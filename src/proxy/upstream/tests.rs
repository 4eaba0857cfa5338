//! Choosing servers, and what a server that fails does to the choice.

use std::collections::HashSet;

use super::*;

fn settings(servers: &[&str]) -> UpstreamSettings {
    UpstreamSettings {
        name: "shop".into(),
        servers: servers.iter().map(ToString::to_string).collect(),
        connect_timeout: Duration::from_secs(2),
        read_timeout: Duration::from_secs(60),
        write_timeout: Duration::from_secs(60),
        idle_timeout: Duration::from_secs(4),
        upgrade_timeout: Duration::from_secs(3600),
        tls_server_name: None,
    }
}

async fn shop(servers: &[&str]) -> Arc<Upstream> {
    let upstreams = Upstreams::resolve(&[settings(servers)]).await.unwrap();
    upstreams.get("shop").unwrap().clone()
}

fn address(peer: Option<Box<HttpPeer>>) -> Option<SocketAddr> {
    peer.and_then(|peer| peer._address.as_inet().copied())
}

#[tokio::test]
async fn servers_take_turns() {
    let shop = shop(&["127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"]).await;
    for _ in 0..3 {
        let round: HashSet<_> = (0..3).map(|_| address(shop.peer(&[], false)).unwrap()).collect();
        assert_eq!(round.len(), 3);
    }
    assert_eq!(shop.tries(), 3);
}

#[tokio::test]
async fn a_server_that_failed_this_request_is_not_tried_again() {
    let shop = shop(&["127.0.0.1:1", "127.0.0.1:2"]).await;
    let first = address(shop.peer(&[], false)).unwrap();
    let second = address(shop.peer(&[first], false)).unwrap();
    assert_ne!(first, second);
    assert!(shop.peer(&[first, second], false).is_none());
}

#[tokio::test]
async fn a_server_that_is_down_is_left_out_while_another_is_left() {
    let shop = shop(&["127.0.0.1:1", "127.0.0.1:2"]).await;
    let dead = "127.0.0.1:1".parse().unwrap();
    shop.mark_down(dead);
    for _ in 0..5 {
        assert_ne!(address(shop.peer(&[], false)), Some(dead));
    }
    shop.mark_down("127.0.0.1:2".parse().unwrap());
    assert!(shop.peer(&[], false).is_some(), "all down: still tried");
}

#[tokio::test]
async fn every_timeout_is_set_and_an_upgrade_may_be_silent_for_long() {
    let mut with_tls = settings(&["127.0.0.1:1"]);
    with_tls.tls_server_name = Some("shop.example".into());
    let upstreams = Upstreams::resolve(&[with_tls]).await.unwrap();
    let shop = upstreams.get("shop").unwrap();
    let peer = shop.peer(&[], false).unwrap();
    assert_eq!(peer.options.connection_timeout, Some(Duration::from_secs(2)));
    assert_eq!(peer.options.total_connection_timeout, Some(Duration::from_secs(4)));
    assert_eq!(peer.options.read_timeout, Some(Duration::from_secs(60)));
    assert_eq!(peer.options.write_timeout, Some(Duration::from_secs(60)));
    assert_eq!(peer.options.idle_timeout, Some(Duration::from_secs(4)));
    assert!(peer.is_tls());
    assert_eq!(peer.sni, "shop.example");
    let upgrade = shop.peer(&[], true).unwrap();
    assert_eq!(upgrade.options.read_timeout, Some(Duration::from_secs(3600)));
}

#[tokio::test]
async fn an_empty_tls_name_or_a_broken_server_is_an_error() {
    let mut nameless = settings(&["127.0.0.1:1"]);
    nameless.tls_server_name = Some(String::new());
    let error = Upstreams::resolve(&[nameless]).await.unwrap_err();
    assert!(matches!(error, UpstreamError::EmptyServerName { .. }), "{error}");
    for broken in ["shop", "shop:", ":80", "shop:0", "shop:99999", "http://shop:80", "a b:1"] {
        let error = Upstreams::resolve(&[settings(&[broken])]).await.unwrap_err();
        assert!(matches!(error, UpstreamError::Server { .. }), "{broken}: {error}");
    }
}

#[tokio::test]
async fn a_name_that_does_not_resolve_leaves_an_upstream_without_servers() {
    let shop = shop(&["does-not-exist.invalid:80"]).await;
    assert!(shop.peer(&[], false).is_none());
}

#[tokio::test]
async fn a_name_resolves_to_its_addresses() {
    let shop = shop(&["localhost:80"]).await;
    assert!(address(shop.peer(&[], false)).unwrap().ip().is_loopback());
}

#[test]
fn reports_are_at_most_one_a_second_and_count_the_rest() {
    let reports = Reports::default();
    let start = Instant::now();
    assert_eq!(reports.admit(start), Some(0));
    assert_eq!(reports.admit(start), None);
    assert_eq!(reports.admit(start + Duration::from_millis(999)), None);
    assert_eq!(reports.admit(start + Duration::from_secs(1)), Some(2));
}
