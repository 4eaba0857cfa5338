//! CORS preflights of gated and open routes that have cross-origin rules.

use bytes::Bytes;
use http::header::{
    ACCESS_CONTROL_ALLOW_CREDENTIALS, ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS,
    ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_REQUEST_METHOD,
    ORIGIN, VARY,
};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};

use crate::route::{Cors, Route};

use super::answer;

/// The methods a preflight can ask for that a route may list.
const ASKED: [Method; 7] = [
    Method::GET,
    Method::HEAD,
    Method::POST,
    Method::PUT,
    Method::PATCH,
    Method::DELETE,
    Method::OPTIONS,
];

fn is_preflight(parts: &Parts) -> bool {
    parts.method == Method::OPTIONS
        && parts.headers.contains_key(ORIGIN)
        && parts.headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD)
}

/// The method a preflight asks for: it is judged by the route of the request it announces.
pub(super) fn judged_method(parts: &Parts) -> Option<&'static Method> {
    static METHODS: [Method; 7] = ASKED;
    if !is_preflight(parts) {
        return None;
    }
    let asked = parts.headers.get(ACCESS_CONTROL_REQUEST_METHOD)?.as_bytes();
    METHODS.iter().find(|method| method.as_str().as_bytes() == asked)
}

/// Lets scripts of the route's allowed origins read an answer that the gate makes in its place.
pub(super) fn share(parts: &Parts, route: &Route, told: &mut HeaderMap) {
    let Some(Cors { origins, .. }) = &route.cors else { return };
    told.append(VARY, HeaderValue::from_static("Origin"));
    let Some(origin) = parts.headers.get(ORIGIN) else { return };
    if origins.iter().any(|allowed| allowed.as_bytes() == origin.as_bytes()) {
        told.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
        told.insert(ACCESS_CONTROL_ALLOW_CREDENTIALS, HeaderValue::from_static("true"));
        told.insert(ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static("Retry-After"));
    }
}

/// The answer to a preflight, if the route has rules that allow it.
pub(super) fn answer(parts: &Parts, route: &Route) -> Option<Response<Bytes>> {
    if !is_preflight(parts) {
        return None;
    }
    let Cors { origins, methods, headers } = route.cors.as_ref()?;
    let origin = parts.headers.get(ORIGIN)?;
    if !origins.iter().any(|allowed| allowed.as_bytes() == origin.as_bytes()) {
        return None;
    }
    let list = |names: Vec<&str>| HeaderValue::from_str(&names.join(", ")).ok();
    let mut response = Response::new(Bytes::new());
    *response.status_mut() = StatusCode::NO_CONTENT;
    let told = response.headers_mut();
    told.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
    told.insert(ACCESS_CONTROL_ALLOW_CREDENTIALS, HeaderValue::from_static("true"));
    told.insert(VARY, HeaderValue::from_static("Origin"));
    if let Some(methods) = list(methods.iter().map(Method::as_str).collect()) {
        told.insert(ACCESS_CONTROL_ALLOW_METHODS, methods);
    }
    if let Some(headers) = list(headers.iter().map(http::HeaderName::as_str).collect()) {
        told.insert(ACCESS_CONTROL_ALLOW_HEADERS, headers);
    }
    answer::harden(told);
    Some(response)
}
