//! A user proven by a JSON Web Token.
//!
//! The key says which algorithm counts; the token is never asked. Every claim that is looked at
//! must have its right type: one that cannot be read is a refusal and never as if it were absent.
//! Times are compared with the caller's `now`, so the library only checks form and signature here.
//! Nothing is fetched, whatever a token's header points to.

mod key;

use std::fmt;
use std::time::Duration;

use http::HeaderMap;
use http::header::AUTHORIZATION;
use jsonwebtoken::errors::ErrorKind;
use quick_cache::sync::Cache;
use serde_json::{Map, Value};
use tracing::debug;

use crate::clock::Timestamp;
use crate::queue::{UserId, UserSource};

use super::{Finding, IdentityRequest, IdentitySource, cookies};

pub use jsonwebtoken::Algorithm as JwtAlgorithm;
pub use key::{JwtKey, JwtKeyError};

/// The longest token that is looked at, bytes: half of the default request head.
pub const MAX_JWT_BYTES: usize = 8 * 1024;

/// The most leeway that can be configured: no two clocks under NTP are further apart.
pub const MAX_LEEWAY: Duration = Duration::from_secs(300);

/// How long a verified token is remembered. Bounds how long a key that was taken away still works
/// by the cache, and makes a poll every few seconds cheap.
const REMEMBERED: Duration = Duration::from_secs(60);

/// How many verified tokens are remembered: some 15 MB when full.
const REMEMBERED_TOKENS: usize = 1 << 16;

/// How tokens are found and what they must say.
#[derive(Clone, Debug)]
pub struct JwtSettings {
    /// The keys that may have signed, at least one.
    pub keys: Vec<JwtKey>,
    /// What `iss` must be. `None` does not look at it.
    pub issuer: Option<String>,
    /// What `aud` must be or contain. `None` does not look at it.
    pub audience: Option<String>,
    /// The claim that names the user. Default `sub`.
    pub user_claim: String,
    /// By how much the issuer's clock may differ. Default 0 s, at most 300 s.
    pub leeway: Duration,
    /// The cookie that carries the token. `None`: `Authorization: Bearer`.
    pub cookie: Option<String>,
}

/// Why settings cannot be used.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum JwtSettingsError {
    /// No key.
    #[error("at least one key is needed to verify a token")]
    NoKey,
    /// Two keys with one id and one algorithm.
    #[error("two {algorithm:?} keys have the id `{kid}`")]
    Twice {
        /// The id they share.
        kid: String,
        /// Their algorithm.
        algorithm: JwtAlgorithm,
    },
    /// A text that must say something is empty.
    #[error("`{0}` must not be empty")]
    Empty(&'static str),
    /// Too much leeway.
    #[error("a leeway of {} s is more than the {} s that clocks may differ", .0.as_secs(), MAX_LEEWAY.as_secs())]
    Leeway(Duration),
    /// No cookie can have this name.
    #[error("no cookie can be called `{0}`")]
    Cookie(String),
}

/// Why a token names nobody. For logs: callers all get the same answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum JwtRefusal {
    /// The request carries more than one.
    #[error("there is more than one token")]
    Several,
    /// It is longer than [`MAX_JWT_BYTES`].
    #[error("the token is too long")]
    TooLong,
    /// It does not have the form of a signed token, or its payload is not one JSON object.
    #[error("the token is malformed")]
    Malformed,
    /// No key fits its id and algorithm.
    #[error("no key with this id and algorithm is known")]
    UnknownKey,
    /// The signature is wrong.
    #[error("the signature is wrong")]
    Signature,
    /// A claim is missing or has the wrong type.
    #[error("the claim `{0}` is missing or has the wrong type")]
    Claim(&'static str),
    /// `exp` is over.
    #[error("the token has expired")]
    Expired,
    /// `nbf` is to come.
    #[error("the token is not valid yet")]
    NotYet,
    /// It was issued by somebody else.
    #[error("the token has another issuer")]
    Issuer,
    /// It was issued for somebody else.
    #[error("the token has another audience")]
    Audience,
    /// The user claim is missing, not a string, or no sound user id. A number is refused too: two
    /// spellings of it would be two users.
    #[error("the token names no user")]
    User,
}

/// Verifies tokens.
pub struct JwtVerifier {
    settings: JwtSettings,
    verified: Cache<[u8; 32], Verified>,
}

