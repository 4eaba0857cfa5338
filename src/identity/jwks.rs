//! The keys of a JSON Web Key Set (RFC 7517) that is at hand as text.
//!
//! Keys that are not for signatures, or of a kind this gateway does not know, are passed over, as
//! the standard asks: issuers publish them side by side. A key that is meant for us and unusable is
//! an error. Nothing is fetched from anywhere.

use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, KeyOperations, PublicKeyUse};
use serde::Deserialize;
use serde_json::Value;

use super::jwt::{JwtAlgorithm, JwtKey, JwtKeyError};

#[derive(Deserialize)]
struct KeySet {
    keys: Vec<Value>,
}

/// The signature keys in `json`.
///
/// - `algorithm`: the one algorithm to accept. Keys that say another one are passed over; keys that
///   say none are pinned to it. `None` accepts whatever algorithm each key says, and then each must
///   say one.
///
/// # Errors
/// [`JwtKeyError::KeySet`] for other text, [`JwtKeyError::InSet`] for an unusable key,
/// [`JwtKeyError::NoneInSet`] when no key is left.
pub fn keys(json: &str, algorithm: Option<JwtAlgorithm>) -> Result<Vec<JwtKey>, JwtKeyError> {
    let set: KeySet = serde_json::from_str(json)?;
    let count = set.keys.len();
    let mut keys = Vec::new();
    for (at, value) in set.keys.into_iter().enumerate() {
        let key = key(value, algorithm)
            .map_err(|cause| JwtKeyError::InSet { at: at + 1, cause: Box::new(cause) })?;
        keys.extend(key);
    }
    if keys.is_empty() { Err(JwtKeyError::NoneInSet(count)) } else { Ok(keys) }
}

/// One key, or `None` when it is not for us.
fn key(value: Value, wanted: Option<JwtAlgorithm>) -> Result<Option<JwtKey>, JwtKeyError> {
    let jwk: Jwk = serde_json::from_value(value)?;
    if !signs(&jwk) {
        return Ok(None);
    }
    let algorithm = match jwk.common.key_algorithm {
        // An algorithm that is not known here.
        Some(own) => match JwtAlgorithm::try_from(own) {
            Ok(own) if wanted.is_none_or(|wanted| wanted == own) => own,
            _ => return Ok(None),
        },
        None => match (wanted, natural(&jwk)) {
            (Some(wanted), Some(family)) if family.contains(&wanted) => wanted,
            (Some(_), _) | (None, None) => return Ok(None),
            (None, Some(_)) => return Err(JwtKeyError::Unpinned),
        },
    };
    JwtKey::from_jwk(algorithm, &jwk).map(Some)
}

/// Whether a key may be used for signatures.
fn signs(jwk: &Jwk) -> bool {
    let by_use = match &jwk.common.public_key_use {
        None | Some(PublicKeyUse::Signature) => true,
        Some(PublicKeyUse::Encryption | PublicKeyUse::Other(_)) => false,
    };
    let by_operations =
        jwk.common.key_operations.as_ref().is_none_or(|all| all.contains(&KeyOperations::Verify));
    by_use && by_operations
}

/// The algorithms a key's numbers are good for; `None` for a kind that is not known here.
fn natural(jwk: &Jwk) -> Option<&'static [JwtAlgorithm]> {
    use JwtAlgorithm as A;
    match &jwk.algorithm {
        AlgorithmParameters::RSA(_) => {
            Some(&[A::RS256, A::RS384, A::RS512, A::PS256, A::PS384, A::PS512])
        }
        AlgorithmParameters::EllipticCurve(point) => match point.curve {
            EllipticCurve::P256 => Some(&[A::ES256]),
            EllipticCurve::P384 => Some(&[A::ES384]),
            _ => None,
        },
        AlgorithmParameters::OctetKeyPair(point) => match point.curve {
            EllipticCurve::Ed25519 => Some(&[A::EdDSA]),
            _ => None,
        },
        AlgorithmParameters::OctetKey(_) => Some(&[A::HS256, A::HS384, A::HS512]),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
