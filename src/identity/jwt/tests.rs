//! Tokens that must name a user, and the many ways a token may try to.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use http::HeaderValue;
use http::header::COOKIE;
use jsonwebtoken::{DecodingKey, EncodingKey, crypto, jwk::Jwk};
use proptest::prelude::*;
use serde_json::json;

use super::super::jwks;
use super::*;

const RSA: &str = include_str!("testdata/rsa.pem");
pub(in crate::identity) const RSA_PUBLIC: &str = include_str!("testdata/rsa.pub.pem");

/// The present of these tests, Unix seconds.
const NOW: u64 = 1_800_000_000;

fn now() -> Timestamp {
    Timestamp::from_millis(NOW * 1000)
}

/// A token of these JSON texts, signed.
fn signed(header: &Value, claims: &str, key: &EncodingKey, algorithm: JwtAlgorithm) -> String {
    let message = message(header, claims);
    let signature = crypto::sign(message.as_bytes(), key, algorithm).unwrap();
    format!("{message}.{signature}")
}

fn message(header: &Value, claims: &str) -> String {
    let part = |text: &str| URL_SAFE_NO_PAD.encode(text);
    format!("{}.{}", part(&header.to_string()), part(claims))
}

fn rs256() -> Value {
    json!({ "alg": "RS256", "kid": "k1" })
}

/// Signed by the issuer as it signs everything.
fn issued(claims: &str) -> String {
    let key = EncodingKey::from_rsa_pem(RSA.as_bytes()).unwrap();
    signed(&rs256(), claims, &key, JwtAlgorithm::RS256)
}

fn alice() -> Map<String, Value> {
    let claims = json!({
        "iss": "https://id.shop.example",
        "aud": "queue-gateway",
        "sub": "alice",
        "exp": NOW + 3600,
        "iat": NOW,
    });
    claims.as_object().unwrap().clone()
}

/// Alice's claims with one claim set, or taken out for `None`.
fn alice_but(claim: &str, value: Option<Value>) -> String {
    let mut claims = alice();
    match value {
        Some(value) => claims.insert(claim.to_owned(), value),
        None => claims.remove(claim),
    };
    Value::Object(claims).to_string()
}

/// The published key set: the issuer's RSA key under the id `k1`, pinned to RS256.
fn key_set() -> String {
    let key = DecodingKey::from_rsa_pem(RSA_PUBLIC.as_bytes()).unwrap();
    let mut jwk = Jwk::from_decoding_key(&key, Some(JwtAlgorithm::RS256)).unwrap();
    jwk.common.key_id = Some("k1".into());
    json!({ "keys": [jwk] }).to_string()
}

fn settings(keys: Vec<JwtKey>) -> JwtSettings {
    JwtSettings {
        keys,
        issuer: Some("https://id.shop.example".into()),
        audience: Some("queue-gateway".into()),
        user_claim: "sub".into(),
        leeway: Duration::ZERO,
        cookie: None,
    }
}

fn verifier() -> JwtVerifier {
    JwtVerifier::new(settings(jwks::keys(&key_set(), None).unwrap())).unwrap()
}

fn verdict(token: &str) -> Result<String, JwtRefusal> {
    verifier().verify(token.as_bytes(), now()).map(|user| user.id().to_owned())
}

fn secret_key(secret: &[u8]) -> JwtKey {
    JwtKey::from_secret(JwtAlgorithm::HS256, secret).unwrap()
}

pub(in crate::identity) const SECRET: &[u8] = b"a secret of at least 32 bytes, or else";

/// A token with this subject and expiry, Unix seconds, signed with [`SECRET`].
pub(in crate::identity) fn quick(subject: &str, expires: u64) -> String {
    let key = EncodingKey::from_secret(SECRET).unwrap();
    let claims = json!({ "sub": subject, "exp": expires }).to_string();
    signed(&json!({ "alg": "HS256" }), &claims, &key, JwtAlgorithm::HS256)
}

