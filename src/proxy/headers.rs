//! Headers that pass through, or are made by the gateway for its neighbours.
//!
//! Towards the upstream: what a client claims about its own way here is removed unless its peer is
//! trusted, and what the gateway knows is written instead. pingora has removed hop-by-hop headers
//! before, from a copy; everything here is computed from the request as it came, so a client's
//! `Connection: x-forwarded-for` changes nothing. Identity and token headers are the gate's.

use std::fmt::Write as _;
use std::mem;
use std::net::IpAddr;

use http::Request;
use http::header::{CONNECTION, FORWARDED, HeaderMap, HeaderName, HeaderValue};
use pingora::http::{RequestHeader, ResponseHeader};

use super::context::Context;
use crate::gate::headers::{folds_into, starts_folded};
use crate::identity::client_address::Client;

/// Carries the request id in both directions.
pub(super) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");

/// Longest request id taken from a trusted peer, in bytes.
const REQUEST_ID_BYTES: usize = 128;

/// Most hops kept of a trusted peer's `X-Forwarded-For`.
const HOPS: usize = 32;

/// Headers that claim something about the way a request came, beside `Forwarded` and all
/// `X-Forwarded-*`: other spellings of the client's address, of the original target, and of the
/// method. Folded as in [`fold`].
const CLAIMS: [&str; 13] = [
    "forwarded",
    "true-client-ip",
    "x-client-ip",
    "x-cluster-client-ip",
    "x-http-method",
    "x-http-method-override",
    "x-method-override",
    "x-original-host",
    "x-original-uri",
    "x-original-url",
    "x-override-url",
    "x-real-ip",
    "x-rewrite-url",
];

