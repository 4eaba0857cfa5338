//! Which hosts a route serves.
//!
//! A host is compared by its name alone: letter case, the port and one trailing dot do not count.
//! What is not a plain host name or an address is refused rather than guessed at, and names are
//! never looked up.

use std::borrow::Cow;
use std::fmt;
use std::net::Ipv6Addr;

use super::path::PatternError;
use super::target::TargetError;

/// A host as a route names it: `shop.example`, `[2001:db8::1]`, or `*.shop.example` for every name
/// below `shop.example`, at any depth, but not that name itself. Names beyond ASCII are written in
/// their `xn--` form, as clients send them.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct HostPattern {
    /// Lower case, no port, no trailing dot, without `*.`.
    name: String,
    below: bool,
}

impl HostPattern {
    /// Reads a pattern.
    ///
    /// # Errors
    /// [`PatternError::Host`] when it is none of the forms above, or has a port: a gateway that
    /// listens on several ports serves the same hosts on all of them.
    pub fn parse(text: &str) -> Result<Self, PatternError> {
        let invalid = || PatternError::Host { pattern: text.to_owned() };
        let (below, rest) = match text.strip_prefix("*.") {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let host = Host::parse(rest).map_err(|_| invalid())?;
        let has_port = !rest.ends_with(']') && rest.contains(':');
        if has_port || (below && rest.starts_with('[')) {
            return Err(invalid());
        }
        Ok(Self { name: host.name.into_owned(), below })
    }

    /// The name, for an exact pattern.
    pub(super) fn exact(&self) -> Option<&str> {
        (!self.below).then_some(self.name.as_str())
    }

    /// Whether a host matches.
    pub(super) fn matches(&self, host: &Host<'_>) -> bool {
        if self.below {
            host.name.strip_suffix(&self.name).is_some_and(|left| left.ends_with('.'))
        } else {
            host.name == self.name
        }
    }

    /// How much of the name is fixed; the longer of two wildcards is the more specific.
    pub(super) fn fixed_bytes(&self) -> usize {
        self.name.len()
    }
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", if self.below { "*." } else { "" }, self.name)
    }
}

/// The host of one request, in one spelling.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct Host<'a> {
    pub(super) name: Cow<'a, str>,
    pub(super) port: Option<u16>,
}

impl<'a> Host<'a> {
    /// Reads a `Host` field or the authority of a URL. Userinfo, percent escapes, blanks, empty
    /// labels and anything beyond ASCII are refused: no client needs them and readers disagree.
    pub(super) fn parse(text: &'a str) -> Result<Self, TargetError> {
        Self::read(text).ok_or(TargetError::InvalidHost)
    }

    fn read(text: &'a str) -> Option<Self> {
        if let Some(rest) = text.strip_prefix('[') {
            let (address, rest) = rest.split_once(']')?;
            let address: Ipv6Addr = address.parse().ok()?;
            let port = match rest.strip_prefix(':') {
                Some(digits) => port(digits)?,
                None if rest.is_empty() => None,
                None => return None,
            };
            return Some(Self { name: format!("[{address}]").into(), port });
        }
        let (name, port) = match text.split_once(':') {
            Some((name, digits)) => (name, port(digits)?),
            None => (text, None),
        };
        let name = name.strip_suffix('.').unwrap_or(name);
        let (mut upper, mut label) = (false, 0);
        for byte in name.bytes() {
            match byte {
                b'.' if label == 0 => return None,
                b'.' => label = 0,
                b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' => label += 1,
                b'A'..=b'Z' => {
                    upper = true;
                    label += 1;
                }
                _ => return None,
            }
        }
        if label == 0 || name.len() > 253 {
            return None;
        }
        let name = if upper { name.to_ascii_lowercase().into() } else { name.into() };
        Some(Self { name, port })
    }
}

/// The digits after the colon; none at all is the default port.
#[expect(clippy::option_option, reason = "no port and a bad port differ")]
fn port(digits: &str) -> Option<Option<u16>> {
    if digits.is_empty() {
        return Some(None);
    }
    let plain = digits.bytes().all(|b| b.is_ascii_digit());
    plain.then(|| digits.parse().ok()).flatten().map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, host: &str) -> bool {
        HostPattern::parse(pattern).unwrap().matches(&Host::parse(host).unwrap())
    }

    #[test]
    fn every_spelling_of_a_host_is_one_host() {
        for spelling in
            ["shop.example", "SHOP.Example", "shop.example.", "shop.example:8443", "shop.example.:"]
        {
            assert!(matches("Shop.example", spelling), "{spelling}");
        }
        assert!(matches("[2001:db8::1]", "[2001:DB8:0:0::1]:8080"));
        assert!(!matches("shop.example", "shop.example.evil"));
        assert!(!matches("shop.example", "myshop.example"));
    }

    #[test]
    fn a_wildcard_stands_for_whole_labels_and_at_least_one() {
        assert!(matches("*.shop.example", "a.shop.example"));
        assert!(matches("*.shop.example", "a.b.SHOP.example:80"));
        assert!(!matches("*.shop.example", "shop.example"));
        assert!(!matches("*.shop.example", "ashop.example"));
    }

    #[test]
    fn what_is_not_a_host_is_refused() {
        for bad in [
            "",
            ".",
            "a..b",
            ".a",
            "a..",
            "user@a",
            "a b",
            "a%2Eb",
            "a:b",
            "a:99999",
            "a:+1",
            "[::1",
            "[::1]x",
            "[::1%25eth0]",
            "::1",
            "é.example",
            "a/b",
            "a,b",
            "a\\b",
            "a:80:80",
        ] {
            assert_eq!(Host::parse(bad), Err(TargetError::InvalidHost), "{bad}");
        }
        for bad in ["*", "*.", "*.*.a", "a.*", "a:80", "*.[::1]", "[::1]:80"] {
            assert!(HostPattern::parse(bad).is_err(), "{bad}");
        }
    }
}
