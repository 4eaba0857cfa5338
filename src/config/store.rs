//! `[store]`: where the line lives, and how it is reached.

use std::time::Duration;

use crate::store::{
    Credentials, RedisAddress, RedisSettings, RedisTls, RedisTlsError, RedisTopology, StoreSettings,
};

use super::data_directory::DirectoryKeys;
use super::raw::{Table, Value};

/// Bounds of both time limits: below, a healthy store would fail; above, requests would pile up.
const SHORTEST: Duration = Duration::from_millis(10);
const LONGEST: Duration = Duration::from_secs(30);

/// What makes the keys of Redis mean something.
const REDIS: &str = "kind = \"redis\"";

/// And those of a data directory.
const EMBEDDED: &str = "kind = \"embedded\"";

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Embedded,
    Redis,
}

pub(super) fn read(root: &mut Table<'_>) -> StoreSettings {
    let mut table = root.table("store");
    let kind = table.take("kind");
    let redis = RedisKeys::take(&mut table);
    let directory = DirectoryKeys::take(&mut table);
    table.done();

    let chosen = kind.choice(&[("embedded", Kind::Embedded), ("redis", Kind::Redis)]);
    if kind.is_set() && chosen.is_none() {
        // It has been reported; what belongs to the kind that was meant is anybody's guess.
        return StoreSettings::Embedded(None);
    }
    match chosen.unwrap_or(Kind::Embedded) {
        Kind::Redis => {
            for value in directory.all() {
                value.useless(EMBEDDED);
            }
            StoreSettings::Redis(redis.read())
        }
        Kind::Embedded => {
            for value in redis.all() {
                value.useless(REDIS);
            }
            StoreSettings::Embedded(directory.read())
        }
    }
}

/// The keys of a Redis store.
struct RedisKeys<'a> {
    url: Value<'a>,
    login: LoginKeys<'a>,
    sentinel_login: LoginKeys<'a>,
    tls: TlsKeys<'a>,
    key_prefix: Value<'a>,
    connect_timeout: Value<'a>,
    response_timeout: Value<'a>,
}

/// Who logs in: to servers, or to sentinels.
struct LoginKeys<'a> {
    username: Value<'a>,
    password_env: Value<'a>,
    password_file: Value<'a>,
}

/// `[store.tls]`.
struct TlsKeys<'a> {
    authorities: Value<'a>,
    certificate: Value<'a>,
    key: Value<'a>,
}

impl<'a> RedisKeys<'a> {
    fn take(table: &mut Table<'a>) -> Self {
        Self {
            url: table.take("url").secret(),
            login: LoginKeys {
                username: table.take("username"),
                password_env: table.take("password_env"),
                password_file: table.take("password_file"),
            },
            sentinel_login: LoginKeys {
                username: table.take("sentinel_username"),
                password_env: table.take("sentinel_password_env"),
                password_file: table.take("sentinel_password_file"),
            },
            key_prefix: table.take("key_prefix"),
            connect_timeout: table.take("connect_timeout"),
            response_timeout: table.take("response_timeout"),
            tls: TlsKeys::take(table.table("tls")),
        }
    }

