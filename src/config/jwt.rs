//! `[identity.jwt]`: the keys that verify JSON Web Tokens, and what a token must say.

use std::time::Duration;

use crate::identity::jwks;
use crate::identity::jwt::{JwtAlgorithm, JwtKey, JwtKeyError, JwtSettings, MAX_LEEWAY};

use super::raw::{Table, Value};
use super::units::show_duration;

/// Every algorithm by the name that RFC 7518 and RFC 8037 give it.
const ALGORITHMS: [(&str, JwtAlgorithm); 12] = [
    ("HS256", JwtAlgorithm::HS256),
    ("HS384", JwtAlgorithm::HS384),
    ("HS512", JwtAlgorithm::HS512),
    ("RS256", JwtAlgorithm::RS256),
    ("RS384", JwtAlgorithm::RS384),
    ("RS512", JwtAlgorithm::RS512),
    ("PS256", JwtAlgorithm::PS256),
    ("PS384", JwtAlgorithm::PS384),
    ("PS512", JwtAlgorithm::PS512),
    ("ES256", JwtAlgorithm::ES256),
    ("ES384", JwtAlgorithm::ES384),
    ("EdDSA", JwtAlgorithm::EdDSA),
];

/// The section's settings; `None` when it is not there or has no usable key.
pub(super) fn read(table: &mut Table<'_>) -> Option<JwtSettings> {
    let algorithm = table.take("algorithm");
    let key_file = table.take("key_file");
    let secret_env = table.take("secret_env");
    let jwks_file = table.take("jwks_file");
    table.later("jwks_url");
    let issuer = table.take("issuer");
    let audience = table.take("audience");
    let user_claim = table.take("user_claim");
    let leeway = table.take("leeway");
    let cookie = table.take("cookie");
    table.done();
    if !table.is_set() {
        return None;
    }

    let words = |value: &Value<'_>| value.line_of_text(1..=512);
    let issuer = words(&issuer.required("what `iss` must be"));
    let audience = words(&audience.required("what `aud` must be or contain"));
    let user_claim = user_claim.line_of_text(1..=64).unwrap_or_else(|| "sub".into());
    let leeway = leeway.duration(Duration::ZERO..=MAX_LEEWAY).unwrap_or(Duration::ZERO);
    let cookie = cookie.parsed("the name of a cookie", |text| {
        let token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
        let sound = (1..=128).contains(&text.len()) && text.bytes().all(token);
        sound.then(|| text.to_owned())
    });
    let keys = read_keys(table, algorithm, &key_file, &secret_env, &jwks_file)?;
    Some(JwtSettings { keys, issuer, audience, user_claim, leeway, cookie })
}

fn read_keys(
    table: &Table<'_>,
    algorithm: Value<'_>,
    key_file: &Value<'_>,
    secret_env: &Value<'_>,
    jwks_file: &Value<'_>,
) -> Option<Vec<JwtKey>> {
    let places = [key_file, secret_env, jwks_file];
    let mut set = places.into_iter().filter(|place| place.is_set());
    let (place, None) = (set.next(), set.next()) else {
        table.wrong("keys in more than one place", PLACES);
        return None;
    };
    let Some(place) = place else {
        if !table.has("jwks_url") {
            table.wrong("no key", PLACES);
        }
        return None;
    };
    let algorithm = if jwks_file.is_set() {
        algorithm
    } else {
        algorithm.required("the algorithm that the key is for, e.g. \"RS256\"")
    };
    let named = algorithm.choice(&ALGORITHMS);
    if algorithm.is_set() && named.is_none() {
        return None;
    }
    let keys = if jwks_file.is_set() {
        jwks::keys(&jwks_file.file_text()?, named)
    } else if key_file.is_set() {
        let pem = key_file.file_text()?;
        JwtKey::from_pem(named?, &pem).map(|key| vec![key])
    } else {
        let secret = secret_env.variable()?;
        JwtKey::from_secret(named?, secret.as_bytes()).map(|key| vec![key])
    };
    keys.map_err(|error| place.refuse("a key that cannot be used", explain(&error))).ok()
}

const PLACES: &str = "one of `key_file`, `secret_env` and `jwks_file`";

/// The error without text from the file, which may be a secret given by mistake.
fn explain(error: &JwtKeyError) -> String {
    match error {
        JwtKeyError::KeySet(_) => "a key set, `{\"keys\": [...]}`".into(),
        JwtKeyError::InSet { at, cause } => {
            format!("another one as key {at} of the set: {}", explain(cause))
        }
        other => format!("another one: {other}"),
    }
}

/// One line about the settings: what decides whether a token is accepted.
pub(super) fn describe(settings: &JwtSettings) -> String {
    let mut algorithms: Vec<&str> = Vec::new();
    for key in &settings.keys {
        let name = ALGORITHMS.iter().find(|(_, algorithm)| *algorithm == key.algorithm());
        let name = name.map_or("?", |(name, _)| name);
        if !algorithms.contains(&name) {
            algorithms.push(name);
        }
    }
    let quoted = |text: &Option<String>| text.as_deref().unwrap_or("anybody").to_owned();
    format!(
        "{} by {} for {}, user in `{}`, from {}, leeway {}",
        algorithms.join(", "),
        quoted(&settings.issuer),
        quoted(&settings.audience),
        settings.user_claim,
        settings
            .cookie
            .as_ref()
            .map_or_else(|| "Authorization".into(), |name| format!("cookie `{name}`")),
        show_duration(settings.leeway),
    )
}
