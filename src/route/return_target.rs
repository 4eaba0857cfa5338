//! Where a visitor may be sent back to.
//!
//! A return target travels through the visitor's browser, so it is judged as if a stranger had
//! written it: a path of this site, or a URL of one of the operator's own origins, that every
//! browser reads the same way. Everything else is dropped, never repaired; what passes is kept
//! byte for byte. A target under the gateway's own prefix would lead in circles and is dropped too.

use std::fmt::Display;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use super::host::Host;
use super::path::PathPattern;
use super::reading::Readings;
use super::table::is_under;
use super::target::{CanonicalTarget, default_port};

/// The longest target kept whole. Longer ones lose their query: a request line and a `Location`
/// that hold two of them must stay well below the limits of proxies on the way.
pub const MAX_BYTES: usize = 2048;

/// Everything that means something anywhere in a URL, an attribute or a script is encoded.
const IN_QUERY: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// What [`ReturnTarget::parse`] refuses but a query on the request line may hold.
const UNSAFE_IN_QUERY: &AsciiSet = &percent_encoding::CONTROLS.add(b' ').add(b'\\').add(b'#');

/// A place on this site, safe to send a browser to: ASCII without blanks, controls and `\`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReturnTarget {
    text: String,
    path_only: bool,
}

impl ReturnTarget {
    /// Judges the value of `return` or `redirect_url`, percent-decoded once.
    ///
    /// - `public_origins`: the operator's own, each `scheme://host[:port]`.
    /// - `prefix`: the gateway's own prefix, such as `/_queue`.
    ///
    /// `None`: the visitor is sent to the default target instead.
    #[must_use]
    pub fn parse(value: &str, public_origins: &[String], prefix: &str) -> Option<Self> {
        // Browsers drop tabs and line breaks and take `\` for `/`; a request target of ours is
        // ASCII, and what is not could turn into controls on its way.
        if value.bytes().any(|byte| !byte.is_ascii_graphic() || byte == b'\\') {
            return None;
        }
        let local = if value.starts_with('/') {
            value
        } else {
            let (origin, local) = split_origin(value)?;
            let known = public_origins.iter().filter_map(|own| split_origin(own));
            known.into_iter().find(|(own, _)| *own == origin)?;
            local
        };
        let path = local.split(['?', '#']).next().unwrap_or_default();
        if leads_off_site(path) || is_own(local, path, prefix)? {
            return None;
        }
        if value.len() <= MAX_BYTES {
            return Some(Self { text: value.to_owned(), path_only: false });
        }
        let kept = value.len() - local.len() + path.len();
        (kept <= MAX_BYTES).then(|| Self { text: value[..kept].to_owned(), path_only: true })
    }

    /// The target of the current request, to come back to it. `None` when even its path is too
    /// long. In the query, bytes that a return target may not hold are percent-encoded; all else
    /// stays as it came.
    #[must_use]
    pub fn of(target: &CanonicalTarget) -> Option<Self> {
        let path = target.path();
        let whole = match target.query() {
            Some(query) => format!("{path}?{}", utf8_percent_encode(query, UNSAFE_IN_QUERY)),
            None => path.to_owned(),
        };
        if whole.len() <= MAX_BYTES {
            return Some(Self { text: whole, path_only: false });
        }
        (path.len() <= MAX_BYTES).then(|| Self { text: path.to_owned(), path_only: true })
    }

    /// The target as it came; fit for a `Location` header as it is. In HTML it must be escaped
    /// like any other text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether the query was dropped because the whole was longer than [`MAX_BYTES`].
    #[must_use]
    pub const fn path_only(&self) -> bool {
        self.path_only
    }

    /// The target as the value of a query parameter: encoded once, only unreserved characters
    /// left as they are.
    pub fn encoded(&self) -> impl Display + '_ {
        utf8_percent_encode(&self.text, IN_QUERY)
    }
}

/// Scheme, host and port of an absolute URL, and what follows them.
fn split_origin(url: &str) -> Option<((bool, String, u16), &str)> {
    let (scheme, rest) = url.split_once("://")?;
    let default_port = default_port(scheme)?;
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, local) = rest.split_at(end);
    let host = Host::parse(authority).ok()?;
    let port = host.port.unwrap_or(default_port);
    Some(((scheme.eq_ignore_ascii_case("https"), host.name.into_owned(), port), local))
}

/// Whether a browser would read the path as `//host` once it has resolved dot segments, which it
/// also recognises when encoded.
fn leads_off_site(path: &str) -> bool {
    let decoded = path.replace("%2e", ".").replace("%2E", ".");
    let mut resolved: Vec<&str> = Vec::new();
    let mut segments = decoded.split('/').skip(1).peekable();
    while let Some(segment) = segments.next() {
        let last = segments.peek().is_none();
        match segment {
            "." if !last => {}
            ".." if !last => {
                resolved.pop();
            }
            _ => resolved.push(segment),
        }
    }
    resolved.len() > 1 && resolved[0].is_empty()
}

