//! The one form in which a request target is judged and sent upstream.
//!
//! Parses a target once and strictly (RFC 3986 and 9112): unreserved characters decoded, other
//! escapes in upper case, dot segments removed (clamped at the root), doubled slashes collapsed,
//! the query byte for byte. Bytes that have no place in a path but one meaning only (`"`, `\`,
//! UTF-8) are percent-encoded, so that no reader behind has to guess; what no honest client sends
//! is refused. How a back end might misread the result is the matter of [`super::reading`].
//!
//! The length of a target is the caller's to bound; the work here is linear in it.

use super::host::Host;

/// Why a request target or its host cannot be judged. All of them are the client's fault (400).
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TargetError {
    /// `*`, an authority, a scheme other than http and https, or nothing at all.
    #[error("the request target is neither a path nor an http or https URL")]
    NotAPath,
    /// A blank or a control byte.
    #[error("the request target holds a blank or a control byte")]
    ForbiddenByte,
    /// A raw `#`.
    #[error("the request target holds a fragment")]
    Fragment,
    /// `%` without two hexadecimal digits in the path.
    #[error("the path holds a broken percent escape")]
    BrokenEscape,
    /// A NUL or another control byte in the path, encoded once or more often.
    #[error("the path holds an encoded control byte")]
    EncodedControl,
    /// `Host`, or the authority of the target, is not a host.
    #[error("the host is malformed")]
    InvalidHost,
    /// The target is a URL of another host than `Host` says, or there is no `Host`.
    #[error("the request target and the Host field name different hosts")]
    HostMismatch,
    /// Back ends could read the path in ways that lead to different decisions.
    #[error("the path can be read in more than one way")]
    Ambiguous,
    /// The parameter that names the queue is absent.
    #[error("the parameter that names the queue is missing")]
    ParameterMissing,
    /// The parameter that names the queue occurs in more than one way.
    #[error("the parameter that names the queue is not given exactly once")]
    ParameterRepeated,
    /// The parameter that names the queue is not UTF-8.
    #[error("the parameter that names the queue is not UTF-8")]
    ParameterEncoding,
}

/// A canonical path and the query as it came. Parsing its text again gives the same value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CanonicalTarget {
    text: String,
    path_bytes: usize,
}

impl CanonicalTarget {
    /// Reads a request target in origin form, or in absolute form when its authority is `host`
    /// (the `Host` field; default ports are equal to none).
    ///
    /// # Errors
    /// [`TargetError`]: the request is to be answered with 400.
    pub fn parse(target: &str, host: Option<&str>) -> Result<Self, TargetError> {
        if target.bytes().any(|byte| byte <= b' ' || byte == 0x7F) {
            return Err(TargetError::ForbiddenByte);
        }
        if target.contains('#') {
            return Err(TargetError::Fragment);
        }
        let local = if target.starts_with('/') { target } else { absolute_form(target, host)? };
        let (path, query) = match local.find('?') {
            Some(at) => local.split_at(at),
            None => (local, ""),
        };
        if is_canonical(path) {
            return Ok(Self { path_bytes: path.len(), text: local.to_owned() });
        }
        let mut text = canonical_path(path, query.len())?;
        let path_bytes = text.len();
        text.push_str(query);
        Ok(Self { text, path_bytes })
    }

    /// Path and query: what is judged, and the bytes that go upstream.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The path.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.text[..self.path_bytes]
    }

    /// The query without its `?`; present but empty for a target that ends in `?`.
    #[must_use]
    pub fn query(&self) -> Option<&str> {
        self.text[self.path_bytes..].strip_prefix('?')
    }

    /// The text, without a copy.
    #[must_use]
    pub fn into_string(self) -> String {
        self.text
    }
}

/// The path and query of `http://host/path?query`, once its authority proved to be `host`.
fn absolute_form<'a>(target: &'a str, host: Option<&str>) -> Result<&'a str, TargetError> {
    let (scheme, rest) = target.split_once("://").ok_or(TargetError::NotAPath)?;
    let default_port = default_port(scheme).ok_or(TargetError::NotAPath)?;
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, local) = rest.split_at(end);
    let named = Host::parse(authority)?;
    let host = Host::parse(host.ok_or(TargetError::HostMismatch)?)?;
    let port = |host: &Host<'_>| host.port.unwrap_or(default_port);
    if named.name != host.name || port(&named) != port(&host) {
        return Err(TargetError::HostMismatch);
    }
    Ok(local)
}