/// Settings that [`quick`] satisfies.
pub(in crate::identity) fn quick_settings() -> JwtSettings {
    JwtSettings { issuer: None, audience: None, ..settings(vec![secret_key(SECRET)]) }
}

fn quick_verifier() -> JwtVerifier {
    JwtVerifier::new(quick_settings()).unwrap()
}

#[test]
fn a_good_token_names_its_subject() {
    assert_eq!(verdict(&issued(&Value::Object(alice()).to_string())), Ok("alice".into()));
    assert_eq!(verdict(&issued(&alice_but("sub", Some("bob".into())))), Ok("bob".into()));
    assert_eq!(verdict(&issued(&alice_but("jti", Some("2".into())))), Ok("alice".into()));
}

/// Verifiers that followed the header took unsigned tokens, and HMACs keyed with the public key.
#[test]
fn the_key_and_not_the_token_says_which_algorithm_counts() {
    let claims = Value::Object(alice()).to_string();
    for alg in ["none", "NoNe", "None", "hs256", ""] {
        let unsigned = format!("{}.", message(&json!({ "alg": alg }), &claims));
        assert_eq!(verdict(&unsigned), Err(JwtRefusal::Malformed), "{alg}");
    }
    let hs256 = json!({ "alg": "HS256", "kid": "k1" });
    let body: String = RSA_PUBLIC.lines().filter(|line| !line.starts_with('-')).collect();
    let der = STANDARD.decode(body).unwrap();
    for secret in [RSA_PUBLIC.as_bytes(), RSA_PUBLIC.trim().as_bytes(), &der] {
        let key = EncodingKey::from_secret(secret).unwrap();
        let forged = signed(&hs256, &claims, &key, JwtAlgorithm::HS256);
        assert_eq!(verdict(&forged), Err(JwtRefusal::UnknownKey));
    }
    let es256 = json!({ "alg": "ES256" });
    let zeros = URL_SAFE_NO_PAD.encode([0; 64]);
    let forged = format!("{}.{zeros}", message(&es256, &claims));
    assert_eq!(verdict(&forged), Err(JwtRefusal::UnknownKey));
    let rsa = EncodingKey::from_rsa_pem(RSA.as_bytes()).unwrap();
    let rs512 = json!({ "alg": "RS512", "kid": "k1" });
    let other = signed(&rs512, &claims, &rsa, JwtAlgorithm::RS512);
    assert_eq!(verdict(&other), Err(JwtRefusal::UnknownKey));
}

#[test]
fn a_stripped_zeroed_or_foreign_signature_is_refused() {
    let token = issued(&Value::Object(alice()).to_string());
    let stripped = &token[..=token.rfind('.').unwrap()];
    assert_eq!(verdict(stripped), Err(JwtRefusal::Signature));
    let zeros = URL_SAFE_NO_PAD.encode([0; 256]);
    assert_eq!(verdict(&format!("{stripped}{zeros}")), Err(JwtRefusal::Signature));
    let pem = include_str!("testdata/p256.pub.pem");
    let key = JwtKey::from_pem(JwtAlgorithm::ES256, pem).unwrap();
    let verifier = JwtVerifier::new(settings(vec![key])).unwrap();
    let zeros = URL_SAFE_NO_PAD.encode([0; 64]);
    let message = message(&json!({ "alg": "ES256" }), &Value::Object(alice()).to_string());
    let forged = format!("{message}.{zeros}");
    assert_eq!(verifier.verify(forged.as_bytes(), now()), Err(JwtRefusal::Signature));
}

