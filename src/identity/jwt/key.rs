//! A key that may sign tokens, with the one algorithm it may do so by.
//!
//! What would fail every token later, or let a stranger sign one, is refused here, when the
//! configuration is read: private keys, certificates, public keys given as secrets, short secrets
//! and moduli, keys of another family or curve than the algorithm's.

use std::fmt;

use jsonwebtoken::jwk::Jwk;
use jsonwebtoken::{AlgorithmFamily, DecodingKey, DecodingKeyKind, Validation};

use super::JwtAlgorithm;

/// The shortest HMAC secret, bytes: 256 bits cannot be guessed.
const MIN_SECRET_BYTES: usize = 32;

/// The RSA moduli that are accepted, bits. Fewer can be factored by who has the means; more would
/// cost more time per token than a signature is worth.
const RSA_BITS: std::ops::RangeInclusive<usize> = 2048..=8192;

/// Why a key cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum JwtKeyError {
    /// Not one PEM block with a public key.
    #[error("expected one public key in PEM, which begins with `-----BEGIN PUBLIC KEY-----`")]
    Pem,
    /// A private key.
    #[error(
        "this is a private key, which stays with the issuer; give its public key \
         (`openssl pkey -pubout`)"
    )]
    Private,
    /// A certificate.
    #[error("this is a certificate; give its public key (`openssl x509 -noout -pubkey`)")]
    Certificate,
    /// The algorithm needs another kind of key.
    #[error("{algorithm:?} needs {needed}")]
    Family {
        /// The configured algorithm.
        algorithm: JwtAlgorithm,
        /// The kind of key that goes with it.
        needed: &'static str,
    },
    /// A public key as an HMAC secret: everybody could sign.
    #[error("this is a public key; whoever knows it could sign, so it cannot be a shared secret")]
    PublicSecret,
    /// A short HMAC secret.
    #[error("the secret has {0} bytes and needs at least 32")]
    ShortSecret(usize),
    /// An RSA modulus out of range.
    #[error("the RSA key has {0} bits and needs 2048 to 8192")]
    RsaBits(usize),
    /// The numbers make no key.
    #[error("the key's numbers make no valid {0:?} key")]
    Unsound(JwtAlgorithm),
    /// A key set that is not JSON of the right form.
    #[error("expected a key set, `{{\"keys\": [...]}}`: {0}")]
    KeySet(#[from] serde_json::Error),
    /// One key of a set.
    #[error("key {at} of the set: {cause}")]
    InSet {
        /// Its position, from 1.
        at: usize,
        /// What is wrong with it.
        #[source]
        cause: Box<JwtKeyError>,
    },
    /// A key of a set that does not say its algorithm, and none is configured.
    #[error("it has no `alg`, and no algorithm is configured for it")]
    Unpinned,
    /// A set without a key that can be used.
    #[error("none of the {0} keys in the set is a signature key of a known algorithm")]
    NoneInSet(usize),
}

/// A key, its algorithm, and its id if it has one.
#[derive(Clone)]
pub struct JwtKey {
    kid: Option<String>,
    key: DecodingKey,
    validation: Validation,
    algorithm: JwtAlgorithm,
}

impl JwtKey {
    /// A public key in PEM (`PUBLIC KEY`, or `RSA PUBLIC KEY`). It has no id and is tried for
    /// every token of its algorithm.
    ///
    /// # Errors
    /// [`JwtKeyError`]: what the text is instead, or why the key is too weak.
    pub fn from_pem(algorithm: JwtAlgorithm, pem: &str) -> Result<Self, JwtKeyError> {
        let mut blocks = pem.split("-----BEGIN ").skip(1);
        let (Some(block), None) = (blocks.next(), blocks.next()) else {
            return Err(JwtKeyError::Pem);
        };
        let label = block.split("-----").next().unwrap_or_default();
        if label.contains("PRIVATE") {
            return Err(JwtKeyError::Private);
        }
        if label.contains("CERTIFICATE") {
            return Err(JwtKeyError::Certificate);
        }
        let bytes = pem.as_bytes();
        let key = match algorithm.family() {
            AlgorithmFamily::Hmac => return Err(family_error(algorithm)),
            AlgorithmFamily::Rsa => DecodingKey::from_rsa_pem(bytes),
            AlgorithmFamily::Ec => DecodingKey::from_ec_pem(bytes),
            AlgorithmFamily::Ed => DecodingKey::from_ed_pem(bytes),
        };
        let whole = block.contains("-----END ");
        let key =
            key.map_err(|_| if whole { family_error(algorithm) } else { JwtKeyError::Pem })?;
        Self::new(None, algorithm, key)
    }

    /// A shared secret, its bytes as they are. It has no id and is tried for every token of its
    /// algorithm.
    ///
    /// # Errors
    /// [`JwtKeyError::Family`] for an algorithm without shared secrets,
    /// [`JwtKeyError::ShortSecret`], or [`JwtKeyError::PublicSecret`].
    pub fn from_secret(algorithm: JwtAlgorithm, secret: &[u8]) -> Result<Self, JwtKeyError> {
        if algorithm.family() != AlgorithmFamily::Hmac {
            return Err(family_error(algorithm));
        }
        let key =
            DecodingKey::from_secret(secret).map_err(|_| JwtKeyError::ShortSecret(secret.len()))?;
        Self::new(None, algorithm, key)
    }

    /// A key of a set.
    pub(in crate::identity) fn from_jwk(
        algorithm: JwtAlgorithm,
        jwk: &Jwk,
    ) -> Result<Self, JwtKeyError> {
        let key = DecodingKey::from_jwk(jwk).map_err(|_| JwtKeyError::Unsound(algorithm))?;
        Self::new(jwk.common.key_id.clone(), algorithm, key)
    }

