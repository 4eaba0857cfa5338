//! The guarded byte stream: collects heads, keeps their deadlines, says goodbye.

use std::fmt;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use async_trait::async_trait;
use bytes::{Buf, BufMut, Bytes, BytesMut};
use pingora::protocols::raw_connect::ProxyDigest;
use pingora::protocols::tls::SslDigest;
use pingora::protocols::{
    ALPN, GetProxyDigest, GetSocketDigest, GetTimingDigest, Peek, Shutdown, SocketDigest, Ssl,
    Stream, TimingDigest, UniqueID, UniqueIDType,
};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

use super::head::{HeadScan, Progress};
use super::{Link, Stage, wire};
use crate::problem::{Code, Problem};
use crate::proxy::metrics::{Metrics, Refusal};
use crate::proxy::settings::Limits;

/// Bytes asked of the socket at once while a head is collected.
const CHUNK: usize = 4096;

/// How long a refused client may take to read its answer. A socket closed with unread bytes is
/// reset, and a reset can overtake the answer.
const FAREWELL_TIME: Duration = Duration::from_secs(1);

/// How many bytes of a refused client are read and dropped for the same reason.
const FAREWELL_BYTES: usize = 256 * 1024;

/// A client connection behind the guard.
pub(super) struct GuardedStream {
    inner: Stream,
    link: Arc<Link>,
    metrics: Metrics,
    head_bytes: usize,
    header_deadline: Duration,
    keepalive_idle: Duration,
    /// The head as far as it has come; once handed over, what pingora has not read of it yet.
    buffered: BytesMut,
    scan: HeadScan,
    /// Whether a head was handed over on this connection before.
    reused: bool,
    /// When the wait for the current head began, and when its first byte came. Only taken when
    /// there is something to wait for.
    began: Option<Instant>,
    first_byte: Option<Instant>,
    timer: Option<Pin<Box<Sleep>>>,
    farewell: Option<Farewell>,
    /// The refusal that takes the place of pingora's own, and whether it is all written.
    replaced: Option<Bytes>,
}

/// The end of a connection whose head was refused here.
enum Farewell {
    Write(Bytes),
    Flush,
    Shutdown,
    Drain { left: usize },
    Done,
}

impl GuardedStream {
    pub(super) fn new(inner: Stream, link: Arc<Link>, limits: &Limits, metrics: Metrics) -> Self {
        Self {
            inner,
            link,
            metrics,
            head_bytes: limits.head_bytes,
            header_deadline: limits.header_deadline,
            keepalive_idle: limits.keepalive_idle,
            buffered: BytesMut::new(),
            scan: HeadScan::default(),
            reused: false,
            began: None,
            first_byte: None,
            timer: None,
            farewell: None,
            replaced: None,
        }
    }

    /// Collects a head; ready with `true` once it is complete, with `false` at the end of the
    /// connection, and on the way to the end after a refusal. A head that arrives whole, as nearly
    /// all do, is in `out` then and nothing is buffered; any other is buffered and `out` untouched.
    fn poll_head(&mut self, cx: &mut Context<'_>, out: &mut ReadBuf<'_>) -> Poll<io::Result<bool>> {
        loop {
            if self.farewell.is_some() {
                ready!(self.poll_farewell(cx));
                return Poll::Ready(Ok(false));
            }
            // First what is here already: a client may have sent its next request with this one.
            match self.scan.advance(within(&self.buffered, self.head_bytes)) {
                Progress::Complete => {
                    self.handed_over();
                    return Poll::Ready(Ok(true));
                }
                Progress::NotHttp => {
                    self.refuse(Refusal::Malformed, Code::BadRequest);
                    continue;
                }
                Progress::Partial => {}
            }
            if !self.buffered.is_empty() {
                // A client that keeps the socket readable must not outrun the clock.
                let first_byte = *self.first_byte.get_or_insert_with(Instant::now);
                if first_byte.elapsed() >= self.header_deadline {
                    self.refuse(Refusal::HeadTimeout, Code::RequestTimeout);
                    continue;
                }
            }
            let room = self.head_bytes.saturating_sub(self.buffered.len()).min(CHUNK);
            if room == 0 {
                self.refuse(Refusal::HeadTooLarge, Code::HeaderTooLarge);
                continue;
            }
            let before = out.filled().len();
            let read = if self.buffered.is_empty() {
                let read = Pin::new(&mut self.inner).poll_read(cx, out);
                read.map_ok(|()| out.filled().len() - before)
            } else {
                self.buffered.reserve(room);
                let mut room = (&mut self.buffered).limit(room);
                pin!(self.inner.read_buf(&mut room)).poll(cx)
            };
            let came = match read {
                Poll::Ready(came) => came?,
                Poll::Pending => {
                    ready!(self.poll_deadline(cx));
                    if self.buffered.is_empty() {
                        // Nothing was asked, so nothing is answered.
                        return Poll::Ready(Ok(false));
                    }
                    self.refuse(Refusal::HeadTimeout, Code::RequestTimeout);
                    continue;
                }
            };
            if came == 0 {
                return Poll::Ready(Ok(false));
            }
            if self.buffered.is_empty() {
                let came = &out.filled()[before..];
                if self.scan.advance(within(came, self.head_bytes)) == Progress::Complete {
                    self.handed_over();
                    return Poll::Ready(Ok(true));
                }
                // The rarer cases are told apart above.
                self.scan = HeadScan::default();
                self.buffered.extend_from_slice(came);
                out.set_filled(before);
            }
        }
    }

