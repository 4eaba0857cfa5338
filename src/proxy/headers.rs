//! Headers that pass through, or are made by the gateway for its neighbours.
//!
//! Towards the upstream: what a client claims about its own way here is removed unless its peer is
//! trusted, and what the gateway knows is written instead. pingora has removed hop-by-hop headers
//! before, from a copy; everything here is computed from the request as it came, so a client's
//! `Connection: x-forwarded-for` changes nothing. Identity and token headers are the gate's.

use std::fmt::Write as _;
use std::net::IpAddr;

use http::header::{CONNECTION, HeaderMap, HeaderName, HeaderValue};
use pingora::http::{RequestHeader, ResponseHeader};

use super::context::Context;
use crate::gate::HeaderEdits;
use crate::gate::headers::{folds_into, starts_folded};
use crate::identity::client_address::Client;

/// Carries the request id in both directions.
pub(super) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

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
    let values: Vec<HeaderValue> = request.headers.get_all(CONNECTION).iter().cloned().collect();
    if !values.iter().any(|value| value.as_bytes().split(|byte| *byte == b',').any(is_own)) {
        return Ok(());
    }
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
    request.set_raw_path(forward.target.as_bytes())?;
    remove_claims(request, context.trusted);
    edit_request(request, &forward.request)?;
    for (name, value) in forwarding(&original.headers, context, &forward.client) {
        request.insert_header(name, value)?;
    }
    request.insert_header(REQUEST_ID, context.request_id.clone())
}

/// Removes claims of an untrusted peer, and from any peer what the gateway writes itself: in every
/// spelling that a back end could fold into the same variable.
fn remove_claims(request: &mut RequestHeader, trusted: bool) {
    let doomed: Vec<HeaderName> = request
        .headers
        .keys()
        .filter(|name| {
            let is = |other: &&str| folds_into(name, other.as_bytes());
            let claim = CLAIMS.iter().any(&is) || starts_folded(name, b"x-forwarded-");
            // A trusted peer is a proxy: it has no reason for odd spellings.
            OWN.iter().any(is) || claim && (!trusted || !is_plain(name))
        })
        .cloned()
        .collect();
    for name in &doomed {
        request.remove_header(name);
    }
}

/// Whether a header name is spelled with letters, digits and hyphens alone.
fn is_plain(name: &HeaderName) -> bool {
    name.as_str().bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

/// The forwarding headers: who is asking, for which host, over what.
fn forwarding(
    original: &HeaderMap,
    context: &Context,
    client: &Client,
) -> Vec<(HeaderName, HeaderValue)> {
    let hops = hops(original, context, client.address);
    let proto = if client.https { "https" } else { "http" };
    let host = client.host.as_deref();
    let mut out = Vec::with_capacity(4);
    let mut push = |name: &'static str, value: &str| {
        if let Ok(value) = HeaderValue::from_str(value) {
            out.push((HeaderName::from_static(name), value));
        }
    };
    if !hops.is_empty() {
        let list = hops.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        push("x-forwarded-for", &list);
    }
    push("x-forwarded-proto", proto);
    if let Some(host) = host {
        push("x-forwarded-host", host);
    }
    push("forwarded", &rfc7239(&hops, proto, host));
    out
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
fn rfc7239(hops: &[IpAddr], proto: &str, host: Option<&str>) -> String {
    let mut out = String::with_capacity(96);
    for (index, hop) in hops.iter().enumerate() {
        if index > 0 {
            out.push_str(", ");
        }
        // Writing to a string cannot fail.
        let _ = match hop {
            IpAddr::V4(hop) => write!(out, "for={hop}"),
            IpAddr::V6(hop) => write!(out, "for=\"[{hop}]\""),
        };
        if index == 0 {
            describe(&mut out, proto, host);
        }
    }
    if hops.is_empty() {
        out.push_str("for=unknown");
        describe(&mut out, proto, host);
    }
    out
}

fn describe(out: &mut String, proto: &str, host: Option<&str>) {
    let _ = write!(out, ";proto={proto}");
    if let Some(host) = host {
        let _ = write!(out, ";host=\"{host}\"");
    }
}

/// Makes the gate's changes to a request.
fn edit_request(request: &mut RequestHeader, edits: &HeaderEdits) -> pingora::Result<()> {
    for name in &edits.remove {
        request.remove_header(name);
    }
    for (name, value) in &edits.set {
        request.insert_header(name.clone(), value.clone())?;
    }
    for (name, value) in &edits.append {
        request.append_header(name.clone(), value.clone())?;
    }
    Ok(())
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
    response.remove_header("keep-alive");
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
    response.insert_header(REQUEST_ID, context.request_id.clone())
}

#[cfg(test)]
mod tests;
