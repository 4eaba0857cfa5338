//! The decision on one request: forward it, or answer it here.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Response};

use crate::route::Route;

/// What happens to a request.
#[derive(Debug)]
pub enum Verdict {
    /// It goes to the route's upstream.
    Forward(Box<Forward>),
    /// It is for the queue API, which this gateway serves itself.
    Api,
    /// It is answered here and now.
    Answer(Response<Bytes>),
}

/// How a request goes on.
#[derive(Debug)]
pub struct Forward {
    /// The route that was matched; names the upstream.
    pub route: Arc<Route>,
    /// The canonical path and query that were judged. Exactly these bytes go upstream.
    pub target: String,
    /// Changes to the request's headers.
    pub request: HeaderEdits,
    /// Changes to the response's headers.
    pub response: HeaderEdits,
    /// Address of the client as far as it is known, for forwarding headers and logs.
    pub client: Option<std::net::IpAddr>,
}

/// Changes to a set of headers: removals first, then what is set, then what is added.
#[derive(Clone, Debug, Default)]
pub struct HeaderEdits {
    /// Names that must not go on.
    pub remove: Vec<HeaderName>,
    /// Names that get exactly one value.
    pub set: Vec<(HeaderName, HeaderValue)>,
    /// Values added to what is there, such as `Set-Cookie`.
    pub append: Vec<(HeaderName, HeaderValue)>,
}

impl HeaderEdits {
    /// Makes the changes.
    pub fn apply(&self, headers: &mut HeaderMap) {
        for name in &self.remove {
            headers.remove(name);
        }
        for (name, value) in &self.set {
            headers.insert(name, value.clone());
        }
        for (name, value) in &self.append {
            headers.append(name, value.clone());
        }
    }
}

// impl Gate { pub async fn judge(&self, parts: &http::request::Parts, connection: &Connection) -> Verdict }
