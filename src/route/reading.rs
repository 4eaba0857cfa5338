//! Every way in which a back end could plausibly read one canonical path.
//!
//! The gateway sends one path, but what stands behind it may decode more than it should. Five
//! habits are known from published bypasses; each is a *kind* of doubt that a path can hold:
//!
//! - an encoded slash (`%2F`) is taken for a separator;
//! - a backslash (`%5C`) is taken for a separator;
//! - path parameters (`;x=1`, also encoded) are dropped from a segment, so `..;` becomes `..`;
//! - the path is decoded more than once, or sloppily: `%2563` and the overlong `%C1%A3` are `c`.
//!   Chains of proxies do this, and no honest client encodes twice;
//! - an encoded `?` or `#` ends the path.
//!
//! All combinations of the kinds present are readings, and where hidden dot segments appear, the
//! path with and without resolving them. More than [`MAX_KINDS`] kinds at once come from no honest
//! client and are refused, which bounds the readings to sixteen and the work to sixteen passes; in
//! a path beyond [`LONG_BYTES`] a second kind is refused already.
//!
//! Readings are in *match form*: escapes of ASCII decoded, except `%2F` and `%25` (which are data
//! where they remain); bytes beyond ASCII stay encoded. Patterns are brought into the same form.
//! Nothing here is ever sent upstream.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;

use super::target::{Segments, TargetError, escape};

/// The kinds of doubt that one target may hold at once.
const MAX_KINDS: u32 = 3;

/// A path beyond this may hold one kind only: a hostile target must not cost more than the request.
const LONG_BYTES: usize = 2048;

const BACKSLASH: u8 = 1;
const PARAMETERS: u8 = 2;
const TWICE: u8 = 4;
const CUT: u8 = 8;
/// The greatest, so that readings without it are made first.
const SLASH: u8 = 16;

/// One reading of a path.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct Reading<'a> {
    /// In match form, dot segments and doubled slashes gone; may end in a slash.
    pub(super) path: Cow<'a, str>,
    /// Whether it depends on taking `%2F` for a separator.
    pub(super) encoded_slash: bool,
}

impl Reading<'_> {
    /// Without a trailing slash, which patterns ignore.
    pub(super) fn trimmed(&self) -> &str {
        match self.path.strip_suffix('/') {
            Some("") | None => &self.path,
            Some(rest) => rest,
        }
    }
}

/// All readings of a path: the canonical one, and the others.
#[derive(Debug)]
pub(super) struct Readings<'a> {
    pub(super) canonical: Reading<'a>,
    pub(super) others: Vec<Reading<'a>>,
}

impl<'a> Readings<'a> {
    /// Reads a canonical path. A path without `%` and `;` costs no allocation.
    pub(super) fn of(path: &'a str) -> Result<Self, TargetError> {
        let bytes = path.as_bytes();
        let (mut kinds, mut decoded, mut at, mut escape_bytes) = (0, false, 0, 0);
        if bytes.iter().any(|byte| matches!(byte, b'%' | b';')) {
            while at < bytes.len() {
                let token = Token::read(bytes, at, true);
                at = token.next;
                kinds |= token.kinds();
                decoded |= token.escaped && token.byte.is_ascii();
                if token.byte < 0x20 || token.byte == 0x7F {
                    return Err(TargetError::EncodedControl);
                }
                // `%25%25365` composes an escape out of escapes: nobody does that by accident.
                escape_bytes = match token.byte {
                    b'%' => 1,
                    byte if escape_bytes > 0 && byte.is_ascii_hexdigit() => escape_bytes + 1,
                    _ => 0,
                };
                if escape_bytes == 3 {
                    return Err(TargetError::Ambiguous);
                }
            }
        }
        let allowed = if path.len() > LONG_BYTES { 1 } else { MAX_KINDS };
        if kinds.count_ones() > allowed {
            return Err(TargetError::Ambiguous);
        }
        let canonical = if decoded { read(path, 0, false).0.into() } else { path.into() };
        let canonical = Reading { path: canonical, encoded_slash: false };
        let mut readings = Self { canonical, others: Vec::new() };
        for combination in (1..=kinds).filter(|combination| combination & !kinds == 0) {
            let (read_path, dots) = read(path, combination, false);
            readings.add(read_path, combination);
            if dots {
                readings.add(read(path, combination, true).0, combination);
            }
        }
        Ok(readings)
    }

    fn add(&mut self, path: String, combination: u8) {
        let known = self.canonical.path == path || self.others.iter().any(|r| r.path == path);
        if !known {
            let encoded_slash = combination & SLASH != 0;
            self.others.push(Reading { path: path.into(), encoded_slash });
        }
    }

