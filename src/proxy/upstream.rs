//! Which server of an upstream takes a request, and with what timeouts.
//!
//! Servers take turns. One that does not take a connection is left out for a few seconds, so that
//! a dead server costs some requests a failover and not every second one a timeout. Names are
//! looked up at start and in the background, never while a request waits: pingora would do that
//! blocking, and panic on a name that is gone.

mod names;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use pingora::lb::Backends;
use pingora::protocols::TcpKeepalive;
use pingora::upstreams::peer::{HttpPeer, PeerOptions};
use tokio::sync::watch;
use tracing::warn;

use super::MAX_TRIES;
use super::settings::UpstreamSettings;
use names::{Names, Server};

/// How often names are looked up again: half the shortest time to live in common use.
const REFRESH: Duration = Duration::from_secs(30);

/// How long a server that took no connection is left out while others are left.
const DOWN_FOR: Duration = Duration::from_secs(5);

/// An upstream that cannot work as configured.
#[derive(Debug, thiserror::Error)]
pub enum UpstreamError {
    /// A server is not `host:port`.
    #[error("upstream `{upstream}`: server `{server}` is not `host:port`")]
    Server {
        /// The upstream's name.
        upstream: String,
        /// The server as configured.
        server: String,
    },
    /// The name for TLS is empty, which would switch verification off.
    #[error("upstream `{upstream}`: `tls_server_name` is empty")]
    EmptyServerName {
        /// The upstream's name.
        upstream: String,
    },
}

/// All upstreams by name; clones share their state.
#[derive(Clone, Debug, Default)]
pub struct Upstreams(Arc<ByName>);

/// Names are the operator's, so the hash need not withstand a client.
type ByName = HashMap<String, Arc<Upstream>, foldhash::fast::RandomState>;

impl Upstreams {
    /// Builds the upstreams and looks their names up once. A name that does not resolve is reported
    /// and tried again by [`refresh`](Self::refresh): a gateway that starts before its shop must
    /// come up.
    ///
    /// # Errors
    /// [`UpstreamError`], for the first upstream that cannot work.
    pub async fn resolve(settings: &[UpstreamSettings]) -> Result<Self, UpstreamError> {
        let mut all = ByName::default();
        for settings in settings {
            let upstream = Upstream::new(settings)?;
            upstream.look_up().await;
            all.insert(settings.name.clone(), Arc::new(upstream));
        }
        Ok(Self(Arc::new(all)))
    }

    /// The upstream called `name`.
    pub fn get(&self, name: &str) -> Option<&Arc<Upstream>> {
        self.0.get(name)
    }

    /// Looks names up again and again, until `stop` says so or its sender is gone. Returns at once
    /// if every server is given by address.
    pub async fn refresh(self, mut stop: watch::Receiver<bool>) {
        let named: Vec<_> = self.0.values().filter(|upstream| upstream.named).collect();
        if named.is_empty() {
            return;
        }
        loop {
            tokio::select! {
                _ = stop.wait_for(|stop| *stop) => return,
                () = tokio::time::sleep(REFRESH) => {}
            }
            for upstream in &named {
                upstream.look_up().await;
            }
        }
    }
}

/// A group of equal servers.
pub struct Upstream {
    name: String,
    named: bool,
    backends: Backends,
    /// What `backends` found last. Equal servers need no more than a list and whose turn it is;
    /// pingora's balancer would make a set of those it has seen for every request.
    servers: ArcSwap<Vec<SocketAddr>>,
    turn: AtomicUsize,
    tls_server_name: Option<String>,
    options: PeerOptions,
    upgrade_timeout: Duration,
    down: Mutex<HashMap<SocketAddr, Instant>>,
    /// Whether `down` has entries: the usual case costs no lock.
    any_down: AtomicBool,
    reports: Reports,
}

impl Upstream {
    fn new(settings: &UpstreamSettings) -> Result<Self, UpstreamError> {
        let upstream = settings.name.clone();
        if settings.tls_server_name.as_deref() == Some("") {
            return Err(UpstreamError::EmptyServerName { upstream });
        }
        let mut servers = Vec::with_capacity(settings.servers.len());
        for server in &settings.servers {
            servers.push(Server::parse(server).ok_or_else(|| UpstreamError::Server {
                upstream: upstream.clone(),
                server: server.clone(),
            })?);
        }
        let named = servers.iter().any(Server::is_named);
        let discovery = Box::new(Names::new(upstream.clone(), servers));
        Ok(Self {
            name: upstream,
            named,
            backends: Backends::new(discovery),
            servers: ArcSwap::default(),
            turn: AtomicUsize::new(0),
            tls_server_name: settings.tls_server_name.clone(),
            options: options(settings),
            upgrade_timeout: settings.upgrade_timeout,
            down: Mutex::default(),
            any_down: AtomicBool::new(false),
            reports: Reports::default(),
        })
    }

