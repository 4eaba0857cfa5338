//! `GET {prefix}/{queue}/rank`: where a token stands. Costs the store nothing while it waits.

use axum::body::Body;
use bytes::Bytes;
use http::request::Parts;
use http::{Method, Response, StatusCode};

use crate::gate::credentials::Carrier;
use crate::problem::{Code, Problem};
use crate::queue::command::Gone;
use crate::store::mirror::Seen;
use crate::token::Claims;

use super::caller::{Asker, Call, Early, Opening, early};
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
        Asker::Token { claims, carrier: Carrier::Header } => {
            let seen = call.queue.poll(&claims).await?;
            let claims = call.queue.renewed(&claims, seen).unwrap_or(claims);
            (seen, Some(api.gate.sign(call.queue.name(), &claims)))
        }
        Asker::Token { claims, carrier: Carrier::Cookie } => {
            let seen = call.queue.poll(&claims).await?;
            let mut response = api.place(StatusCode::OK, &call.queue.view(seen), None);
            api.renew_cookie(&mut response, &call, &claims, seen);
            return Ok(response);
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
    /// Gives who waits a newer token cookie once the one that came is old.
    pub(super) fn renew_cookie(
        &self,
        response: &mut Response<Bytes>,
        call: &Call<'_>,
        claims: &Claims,
        seen: Seen,
    ) {
        let Seen::Waiting { .. } = seen else { return };
        if let Some(renewed) = call.queue.renewed(claims, seen) {
            let https = call.caller.https();
            self.gate.add_token_cookie(response, call.parts, &call.queue, &renewed, https);
        }
    }
}