/// The default port of the two schemes there are.
pub(super) const fn default_port(scheme: &str) -> Option<u16> {
    if scheme.eq_ignore_ascii_case("http") {
        Some(80)
    } else if scheme.eq_ignore_ascii_case("https") {
        Some(443)
    } else {
        None
    }
}

/// Whether nothing needs to change. May say no to a canonical path with a segment like `.a`.
fn is_canonical(path: &str) -> bool {
    let mut previous = 0;
    path.starts_with('/')
        && path.bytes().all(|byte| {
            let after_slash = previous == b'/';
            previous = byte;
            is_path_byte(byte) && !(after_slash && matches!(byte, b'/' | b'.'))
        })
}

/// The canonical form of a path that starts with `/` or, after a bare authority, is empty.
fn canonical_path(path: &str, spare: usize) -> Result<String, TargetError> {
    let bytes = path.as_bytes();
    let mut segments = Segments::new(bytes.len() + spare + 16, false);
    let mut at = 1;
    while let Some(&byte) = bytes.get(at) {
        at += 1;
        match byte {
            b'/' => segments.separator(),
            b'%' => {
                let byte = escape(bytes, at - 1).ok_or(TargetError::BrokenEscape)?;
                at += 2;
                if byte < 0x20 || byte == 0x7F {
                    return Err(TargetError::EncodedControl);
                }
                segments.push(byte, is_unreserved(byte));
            }
            _ => segments.push(byte, is_path_byte(byte)),
        }
    }
    Ok(segments.finish().0)
}

/// The byte that `%XX` at `at` stands for.
pub(super) fn escape(bytes: &[u8], at: usize) -> Option<u8> {
    let &[b'%', high, low] = bytes.get(at..at + 3)? else { return None };
    let digit = |byte: u8| char::from(byte).to_digit(16);
    u8::try_from(digit(high)? << 4 | digit(low)?).ok()
}

const fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

/// RFC 3986 `pchar` without `%`, and the slash.
const fn is_path_byte(byte: u8) -> bool {
    PATH_BYTES[byte as usize]
}

/// [`is_path_byte`] for every byte: nearly every byte of every request is asked about.
const PATH_BYTES: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 128_u8 {
        table[byte as usize] = is_path_byte_of_rfc3986(byte);
        byte += 1;
    }
    table
};

const fn is_path_byte_of_rfc3986(byte: u8) -> bool {
    is_unreserved(byte)
        || matches!(
            byte,
            b'/' | b'!'
                | b'$'
                | b'&'
                | b'\''
                | b'('
                | b')'
                | b'*'
                | b'+'
                | b','
                | b';'
                | b'='
                | b':'
                | b'@'
        )
}

/// Builds a path segment by segment: empty ones vanish, dot segments are resolved or kept.
pub(super) struct Segments {
    out: String,
    /// Where the current segment starts; the byte before it is a slash.
    start: usize,
    keep_dots: bool,
    dots: bool,
}

impl Segments {
    pub(super) fn new(capacity: usize, keep_dots: bool) -> Self {
        let mut out = String::with_capacity(capacity);
        out.push('/');
        Self { out, start: 1, keep_dots, dots: false }
    }

    /// Adds a byte to the current segment, as it is or percent-encoded.
    fn push(&mut self, byte: u8, raw: bool) {
        if raw {
            self.out.push(char::from(byte));
        } else {
            self.out.push_str(percent_encoding::percent_encode_byte(byte));
        }
    }

    /// Adds to the current segment.
    pub(super) fn push_with(&mut self, add: impl FnOnce(&mut String)) {
        add(&mut self.out);
    }

    /// Ends the current segment.
    pub(super) fn separator(&mut self) {
        if self.close() {
            self.out.push('/');
            self.start = self.out.len();
        }
    }

    /// The path, and whether it held dot segments.
    pub(super) fn finish(mut self) -> (String, bool) {
        self.close();
        (self.out, self.dots)
    }

    /// Resolves the current segment; whether it stands.
    fn close(&mut self) -> bool {
        let segment = &self.out[self.start..];
        let up = segment == "..";
        if segment != "." && !up {
            return !segment.is_empty();
        }
        self.dots = true;
        if self.keep_dots {
            return true;
        }
        if up {
            let parent = &self.out[..self.start - 1];
            self.start = parent.rfind('/').map_or(1, |slash| slash + 1);
        }
        self.out.truncate(self.start);
        false
    }
}

#[cfg(test)]
mod tests;
