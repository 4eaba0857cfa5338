//! `GET {prefix}/{queue}/rank`: where a token stands. Costs the store nothing while it waits.

use axum::body::Body;
use bytes::Bytes;
use http::request::Parts;
use http::{Method, Response, StatusCode};

use crate::gate::credentials::Carrier;
use crate::problem::{Code, Problem};
use crate::queue::command::Gone;
use crate::store::mirror::{LocalQueue, Seen};
use crate::token::Claims;

use super::caller::{Asker, Early, Opening, early};
use super::{Api, answer};

pub(super) async fn serve(api: &Api, queue: &str, parts: &Parts) -> Response<Body> {
    if !matches!(parts.method, Method::GET | Method::HEAD) {
        return answer::problem(Problem::new(Code::MethodNotAllowed));
    }
    match rank(api, queue, parts).await {
        Ok(response) => response.map(Body::from),
        Err(response) => response.into_response(),
    }
}

async fn rank(api: &Api, queue: &str, parts: &Parts) -> Result<Response<Bytes>, Early> {
    let call = api.call(queue, Opening::TokenHolder, parts).await?;
    let (seen, token) = match api.asker(&call)? {
        Asker::Token { claims, carrier, .. } => {
            let seen = call.queue.poll(&claims).await?;
            let token =
                (carrier == Carrier::Header).then(|| api.fresh_token(&call.queue, claims, seen));
            (seen, token)
        }
        Asker::User(user) => (call.queue.lookup(api.gate.tag(&user)).await?, None),
        Asker::Outlived => (Seen::Gone(Gone::Unknown), None),
        Asker::Nobody => {
            return Err(early(Problem::new(Code::Unauthenticated).with_queue(call.queue.name())));
        }
    };
    Ok(api.place(StatusCode::OK, &call.queue.view(seen), token.as_deref()))
}

impl Api {
    /// The token to tell a client who may keep it: with the end of the lease once it is active.
    fn fresh_token(&self, queue: &LocalQueue, claims: Claims, seen: Seen) -> String {
        self.gate.sign(queue.name(), &queue.renewed(&claims, seen).unwrap_or(claims))
    }
}