/// A claim that could not be parsed was taken for an absent one, which skipped its check.
#[test]
fn a_time_of_the_wrong_type_is_never_as_if_it_were_absent() {
    for (claim, value) in [
        ("nbf", json!("99999999999")),
        ("nbf", json!(null)),
        ("nbf", json!([])),
        ("nbf", json!(-1)),
        ("exp", json!("never")),
        ("exp", json!(null)),
        ("exp", json!([9_999_999_999_u64])),
        ("exp", json!(-1)),
        ("exp", json!(true)),
        ("exp", json!(1e300)),
        ("exp", json!({ "at": 9_999_999_999_u64 })),
    ] {
        let refused = verdict(&issued(&alice_but(claim, Some(value.clone()))));
        assert!(refused.is_err(), "{claim} {value}");
    }
    let infinite = alice_but("exp", Some("INFINITE".into())).replace("\"INFINITE\"", "1e400");
    assert_eq!(verdict(&issued(&infinite)), Err(JwtRefusal::Malformed));
    assert_eq!(verdict(&issued(&alice_but("exp", None))), Err(JwtRefusal::Claim("exp")));
}

#[test]
fn part_seconds_are_cut_to_the_shorter_life() {
    let exp = json!(1_800_003_600.5_f64);
    assert_eq!(verdict(&issued(&alice_but("exp", Some(exp)))), Ok("alice".into()));
    let claims = json!({ "exp": 100.9, "nbf": 50.1 });
    let life = Life::of(claims.as_object().unwrap()).unwrap();
    let at = |ms| life.check(Timestamp::from_millis(ms), Duration::ZERO);
    assert_eq!(at(50_999), Err(JwtRefusal::NotYet));
    assert_eq!(at(51_000), Ok(()));
    assert_eq!(at(99_999), Ok(()));
    assert_eq!(at(100_000), Err(JwtRefusal::Expired));
}

/// Expecting an audience did not make the claim required.
#[test]
fn an_expected_issuer_or_audience_must_be_there_and_match() {
    for (claim, value, expected) in [
        ("aud", None, Err(JwtRefusal::Claim("aud"))),
        ("aud", Some(json!("other-service")), Err(JwtRefusal::Audience)),
        ("aud", Some(json!([])), Err(JwtRefusal::Audience)),
        ("aud", Some(json!(["queue-gateway", 1])), Err(JwtRefusal::Claim("aud"))),
        ("aud", Some(json!({})), Err(JwtRefusal::Claim("aud"))),
        ("aud", Some(json!(["x", "queue-gateway"])), Ok("alice".into())),
        ("iss", None, Err(JwtRefusal::Claim("iss"))),
        ("iss", Some(json!("https://evil.example")), Err(JwtRefusal::Issuer)),
        ("iss", Some(json!("https://id.shop.example/")), Err(JwtRefusal::Issuer)),
        ("iss", Some(json!(["https://id.shop.example"])), Err(JwtRefusal::Claim("iss"))),
    ] {
        let shown = format!("{claim} {value:?}");
        assert_eq!(verdict(&issued(&alice_but(claim, value))), expected, "{shown}");
    }
}

#[test]
fn the_subject_must_be_a_sound_string() {
    let long = "x".repeat(257);
    for subject in [
        None,
        Some(json!("")),
        Some(json!(42)),
        Some(json!(null)),
        Some(json!(true)),
        Some(json!("a\nb")),
        Some(json!("anon:alice")),
        Some(json!(long)),
    ] {
        let shown = format!("{subject:?}");
        assert_eq!(verdict(&issued(&alice_but("sub", subject))), Err(JwtRefusal::User), "{shown}");
    }
    assert!(verdict(&issued(&alice_but("sub", Some(json!(["alice"]))))).is_err());
    // Markup is an id like any other; whoever shows it escapes it.
    let script = "</script><script>x";
    assert_eq!(verdict(&issued(&alice_but("sub", Some(script.into())))), Ok(script.into()));
}

#[test]
fn a_token_may_live_for_a_hundred_years() {
    let exp = NOW + 100 * 365 * 24 * 60 * 60;
    assert_eq!(verdict(&issued(&alice_but("exp", Some(exp.into())))), Ok("alice".into()));
}

