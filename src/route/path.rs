//! Which paths a route serves.
//!
//! A pattern is anchored at both ends and decides on whole segments. It is compared with a path
//! whose escapes are decoded (see [`super::reading`]), so it may be written raw or
//! percent-encoded. It never sees a query.

use std::fmt;
use std::sync::Arc;

use percent_encoding::percent_decode_str;

use super::reading::{fold, push_matched};

/// More would only make a pattern unreadable, and the router's own limit is not far above.
const MAX_PARAMETERS: usize = 16;

/// A path as a route names it: literal segments, `{name}` for any one segment, and a final `*` for
/// whatever follows, nothing included: `/checkout/*` also serves `/checkout`. A trailing slash
/// never counts, neither in a pattern nor in a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PathPattern {
    text: String,
    segments: Vec<Segment>,
    open: bool,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Segment {
    /// In the form that requests are compared in.
    Literal(String),
    Parameter(Arc<str>),
}

/// Why a pattern cannot be used.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PatternError {
    /// Patterns are anchored.
    #[error("the path pattern `{pattern}` does not start with `/`")]
    NotAnchored {
        /// The pattern as written.
        pattern: String,
    },
    /// A `*` that is not the whole last segment.
    #[error("in the path pattern `{pattern}`, `*` is not the whole last segment")]
    Star {
        /// The pattern as written.
        pattern: String,
    },
    /// A parameter that is not a whole `{name}` segment, has an odd name, or is one too many.
    #[error(
        "in the path pattern `{pattern}`, a parameter is not a whole segment `{{name}}` \
         with a name of letters, digits and `_` that occurs once (at most 16 parameters)"
    )]
    Parameter {
        /// The pattern as written.
        pattern: String,
    },
    /// A segment that no request is ever matched with: empty, `.`, `..`, a broken escape, or one
    /// of `?`, `#`, `;`, `\` or a control character, which back ends read differently.
    #[error(
        "in the path pattern `{pattern}`, the segment `{segment}` can never match: \
         it is empty, a dot segment or a broken escape, or it holds `?`, `#`, `;`, `\\` or a control"
    )]
    Segment {
        /// The pattern as written.
        pattern: String,
        /// The segment at fault.
        segment: String,
    },
    /// A host that is neither a name, nor an address, nor `*.name`.
    #[error("`{pattern}` is not a host, `[address]` or `*.host` without port")]
    Host {
        /// The pattern as written.
        pattern: String,
    },
}

impl PathPattern {
    /// Reads a pattern.
    ///
    /// # Errors
    /// [`PatternError`]: what is wrong with it.
    pub fn parse(text: &str) -> Result<Self, PatternError> {
        let pattern = || text.to_owned();
        let Some(rest) = text.strip_prefix('/') else {
            return Err(PatternError::NotAnchored { pattern: pattern() });
        };
        let (rest, open) = match rest.strip_suffix('*') {
            Some(before) if before.is_empty() || before.ends_with('/') => (before, true),
            _ => (rest, false),
        };
        let rest = rest.strip_suffix('/').filter(|before| !before.is_empty()).unwrap_or(rest);
        let mut segments = Vec::new();
        let mut names = Vec::new();
        for segment in rest.split('/').filter(|_| !rest.is_empty()) {
            if segment.contains('*') {
                return Err(PatternError::Star { pattern: pattern() });
            }
            if segment.contains(['{', '}']) {
                let name = parameter(segment)
                    .filter(|name| !names.contains(name) && names.len() < MAX_PARAMETERS)
                    .ok_or_else(|| PatternError::Parameter { pattern: pattern() })?;
                names.push(name);
                segments.push(Segment::Parameter(name.into()));
                continue;
            }
            let literal = literal(segment).ok_or_else(|| PatternError::Segment {
                pattern: pattern(),
                segment: segment.to_owned(),
            })?;
            segments.push(Segment::Literal(literal));
        }
        Ok(Self { text: pattern(), segments, open })
    }

    /// The pattern as written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The names of its parameters, in order.
    pub fn parameters(&self) -> impl Iterator<Item = &str> {
        self.segments.iter().filter_map(|segment| match segment {
            Segment::Parameter(name) => Some(&**name),
            Segment::Literal(_) => None,
        })
    }

    /// Whether it has any.
    pub(super) fn has_parameters(&self) -> bool {
        self.parameters().next().is_some()
    }

    /// Whether it ends in `*`.
    pub(super) const fn is_open(&self) -> bool {
        self.open
    }

    /// How many segments it names, `*` not counted.
    pub(super) const fn depth(&self) -> usize {
        self.segments.len()
    }

    /// The literal segments it starts with, as a path in the form that requests are compared in;
    /// `/` when there are none.
    pub(super) fn literal_prefix(&self) -> String {
        let literals = self.segments.iter().map_while(|segment| match segment {
            Segment::Literal(text) => Some(text.as_str()),
            Segment::Parameter(_) => None,
        });
        let path: String = literals.flat_map(|text| ["/", text]).collect();
        if path.is_empty() { "/".to_owned() } else { path }
    }

    /// Whether it names one path only.
    pub(super) fn is_literal(&self) -> bool {
        !self.open && self.segments.iter().all(|segment| matches!(segment, Segment::Literal(_)))
    }