    /// Makes ready for the next head.
    fn handed_over(&mut self) {
        self.scan = HeadScan::default();
        (self.began, self.first_byte) = (None, None);
        self.reused = true;
    }

    /// Ready when the time for the current head is over.
    fn poll_deadline(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let at = if let Some(first_byte) = self.first_byte {
            first_byte + self.header_deadline
        } else {
            let wait = if self.reused { self.keepalive_idle } else { self.header_deadline };
            *self.began.get_or_insert_with(Instant::now) + wait
        };
        self.poll_timer(cx, at)
    }

    fn poll_timer(&mut self, cx: &mut Context<'_>, at: Instant) -> Poll<()> {
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(at)));
        // One that is due earlier is left alone: to be woken once in vain costs less than to move
        // the timer with every request.
        if timer.deadline() > at {
            timer.as_mut().reset(at);
        }
        loop {
            ready!(timer.as_mut().poll(cx));
            if timer.deadline() >= at {
                return Poll::Ready(());
            }
            timer.as_mut().reset(at);
        }
    }

    /// Answers instead of pingora, which has seen no byte of this request, and ends the connection.
    fn refuse(&mut self, reason: Refusal, code: Code) {
        self.metrics.refused(reason);
        self.buffered = BytesMut::new();
        self.farewell = Some(Farewell::Write(wire(Problem::new(code))));
        self.first_byte = None;
        self.began = Some(Instant::now());
    }

    /// Writes the refusal and reads what the client is still sending, both within bounds.
    fn poll_farewell(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let at = self.began.map_or_else(Instant::now, |began| began + FAREWELL_TIME);
        loop {
            let next = match &mut self.farewell {
                None | Some(Farewell::Done) => return Poll::Ready(()),
                Some(Farewell::Write(rest)) => {
                    match Pin::new(&mut self.inner).poll_write(cx, rest) {
                        Poll::Ready(Ok(written)) if written > 0 => {
                            rest.advance(written);
                            if !rest.is_empty() {
                                continue;
                            }
                            Farewell::Flush
                        }
                        Poll::Ready(_) => Farewell::Done,
                        Poll::Pending => {
                            ready!(self.poll_timer(cx, at));
                            Farewell::Done
                        }
                    }
                }
                Some(Farewell::Flush) => match Pin::new(&mut self.inner).poll_flush(cx) {
                    Poll::Ready(Ok(())) => Farewell::Shutdown,
                    Poll::Ready(Err(_)) => Farewell::Done,
                    Poll::Pending => {
                        ready!(self.poll_timer(cx, at));
                        Farewell::Done
                    }
                },
                Some(Farewell::Shutdown) => match Pin::new(&mut self.inner).poll_shutdown(cx) {
                    Poll::Ready(Ok(())) => Farewell::Drain { left: FAREWELL_BYTES },
                    Poll::Ready(Err(_)) => Farewell::Done,
                    Poll::Pending => {
                        ready!(self.poll_timer(cx, at));
                        Farewell::Done
                    }
                },
                Some(Farewell::Drain { left }) => {
                    let mut chunk = [0; CHUNK];
                    let mut chunk = ReadBuf::new(&mut chunk);
                    match Pin::new(&mut self.inner).poll_read(cx, &mut chunk) {
                        Poll::Ready(Ok(()))
                            if !chunk.filled().is_empty() && *left > chunk.filled().len() =>
                        {
                            *left -= chunk.filled().len();
                            continue;
                        }
                        Poll::Ready(_) => Farewell::Done,
                        Poll::Pending => {
                            ready!(self.poll_timer(cx, at));
                            Farewell::Done
                        }
                    }
                }
            };
            self.farewell = Some(next);
        }
    }

    /// Writes our refusal where pingora is about to write its own.
    fn poll_replace(&mut self, cx: &mut Context<'_>, theirs: &[u8]) -> Poll<io::Result<usize>> {
        if self.replaced.is_none() {
            self.metrics.refused(Refusal::Malformed);
            let code = if theirs.starts_with(b"HTTP/1.1 405") {
                Code::MethodNotAllowed
            } else {
                Code::BadRequest
            };
            self.replaced = Some(wire(Problem::new(code)));
        }
        while let Some(rest) = self.replaced.as_mut().filter(|rest| !rest.is_empty()) {
            let written = ready!(Pin::new(&mut self.inner).poll_write(cx, rest))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            rest.advance(written);
        }
        Poll::Ready(Ok(theirs.len()))
    }
}