/// A library tolerated a minute after expiry, and nobody had said so.
#[test]
fn there_is_no_leeway_but_the_configured_one() {
    for (leeway, claim, at, expected) in [
        (0, "exp", NOW, Err(JwtRefusal::Expired)),
        (0, "exp", NOW + 1, Ok(())),
        (0, "exp", NOW - 5, Err(JwtRefusal::Expired)),
        (30, "exp", NOW - 20, Ok(())),
        (30, "exp", NOW - 30, Err(JwtRefusal::Expired)),
        (30, "exp", NOW - 45, Err(JwtRefusal::Expired)),
        (30, "nbf", NOW + 20, Ok(())),
        (30, "nbf", NOW + 31, Err(JwtRefusal::NotYet)),
        (0, "nbf", NOW + 1, Err(JwtRefusal::NotYet)),
        (0, "nbf", NOW, Ok(())),
    ] {
        let leeway = Duration::from_secs(leeway);
        let keys = jwks::keys(&key_set(), None).unwrap();
        let verifier = JwtVerifier::new(JwtSettings { leeway, ..settings(keys) }).unwrap();
        let token = issued(&alice_but(claim, Some(at.into())));
        let verdict = verifier.verify(token.as_bytes(), now()).map(|_| ());
        assert_eq!(verdict, expected, "{leeway:?} {claim} {at}");
    }
}

#[test]
fn an_unknown_key_id_is_refused_without_trying_a_key() {
    let claims = Value::Object(alice()).to_string();
    for kid in ["k2", "", "random-7f3a", "K1", "../k1", "k1\0"] {
        let header = json!({ "alg": "RS256", "kid": kid });
        let forged = format!("{}.{}", message(&header, &claims), URL_SAFE_NO_PAD.encode([7; 256]));
        assert_eq!(verdict(&forged), Err(JwtRefusal::UnknownKey), "{kid}");
    }
    let numeric = json!({ "alg": "RS256", "kid": 1 });
    assert_eq!(verdict(&format!("{}.", message(&numeric, &claims))), Err(JwtRefusal::Malformed));
}

#[test]
fn a_token_without_a_key_id_fits_only_a_lone_key_of_its_algorithm() {
    let key = EncodingKey::from_secret(SECRET).unwrap();
    let claims = json!({ "sub": "alice", "exp": NOW + 60 }).to_string();
    let token = signed(&json!({ "alg": "HS256" }), &claims, &key, JwtAlgorithm::HS256);
    let k = URL_SAFE_NO_PAD.encode(SECRET);
    let jwk = |kid: &str| json!({ "kty": "oct", "alg": "HS256", "kid": kid, "k": k });
    for (set, expected) in [
        (json!({ "keys": [jwk("a")] }), Ok("alice")),
        (json!({ "keys": [jwk("a"), jwk("b")] }), Err(JwtRefusal::UnknownKey)),
    ] {
        let keys = jwks::keys(&set.to_string(), None).unwrap();
        let verifier = JwtVerifier::new(JwtSettings { keys, ..quick_settings() }).unwrap();
        let verdict = verifier.verify(token.as_bytes(), now());
        assert_eq!(verdict.as_ref().map(UserId::id).map_err(|refusal| *refusal), expected);
    }
}

#[test]
fn several_secrets_are_tried_so_that_a_secret_can_be_changed() {
    let keys = vec![secret_key(&[9; 32]), secret_key(SECRET)];
    let verifier = JwtVerifier::new(JwtSettings { keys, ..quick_settings() }).unwrap();
    assert!(verifier.verify(quick("alice", NOW + 60).as_bytes(), now()).is_ok());
}

