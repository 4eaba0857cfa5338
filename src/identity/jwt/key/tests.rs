//! Keys that are refused when the configuration is read, and what is said about them.

use super::super::tests::RSA_PUBLIC;
use super::*;

fn pem(algorithm: JwtAlgorithm, text: &str) -> String {
    JwtKey::from_pem(algorithm, text).unwrap_err().to_string()
}

fn secret(bytes: &[u8]) -> String {
    JwtKey::from_secret(JwtAlgorithm::HS256, bytes).unwrap_err().to_string()
}

#[test]
fn what_is_no_public_key_is_called_by_its_name() {
    let rs256 = JwtAlgorithm::RS256;
    assert!(pem(rs256, include_str!("../testdata/rsa.pem")).contains("this is a private key"));
    assert!(
        pem(rs256, include_str!("../testdata/certificate.pem")).contains("this is a certificate")
    );
    let twice = format!("{RSA_PUBLIC}{RSA_PUBLIC}");
    for text in ["", "secret", "-----BEGIN PUBLIC KEY-----\nAAAA", &twice] {
        assert!(pem(rs256, text).starts_with("expected one public key in PEM"), "{text}");
    }
}

#[test]
fn a_key_of_another_family_or_curve_is_refused() {
    assert_eq!(pem(JwtAlgorithm::ES256, RSA_PUBLIC), "ES256 needs an EC public key on its curve");
    assert_eq!(pem(JwtAlgorithm::EdDSA, RSA_PUBLIC), "EdDSA needs an Ed25519 public key");
    let p384 = include_str!("../testdata/p384.pub.pem");
    assert_eq!(pem(JwtAlgorithm::RS256, p384), "RS256 needs an RSA public key");
    let message = "the key's numbers make no valid ES256 key";
    assert_eq!(pem(JwtAlgorithm::ES256, p384), message);
    assert!(pem(JwtAlgorithm::HS256, RSA_PUBLIC).starts_with("HS256 needs a shared secret"));
    let wrong = JwtKey::from_secret(JwtAlgorithm::RS256, &[1; 64]).unwrap_err().to_string();
    assert_eq!(wrong, "RS256 needs an RSA public key");
}

#[test]
fn a_small_rsa_key_is_refused() {
    let small = include_str!("../testdata/rsa1024.pub.pem");
    assert_eq!(pem(JwtAlgorithm::RS256, small), "the RSA key has 1024 bits and needs 2048 to 8192");
}

#[test]
fn an_rsa_key_whose_numbers_are_no_key_is_refused() {
    let odd = [0xff; 256];
    let mut even = odd;
    even[255] = 0xfe;
    let new = |n: &[u8], e: &[u8]| {
        let key = DecodingKey::from_rsa_raw_components(n, e);
        JwtKey::new(None, JwtAlgorithm::RS256, key)
    };
    assert!(new(&odd, &[1, 0, 1]).is_ok());
    assert!(matches!(new(&[], &[1, 0, 1]), Err(JwtKeyError::RsaBits(0))));
    for (n, e) in
        [(&even, &[1, 0, 1][..]), (&odd, &[1]), (&odd, &[4]), (&odd, &[]), (&odd, &[3; 6])]
    {
        assert!(matches!(new(n, e), Err(JwtKeyError::Unsound(_))), "{e:?}");
    }
}

/// With a public key as the secret, everybody who knows it could sign.
#[test]
fn a_public_key_is_no_shared_secret() {
    let der = |text: &str| {
        let body: String = text.lines().filter(|line| !line.starts_with('-')).collect();
        base64::Engine::decode(&base64::engine::general_purpose::STANDARD, body).unwrap()
    };
    let json = br#" {"kty":"RSA","n":"AQAB","e":"AQAB"}"#;
    let indented = format!("  {RSA_PUBLIC}");
    let ed = include_str!("../testdata/ed25519.pub.pem");
    let p256 = include_str!("../testdata/p256.pub.pem");
    for bytes in
        [RSA_PUBLIC.as_bytes(), indented.as_bytes(), &der(RSA_PUBLIC), &der(ed), &der(p256), json]
    {
        assert!(secret(bytes).starts_with("this is a public key"));
    }
}

#[test]
fn a_short_secret_is_refused() {
    assert_eq!(secret(&[1; 31]), "the secret has 31 bytes and needs at least 32");
    assert_eq!(secret(b""), "the secret has 0 bytes and needs at least 32");
    assert!(JwtKey::from_secret(JwtAlgorithm::HS512, &[0x30; 32]).is_ok());
}

#[test]
fn a_short_edwards_key_is_refused_and_not_sliced() {
    for length in [0, 31, 33] {
        let key = DecodingKey::from_ed_der(&vec![1; length]);
        let made = JwtKey::new(None, JwtAlgorithm::EdDSA, key);
        assert!(matches!(made, Err(JwtKeyError::Unsound(_))), "{length}");
    }
}