/// What a token proved, and when it may be used.
#[derive(Clone)]
struct Verified {
    user: UserId,
    life: Life,
    /// When its signature is checked again.
    remembered_until: Timestamp,
}

impl JwtVerifier {
    /// A verifier with these settings.
    ///
    /// # Errors
    /// [`JwtSettingsError`]: what is missing, doubled or out of range.
    pub fn new(settings: JwtSettings) -> Result<Self, JwtSettingsError> {
        if settings.keys.is_empty() {
            return Err(JwtSettingsError::NoKey);
        }
        for (at, key) in settings.keys.iter().enumerate() {
            let Some(kid) = key.kid() else { continue };
            let same =
                |other: &JwtKey| other.kid() == Some(kid) && other.algorithm() == key.algorithm();
            if settings.keys[..at].iter().any(same) {
                let (kid, algorithm) = (kid.to_owned(), key.algorithm());
                return Err(JwtSettingsError::Twice { kid, algorithm });
            }
        }
        for (name, text) in [
            ("issuer", settings.issuer.as_deref()),
            ("audience", settings.audience.as_deref()),
            ("user_claim", Some(settings.user_claim.as_str())),
        ] {
            if text == Some("") {
                return Err(JwtSettingsError::Empty(name));
            }
        }
        if settings.leeway > MAX_LEEWAY {
            return Err(JwtSettingsError::Leeway(settings.leeway));
        }
        if let Some(cookie) = settings.cookie.as_ref().filter(|name| !cookies::is_cookie_name(name))
        {
            return Err(JwtSettingsError::Cookie(cookie.clone()));
        }
        Ok(Self { settings, verified: Cache::new(REMEMBERED_TOKENS) })
    }

    /// The user that `token` proves at `now`.
    ///
    /// # Errors
    /// [`JwtRefusal`]: why it proves nobody.
    pub fn verify(&self, token: &[u8], now: Timestamp) -> Result<UserId, JwtRefusal> {
        if token.len() > MAX_JWT_BYTES {
            return Err(JwtRefusal::TooLong);
        }
        let hash = *blake3::hash(token).as_bytes();
        if let Some(known) = self.verified.get(&hash)
            && now < known.remembered_until
        {
            known.life.check(now, self.settings.leeway)?;
            return Ok(known.user);
        }
        let claims = self.signed_claims(token)?;
        let life = Life::of(&claims)?;
        life.check(now, self.settings.leeway)?;
        let user = self.user(&claims)?;
        let remembered_until = now.plus(REMEMBERED);
        self.verified.insert(hash, Verified { user: user.clone(), life, remembered_until });
        Ok(user)
    }

    /// The claims of a token that one of the keys signed.
    fn signed_claims(&self, token: &[u8]) -> Result<Map<String, Value>, JwtRefusal> {
        let header = jsonwebtoken::decode_header(token).map_err(|_| JwtRefusal::Malformed)?;
        let of_algorithm = || self.settings.keys.iter().filter(|key| key.algorithm() == header.alg);
        // A token without an id fits a key with one only if that is the only one of its kind:
        // trying them all would let anybody spend our time on a whole key set.
        let lone = of_algorithm().count() == 1;
        let fits = |key: &&JwtKey| match (key.kid(), header.kid.as_deref()) {
            (None, _) => true,
            (Some(own), Some(asked)) => own == asked,
            (Some(_), None) => lone,
        };
        let mut refusal = JwtRefusal::UnknownKey;
        for key in of_algorithm().filter(fits) {
            match jsonwebtoken::decode(token, key.decoding_key(), key.validation()) {
                Ok(data) => return Ok(data.claims),
                Err(error) if *error.kind() == ErrorKind::InvalidSignature => {
                    refusal = JwtRefusal::Signature;
                }
                Err(_) => return Err(JwtRefusal::Malformed),
            }
        }
        Err(refusal)
    }