/// What the gateway writes itself, whoever the peer is.
const OWN: [&str; 5] =
    ["forwarded", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-request-id"];

/// The request id a trusted peer sent, if it is one: up to 128 characters of `A-Z a-z 0-9 . _ ~ -`
/// and the base64 alphabet, so that it can stand in any log line.
pub(super) fn given_request_id(headers: &HeaderMap) -> Option<&HeaderValue> {
    let mut values = headers.get_all(REQUEST_ID).iter();
    let (Some(id), None) = (values.next(), values.next()) else { return None };
    let sane = |byte: &u8| byte.is_ascii_alphanumeric() || b"._~-+/=".contains(byte);
    let length = id.as_bytes().len();
    ((1..=REQUEST_ID_BYTES).contains(&length) && id.as_bytes().iter().all(sane)).then_some(id)
}

/// Takes from `Connection` the names of headers that are the gateway's to write. pingora removes
/// headers named there, and refuses a request that names these; a client that does has no effect
/// on them, which is all that matters.
///
/// # Errors
/// pingora's, when a header cannot be stored.
pub(super) fn keep_own_headers(request: &mut RequestHeader) -> pingora::Result<()> {
    let is_own = |token: &[u8]| {
        let token = token.trim_ascii();
        token.eq_ignore_ascii_case(b"host")
            || OWN.iter().any(|own| token.eq_ignore_ascii_case(own.as_bytes()))
    };
    let lines = request.headers.get_all(CONNECTION);
    if !lines.iter().any(|value| value.as_bytes().split(|byte| *byte == b',').any(is_own)) {
        return Ok(());
    }
    let values: Vec<HeaderValue> = lines.iter().cloned().collect();
    request.remove_header(&CONNECTION);
    for value in values {
        let kept: Vec<&[u8]> =
            value.as_bytes().split(|byte| *byte == b',').filter(|token| !is_own(token)).collect();
        if let Ok(value) = HeaderValue::from_bytes(&kept.join(&b','))
            && !value.is_empty()
        {
            request.append_header(CONNECTION, value)?;
        }
    }
    Ok(())
}

/// Lets go of the letter case in which the client wrote the names of its headers, which means
/// nothing: pingora keeps it in a second map, to be copied and changed with every change to the
/// first. A target that is not a path is left alone, for pingora compares it with `Host`.
pub(super) fn forget_letter_case(request: &mut RequestHeader) {
    let from_path = request.uri.path_and_query().map(|target| target.as_str().as_bytes());
    if request.has_case()
        && request.raw_path().starts_with(b"/")
        && from_path == Some(request.raw_path())
    {
        let parts: http::request::Parts = mem::replace(request, nothing()).into();
        *request = parts.into();
    }
}

/// What stands in for a request while its parts are changed.
fn nothing() -> RequestHeader {
    Request::new(()).into_parts().0.into()
}

/// Makes the request that goes upstream: `original` is what the client sent, `request` pingora's
/// copy without hop-by-hop headers.
///
/// # Errors
/// pingora's, when a header cannot be stored; nothing was sent then.
pub(super) fn prepare_request(
    request: &mut RequestHeader,
    original: &RequestHeader,
    context: &Context,
) -> pingora::Result<()> {
    let Some(forward) = context.forward.as_deref() else { return Ok(()) };
    if request.raw_path() != forward.target.as_bytes() {
        request.set_raw_path(forward.target.as_bytes())?;
    }
    let mut parts: http::request::Parts = mem::replace(request, nothing()).into();
    let headers = &mut parts.headers;
    remove_claims(headers, context.trusted);
    forward.request.apply(headers);
    say_forwarded(headers, &original.headers, context, &forward.client);
    headers.insert(REQUEST_ID, context.request_id.clone());
    // A canonical target is a path, which the parts hold.
    *request = parts.into();
    Ok(())
}

/// Removes claims of an untrusted peer, and from any peer what the gateway writes itself: in every
/// spelling that a back end could fold into the same variable.
fn remove_claims(headers: &mut HeaderMap, trusted: bool) {
    let doomed: Vec<HeaderName> = headers
        .keys()
        .filter(|name| {
            if !matches!(name.as_str().as_bytes(), [b'f' | b't' | b'x', ..]) {
                // So they all begin, and a name in a header map is in lower case.
                return false;
            }
            let is = |other: &&str| folds_into(name, other.as_bytes());
            let claim = CLAIMS.iter().any(&is) || starts_folded(name, b"x-forwarded-");
            // A trusted peer is a proxy: it has no reason for odd spellings.
            OWN.iter().any(is) || claim && (!trusted || !is_plain(name))
        })
        .cloned()
        .collect();
    for name in &doomed {
        headers.remove(name);
    }
}

/// Whether a header name is spelled with letters, digits and hyphens alone.
fn is_plain(name: &HeaderName) -> bool {
    name.as_str().bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

/// Writes the forwarding headers: who is asking, for which host, over what.
fn say_forwarded(
    headers: &mut HeaderMap,
    original: &HeaderMap,
    context: &Context,
    client: &Client,
) {
    let several;
    let hops = if context.trusted {
        several = hops(original, context, client.address);
        &several
    } else {
        // Whatever a stranger says, it is the client.
        context.connection.peer.as_slice()
    };
    let proto = if client.https { "https" } else { "http" };
    let host = client.host.as_deref();
    let mut text = String::with_capacity(128);
    let mut put = |name: HeaderName, text: &str| {
        if let Ok(value) = HeaderValue::from_str(text) {
            headers.insert(name, value);
        }
    };
    if !hops.is_empty() {
        for (index, hop) in hops.iter().enumerate() {
            text.push_str(if index > 0 { ", " } else { "" });
            push_address(&mut text, hop);
        }
        put(FORWARDED_FOR, &text);
    }
    if let Some(host) = host {
        put(FORWARDED_HOST, host);
    }
    text.clear();
    push_rfc7239(&mut text, hops, proto, host);
    put(FORWARDED, &text);
    headers.insert(FORWARDED_PROTO, HeaderValue::from_static(proto));
}

/// An address as text. Nearly all are IPv4, and the formatter takes ten times as long.
fn push_address(out: &mut String, address: &IpAddr) {
    let IpAddr::V4(address) = address else {
        // Writing to a string cannot fail.
        let _ = write!(out, "{address}");
        return;
    };
    for (index, byte) in address.octets().into_iter().enumerate() {
        if index > 0 {
            out.push('.');
        }
        for (digit, least) in [(byte / 100, 100), (byte / 10 % 10, 10), (byte % 10, 0)] {
            if byte >= least {
                out.push(char::from(b'0' + digit));
            }
        }
    }
}

/// Addresses from the client to the peer. Of a trusted peer's list only what lies behind the
/// client's address counts: whatever is left of it, the client wrote itself.
fn hops(original: &HeaderMap, context: &Context, client: Option<IpAddr>) -> Vec<IpAddr> {
    let mut hops: Vec<IpAddr> = context.connection.peer.into_iter().collect();
    let Some(client) = client else { return hops };
    if !context.trusted || hops.first() == Some(&client) {
        return hops;
    }
    let listed = original.get_all("x-forwarded-for");
    let listed: Vec<&str> =
        listed.iter().filter_map(|value| value.to_str().ok()).flat_map(|v| v.split(',')).collect();
    let mut behind = Vec::new();
    for entry in listed.iter().rev().take(HOPS) {
        match entry.trim().parse::<IpAddr>().map(|address| address.to_canonical()) {
            Ok(address) if address != client => behind.push(address),
            _ => break,
        }
    }
    hops.splice(0..0, std::iter::once(client).chain(behind.into_iter().rev()));
    hops
}

/// The same as one `Forwarded` header (RFC 7239).
fn push_rfc7239(out: &mut String, hops: &[IpAddr], proto: &str, host: Option<&str>) {
    for (index, hop) in hops.iter().enumerate() {
        out.push_str(if index > 0 { ", for=" } else { "for=" });
        match hop {
            IpAddr::V4(_) => push_address(out, hop),
            IpAddr::V6(_) => {
                out.push_str("\"[");
                push_address(out, hop);
                out.push_str("]\"");
            }
        }
        if index == 0 {
            describe(out, proto, host);
        }
    }
    if hops.is_empty() {
        out.push_str("for=unknown");
        describe(out, proto, host);
    }
}

fn describe(out: &mut String, proto: &str, host: Option<&str>) {
    out.push_str(";proto=");
    out.push_str(proto);
    if let Some(host) = host {
        out.push_str(";host=\"");
        out.push_str(host);
        out.push('"');
    }
}

/// Makes the answer that goes to the client out of the upstream's: the gate's changes, the request
/// id, and no `Keep-Alive`, which speaks of another connection. Not for interim answers.
///
/// # Errors
/// pingora's, when a header cannot be stored.
pub(super) fn prepare_response(
    response: &mut ResponseHeader,
    context: &Context,
) -> pingora::Result<()> {
    response.remove_header(&KEEP_ALIVE);
    if let Some(forward) = context.forward.as_deref() {
        let edits = forward.passage.response_edits(&response.headers);
        for name in &edits.remove {
            response.remove_header(name);
        }
        for (name, value) in edits.set {
            response.insert_header(name, value)?;
        }
        for (name, value) in edits.append {
            response.append_header(name, value)?;
        }
    }
    // By its text: pingora would copy a name.
    response.insert_header("x-request-id", context.request_id.clone())
}

#[cfg(test)]
mod tests;