#[test]
fn each_family_verifies_its_own_signatures() {
    type Read = fn(&[u8]) -> jsonwebtoken::errors::Result<EncodingKey>;
    let rsa = (RSA, RSA_PUBLIC, EncodingKey::from_rsa_pem as Read);
    let p256 = (include_str!("testdata/p256.pem"), include_str!("testdata/p256.pub.pem"));
    let p384 = (include_str!("testdata/p384.pem"), include_str!("testdata/p384.pub.pem"));
    let ed = (include_str!("testdata/ed25519.pem"), include_str!("testdata/ed25519.pub.pem"));
    for (algorithm, (private, public, read)) in [
        (JwtAlgorithm::RS384, rsa),
        (JwtAlgorithm::RS512, rsa),
        (JwtAlgorithm::PS256, rsa),
        (JwtAlgorithm::PS384, rsa),
        (JwtAlgorithm::PS512, rsa),
        (JwtAlgorithm::ES256, (p256.0, p256.1, EncodingKey::from_ec_pem as Read)),
        (JwtAlgorithm::ES384, (p384.0, p384.1, EncodingKey::from_ec_pem)),
        (JwtAlgorithm::EdDSA, (ed.0, ed.1, EncodingKey::from_ed_pem)),
    ] {
        let keys = vec![JwtKey::from_pem(algorithm, public).unwrap()];
        let verifier = JwtVerifier::new(settings(keys)).unwrap();
        let private = read(private.as_bytes()).unwrap();
        let header = json!({ "alg": format!("{algorithm:?}"), "kid": "any" });
        let claims = Value::Object(alice()).to_string();
        let token = signed(&header, &claims, &private, algorithm);
        assert!(verifier.verify(token.as_bytes(), now()).is_ok(), "{algorithm:?}");
        let mut claims = alice();
        claims.insert("sub".into(), "mallory".into());
        let moved = format!(
            "{}{}",
            message(&header, &Value::Object(claims).to_string()),
            &token[token.rfind('.').unwrap()..],
        );
        assert_eq!(verifier.verify(moved.as_bytes(), now()), Err(JwtRefusal::Signature));
    }
    for algorithm in [JwtAlgorithm::HS256, JwtAlgorithm::HS384, JwtAlgorithm::HS512] {
        let keys = vec![JwtKey::from_secret(algorithm, SECRET).unwrap()];
        let verifier = JwtVerifier::new(settings(keys)).unwrap();
        let header = json!({ "alg": format!("{algorithm:?}") });
        let key = EncodingKey::from_secret(SECRET).unwrap();
        let token = signed(&header, &Value::Object(alice()).to_string(), &key, algorithm);
        assert!(verifier.verify(token.as_bytes(), now()).is_ok(), "{algorithm:?}");
    }
}

#[test]
fn headers_that_ask_for_more_than_a_signature_are_refused() {
    let key = EncodingKey::from_secret(SECRET).unwrap();
    let claims = json!({ "sub": "alice", "exp": NOW + 60 }).to_string();
    for header in [
        json!({ "alg": "HS256", "crit": ["exp"] }),
        json!({ "alg": "HS256", "crit": [] }),
        json!({ "alg": "HS256", "b64": false, "crit": ["b64"] }),
        json!({ "kid": "k1" }),
        json!("HS256"),
    ] {
        let token = signed(&header, &claims, &key, JwtAlgorithm::HS256);
        let verdict = quick_verifier().verify(token.as_bytes(), now());
        assert_eq!(verdict, Err(JwtRefusal::Malformed), "{header}");
    }
    for payload in ["[]", "null", "\"alice\"", "{", "{\"sub\":\"a\"}{}"] {
        let token = signed(&json!({ "alg": "HS256" }), payload, &key, JwtAlgorithm::HS256);
        let verdict = quick_verifier().verify(token.as_bytes(), now());
        assert_eq!(verdict, Err(JwtRefusal::Malformed), "{payload}");
    }
}

