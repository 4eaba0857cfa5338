//! What kind of request this is: who sends it, and whether a person looks at the answer.

use http::header::{ACCEPT, ORIGIN};
use http::request::Parts;
use http::{HeaderMap, Method};

use crate::identity::client_address::Client;

/// Whether a person looks at the answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Navigation {
    /// A GET that a person follows: it may enter a queue.
    Yes,
    /// It wants the same answer, but must not have effects: HEAD, or a prefetch.
    WithoutEffect,
    /// A program.
    No,
}

/// Where a browser says that a request comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Site {
    /// This site, or a person, or no browser at all.
    Own,
    /// Another origin that is allowed by configuration.
    Allowed,
    /// Another site.
    Foreign,
}

/// Who is calling, as far as it can be known without identity.
#[derive(Clone, Debug)]
pub struct Caller {
    /// Address, scheme and host.
    pub client: Client,
    /// Whether the peer is a trusted proxy.
    pub trusted_peer: bool,
    https: bool,
    /// The target's own, where no header names a host (HTTP/2).
    authority: Option<String>,
}

impl Caller {
    pub(super) fn new(
        parts: &Parts,
        client: Client,
        trusted_peer: bool,
        public_origins: &[String],
    ) -> Self {
        let all_https = !public_origins.is_empty()
            && public_origins.iter().all(|origin| origin.starts_with("https://"));
        let https = client.https || all_https;
        let authority = match client.host {
            Some(_) => None,
            None => parts.uri.authority().map(ToString::to_string),
        };
        Self { client, trusted_peer, https, authority }
    }

    /// Whether the client speaks https, by connection, a trusted proxy, or because this site is
    /// https only.
    #[must_use]
    pub const fn https(&self) -> bool {
        self.https
    }

    /// The host the client asked for.
    #[must_use]
    pub fn host(&self) -> Option<&str> {
        self.client.host.as_deref().or(self.authority.as_deref())
    }

    /// Where the browser says that the request comes from. `allowed` are further origins that may
    /// call; `public` are this site's own.
    #[must_use]
    pub fn site(&self, headers: &HeaderMap, public: &[String], allowed: &[String]) -> Site {
        let origin = headers.get(ORIGIN).map(|value| value.to_str().unwrap_or("null"));
        if let Some(origin) = origin {
            if self.is_own(origin, public) {
                return Site::Own;
            }
            return if allowed.iter().any(|one| one == origin) {
                Site::Allowed
            } else {
                Site::Foreign
            };
        }
        match headers.get("sec-fetch-site").map(http::HeaderValue::as_bytes) {
            None | Some(b"same-origin" | b"none") => Site::Own,
            Some(_) => Site::Foreign,
        }
    }

    fn is_own(&self, origin: &str, public: &[String]) -> bool {
        if !public.is_empty() {
            return public.iter().any(|own| own == origin);
        }
        let scheme = if self.https { "https" } else { "http" };
        self.host().is_some_and(|host| {
            origin
                .split_once("://")
                .is_some_and(|(of, authority)| of == scheme && authority.eq_ignore_ascii_case(host))
        })
    }
}

impl Navigation {
    /// Whether a person looks at the answer to this request.
    #[must_use]
    pub fn of(parts: &Parts) -> Self {
        navigation(&parts.method, &parts.headers)
    }
}

fn navigation(method: &Method, headers: &HeaderMap) -> Navigation {
    if !matches!(*method, Method::GET | Method::HEAD) || headers.contains_key(http::header::UPGRADE)
    {
        return Navigation::No;
    }
    let mode = headers.get("sec-fetch-mode").map(http::HeaderValue::as_bytes);
    let navigates = match mode {
        Some(mode) => mode == b"navigate",
        None => accepts_html(headers),
    };
    if !navigates {
        return Navigation::No;
    }
    let prefetch = ["sec-purpose", "purpose", "x-moz"].iter().any(|name| {
        headers.get(*name).is_some_and(|value| {
            value.as_bytes().to_ascii_lowercase().windows(8).any(|part| part == b"prefetch")
        })
    });
    if *method == Method::HEAD || prefetch { Navigation::WithoutEffect } else { Navigation::Yes }
}

/// Whether `Accept` names HTML and nothing it would rather have. `*/*` alone is what programs send.
#[must_use]
pub fn accepts_html(headers: &HeaderMap) -> bool {
    let (mut html, mut other) = (0.0_f32, 0.0_f32);
    let lines = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    for range in lines.flat_map(|line| line.split(',')) {
        let Ok(range) = range.trim().parse::<mime::Mime>() else { continue };
        let weight = range.get_param("q").and_then(|weight| weight.as_str().parse().ok());
        let best = match range.essence_str() {
            "text/html" | "application/xhtml+xml" => &mut html,
            _ => &mut other,
        };
        *best = best.max(weight.unwrap_or(1.0));
    }
    html > 0.0 && html >= other
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn kind(method: &str, headers: &[(&str, &str)]) -> Navigation {
        // Over HTTP/2 there is no Host field.
        let mut request = Request::builder().method(method).uri("https://shop.example/x");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let parts = request.body(()).unwrap().into_parts().0;
        navigation(&parts.method, &parts.headers)
    }

    #[test]
    fn only_what_a_person_follows_may_enter_a_queue() {
        let browser = ("accept", "text/html,application/xhtml+xml;q=0.9,*/*;q=0.8");
        assert_eq!(kind("GET", &[browser]), Navigation::Yes);
        assert_eq!(kind("GET", &[browser, ("sec-fetch-mode", "navigate")]), Navigation::Yes);
        assert_eq!(kind("HEAD", &[browser]), Navigation::WithoutEffect);
        assert_eq!(
            kind("GET", &[browser, ("sec-purpose", "prefetch;prerender")]),
            Navigation::WithoutEffect
        );
        assert_eq!(kind("GET", &[browser, ("sec-fetch-mode", "cors")]), Navigation::No);
        assert_eq!(kind("GET", &[browser, ("upgrade", "websocket")]), Navigation::No);
        assert_eq!(kind("POST", &[browser]), Navigation::No);
        assert_eq!(kind("GET", &[("accept", "*/*")]), Navigation::No);
        assert_eq!(kind("GET", &[("accept", "text/html;q=0, application/json")]), Navigation::No);
        let rather = ("accept", "application/json, text/html;q=0.9");
        assert_eq!(kind("GET", &[rather]), Navigation::No);
        assert_eq!(kind("GET", &[("accept", "image/avif,text/html,*/*;q=0.8")]), Navigation::Yes);
        assert_eq!(kind("GET", &[]), Navigation::No);
    }
}