    fn all(&self) -> impl Iterator<Item = &Value<'a>> {
        let rest = [&self.url, &self.key_prefix, &self.connect_timeout, &self.response_timeout];
        let logins = self.login.all().into_iter().chain(self.sentinel_login.all());
        rest.into_iter().chain(logins).chain(self.tls.all())
    }

    fn read(&self) -> RedisSettings {
        let mut redis = RedisSettings::new(self.url.text().unwrap_or_default());
        let address = self.read_address();
        let sentinels = matches!(
            address.as_ref().map(|address| &address.topology),
            Some(RedisTopology::Sentinel { .. })
        );
        let named = address.as_ref().is_some_and(|to| to.credentials != Credentials::default());
        let plain = address.as_ref().is_some_and(|address| !address.encrypted);
        if named {
            useless(self.login.all(), "a `url` without credentials");
        } else {
            redis.credentials = self.login.read();
        }
        if address.is_some() && !sentinels {
            useless(self.sentinel_login.all(), "a `url` of sentinels, `redis+sentinel://…`");
        } else {
            redis.sentinel_credentials = self.sentinel_login.read();
        }
        if plain {
            useless(self.tls.all(), "a `url` with TLS, `rediss://…`");
        } else {
            redis.tls = self.tls.read();
        }
        let prefix = "1 to 64 characters without spaces, control characters and braces";
        if let Some(prefix) = self.key_prefix.parsed(prefix, key_prefix_of) {
            redis.key_prefix = prefix;
        }
        if let Some(span) = self.connect_timeout.duration(SHORTEST..=LONGEST) {
            redis.connect_timeout = span;
        }
        if let Some(span) = self.response_timeout.duration(SHORTEST..=LONGEST) {
            redis.response_timeout = span;
        }
        redis
    }

    fn read_address(&self) -> Option<RedisAddress> {
        let expected = "a URL such as \"redis://127.0.0.1:6379\"";
        let value = self.url.clone().required(expected);
        match RedisAddress::parse(value.text()?) {
            Ok(address) => Some(address),
            Err(error) => {
                value.refuse(error, expected);
                None
            }
        }
    }
}

impl<'a> LoginKeys<'a> {
    const fn all(&self) -> [&Value<'a>; 3] {
        [&self.username, &self.password_env, &self.password_file]
    }

    fn read(&self) -> Credentials {
        let username = self.username.line_of_text(1..=512);
        let password = match (self.password_env.is_set(), self.password_file.is_set()) {
            (true, true) => {
                self.password_file
                    .contradicts("two places for the password", "one of a variable and a file");
                None
            }
            (true, false) => self.password_env.variable(),
            (false, true) => self.password_file.file_text().and_then(|text| {
                let password = text.trim_end_matches(['\r', '\n']);
                if password.is_empty() {
                    self.password_file.refuse("an empty password", "one in the file");
                    return None;
                }
                Some(password.to_owned())
            }),
            (false, false) => {
                self.username.useless("a password beside it, from a variable or a file");
                None
            }
        };
        Credentials { username, password }
    }
}

impl<'a> TlsKeys<'a> {
    fn take(mut table: Table<'a>) -> Self {
        let keys = Self {
            authorities: table.take("ca_file"),
            certificate: table.take("certificate_file"),
            key: table.take("key_file"),
        };
        table.done();
        keys
    }

    const fn all(&self) -> [&Value<'a>; 3] {
        [&self.authorities, &self.certificate, &self.key]
    }

    fn read(&self) -> RedisTls {
        let bytes = |value: &Value<'_>| {
            let path = value.file_path()?;
            std::fs::read(&path).map_err(|error| value.unreadable(&path, error)).ok()
        };
        let (certificate, key) = (&self.certificate, &self.key);
        let client = match (certificate.is_set(), key.is_set()) {
            (true, false) => {
                certificate.useless("the `key_file` that belongs to it");
                None
            }
            (false, true) => {
                key.useless("the `certificate_file` that belongs to it");
                None
            }
            _ => bytes(certificate).zip(bytes(key)),
        };
        RedisTls::new(bytes(&self.authorities), client).unwrap_or_else(|error| {
            let place = match error {
                RedisTlsError::Authorities => &self.authorities,
                RedisTlsError::Certificate => certificate,
                RedisTlsError::Key | RedisTlsError::Mismatch => key,
            };
            place.refuse(error, "one that can be used");
            RedisTls::default()
        })
    }
}

fn useless(values: [&Value<'_>; 3], without: &str) {
    for value in values {
        value.useless(without);
    }
}

/// Braces would decide on which node of a cluster a key lives.
fn key_prefix_of(text: &str) -> Option<String> {
    let sound = (1..=64).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_graphic() && b != b'{' && b != b'}');
    sound.then(|| text.to_owned())
}