#[test]
fn a_remembered_token_still_expires_and_is_checked_again_after_a_minute() {
    let verifier = quick_verifier();
    let token = quick("alice", NOW + 30);
    let at =
        |secs: u64| verifier.verify(token.as_bytes(), Timestamp::from_millis((NOW + secs) * 1000));
    assert!(at(0).is_ok());
    assert_eq!(verifier.verified.len(), 1);
    assert!(at(29).is_ok());
    assert_eq!(at(30), Err(JwtRefusal::Expired));
    assert_eq!(at(3000), Err(JwtRefusal::Expired));

    let verifier = quick_verifier();
    let user = UserId::new(UserSource::Jwt, "remembered").unwrap();
    let life = Life { not_before: now(), expires: now().plus(Duration::from_secs(600)) };
    let token = quick("alice", NOW + 600);
    let hash = *blake3::hash(token.as_bytes()).as_bytes();
    let remembered_until = now().plus(REMEMBERED);
    verifier.verified.insert(hash, Verified { user, life, remembered_until });
    let at = |ms: u64| verifier.verify(token.as_bytes(), Timestamp::from_millis(ms));
    assert_eq!(at(NOW * 1000 - 1), Err(JwtRefusal::NotYet));
    assert_eq!(at(NOW * 1000 + 59_999).unwrap().id(), "remembered");
    assert_eq!(at(NOW * 1000 + 60_000).unwrap().id(), "alice");
}

#[test]
fn refused_tokens_are_not_remembered() {
    let verifier = quick_verifier();
    let token = quick("alice", NOW - 1);
    assert!(verifier.verify(token.as_bytes(), now()).is_err());
    assert!(verifier.verify(b"a.b.c", now()).is_err());
    assert!(verifier.verified.is_empty());
}

#[test]
fn a_token_of_more_than_8_kib_is_refused_unread() {
    let token = quick(&"x".repeat(8192), NOW + 60);
    assert_eq!(quick_verifier().verify(token.as_bytes(), now()), Err(JwtRefusal::TooLong));
}

fn look(verifier: &JwtVerifier, lines: &[(http::HeaderName, &str)]) -> Finding {
    let headers: HeaderMap = lines
        .iter()
        .map(|(name, value)| (name.clone(), HeaderValue::from_bytes(value.as_bytes()).unwrap()))
        .collect();
    let (headers, now) = (&headers, now());
    verifier.look(&IdentityRequest { headers, trusted_peer: false, https: true, query: None, now })
}

fn user(id: &str) -> Finding {
    Finding::Verified(UserId::new(UserSource::Jwt, id).unwrap())
}

#[test]
fn the_bearer_scheme_is_read_once_and_others_are_left_alone() {
    let verifier = quick_verifier();
    let token = quick("alice", NOW + 60);
    for line in
        [format!("Bearer {token}"), format!("bearer   {token}"), format!("BEARER\t{token} ")]
    {
        assert_eq!(look(&verifier, &[(AUTHORIZATION, &line)]), user("alice"), "{line}");
    }
    assert_eq!(look(&verifier, &[]), Finding::Absent);
    for line in ["Basic YTpi", "", "Bearerx a.b.c", "DPoP a.b.c"] {
        assert_eq!(look(&verifier, &[(AUTHORIZATION, line)]), Finding::Absent, "{line}");
    }
    let bearer = format!("Bearer {token}");
    for line in
        ["Bearer", "Bearer ", "Bearer ä", &format!("{bearer}, {bearer}"), &format!("{bearer} x")]
    {
        assert_eq!(look(&verifier, &[(AUTHORIZATION, line)]), Finding::Rejected, "{line}");
    }
    for second in [bearer.as_str(), "Basic YTpi"] {
        let lines = [(AUTHORIZATION, bearer.as_str()), (AUTHORIZATION, second)];
        assert_eq!(look(&verifier, &lines), Finding::Rejected, "{second}");
    }
}