    /// How specific it is, for patterns that match one and the same path: the greater wins.
    pub(super) fn rank(&self) -> Vec<u8> {
        let of = |segment: &Segment| match segment {
            Segment::Literal(_) => 2,
            Segment::Parameter(_) => 1,
        };
        // The end of a pattern beats `*`: `/x` is more specific than `/x/*`.
        let end = u8::from(!self.open);
        self.segments.iter().map(of).chain([end]).collect()
    }

    /// The named segments as a `matchit` route: names dropped, `*` left out.
    pub(super) fn shape(&self, case_insensitive: bool) -> String {
        let mut shape = String::new();
        for segment in &self.segments {
            shape.push('/');
            match segment {
                Segment::Literal(text) => {
                    let text = if case_insensitive { fold(text) } else { text.into() };
                    for character in text.chars() {
                        shape.push(character);
                        if matches!(character, '{' | '}') {
                            shape.push(character);
                        }
                    }
                }
                Segment::Parameter(_) => shape.push_str("{p}"),
            }
        }
        if shape.is_empty() { "/".to_owned() } else { shape }
    }

    /// Whether it matches a path (as read, a trailing slash removed).
    pub(super) fn matches(&self, path: &str) -> bool {
        let mut rest = path.split('/').skip(1).filter(|_| path != "/");
        let named = self.segments.iter().all(|segment| match (segment, rest.next()) {
            (Segment::Literal(text), Some(part)) => text == part,
            (Segment::Parameter(_), Some(_)) => true,
            (_, None) => false,
        });
        named && (self.open || rest.next().is_none())
    }

    /// Its parameters' values in a path that it matches, decoded.
    pub(super) fn captures(&self, path: &str) -> Vec<(Arc<str>, String)> {
        let parts = path.split('/').skip(1);
        let pairs = self.segments.iter().zip(parts).filter_map(|(segment, part)| match segment {
            Segment::Parameter(name) => {
                Some((name.clone(), percent_decode_str(part).decode_utf8_lossy().into_owned()))
            }
            Segment::Literal(_) => None,
        });
        pairs.collect()
    }
}

impl fmt::Display for PathPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The name in `{name}`.
fn parameter(segment: &str) -> Option<&str> {
    let name = segment.strip_prefix('{')?.strip_suffix('}')?;
    let sound = name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
        && !name.starts_with(|c: char| c.is_ascii_digit());
    (sound && !name.is_empty()).then_some(name)
}

/// A literal segment in the form that requests are compared in.
fn literal(segment: &str) -> Option<String> {
    let escapes = segment.matches('%').count();
    let sound = segment.split('%').skip(1).take(escapes).all(|rest| {
        rest.as_bytes().get(..2).is_some_and(|hex| hex.iter().all(u8::is_ascii_hexdigit))
    });
    let mut text = String::with_capacity(segment.len());
    for byte in percent_decode_str(segment) {
        if byte < 0x20 || matches!(byte, 0x7F | b'?' | b'#' | b';' | b'\\') {
            return None;
        }
        push_matched(&mut text, byte);
    }
    (sound && !matches!(text.as_str(), "" | "." | "..")).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(text: &str) -> PathPattern {
        PathPattern::parse(text).unwrap()
    }

    #[test]
    fn a_star_also_serves_the_bare_path_and_ends_on_a_segment_border() {
        let checkout = pattern("/checkout/*");
        for path in ["/checkout", "/checkout/pay", "/checkout/a/b"] {
            assert!(checkout.matches(path), "{path}");
        }
        for path in ["/", "/checkout-faq", "/check", "/x/checkout"] {
            assert!(!checkout.matches(path), "{path}");
        }
        assert!(pattern("/*").matches("/") && pattern("/*").matches("/a/b"));
        assert!(pattern("/").matches("/") && !pattern("/").matches("/a"));
    }

    #[test]
    fn raw_and_encoded_patterns_mean_the_same() {
        let same = |a, b| assert_eq!(pattern(a).segments, pattern(b).segments, "{a} {b}");
        same("/café/a b", "/caf%c3%A9/a%20b");
        same("/%63heckout/", "/checkout");
        same("/a@b", "/a%40b");
        assert_eq!(pattern("/%7Bx%7D").literal_prefix(), "/{x}");
        assert_eq!(pattern("/a%2fb").literal_prefix(), "/a%2Fb");
    }

    #[test]
    fn a_parameter_is_one_whole_segment() {
        let deal = pattern("/deal/{id}/{part}");
        assert!(
            deal.matches("/deal/1/x") && !deal.matches("/deal/1") && !deal.matches("/deal/1/2/3")
        );
        let captures = deal.captures("/deal/a%2Fb/x");
        let pairs: Vec<_> = captures.iter().map(|(n, v)| (&**n, v.as_str())).collect();
        assert_eq!(pairs, [("id", "a/b"), ("part", "x")]);
        assert_eq!(deal.parameters().collect::<Vec<_>>(), ["id", "part"]);
    }

    #[test]
    fn patterns_that_could_never_match_are_refused() {
        for bad in [
            "",
            "x",
            "*",
            "/a/*/b",
            "/a*",
            "/**",
            "/{a}/{a}",
            "/{}",
            "/x{a}",
            "/{a",
            "/{1a}",
            "/{*a}",
            "//",
            "/a//b",
            "/./a",
            "/a/..",
            "/%2e%2E/a",
            "/a%",
            "/a%zz",
            "/a%00",
            "/a?b",
            "/a#b",
            "/a;b",
            "/a%3Bb",
            "/a\\b",
            "/a\tb",
        ] {
            assert!(PathPattern::parse(bad).is_err(), "{bad}");
        }
    }
}