    /// Whom the claims name, if they are meant for us.
    fn user(&self, claims: &Map<String, Value>) -> Result<UserId, JwtRefusal> {
        if let Some(issuer) = &self.settings.issuer {
            let claimed = claims.get("iss").and_then(Value::as_str);
            if claimed.ok_or(JwtRefusal::Claim("iss"))? != issuer {
                return Err(JwtRefusal::Issuer);
            }
        }
        if let Some(audience) = &self.settings.audience {
            let claimed = match claims.get("aud") {
                Some(Value::String(one)) => vec![one.as_str()],
                Some(Value::Array(all)) => all
                    .iter()
                    .map(Value::as_str)
                    .collect::<Option<_>>()
                    .ok_or(JwtRefusal::Claim("aud"))?,
                _ => return Err(JwtRefusal::Claim("aud")),
            };
            if !claimed.contains(&audience.as_str()) {
                return Err(JwtRefusal::Audience);
            }
        }
        claims
            .get(&self.settings.user_claim)
            .and_then(Value::as_str)
            .and_then(|id| UserId::new(UserSource::Jwt, id))
            .ok_or(JwtRefusal::User)
    }

    /// The token a request carries, if any.
    fn carried<'a>(&'a self, headers: &'a HeaderMap) -> Option<Result<&'a [u8], JwtRefusal>> {
        let Some(name) = self.settings.cookie.as_deref() else { return bearer(headers) };
        // An emptied cookie is how some sites sign out.
        let mut values = cookies::values(headers, name).filter(|value| !value.is_empty());
        let first = values.next()?;
        let one = values.all(|value| value == first);
        Some(if one { Ok(first) } else { Err(JwtRefusal::Several) })
    }
}

/// The token after `Bearer`. Another scheme is none of our business; two `Authorization` lines are
/// refused, whatever they hold, because an upstream may read the other one.
fn bearer(headers: &HeaderMap) -> Option<Result<&[u8], JwtRefusal>> {
    let mut lines = headers.get_all(AUTHORIZATION).iter();
    let line = lines.next()?.as_bytes();
    if lines.next().is_some() {
        return Some(Err(JwtRefusal::Several));
    }
    let line = line.trim_ascii();
    let end = line.iter().position(u8::is_ascii_whitespace).unwrap_or(line.len());
    let (scheme, token) = line.split_at(end);
    scheme.eq_ignore_ascii_case(b"bearer").then(|| Ok(token.trim_ascii()))
}

/// From when until when a token may be used.
#[derive(Clone, Copy)]
struct Life {
    not_before: Timestamp,
    expires: Timestamp,
}

impl Life {
    /// Part-seconds are cut to the shorter life.
    fn of(claims: &Map<String, Value>) -> Result<Self, JwtRefusal> {
        let expires = claims.get("exp").and_then(|exp| date(exp, f64::floor));
        let not_before = match claims.get("nbf") {
            None => Some(Timestamp::EPOCH),
            Some(nbf) => date(nbf, f64::ceil),
        };
        Ok(Self {
            not_before: not_before.ok_or(JwtRefusal::Claim("nbf"))?,
            expires: expires.ok_or(JwtRefusal::Claim("exp"))?,
        })
    }

    fn check(self, now: Timestamp, leeway: Duration) -> Result<(), JwtRefusal> {
        if now >= self.expires.plus(leeway) {
            return Err(JwtRefusal::Expired);
        }
        if now < self.not_before.minus(leeway) {
            return Err(JwtRefusal::NotYet);
        }
        Ok(())
    }
}

/// A `NumericDate`: a finite number of seconds that is not negative.
fn date(value: &Value, round: fn(f64) -> f64) -> Option<Timestamp> {
    let secs = if let Some(whole) = value.as_u64() {
        whole
    } else {
        let secs = value.as_f64().filter(|secs| secs.is_finite() && *secs >= 0.0)?;
        Duration::try_from_secs_f64(round(secs)).ok()?.as_secs()
    };
    Some(Timestamp::from_millis(secs.saturating_mul(1000)))
}

impl IdentitySource for JwtVerifier {
    fn source(&self) -> UserSource {
        UserSource::Jwt
    }

    fn look(&self, request: &IdentityRequest<'_>) -> Finding {
        let Some(carried) = self.carried(request.headers) else { return Finding::Absent };
        match carried.and_then(|token| self.verify(token, request.now)) {
            Ok(user) => Finding::Verified(user),
            Err(refusal) => {
                debug!(%refusal, "a JSON Web Token was refused: {refusal}");
                Finding::Rejected
            }
        }
    }
}

impl fmt::Debug for JwtVerifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JwtVerifier").field("settings", &self.settings).finish_non_exhaustive()
    }
}

#[cfg(test)]
pub(super) mod tests;