    async fn look_up(&self) {
        let found = self.backends.update(|found| {
            let servers = found.iter().filter_map(|server| server.addr.as_inet().copied());
            self.servers.store(Arc::new(servers.collect()));
        });
        if let Err(error) = found.await {
            warn!(upstream.name = %self.name, %error, "the servers of upstream `{}` could not be looked up", self.name);
        }
    }

    /// Its name, as routes use it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Longest silence on an upgraded connection.
    pub(super) fn upgrade_timeout(&self) -> Duration {
        self.upgrade_timeout
    }

    /// How many servers a request may be tried on.
    pub(super) fn tries(&self) -> usize {
        self.servers.load().len().min(MAX_TRIES)
    }

    /// The server whose turn it is, leaving out those in `failed`, and those that are down unless
    /// no other is left. `None` when there is nothing to try.
    ///
    /// - `upgrade`: the request asks for an upgrade, so a long silence is no failure.
    pub(super) fn peer(&self, failed: &[SocketAddr], upgrade: bool) -> Option<Box<HttpPeer>> {
        let address = self
            .select(|address| !failed.contains(address) && !self.is_down(address))
            .or_else(|| self.select(|address| !failed.contains(address)))?;
        let server_name = self.tls_server_name.clone();
        let tls = server_name.is_some();
        let mut peer = HttpPeer::new(address, tls, server_name.unwrap_or_default());
        peer.options = self.options.clone();
        if upgrade {
            peer.options.read_timeout = Some(self.upgrade_timeout);
        }
        Some(Box::new(peer))
    }

    /// The next server in turn that `accept` likes.
    fn select(&self, accept: impl Fn(&SocketAddr) -> bool) -> Option<SocketAddr> {
        let servers = self.servers.load();
        let first = self.turn.fetch_add(1, Ordering::Relaxed) % servers.len().max(1);
        let (before, after) = servers.split_at(first);
        after.iter().chain(before).find(|address| accept(address)).copied()
    }

    fn is_down(&self, address: &SocketAddr) -> bool {
        if !self.any_down.load(Ordering::Acquire) {
            return false;
        }
        let mut down = self.down.lock();
        down.retain(|_, until| *until > Instant::now());
        self.any_down.store(!down.is_empty(), Ordering::Release);
        down.contains_key(address)
    }

    /// Leaves `address` out for a while.
    pub(super) fn mark_down(&self, address: SocketAddr) {
        let mut down = self.down.lock();
        down.insert(address, Instant::now() + DOWN_FOR);
        self.any_down.store(true, Ordering::Release);
    }

    /// Whether a failure should be reported now, and how many were not since the last report. An
    /// upstream that is down under load would otherwise fill the log at its request rate.
    pub(super) fn report(&self) -> Option<u64> {
        self.reports.admit(Instant::now())
    }
}

impl std::fmt::Debug for Upstream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Upstream").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Every timeout is set: pingora's defaults are to wait for ever.
fn options(settings: &UpstreamSettings) -> PeerOptions {
    let mut options = PeerOptions::new();
    options.connection_timeout = Some(settings.connect_timeout);
    // With the TLS handshake, which takes two more round trips.
    options.total_connection_timeout = Some(settings.connect_timeout * 2);
    options.read_timeout = Some(settings.read_timeout);
    options.write_timeout = Some(settings.write_timeout);
    options.idle_timeout = Some(settings.idle_timeout);
    // Finds dead peers behind silent upgraded connections.
    options.tcp_keepalive = Some(TcpKeepalive {
        idle: Duration::from_secs(60),
        interval: Duration::from_secs(10),
        count: 3,
        #[cfg(target_os = "linux")]
        user_timeout: Duration::ZERO,
    });
    options
}

/// At most one report a second.
#[derive(Debug, Default)]
struct Reports {
    last: Mutex<Option<Instant>>,
    unreported: AtomicU64,
}

impl Reports {
    fn admit(&self, now: Instant) -> Option<u64> {
        let mut last = self.last.lock();
        if last.is_some_and(|last| now.duration_since(last) < Duration::from_secs(1)) {
            self.unreported.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        *last = Some(now);
        Some(self.unreported.swap(0, Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests;
