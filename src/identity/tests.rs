//! The chain: order, overrides, and what a bad identity does to the others.

use http::HeaderValue;
use http::header::{AUTHORIZATION, COOKIE, HeaderName};
use proptest::prelude::*;

use crate::token::{Keyring, TokenKey};

use super::cookies::CookieNames;
use super::jwt::tests::{quick, quick_settings};
use super::*;

const NOW: u64 = 1_800_000_000;

fn visitors() -> VisitorCookies {
    let keyring = Keyring::new(vec![TokenKey::new(1, [1; 32])]).unwrap();
    VisitorCookies::new(CookieNames::new("queue_token").unwrap(), &keyring)
}

fn chain(sources: &[UserSource]) -> Chain {
    let (sources, jwt, header) =
        (sources.to_vec(), Some(quick_settings()), Some(HeaderSettings::default()));
    Chain::new(IdentitySettings { sources, jwt, header }, visitors()).unwrap()
}

/// A request that carries one identity of each source, from a trusted peer.
fn all(chain: &Chain) -> HeaderMap {
    let (_, line) = chain.visitors().issue(true);
    let pair = line.to_str().unwrap().split(';').next().unwrap();
    let mut headers = HeaderMap::new();
    headers.insert(COOKIE, HeaderValue::from_str(pair).unwrap());
    let bearer = format!("Bearer {}", quick("alice", NOW + 60));
    headers.insert(AUTHORIZATION, HeaderValue::from_str(&bearer).unwrap());
    headers.insert("x-user-id", HeaderValue::from_static("bob"));
    headers
}

fn identify(chain: &Chain, headers: &HeaderMap, order: Option<&[UserSource]>) -> Identities {
    let request = IdentityRequest {
        headers,
        trusted_peer: true,
        https: true,
        query: Some("user_id=mallory"),
        now: Timestamp::from_millis(NOW * 1000),
    };
    chain.identify(&request, order)
}

fn sources(found: &Identities) -> Vec<UserSource> {
    found.verified.iter().map(UserId::source).collect()
}

#[test]
fn every_source_is_asked_in_the_configured_order() {
    use UserSource::{Header, Jwt, Visitor};
    for order in [[Jwt, Header, Visitor], [Visitor, Jwt, Header]] {
        let chain = chain(&order);
        let found = identify(&chain, &all(&chain), None);
        assert_eq!(sources(&found), order);
        assert_eq!(found.rejected, None);
        assert_eq!(found.first().map(UserId::source), Some(order[0]));
    }
}

#[test]
fn a_queue_may_have_its_own_order() {
    let chain = chain(&[UserSource::Visitor]);
    let headers = all(&chain);
    let own = [UserSource::Header, UserSource::Jwt];
    assert_eq!(sources(&identify(&chain, &headers, Some(&own))), own);
    assert_eq!(identify(&chain, &headers, Some(&[])), Identities::default());
}

#[test]
fn the_query_never_answers_in_the_chain() {
    let chain = chain(&[UserSource::Query]);
    assert_eq!(identify(&chain, &all(&chain), None), Identities::default());
}

#[test]
fn a_refused_identity_is_reported_beside_the_verified_ones() {
    let chain = chain(&[UserSource::Header, UserSource::Jwt, UserSource::Visitor]);
    let mut headers = all(&chain);
    headers.insert(AUTHORIZATION, HeaderValue::from_static("Bearer x"));
    let found = identify(&chain, &headers, None);
    assert_eq!(sources(&found), [UserSource::Header, UserSource::Visitor]);
    assert_eq!(found.rejected, Some(UserSource::Jwt));
}

#[test]
fn a_visitor_cookie_that_does_not_verify_counts_as_none() {
    let chain = chain(&[UserSource::Visitor]);
    let line = HeaderValue::from_static("__Host-queue_token-visitor=forged");
    let headers = HeaderMap::from_iter([(COOKIE, line)]);
    assert_eq!(identify(&chain, &headers, None), Identities::default());
}

#[test]
fn an_order_that_cannot_be_followed_is_refused() {
    let new = |sources: &[UserSource]| {
        let settings = IdentitySettings { sources: sources.to_vec(), ..Default::default() };
        Chain::new(settings, visitors()).map(|_| ()).map_err(|error| error.to_string())
    };
    assert_eq!(new(&[UserSource::Visitor, UserSource::Query]), Ok(()));
    let missing = "identity source `jwt` is listed but `[identity.jwt]` is missing";
    assert_eq!(new(&[UserSource::Jwt]), Err(missing.into()));
    let twice = "identity source `cookie` is listed twice";
    assert_eq!(new(&[UserSource::Visitor, UserSource::Visitor]), Err(twice.into()));
}

proptest! {
    #[test]
    fn no_header_bytes_panic_and_none_names_a_user_from_outside(
        lines in proptest::collection::vec((0..4_usize, proptest::collection::vec(any::<u8>(), 0..80)), 0..6),
    ) {
        let chain = chain(&[UserSource::Jwt, UserSource::Header, UserSource::Visitor]);
        let names = [AUTHORIZATION, COOKIE, HeaderName::from_static("x-user-id"), HeaderName::from_static("forwarded")];
        let prefixes: [&[u8]; 4] = [b"Bearer ", b"queue_token-visitor=", b"", b"for="];
        let headers: HeaderMap = lines
            .iter()
            .filter_map(|(at, bytes)| {
                let value = HeaderValue::from_bytes(&[prefixes[*at], bytes].concat()).ok()?;
                Some((names[*at].clone(), value))
            })
            .collect();
        let now = Timestamp::EPOCH;
        let request = IdentityRequest { headers: &headers, trusted_peer: false, https: false, query: None, now };
        prop_assert!(chain.identify(&request, None).verified.is_empty());
    }
}