/// The part of `bytes` that may be a head.
fn within(bytes: &[u8], most: usize) -> &[u8] {
    &bytes[..bytes.len().min(most)]
}

impl AsyncRead for GuardedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.link.stage() == Stage::Head {
            let complete = ready!(this.poll_head(cx, buf))?;
            if complete {
                this.link.set(Stage::Handed);
            }
            if !complete || this.buffered.is_empty() {
                // Without a head, to pingora the client has left before it sent anything: no
                // error, no log line.
                return Poll::Ready(Ok(()));
            }
        }
        if this.buffered.is_empty() {
            if this.link.stage() == Stage::Handed {
                // The whole head was handed over and the parser wants more: it is no head.
                return Poll::Ready(Err(io::ErrorKind::InvalidData.into()));
            }
            return Pin::new(&mut this.inner).poll_read(cx, buf);
        }
        let length = this.buffered.len().min(buf.remaining());
        buf.put_slice(&this.buffered[..length]);
        this.buffered.advance(length);
        if this.buffered.is_empty() {
            // Idle connections keep no buffer.
            this.buffered = BytesMut::new();
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for GuardedStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.link.stage() == Stage::Handed {
            return self.poll_replace(cx, bytes);
        }
        Pin::new(&mut self.inner).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if self.link.stage() == Stage::Handed {
            let first = bufs.iter().find(|buf| !buf.is_empty()).map_or(&[][..], |buf| buf);
            return self.poll_replace(cx, first);
        }
        Pin::new(&mut self.inner).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }
}

impl fmt::Debug for GuardedStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("GuardedStream").field(&self.inner).finish()
    }
}

#[async_trait]
impl Shutdown for GuardedStream {
    async fn shutdown(&mut self) {
        self.inner.shutdown().await;
    }
}

impl UniqueID for GuardedStream {
    fn id(&self) -> UniqueIDType {
        self.inner.id()
    }
}

impl Ssl for GuardedStream {
    fn get_ssl_digest(&self) -> Option<Arc<SslDigest>> {
        self.inner.get_ssl_digest()
    }

    fn selected_alpn_proto(&self) -> Option<ALPN> {
        self.inner.selected_alpn_proto()
    }
}

impl GetTimingDigest for GuardedStream {
    fn get_timing_digest(&self) -> Vec<Option<TimingDigest>> {
        self.inner.get_timing_digest()
    }
}

impl GetProxyDigest for GuardedStream {
    fn get_proxy_digest(&self) -> Option<Arc<ProxyDigest>> {
        self.inner.get_proxy_digest()
    }
}

impl GetSocketDigest for GuardedStream {
    fn get_socket_digest(&self) -> Option<Arc<SocketDigest>> {
        self.inner.get_socket_digest()
    }
}

/// Peeking is for cleartext HTTP/2, which is off.
impl Peek for GuardedStream {}