    /// The readings that count: on a route with `allow_encoded_slash` those that take `%2F` for a
    /// separator do not.
    pub(super) fn counted(&self, allow_encoded_slash: bool) -> impl Iterator<Item = &Reading<'a>> {
        let others = self.others.iter().filter(move |r| !(allow_encoded_slash && r.encoded_slash));
        std::iter::once(&self.canonical).chain(others)
    }
}

/// One byte of a path as a decoder sees it.
struct Token {
    byte: u8,
    escaped: bool,
    /// Whether only a second or sloppy decoding makes this byte.
    twice: bool,
    next: usize,
}

impl Token {
    fn read(bytes: &[u8], at: usize, sloppy: bool) -> Self {
        let plain = |byte| Self { byte, escaped: false, twice: false, next: at + 1 };
        if bytes[at] != b'%' {
            return plain(bytes[at]);
        }
        // A canonical path holds no broken escape.
        let Some(mut byte) = escape(bytes, at) else { return plain(b'%') };
        let (mut next, mut twice) = (at + 3, false);
        if sloppy {
            // `%252563` is decoded as often as it takes.
            while byte == b'%'
                && let Some(inner) = hex_pair(bytes, next)
            {
                (byte, next, twice) = (inner, next + 2, true);
            }
            if let Some((short, end)) = overlong(bytes, byte, next) {
                (byte, next, twice) = (short, end, true);
            }
        }
        Self { byte, escaped: true, twice, next }
    }

    fn kinds(&self) -> u8 {
        let kind = match self.byte {
            b'/' if self.escaped => SLASH,
            b'\\' => BACKSLASH,
            b';' => PARAMETERS,
            b'?' | b'#' if self.escaped => CUT,
            _ => 0,
        };
        kind | if self.twice { TWICE } else { 0 }
    }
}

/// The ASCII byte that an overlong UTF-8 sequence of two or three escapes hides, and where the
/// sequence ends.
fn overlong(bytes: &[u8], first: u8, at: usize) -> Option<(u8, usize)> {
    let tail = |at| escape(bytes, at).filter(|byte| (0x80..=0xBF).contains(byte));
    match first {
        0xC0 | 0xC1 => Some(((first & 1) << 6 | tail(at)? & 0x3F, at + 3)),
        0xE0 => {
            let middle = tail(at).filter(|byte| *byte <= 0x81)?;
            Some(((middle & 1) << 6 | tail(at + 3)? & 0x3F, at + 6))
        }
        _ => None,
    }
}

fn hex_pair(bytes: &[u8], at: usize) -> Option<u8> {
    let digit = |at: usize| (*bytes.get(at)? as char).to_digit(16);
    u8::try_from(digit(at)? << 4 | digit(at + 1)?).ok()
}

/// The path under one combination of habits, and whether it held dot segments.
fn read(path: &str, habits: u8, keep_dots: bool) -> (String, bool) {
    let bytes = path.as_bytes();
    let mut segments = Segments::new(bytes.len(), keep_dots);
    let (mut at, mut dropping) = (1, false);
    while at < bytes.len() {
        let token = Token::read(bytes, at, habits & TWICE != 0);
        at = token.next;
        // A plain slash separates whatever the habits; every other kind only with its own.
        let kind = token.kinds() & !TWICE & habits;
        if (token.byte == b'/' && !token.escaped) || kind & (SLASH | BACKSLASH) != 0 {
            segments.separator();
            dropping = false;
        } else if kind & CUT != 0 {
            break;
        } else if kind & PARAMETERS != 0 {
            dropping = true;
        } else if !dropping {
            segments.push_with(|out| push_matched(out, token.byte));
        }
    }
    segments.finish()
}

/// Adds a decoded byte of a segment in match form.
pub(super) fn push_matched(out: &mut String, byte: u8) {
    if byte.is_ascii() && byte != b'/' && byte != b'%' {
        out.push(char::from(byte));
    } else {
        out.push_str(percent_encoding::percent_encode_byte(byte));
    }
}

/// A path in match form without letter case: of ASCII always, of everything else where the bytes
/// are UTF-8. Escapes are decoded before they are folded.
pub(super) fn fold(path: &str) -> Cow<'_, str> {
    if !path.bytes().any(|byte| byte.is_ascii_uppercase() || byte == b'%') {
        return path.into();
    }
    // `%2F` and `%25` are data here and must not become separators or escapes.
    let kept = path.replace("%25", "%2525").replace("%2F", "%252F");
    match percent_decode_str(&kept).decode_utf8() {
        Ok(text) => text.to_lowercase().into(),
        Err(_) => path.to_ascii_lowercase().into(),
    }
}

#[cfg(test)]
mod tests;