#[test]
fn a_configured_cookie_is_read_instead_of_the_header() {
    let cookie = Some("session".to_owned());
    let verifier = JwtVerifier::new(JwtSettings { cookie, ..quick_settings() }).unwrap();
    let (alice, bob) = (quick("alice", NOW + 60), quick("bob", NOW + 60));
    let bearer = format!("Bearer {bob}");
    let line = format!("a=\u{e4}; session={alice}; session={alice}");
    assert_eq!(look(&verifier, &[(COOKIE, &line), (AUTHORIZATION, &bearer)]), user("alice"));
    assert_eq!(look(&verifier, &[(AUTHORIZATION, &bearer)]), Finding::Absent);
    assert_eq!(look(&verifier, &[(COOKIE, "session=")]), Finding::Absent);
    let both = format!("session={alice}; session={bob}");
    assert_eq!(look(&verifier, &[(COOKIE, &both)]), Finding::Rejected);
    assert_eq!(look(&verifier, &[(COOKIE, "session=x")]), Finding::Rejected);
}

#[test]
fn settings_that_do_not_hold_together_are_refused() {
    let refused = |settings| JwtVerifier::new(settings).unwrap_err();
    let good = quick_settings;
    assert_eq!(refused(JwtSettings { keys: vec![], ..good() }), JwtSettingsError::NoKey);
    let empty = JwtSettings { issuer: Some(String::new()), ..good() };
    assert_eq!(refused(empty), JwtSettingsError::Empty("issuer"));
    let empty = JwtSettings { user_claim: String::new(), ..good() };
    assert_eq!(refused(empty), JwtSettingsError::Empty("user_claim"));
    let leeway = Duration::from_secs(301);
    assert_eq!(refused(JwtSettings { leeway, ..good() }), JwtSettingsError::Leeway(leeway));
    let cookie = Some("a b".to_owned());
    let named = JwtSettings { cookie, ..good() };
    assert_eq!(refused(named), JwtSettingsError::Cookie("a b".into()));
    let keys = [key_set(), key_set()].map(|set| jwks::keys(&set, None).unwrap()).concat();
    let twice = refused(JwtSettings { keys, ..good() });
    assert_eq!(twice.to_string(), "two RS256 keys have the id `k1`");
}

#[test]
fn no_key_shows_up_in_a_log() {
    let shown = format!("{:?}", quick_verifier());
    assert!(!shown.contains("secret of"), "{shown}");
    assert!(shown.contains("HS256"), "{shown}");
}

#[test]
fn another_claim_may_name_the_user() {
    let settings = JwtSettings { user_claim: "customer".into(), ..quick_settings() };
    let verifier = JwtVerifier::new(settings).unwrap();
    let key = EncodingKey::from_secret(SECRET).unwrap();
    let claims = json!({ "sub": "a", "customer": "c-7", "exp": NOW + 60 }).to_string();
    let token = signed(&json!({ "alg": "HS256" }), &claims, &key, JwtAlgorithm::HS256);
    assert_eq!(verifier.verify(token.as_bytes(), now()).unwrap().id(), "c-7");
}

proptest! {
    #[test]
    fn no_bytes_panic_and_no_changed_token_verifies(
        bytes in proptest::collection::vec(any::<u8>(), 0..200),
        at in any::<prop::sample::Index>(),
        byte in 0x21_u8..0x7f,
        header in "\\PC{0,40}",
        payload in "\\PC{0,40}",
    ) {
        let verifier = quick_verifier();
        prop_assert!(verifier.verify(&bytes, now()).is_err());
        let mut token = quick("alice", NOW + 60).into_bytes();
        let at = at.index(token.len());
        prop_assume!(token[at] != byte);
        token[at] = byte;
        prop_assert!(verifier.verify(&token, now()).is_err());
        let key = EncodingKey::from_secret(SECRET).unwrap();
        let odd = signed(&Value::String(header), &payload, &key, JwtAlgorithm::HS256);
        prop_assert!(verifier.verify(odd.as_bytes(), now()).is_err());
        let typed = signed(&json!({ "alg": "HS256" }), &payload, &key, JwtAlgorithm::HS256);
        prop_assert!(verifier.verify(typed.as_bytes(), now()).is_err());
    }
}
