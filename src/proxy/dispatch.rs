//! From a request to where it is answered: limits, verdict, upstream, API or reply.
//!
//! It refuses what is over the limits or cannot be read one way only; everything else is the
//! gate's to decide. Adding a kind of verdict fails to compile here until it has a place to go.

use http::{Method, StatusCode, Version, header};
use pingora::http::RequestHeader;
use pingora::proxy::Session;
use tracing::error;

use super::context::Context;
use super::metrics::Outcome;
use super::{Api, Gateway, Judge, Limits, bridge, headers, reply};
use crate::gate::Verdict;
use crate::problem::{Code, Problem};

impl<G: Judge, A: Api> Gateway<G, A> {
    /// Takes one request as far as it goes here; true once it is answered, false when it is to go
    /// upstream.
    ///
    /// # Errors
    /// When the client is gone before its answer was written, or an answer broke off.
    pub(super) async fn dispatch(
        &self,
        session: &mut Session,
        context: &mut Context,
    ) -> pingora::Result<bool> {
        if let Err(problem) = admissible(session, &self.limits) {
            context.outcome = Outcome::Rejected;
            return answer(session, context, problem).await;
        }
        match self.gate.judge(session.req_header(), &context.connection).await {
            Verdict::Answer(response) => {
                context.outcome = Outcome::Gate;
                reply::answer(session, response, &context.request_id).await?;
                Ok(true)
            }
            Verdict::Api => {
                context.outcome = Outcome::Api;
                bridge::serve(session, self.api.clone(), context, &self.drain).await?;
                Ok(true)
            }
            Verdict::Forward(forward) => {
                let length = reply::content_length(session);
                if length.zip(self.limits.body_bytes).is_some_and(|(length, max)| length > max) {
                    context.outcome = Outcome::Rejected;
                    return answer(session, context, Problem::new(Code::ContentTooLarge)).await;
                }
                let Some(upstream) = self.upstreams.get(&forward.route.upstream) else {
                    // The configuration was checked, so this is our mistake, not the operator's.
                    error!(upstream = %forward.route.upstream, "a route names an upstream that does not exist");
                    return answer(session, context, Problem::new(Code::Internal)).await;
                };
                if session.is_upgrade_req() {
                    // An upgraded connection may be silent from this side too.
                    session.set_read_timeout(Some(upstream.upgrade_timeout()));
                }
                headers::keep_own_headers(session.req_header_mut())?;
                headers::forget_letter_case(session.req_header_mut());
                context.upstream = Some(upstream.clone());
                context.forward = Some(forward);
                context.outcome = Outcome::UpstreamFailed;
                Ok(false)
            }
        }
    }
}

/// Answers with `problem`.
async fn answer(
    session: &mut Session,
    context: &Context,
    problem: Problem,
) -> pingora::Result<bool> {
    reply::answer(session, problem.into_response(), &context.request_id).await?;
    Ok(true)
}

/// Whether a request is within the limits and means one thing only.
fn admissible(session: &Session, limits: &Limits) -> Result<(), Problem> {
    let head = session.req_header();
    if matches!(head.method, Method::CONNECT | Method::TRACE) {
        return Err(Problem::new(Code::MethodNotAllowed));
    }
    if head.headers.len() > limits.header_fields {
        return Err(Problem::new(Code::HeaderTooLarge).with_detail("too many header fields"));
    }
    if head.raw_path().len() > limits.target_bytes {
        return Err(Problem::new(Code::HeaderTooLarge)
            .with_status(StatusCode::URI_TOO_LONG)
            .with_detail("the request target is too long"));
    }
    if !target_is_plain(head) || has_fragment(session) {
        return Err(Problem::new(Code::BadRequest).with_detail("the request target is not valid"));
    }
    let hosts = head.headers.get_all(header::HOST).iter().count();
    if hosts > 1 || hosts == 0 && head.version == Version::HTTP_11 {
        return Err(Problem::new(Code::BadRequest).with_detail("one Host header is needed"));
    }
    Ok(())
}

/// Whether the target is a path, an `http` or `https` URL, or the `*` of `OPTIONS`, in UTF-8. pingora
/// shows the path `/` for anything else, which is not what an upstream would make of it.
fn target_is_plain(head: &RequestHeader) -> bool {
    let target = head.raw_path();
    let starts_with = |scheme: &[u8]| {
        target.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme))
    };
    let form = target.starts_with(b"/")
        || target == b"*" && head.method == Method::OPTIONS
        || starts_with(b"http://")
        || starts_with(b"https://")
        // HTTP/2 has no target of its own.
        || head.version == Version::HTTP_2;
    form && head.raw_path_is_utf8()
}

/// Whether the request line holds a raw `#`. pingora drops a fragment before anyone can see it.
fn has_fragment(session: &Session) -> bool {
    if session.is_http2() {
        return session.req_header().raw_path().contains(&b'#');
    }
    let raw = session.to_h1_raw();
    let text = raw.iter().skip_while(|byte| matches!(byte, b'\r' | b'\n'));
    text.take_while(|byte| **byte != b'\n').any(|byte| *byte == b'#')
}
