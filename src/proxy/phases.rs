//! `impl ProxyHttp`: each phase is one call.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::FutureExt;
use http::{StatusCode, Version, header};
use pingora::http::{RequestHeader, ResponseHeader};
use pingora::modules::http::HttpModules;
use pingora::protocols::l4::socket::SocketAddr;
use pingora::proxy::{FailToProxy, ProxyHttp, ProxyWarnLogContext, Session};
use pingora::upstreams::peer::HttpPeer;
use pingora::{Error, ErrorSource, ErrorType};
use tracing::{debug, error, warn};

use super::context::Context;
use super::metrics::{Fault, Outcome, StatusClass};
use super::{Api, Gateway, Judge, guard, headers, reply};
use crate::identity::client_address::Connection;
use crate::problem::{Code, Problem};

/// Longest stall of a client that is to take its answer.
const CLIENT_WRITE_TIMEOUT: Duration = Duration::from_secs(60);

#[async_trait]
impl<G: Judge, A: Api> ProxyHttp for Gateway<G, A> {
    type CTX = Context;

    fn new_ctx(&self) -> Context {
        guard::head_accepted();
        Context::new(self.drain.enter(), self.metrics.enter_request())
    }

    /// None: pingora's default is a compression module that is off.
    fn init_downstream_modules(&self, _modules: &mut HttpModules) {}

    async fn early_request_filter(
        &self,
        session: &mut Session,
        context: &mut Context,
    ) -> pingora::Result<()> {
        context.connection = connection(session);
        context.trusted = self.trusted_proxies.trusts(&context.connection);
        if context.trusted
            && let Some(id) = headers::given_request_id(&session.req_header().headers)
        {
            context.request_id = id.clone();
        }
        session.set_write_timeout(Some(CLIENT_WRITE_TIMEOUT));
        // Where the client wants keep-alive, whatever time it names: the guard ends idle
        // connections and bounds the wait for a head, and a second timer would cost every request.
        if session.get_keepalive().is_some() {
            session.set_keepalive(Some(0));
        }
        Ok(())
    }

    async fn request_filter(
        &self,
        session: &mut Session,
        context: &mut Context,
    ) -> pingora::Result<bool> {
        match AssertUnwindSafe(self.dispatch(session, context)).catch_unwind().await {
            Ok(result) => result,
            Err(panic) => {
                context.outcome = Outcome::Failed;
                // Whatever it was half-way through, this connection is not to be trusted.
                session.set_keepalive(None);
                let message = message_of(&*panic);
                error!(
                    request.id = ?context.request_id,
                    "serving a request panicked: {message}"
                );
                answer_unless_answered(session, context, Problem::new(Code::Internal)).await?;
                Ok(true)
            }
        }
    }

    async fn upstream_peer(
        &self,
        session: &mut Session,
        context: &mut Context,
    ) -> pingora::Result<Box<HttpPeer>> {
        let upstream = context.upstream.as_deref();
        upstream
            .and_then(|upstream| upstream.peer(&context.failed, session.is_upgrade_req()))
            .ok_or_else(|| Error::explain(ErrorType::ConnectError, "no server to try").into_up())
    }

    fn fail_to_connect(
        &self,
        _session: &mut Session,
        peer: &HttpPeer,
        context: &mut Context,
        mut error: Box<Error>,
    ) -> Box<Error> {
        if let Some(upstream) = &context.upstream {
            self.metrics.upstream_fault(upstream.name(), Fault::Connect);
            debug!(upstream.name = upstream.name(), %peer, %error, "a server did not take a connection");
            if let Some(address) = peer._address.as_inet() {
                upstream.mark_down(*address);
                context.failed.push(*address);
            }
            // Nothing of the request was sent, so another server may have it, whatever its method.
            error.set_retry(context.failed.len() < upstream.tries());
        }
        error
    }

    async fn upstream_request_filter(
        &self,
        session: &mut Session,
        request: &mut RequestHeader,
        context: &mut Context,
    ) -> pingora::Result<()> {
        headers::prepare_request(request, session.req_header(), context)
    }

    async fn request_body_filter(
        &self,
        _session: &mut Session,
        body: &mut Option<Bytes>,
        _end_of_stream: bool,
        context: &mut Context,
    ) -> pingora::Result<()> {
        context.body_bytes += body.as_ref().map_or(0, |body| body.len() as u64);
        match self.limits.body_bytes {
            Some(max) if context.body_bytes > max && !context.upgraded => {
                Error::e_explain(ErrorType::HTTPStatus(413), "body over the limit")
                    .map_err(|error: Box<Error>| error.into_down())
            }
            _ => Ok(()),
        }
    }

    async fn response_filter(
        &self,
        session: &mut Session,
        response: &mut ResponseHeader,
        context: &mut Context,
    ) -> pingora::Result<()> {
        context.upgraded = response.status == StatusCode::SWITCHING_PROTOCOLS;
        if response.status.is_informational() && !context.upgraded {
            return Ok(());
        }
        context.outcome = Outcome::Forwarded;
        if session.req_header().version == Version::HTTP_10 {
            // Such a client knows no chunks; the body ends with the connection instead.
            response.remove_header(&header::TRANSFER_ENCODING);
        }
        headers::prepare_response(response, context)
    }

