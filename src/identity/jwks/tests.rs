//! Key sets as issuers publish them.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::DecodingKey;
use serde_json::json;

use super::super::jwt::tests::RSA_PUBLIC;
use super::*;

fn rsa(change: &Value) -> Value {
    let key = DecodingKey::from_rsa_pem(RSA_PUBLIC.as_bytes()).unwrap();
    let mut jwk = serde_json::to_value(Jwk::from_decoding_key(&key, None).unwrap()).unwrap();
    for (name, value) in change.as_object().unwrap() {
        jwk[name] = value.clone();
    }
    jwk
}

fn read(set: &[Value], algorithm: Option<JwtAlgorithm>) -> Result<Vec<String>, String> {
    keys(&json!({ "keys": set }).to_string(), algorithm)
        .map(|keys| {
            keys.iter().map(|key| format!("{:?} {:?}", key.algorithm(), key.kid())).collect()
        })
        .map_err(|error| error.to_string())
}

#[test]
fn a_key_is_pinned_to_the_algorithm_it_says_or_to_the_configured_one() {
    let said = rsa(&json!({ "alg": "PS384", "kid": "a", "use": "sig" }));
    let silent = rsa(&json!({ "kid": "b", "key_ops": ["verify"] }));
    assert_eq!(read(std::slice::from_ref(&said), None), Ok(vec!["PS384 Some(\"a\")".into()]));
    let rs256 = Some(JwtAlgorithm::RS256);
    assert_eq!(read(&[said, silent.clone()], rs256), Ok(vec!["RS256 Some(\"b\")".into()]));
    let error = read(&[silent], None).unwrap_err();
    assert!(error.starts_with("key 1 of the set: it has no `alg`"), "{error}");
}

#[test]
fn keys_for_other_purposes_and_of_unknown_kinds_are_passed_over() {
    let good = rsa(&json!({ "alg": "RS256", "kid": "good" }));
    let set = [
        rsa(&json!({ "alg": "RS256", "kid": "a", "use": "enc" })),
        rsa(&json!({ "alg": "RSA-OAEP", "kid": "b" })),
        rsa(&json!({ "alg": "RS256", "kid": "c", "key_ops": ["wrapKey"] })),
        json!({ "kty": "AKP", "alg": "ML-DSA-44", "pub": "AA" }),
        json!({ "kty": "EC", "crv": "P-521", "x": "AA", "y": "AA" }),
        good,
    ];
    assert_eq!(read(&set, Some(JwtAlgorithm::RS256)), Ok(vec!["RS256 Some(\"good\")".into()]));
    let error = read(&set[..4], None).unwrap_err();
    assert_eq!(error, "none of the 4 keys in the set is a signature key of a known algorithm");
}

#[test]
fn a_key_that_is_for_us_and_unusable_is_an_error_that_names_it() {
    let short = URL_SAFE_NO_PAD.encode([1; 20]);
    for (key, said) in [
        (json!({ "kty": "oct", "alg": "HS256", "k": short }), "the secret has 20 bytes"),
        (json!({ "kty": "RSA", "alg": "RS256", "n": "AQAB", "e": "AQAB" }), "17 bits"),
        (json!({ "kty": "RSA", "alg": "RS256", "n": "*", "e": "AQAB" }), "no valid RS256 key"),
        (
            json!({ "kty": "OKP", "crv": "Ed25519", "alg": "EdDSA", "x": "AQAB" }),
            "no valid EdDSA key",
        ),
        (
            json!({ "kty": "EC", "crv": "P-256", "alg": "ES256", "x": "AQ", "y": "AQ" }),
            "no valid ES256 key",
        ),
        (rsa(&json!({ "alg": "ES256" })), "ES256 needs an EC public key"),
        (json!({ "kty": "RSA", "kid": 7 }), "expected a key set"),
        (json!(7), "expected a key set"),
    ] {
        let good = rsa(&json!({ "alg": "RS256" }));
        let error = read(&[good, key.clone()], None).unwrap_err();
        assert!(error.starts_with("key 2 of the set: ") && error.contains(said), "{key} {error}");
    }
}

#[test]
fn other_text_is_no_key_set() {
    for text in ["", "[]", "{}", "{\"keys\":{}}", RSA_PUBLIC] {
        assert!(matches!(keys(text, None), Err(JwtKeyError::KeySet(_))), "{text}");
    }
    assert!(matches!(keys("{\"keys\":[]}", None), Err(JwtKeyError::NoneInSet(0))));
}
