//! `[tokens]`: which keys sign, and how tokens are carried.

use http::HeaderName;

use crate::identity::cookies::CookieNames;
use crate::token::{Keyring, KeyringError, TokenKey, TokenSettings};

use super::raw::{Table, Value};

/// The environment variable that holds keys, separated by commas or white space, newest first.
const KEYS_VARIABLE: &str = "ANTEROOM_TOKEN_KEYS";

const KEY_FORM: &str = "a key such as \"k1:<32 bytes in base64>\", the number from 0 to 255";

/// Headers that mean something else to a client, a proxy or an upstream.
const TAKEN_HEADERS: [&str; 14] = [
    "accept",
    "authorization",
    "connection",
    "content-length",
    "content-type",
    "cookie",
    "host",
    "origin",
    "set-cookie",
    "transfer-encoding",
    "x-queue-entered-at",
    "x-queue-name",
    "x-queue-status",
    "x-queue-user",
];

pub(super) fn read(root: &mut Table<'_>) -> TokenSettings {
    let mut table = root.table("tokens");
    let keys = table.take("keys").secret();
    let keys_file = table.take("keys_file");
    let header = table.take("header");
    let cookie = table.take("cookie");
    table.done();

    TokenSettings {
        keys: read_keys(&keys, &keys_file),
        header: free_header_name(&header)
            .unwrap_or_else(|| HeaderName::from_static("x-queue-token")),
        cookie: read_cookie_base(&cookie).unwrap_or_else(|| "queue_token".into()),
    }
}

/// The keys from the one place that has them.
fn read_keys(keys: &Value<'_>, keys_file: &Value<'_>) -> Vec<TokenKey> {
    let from_list = keys.is_set().then(|| read_list(keys));
    let from_file = keys_file.is_set().then(|| {
        let text = keys_file.file_text();
        text.map(|text| read_text(keys_file, &text, "the file")).unwrap_or_default()
    });
    let from_environment = keys
        .notes()
        .environment(KEYS_VARIABLE)
        .map(|text| read_text(keys, &text, "the variable ANTEROOM_TOKEN_KEYS"));

    let mut places = 0;
    let mut found = Vec::new();
    for (keys, at) in [(from_list, keys), (from_file, keys_file), (from_environment, keys)] {
        let Some(keys) = keys else { continue };
        places += 1;
        if places == 2 {
            at.refuse(
                "keys in more than one place",
                format_args!("them in one of `keys`, `keys_file` and {KEYS_VARIABLE}"),
            );
        }
        found = keys;
    }
    if places == 1
        && let Err(KeyringError::Twice(id)) = Keyring::new(found.clone())
    {
        let at = if keys_file.is_set() { keys_file } else { keys };
        at.refuse(format_args!("two keys with the id k{id}"), "an id of its own for each");
    }
    found
}

fn read_list(value: &Value<'_>) -> Vec<TokenKey> {
    let Some(elements) = value.list() else { return Vec::new() };
    if elements.is_empty() {
        value.refuse("an empty list", "at least one key, or no `keys` at all");
    }
    elements
        .iter()
        .filter_map(|element| {
            let key = element.parsed(KEY_FORM, |text| TokenKey::parse(text).ok())?;
            let text = element.text().unwrap_or_default();
            if is_weak(text) {
                element.refuse("a secret that is easy to guess", "32 random bytes");
            }
            Some(key)
        })
        .collect()
}

/// Keys from a text that stands outside the file; `place` names it.
fn read_text(at: &Value<'_>, text: &str, place: &str) -> Vec<TokenKey> {
    let mut keys = Vec::new();
    let lines = text.lines().filter(|line| !line.trim_start().starts_with('#'));
    let words = lines.flat_map(|line| line.split(|c: char| c == ',' || c.is_whitespace()));
    let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
    if words.is_empty() {
        at.refuse(format_args!("no key in {place}"), "at least one");
    }
    for (index, word) in words.into_iter().enumerate() {
        match TokenKey::parse(word) {
            Ok(_) if is_weak(word) => at.refuse(
                format_args!("a secret that is easy to guess as key {} of {place}", index + 1),
                "32 random bytes",
            ),
            Ok(key) => keys.push(key),
            Err(error) => at.refuse(
                format_args!("something else as key {} of {place} ({error})", index + 1),
                KEY_FORM,
            ),
        }
    }
    keys
}

/// Whether the secret of a well-formed key has so few different characters that it was not drawn at
/// random: 43 random base64 characters have about 31 different ones, and practically never under 12.
fn is_weak(key: &str) -> bool {
    let secret = key.split_once(':').map_or(key, |(_, secret)| secret).trim_end_matches('=');
    let mut letters: Vec<u8> = secret.bytes().collect();
    letters.sort_unstable();
    letters.dedup();
    letters.len() < 12
}

/// The name of a header that has no other meaning.
pub(super) fn free_header_name(value: &Value<'_>) -> Option<HeaderName> {
    let name = header_name(value)?;
    if TAKEN_HEADERS.contains(&name.as_str()) {
        value.wrong("a header that has no other meaning");
    }
    Some(name)
}

/// The name of any header.
pub(super) fn header_name(value: &Value<'_>) -> Option<HeaderName> {
    value.parsed("the name of a header", |text| HeaderName::try_from(text).ok())
}

/// The beginning of the names of our cookies.
fn read_cookie_base(value: &Value<'_>) -> Option<String> {
    let expected = "the beginning of a cookie's name: 1 to 64 characters, without `__Host-` and \
                    `__Secure-`, which are added where they belong";
    value.parsed(expected, |text| CookieNames::new(text).is_ok().then(|| text.to_owned()))
}
