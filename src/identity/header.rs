//! A user named by a trusted proxy in a request header.
//!
//! From anybody else the header is as if it were not there; removing it before the upstream is the
//! gate's part. A proxy that names nobody must leave the header out: an empty one is refused, and
//! so are two, even equal ones, because the second is then the client's.

use http::HeaderName;

use crate::queue::{UserId, UserSource};

use super::{Finding, IdentityRequest, IdentitySource};

/// What can be set about the header.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HeaderSettings {
    /// The header's name. Default `x-user-id`.
    pub name: HeaderName,
}

impl Default for HeaderSettings {
    fn default() -> Self {
        Self { name: HeaderName::from_static("x-user-id") }
    }
}

/// Reads the header.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HeaderSource {
    name: HeaderName,
}

impl HeaderSource {
    /// A source with these settings.
    #[must_use]
    pub fn new(settings: HeaderSettings) -> Self {
        Self { name: settings.name }
    }

    /// The header's name.
    #[must_use]
    pub const fn name(&self) -> &HeaderName {
        &self.name
    }
}

impl IdentitySource for HeaderSource {
    fn source(&self) -> UserSource {
        UserSource::Header
    }

    fn look(&self, request: &IdentityRequest<'_>) -> Finding {
        if !request.trusted_peer {
            return Finding::Absent;
        }
        let mut lines = request.headers.get_all(&self.name).iter();
        match (lines.next(), lines.next()) {
            (None, _) => Finding::Absent,
            (Some(line), None) => std::str::from_utf8(line.as_bytes())
                .ok()
                .and_then(|id| UserId::new(UserSource::Header, id))
                .map_or(Finding::Rejected, Finding::Verified),
            (Some(_), Some(_)) => Finding::Rejected,
        }
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderValue};
    use proptest::prelude::*;

    use crate::clock::Timestamp;

    use super::*;

    fn look(values: &[&[u8]], trusted_peer: bool) -> Finding {
        let source = HeaderSource::new(HeaderSettings::default());
        let headers: HeaderMap = values
            .iter()
            .filter_map(|value| HeaderValue::from_bytes(value).ok())
            .map(|value| (source.name().clone(), value))
            .collect();
        let headers = &headers;
        let now = Timestamp::EPOCH;
        source.look(&IdentityRequest { headers, trusted_peer, https: false, query: None, now })
    }

    fn user(id: &str) -> Finding {
        Finding::Verified(UserId::new(UserSource::Header, id).unwrap())
    }

    #[test]
    fn the_header_counts_from_a_trusted_peer_only() {
        assert_eq!(look(&[b"alice"], true), user("alice"));
        assert_eq!(look(&["ä".as_bytes()], true), user("ä"));
        assert_eq!(look(&[b"alice"], false), Finding::Absent);
        assert_eq!(look(&[b"alice", b"mallory"], false), Finding::Absent);
        assert_eq!(look(&[], true), Finding::Absent);
    }

    #[test]
    fn several_empty_or_unsound_values_are_refused() {
        let long = [b'x'; 257];
        let cases: [&[&[u8]]; 6] =
            [&[b"alice", b"mallory"], &[b"a", b"a"], &[b""], &[b"\xff"], &[b"anon:1"], &[&long]];
        for values in cases {
            assert_eq!(look(values, true), Finding::Rejected, "{values:?}");
        }
    }

    proptest! {
        #[test]
        fn no_header_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = look(&[&bytes], true);
        }
    }
}