    async fn fail_to_proxy(
        &self,
        session: &mut Session,
        error: &Error,
        context: &mut Context,
    ) -> FailToProxy {
        let problem = self.judge_failure(error, context);
        let error_code = problem.as_ref().map_or(0, |problem| problem.code().status().as_u16());
        session.set_keepalive(None);
        if let Some(problem) = problem
            && let Err(error) = answer_unless_answered(session, context, problem).await
        {
            debug!(%error, "a client left before its error could be written");
        }
        FailToProxy { error_code, can_reuse_downstream: false }
    }

    async fn logging(&self, session: &mut Session, error: Option<&Error>, context: &mut Context) {
        let status = session.response_written().map(|response| response.status);
        self.metrics.request(context.outcome, StatusClass::of(status));
        debug!(
            request.id = ?context.request_id,
            request.method = %session.req_header().method,
            response.status = status.map(|status| status.as_u16()),
            outcome = ?context.outcome,
            error = error.map(tracing::field::display),
            "a request ended"
        );
    }

    /// Errors are logged where they are judged, in `fail_to_proxy`.
    fn suppress_error_log(&self, _session: &Session, _context: &Context, _error: &Error) -> bool {
        true
    }

    /// Retries are counted in `fail_to_connect`.
    fn suppress_proxy_warn_log(
        &self,
        _session: &Session,
        _context: &Context,
        _error: &Error,
        _kind: ProxyWarnLogContext,
    ) -> bool {
        true
    }
}

impl<G: Judge, A: Api> Gateway<G, A> {
    /// What a client gets for an error, and what the operator gets to know; `None` when the client
    /// is gone. Counts the failure.
    fn judge_failure(&self, error: &Error, context: &mut Context) -> Option<Problem> {
        use ErrorType::{
            ConnectError, ConnectionClosed, HTTPStatus, ReadError, ReadTimedout, WriteError,
            WriteTimedout,
        };
        match (error.esource(), error.etype()) {
            (_, HTTPStatus(413)) => {
                context.outcome = Outcome::Rejected;
                Some(Problem::new(Code::ContentTooLarge))
            }
            (ErrorSource::Downstream, ReadTimedout) => {
                context.outcome = Outcome::Rejected;
                Some(Problem::new(Code::RequestTimeout))
            }
            (
                ErrorSource::Downstream,
                ReadError | WriteError | WriteTimedout | ConnectionClosed | ConnectError,
            ) => {
                context.outcome = Outcome::ClientGone;
                None
            }
            (ErrorSource::Downstream, _) => {
                context.outcome = Outcome::Rejected;
                Some(Problem::new(Code::BadRequest))
            }
            (ErrorSource::Upstream, kind) => {
                let (fault, code) = match kind {
                    ReadTimedout | WriteTimedout => (Fault::Timeout, Code::UpstreamTimeout),
                    _ if context.failed.is_empty() => (Fault::Broken, Code::UpstreamUnavailable),
                    _ => (Fault::Connect, Code::UpstreamUnavailable),
                };
                self.report_upstream(error, fault, context);
                Some(Problem::new(code))
            }
            (ErrorSource::Internal | ErrorSource::Unset, _) => {
                context.outcome = Outcome::Failed;
                error!(request.id = ?context.request_id, %error, "the gateway failed to serve a request");
                Some(Problem::new(Code::Internal))
            }
        }
    }

    fn report_upstream(&self, error: &Error, fault: Fault, context: &mut Context) {
        context.outcome = Outcome::UpstreamFailed;
        let Some(upstream) = context.upstream.as_deref() else { return };
        if fault != Fault::Connect {
            // Those were counted one by one.
            self.metrics.upstream_fault(upstream.name(), fault);
        }
        if let Some(unreported) = upstream.report() {
            warn!(
                upstream.name = upstream.name(),
                unreported,
                %error,
                "upstream `{}` gave no answer; {unreported} more like this in the last second",
                upstream.name()
            );
        }
    }
}

/// Writes `problem` unless a final answer is under way. A relayed `100 Continue` counts as written
/// for pingora, but the client still waits for an answer after it.
async fn answer_unless_answered(
    session: &mut Session,
    context: &Context,
    problem: Problem,
) -> pingora::Result<()> {
    let answered = session.response_written().is_some_and(|written| {
        !written.status.is_informational() || written.status == StatusCode::SWITCHING_PROTOCOLS
    });
    if answered {
        return Ok(());
    }
    reply::answer(session, problem.into_response(), &context.request_id).await
}

/// What the request came over. A peer that cannot be known is one that nobody trusts: only a Unix
/// socket has no address.
fn connection(session: &Session) -> Connection {
    let local_is_unix = matches!(session.server_addr(), Some(SocketAddr::Unix(_)));
    let peer = match session.client_addr() {
        Some(SocketAddr::Inet(peer)) => Some(peer.ip().to_canonical()),
        _ if local_is_unix => None,
        _ => Some(Connection::NOBODY),
    };
    let tls = session.digest().is_some_and(|digest| digest.ssl_digest.is_some());
    Connection { peer, tls }
}

/// The words of a panic.
fn message_of(panic: &(dyn std::any::Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message")
}
