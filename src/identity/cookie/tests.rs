//! Issued cookies come back, and nothing else does.

use http::header::COOKIE;
use proptest::prelude::*;

use crate::token::TokenKey;

use super::*;

fn cookies(keys: &[(u8, u8)]) -> VisitorCookies {
    let keys = keys.iter().map(|(id, fill)| TokenKey::new(*id, [*fill; 32])).collect();
    VisitorCookies::new(CookieNames::new("queue_token").unwrap(), &Keyring::new(keys).unwrap())
}

/// The pair of a `Set-Cookie` line.
fn pair(line: &HeaderValue) -> String {
    line.to_str().unwrap().split(';').next().unwrap().to_owned()
}

fn sent(line: &str) -> HeaderMap {
    HeaderMap::from_iter([(COOKIE, HeaderValue::from_str(line).unwrap())])
}

#[test]
fn an_issued_cookie_names_its_visitor_under_its_scheme_only() {
    let visitors = cookies(&[(1, 1)]);
    for https in [false, true] {
        let (user, line) = visitors.issue(https);
        let request = sent(&pair(&line));
        assert_eq!(visitors.read(&request, https), VisitorCookie::Valid(user.clone()));
        assert_eq!(visitors.read(&request, !https), VisitorCookie::Absent);
        assert_eq!(user.source(), UserSource::Visitor);
        assert_eq!(user.id().len(), 36);
    }
}

#[test]
fn the_cookie_is_for_this_host_and_not_for_scripts() {
    let (_, line) = cookies(&[(1, 1)]).issue(true);
    let text = line.to_str().unwrap();
    let value = text.strip_prefix("__Host-queue_token-visitor=").unwrap();
    assert_eq!(value.find(';'), Some(VISITOR_COOKIE_CHARS));
    assert!(value.ends_with("; HttpOnly; SameSite=Lax; Secure; Path=/; Max-Age=2592000"), "{text}");
    let (_, plain) = cookies(&[(1, 1)]).issue(false);
    assert!(!plain.to_str().unwrap().contains("Secure"));
}

#[test]
fn a_visitor_survives_a_new_key_until_the_old_one_is_removed() {
    let (user, line) = cookies(&[(1, 1)]).issue(false);
    let request = sent(&pair(&line));
    assert_eq!(cookies(&[(2, 2), (1, 1)]).read(&request, false), VisitorCookie::Valid(user));
    assert_eq!(cookies(&[(2, 2)]).read(&request, false), VisitorCookie::Invalid);
}

#[test]
fn between_two_visitors_nobody_chooses_and_a_planted_cookie_locks_nobody_out() {
    let visitors = cookies(&[(1, 1)]);
    let (user, one) = visitors.issue(false);
    let (_, two) = visitors.issue(false);
    let (one, two) = (pair(&one), pair(&two));
    assert_eq!(visitors.read(&sent(&format!("{one}; {two}")), false), VisitorCookie::Invalid);
    assert_eq!(visitors.read(&sent(&format!("{two}; x; {one}")), false), VisitorCookie::Invalid);
    let planted = "queue_token-visitor=planted";
    let valid = VisitorCookie::Valid(user);
    assert_eq!(visitors.read(&sent(&format!("{planted}; {one}; {one}")), false), valid);
    assert_eq!(visitors.read(&sent(&format!("{one}; {planted}")), false), valid);
    assert_eq!(visitors.read(&sent(planted), false), VisitorCookie::Invalid);
}

proptest! {
    #[test]
    fn no_forged_cookie_verifies(
        at in 0..VISITOR_COOKIE_CHARS,
        byte in 0x21_u8..0x7f,
        random in proptest::collection::vec(any::<u8>(), 0..60),
    ) {
        let visitors = cookies(&[(1, 1)]);
        let (_, line) = visitors.issue(false);
        let pair = pair(&line);
        let mut value = pair.split_once('=').unwrap().1.as_bytes().to_vec();
        prop_assume!(value[at] != byte);
        value[at] = byte;
        prop_assert_eq!(visitors.verify(&value), None);
        prop_assert_eq!(visitors.verify(&value[..at]), None);
        prop_assert_eq!(visitors.verify(&random), None);
        prop_assert_eq!(visitors.verify(URL_SAFE_NO_PAD.encode(&random).as_bytes()), None);
        value.push(byte);
        prop_assert_eq!(visitors.verify(&value), None);
    }
}