/// Whether some reading of the path lies under the gateway's prefix; `None` for a path that the
/// gateway would refuse.
fn is_own(local: &str, path: &str, prefix: &str) -> Option<bool> {
    let path = if local.starts_with('/') { path } else { "/" };
    let target = CanonicalTarget::parse(path, None).ok()?;
    let prefix = PathPattern::parse(prefix).ok()?.literal_prefix();
    let readings = Readings::of(target.path()).ok()?;
    Some(readings.counted(false).any(|reading| is_under(reading.trimmed(), &prefix)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(value: &str) -> Option<String> {
        let origins = ["https://shop.example".to_owned(), "http://localhost:8080/".to_owned()];
        ReturnTarget::parse(value, &origins, "/_queue").map(|target| target.text)
    }

    fn kept(value: &str) {
        assert_eq!(parse(value).as_deref(), Some(value));
    }

    #[test]
    fn a_path_of_this_site_is_kept_byte_for_byte() {
        for value in [
            "/",
            "/checkout/pay",
            "/a?b=c//d",
            "/a/..",
            "/a//b",
            "/%2Fa",
            "/.well-known/x",
            "/a?x=%",
            "/checkout/item?q=a%26b&r=1+1&n=%E2%9C%93&u=https%3A%2F%2Fx.example%2F%3Fa%3D1&e=",
            "/a#b",
            "/_queued",
            "/a?return=/_queue/x",
        ] {
            kept(value);
        }
    }

    #[test]
    fn nothing_leads_off_site() {
        for value in [
            "",
            "a",
            "//evil.example/",
            "/\\evil.example",
            "https://evil.example",
            "\\\\evil.example",
            "javascript:alert(1)",
            "data:text/html,x",
            "https:evil.example",
            "https:/evil.example",
            "/.//evil.example",
            "/%2e//evil.example",
            "/%2E%2e//evil.example",
            "/a/..//evil.example",
            "/a/b/../..//evil.example",
            "///evil.example",
            "/./%2e//evil.example",
            "/..//evil.example",
            "ftp://shop.example/",
            "https://shop.example@evil.example/",
            "//shop.example/",
            "https://shop.example.evil.example/",
            "https://shop.example:444/",
            "https://user@shop.example/",
            "http://shop.example/",
            "https://shop.example\\@evil.example",
            "https://",
            "https:///a",
            "https://evil.example#https://shop.example",
            "https://evil.example?://shop.example/",
        ] {
            assert_eq!(parse(value), None, "{value}");
        }
    }

    #[test]
    fn no_control_and_no_blank_reaches_a_header() {
        for value in [
            "/\t/evil.example",
            "/\n/evil.example",
            "/\r/evil.example",
            " //evil.example",
            "/\u{b}\\evil.example",
            "/a\r\nSet-Cookie: x=1",
            "/a\nSet-Cookie:x=1",
            "/\0",
            "/\u{7f}",
            "/a\u{560a}\u{560d}Set-Cookie:x",
            "/</script><svg onload=alert(1)>",
            "/a b",
            "/é",
            "/%0d%0aX",
            "/%00",
            "/%zz",
        ] {
            assert_eq!(parse(value), None, "{value:?}");
        }
    }

    #[test]
    fn an_absolute_url_needs_a_public_origin() {
        for value in [
            "https://shop.example",
            "https://shop.example/a?b",
            "HTTPS://SHOP.example:443/a",
            "https://shop.example?x",
            "http://localhost:8080/a",
        ] {
            kept(value);
        }
    }

    #[test]
    fn the_waiting_room_never_returns_to_itself() {
        for value in [
            "/_queue",
            "/_queue/deal-1/page",
            "/%5fqueue/x",
            "/a/../_queue/x",
            "/_queue%2Fx",
            "/x%2f..%2f_queue/x",
            "/_queue;a/x",
            "https://shop.example/_queue/x",
            "/_queue?x",
            "/a//../../_queue/",
        ] {
            assert_eq!(parse(value), None, "{value}");
        }
    }

    #[test]
    fn a_long_target_falls_back_to_its_path() {
        let long = format!("/a?{}", "x".repeat(MAX_BYTES));
        let target = ReturnTarget::parse(&long, &[], "/_queue").unwrap();
        assert_eq!((target.as_str(), target.path_only()), ("/a", true));
        assert_eq!(parse(&format!("/{}", "x".repeat(MAX_BYTES))), None);
        let current = CanonicalTarget::parse(&long, None).unwrap();
        assert_eq!(ReturnTarget::of(&current), Some(target));
    }

    #[test]
    fn the_current_target_comes_back_unchanged_through_a_query() {
        for original in [
            "/checkout/item?q=a%26b&r=1+1&n=%E2%9C%93&u=https%3A%2F%2Fx.example%2F%3Fa%3D1%26b%3D2&e=",
            "/a?x=%&y=\"<>'",
            "/a?",
            "/",
            "/caf%C3%A9/%20?a=b",
        ] {
            let target =
                ReturnTarget::of(&CanonicalTarget::parse(original, None).unwrap()).unwrap();
            assert_eq!(target.as_str(), original);
            let encoded = target.encoded().to_string();
            assert!(encoded.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._~%".contains(&b)));
            let decoded = percent_encoding::percent_decode_str(&encoded).decode_utf8().unwrap();
            assert_eq!(ReturnTarget::parse(&decoded, &[], "/_queue"), Some(target));
        }
        let odd = CanonicalTarget::parse("/a\\b?c\\d=é", None).unwrap();
        assert_eq!(ReturnTarget::of(&odd).unwrap().as_str(), "/a%5Cb?c%5Cd=%C3%A9");
    }
}
