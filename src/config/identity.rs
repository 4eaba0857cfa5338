//! `[identity]`: which identity sources are asked, and how JSON Web Tokens are verified.

use crate::identity::IdentitySettings;
use crate::identity::client_address::TrustedProxies;
use crate::identity::cookies::CookieNames;
use crate::identity::header::HeaderSettings;
use crate::queue::UserSource;
use crate::token::TokenSettings;

use super::jwt;
use super::raw::{Table, Value};
use super::tokens;

const SOURCES: [(&str, UserSource); 4] = [
    (UserSource::Visitor.as_str(), UserSource::Visitor),
    (UserSource::Jwt.as_str(), UserSource::Jwt),
    (UserSource::Header.as_str(), UserSource::Header),
    (UserSource::Query.as_str(), UserSource::Query),
];

/// A list of sources with their places.
pub(super) struct Sources<'a> {
    written: bool,
    entries: Vec<(UserSource, Value<'a>)>,
}

impl Sources<'_> {
    /// The sources, if the list was written.
    pub(super) fn list(&self) -> Option<Vec<UserSource>> {
        self.written.then(|| self.entries.iter().map(|(source, _)| *source).collect())
    }
}

/// Reads a list of sources, each at most once.
pub(super) fn sources<'a>(value: &Value<'a>) -> Sources<'a> {
    let mut sources = Sources { written: false, entries: Vec::new() };
    let Some(elements) = value.list() else { return sources };
    sources.written = true;
    if elements.is_empty() {
        value.refuse("an empty list", "at least one source");
    }
    for element in elements {
        let Some(source) = element.choice(&SOURCES) else { continue };
        if sources.entries.iter().any(|(other, _)| *other == source) {
            element.refuse(format_args!("{} twice", element.shown()), "each source once");
        } else {
            sources.entries.push((source, element));
        }
    }
    sources
}

/// The section with the places that are compared with others later.
pub(super) struct Identity<'a> {
    pub(super) settings: IdentitySettings,
    sources: Sources<'a>,
    jwt: Table<'a>,
    header: Table<'a>,
    header_name: Value<'a>,
}

pub(super) fn read<'a>(root: &mut Table<'a>) -> Identity<'a> {
    let mut table = root.table("identity");
    let order = table.take("sources");
    let mut jwt = table.table("jwt");
    let mut header = table.table("header");
    table.done();
    let jwt_settings = jwt::read(&mut jwt);
    let header_name = header.take("name");
    header.done();

    let sources = sources(&order);
    let mut settings = IdentitySettings { jwt: jwt_settings, ..IdentitySettings::default() };
    if let Some(list) = sources.list() {
        settings.sources = list;
    }
    let mut by_header = HeaderSettings::default();
    if let Some(name) = tokens::free_header_name(&header_name) {
        by_header.name = name;
    }
    settings.header = Some(by_header);
    Identity { settings, sources, jwt, header, header_name }
}

impl Identity<'_> {
    /// Checks the sources in use, here and in queues, against what they need; drops the settings of
    /// those that are not in use.
    pub(super) fn check(
        &mut self,
        in_queues: &[&Sources<'_>],
        trusted: &TrustedProxies,
        tokens: &TokenSettings,
        simple: bool,
    ) {
        let lists = || std::iter::once(&self.sources).chain(in_queues.iter().copied());
        for (source, place) in lists().flat_map(|list| &list.entries) {
            match source {
                UserSource::Jwt if !self.jwt.is_set() => {
                    place
                        .contradicts("\"jwt\" without [identity.jwt]", "a section that sets it up");
                }
                UserSource::Header if trusted.networks.is_empty() && !trusted.unix => {
                    place.contradicts(
                        "\"header\" with empty server.trusted_proxies",
                        "the proxies whose header counts: anybody can write one",
                    );
                }
                UserSource::Query if !simple => {
                    place.contradicts(
                        "\"query\" without the compatibility set",
                        "api.simple = true: only its trusted clients may name a user",
                    );
                }
                _ => {}
            }
        }
        let used =
            |wanted| lists().any(|list| list.entries.iter().any(|(source, _)| *source == wanted));
        let (jwt_used, header_used) = (used(UserSource::Jwt), used(UserSource::Header));
        if self.jwt.is_set() && !jwt_used {
            self.jwt.wrong("settings without effect", "\"jwt\" in a list of sources");
        }
        if self.header.is_set() && !header_used {
            self.header.wrong("settings without effect", "\"header\" in a list of sources");
        }
        if let Some(header) = &self.settings.header
            && header_used
            && header.name == tokens.header
        {
            self.header_name.contradicts("the header of the token", "a header of its own");
        }
        if let Some(cookie) = self.settings.jwt.as_ref().and_then(|jwt| jwt.cookie.as_deref())
            && CookieNames::new(&tokens.cookie).is_ok_and(|own| own.is_ours(cookie.as_bytes()))
        {
            self.jwt.wrong(
                format_args!("the cookie {cookie:?}, a name of our own"),
                "a name that does not begin as tokens.cookie",
            );
        }
        if !header_used {
            self.settings.header = None;
        }
    }
}