    fn new(
        kid: Option<String>,
        algorithm: JwtAlgorithm,
        key: DecodingKey,
    ) -> Result<Self, JwtKeyError> {
        if key.family() != algorithm.family() {
            return Err(family_error(algorithm));
        }
        let key = match algorithm.family() {
            AlgorithmFamily::Hmac => check_secret(key)?,
            AlgorithmFamily::Rsa => check_rsa(algorithm, key)?,
            AlgorithmFamily::Ec | AlgorithmFamily::Ed => check_curve(algorithm, key)?,
        };
        // Times, issuer and audience are the verifier's part: the library reads the wall clock and
        // takes a claim it cannot parse for an absent one.
        let mut validation = Validation::new(algorithm);
        validation.required_spec_claims.clear();
        validation.validate_exp = false;
        validation.validate_nbf = false;
        validation.validate_aud = false;
        Ok(Self { kid, key, validation, algorithm })
    }

    /// Its id, if it came from a set and has one.
    #[must_use]
    pub fn kid(&self) -> Option<&str> {
        self.kid.as_deref()
    }

    /// The only algorithm it verifies.
    #[must_use]
    pub const fn algorithm(&self) -> JwtAlgorithm {
        self.algorithm
    }

    pub(super) const fn decoding_key(&self) -> &DecodingKey {
        &self.key
    }

    pub(super) const fn validation(&self) -> &Validation {
        &self.validation
    }
}

fn family_error(algorithm: JwtAlgorithm) -> JwtKeyError {
    let needed = match algorithm.family() {
        AlgorithmFamily::Hmac => "a shared secret, not a key file in PEM",
        AlgorithmFamily::Rsa => "an RSA public key",
        AlgorithmFamily::Ec => "an EC public key on its curve",
        AlgorithmFamily::Ed => "an Ed25519 public key",
    };
    JwtKeyError::Family { algorithm, needed }
}

fn check_secret(key: DecodingKey) -> Result<DecodingKey, JwtKeyError> {
    let secret = key.try_get_as_bytes().unwrap_or_default();
    if is_public_key(secret) {
        return Err(JwtKeyError::PublicSecret);
    }
    if secret.len() < MIN_SECRET_BYTES {
        return Err(JwtKeyError::ShortSecret(secret.len()));
    }
    Ok(key)
}

/// Whether a secret is really a published key: PEM, a JSON key, or DER (a sequence whose first
/// element is a sequence that begins with an object identifier).
fn is_public_key(secret: &[u8]) -> bool {
    let pem = secret.windows(10).any(|window| window == b"-----BEGIN");
    let json = secret.trim_ascii().starts_with(b"{") && secret.windows(5).any(|w| w == b"\"kty\"");
    let sequence = |bytes: &[u8]| match bytes {
        [0x30, 0x82, _, _, ..] => Some(4),
        [0x30, 0x81, _, ..] => Some(3),
        [0x30, 0..=0x7f, ..] => Some(2),
        _ => None,
    };
    let der = sequence(secret).is_some_and(|at| {
        let inner = &secret[at..];
        sequence(inner).is_some_and(|at| inner.get(at) == Some(&0x06))
    });
    pem || json || der
}

/// Checks size and exponent, and keeps modulus and exponent instead of DER, which saves parsing it
/// for every token.
fn check_rsa(algorithm: JwtAlgorithm, key: DecodingKey) -> Result<DecodingKey, JwtKeyError> {
    let unsound = |_| JwtKeyError::Unsound(algorithm);
    let key = match key.kind() {
        DecodingKeyKind::RsaModulusExponent { .. } => key,
        DecodingKeyKind::SecretOrDer(_) => Jwk::from_decoding_key(&key, None)
            .and_then(|jwk| DecodingKey::from_jwk(&jwk))
            .map_err(unsound)?,
    };
    let DecodingKeyKind::RsaModulusExponent { n, e } = key.kind() else {
        return Err(JwtKeyError::Unsound(algorithm));
    };
    let bits = bits(n);
    if !RSA_BITS.contains(&bits) {
        return Err(JwtKeyError::RsaBits(bits));
    }
    // An odd exponent from 3 to 33 bits, which is what the cryptography accepts.
    let odd = |number: &[u8]| number.last().is_some_and(|byte| byte % 2 == 1);
    if !odd(n) || !odd(e) || !(2..=33).contains(&self::bits(e)) {
        return Err(JwtKeyError::Unsound(algorithm));
    }
    Ok(key)
}

/// The length of a big-endian number in bits.
fn bits(number: &[u8]) -> usize {
    let at = number.iter().position(|byte| *byte != 0).unwrap_or(number.len());
    let Some(first) = number.get(at) else { return 0 };
    (number.len() - at) * 8 - first.leading_zeros() as usize
}

/// Checks that the point lies on the algorithm's curve.
fn check_curve(algorithm: JwtAlgorithm, key: DecodingKey) -> Result<DecodingKey, JwtKeyError> {
    // Ed25519 keys have 32 bytes; the library counts on it.
    let edwards = algorithm.family() == AlgorithmFamily::Ed;
    let length = key.try_get_as_bytes().map_or(0, <[u8]>::len);
    if edwards && length != 32 {
        return Err(JwtKeyError::Unsound(algorithm));
    }
    // Verifying parses the point before it looks at the signature, which is empty here.
    jsonwebtoken::crypto::verify("", b"", &key, algorithm)
        .map_err(|_| JwtKeyError::Unsound(algorithm))?;
    Ok(key)
}

/// Keys never show up in logs.
impl fmt::Debug for JwtKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JwtKey({:?}, {:?}, ***)", self.algorithm, self.kid)
    }
}

#[cfg(test)]
mod tests;
