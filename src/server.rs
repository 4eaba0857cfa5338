//! The composition root: the only place that names every adapter and puts the parts together.

pub mod listener;
pub mod shutdown;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tracing::{info, warn};

use crate::admin::Admin;
use crate::admission::{self, QueueCollector};
use crate::api::QueueApi;
use crate::clock::{Clock, SystemClock};
use crate::config::Config;
use crate::gate::credentials::Carriers;
use crate::gate::metrics::GateMetrics;
use crate::gate::{Gate, GateParts};
use crate::identity::cookie::VisitorCookies;
use crate::identity::cookies::{CookieNameError, CookieNames};
use crate::identity::{Chain, ChainError};
use crate::page::Page;
use crate::proxy::{Drain, Gateway, Listen, Metrics, ServerSettings, UpstreamError, Upstreams};
use crate::store::metrics::DiskCollector;
use crate::store::mirror::Mirror;
use crate::store::{
    self, OpenError, RedisFinding, RedisSettings, SharedSecret, SharedStore, StoreError,
    StoreSettings,
};
use crate::token::{Keyring, KeyringError, TokenKey};

use self::listener::{BindError, BoundListeners, Drained, ServeError};
use self::shutdown::Shutdown;

/// How long a start waits for the store.
const STORE_PATIENCE: Duration = Duration::from_secs(10);

/// What the salt of the user tags is derived for.
const SALT_PURPOSE: &str = "anteroom 2026 user tag salt";

/// How long it waits between two tries.
const STORE_RETRY: Duration = Duration::from_millis(250);

/// Why a gateway does not start or ends badly.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A public listener.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The admin listener.
    #[error("cannot listen on {address} for administration")]
    Admin {
        /// The address.
        address: SocketAddr,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The store.
    #[error("the store does not answer")]
    Store(#[from] StoreError),
    /// The store is not one that can be used.
    #[error("{0}")]
    Unfit(RedisFinding),
    /// The data directory of the embedded store.
    #[error(transparent)]
    Data(#[from] OpenError),
    /// The last changes, at the end.
    #[error("the last changes of the line could not be saved")]
    Unsaved(#[source] StoreError),
    /// The identity sources.
    #[error(transparent)]
    Identity(#[from] ChainError),
    /// The token keys.
    #[error(transparent)]
    Keys(#[from] KeyringError),
    /// The cookie name.
    #[error(transparent)]
    Cookie(#[from] CookieNameError),
    /// An upstream.
    #[error(transparent)]
    Upstream(#[from] UpstreamError),
    /// The signals, or the runtime.
    #[error("the system refused")]
    System(#[from] io::Error),
    /// Serving ended by itself.
    #[error(transparent)]
    Serve(#[from] ServeError),
}

/// The parts of a gateway that do not need a socket: the gate, the queue API and the work in the
/// background. A service of one's own can wear the gate with nothing else.
#[derive(Debug)]
pub struct Core {
    /// The gate.
    pub gate: Arc<Gate>,
    /// The queue API.
    pub api: QueueApi,
    /// This gateway's copy of the queues.
    pub mirror: Arc<Mirror>,
    /// Where the queues live. To be closed at the end.
    pub store: SharedStore,
    /// What is counted.
    pub registry: Registry,
}

impl Core {
    /// Opens the store and puts the parts together. Must be called on the runtime that will serve.
    ///
    /// # Errors
    /// [`StartError`]; the store is given ten seconds to answer.
    pub async fn open(config: &Config) -> Result<Self, StartError> {
        Self::with_clock(config, Arc::new(SystemClock)).await
    }

    async fn with_clock(config: &Config, clock: Arc<dyn Clock>) -> Result<Self, StartError> {
        let store = match &config.store {
            StoreSettings::Embedded(None) => {
                warn!("the line is kept in memory only: it ends with this process");
                store::embedded(Arc::clone(&clock))
            }
            StoreSettings::Embedded(Some(settings)) => {
                let (settings, clock) = (settings.clone(), Arc::clone(&clock));
                let open = move || store::embedded_at(&settings, clock);
                tokio::task::spawn_blocking(open).await.map_err(io::Error::from)??
            }
            StoreSettings::Redis(settings) => {
                look_at(settings, &*clock).await?;
                store::redis(settings)?
            }
        };
        // From the oldest key, so that a store that loses everything gets the same salt again.
        let proposal = config.tokens.keys.last().map(|key| key.derive(SALT_PURPOSE));
        let proposal = proposal.unwrap_or_else(rand::random);
        let user_salt = shared_secret(&store, SharedSecret::UserSalt, proposal).await?;
        let mut secrets = vec![(SharedSecret::UserSalt, user_salt)];
        let keys = if config.tokens.keys.is_empty() {
            info!("no token key is configured: using the one this store shares");
            let key = shared_secret(&store, SharedSecret::TokenKey, rand::random()).await?;
            secrets.push((SharedSecret::TokenKey, key));
            vec![TokenKey::new(0, key)]
        } else {
            config.tokens.keys.clone()
        };
        let keyring = Keyring::new(keys)?;
        let cookies = CookieNames::new(&config.tokens.cookie)?;
        let visitors = VisitorCookies::new(cookies.clone(), &keyring);
        let chain = Chain::new(config.identity.clone(), visitors)?;
        let mirror = Mirror::new(
            Arc::clone(&store),
            Arc::clone(&clock),
            rand::random(),
            config.queues.clone(),
        );
        let mirror = Arc::new(mirror.with_secrets(secrets));
        patiently(|| mirror.open()).await?;
        let mut registry = Registry::with_prefix("anteroom");
        if store.disk().is_some() {
            registry.register_collector(Box::new(DiskCollector::new(Arc::clone(&store))));
        }
        registry.register_collector(Box::new(QueueCollector::new(Arc::clone(&mirror))));
        let gate = Arc::new(Gate::new(GateParts {
            routes: Arc::clone(&config.routes),
            chain: Arc::new(chain),
            sources: config.identity.sources.clone(),
            mirror: Arc::clone(&mirror),
            keyring,
            user_salt,
            trusted_proxies: config.server.trusted_proxies.clone(),
            public_origins: config.server.public_origins.clone(),
            carriers: Arc::new(Carriers { header: config.tokens.header.clone(), cookies }),
            page: Page::new(config.page.clone(), &config.api.prefix),
            prefix: config.api.prefix.clone(),
            clock,
            metrics: GateMetrics::new(&mut registry),
        }));
        let api = QueueApi::new(Arc::clone(&gate), config.api.clone(), config.admin.clone());
        Ok(Self { gate, api, mirror, store, registry })
    }

    /// The work in the background, until `stop` turns true: pictures of the queues, signs of life,
    /// admission.
    pub async fn run(mirror: Arc<Mirror>, stop: watch::Receiver<bool>) {
        let pictures = Arc::clone(&mirror).run(stop.clone());
        tokio::join!(pictures, admission::run(mirror, stop));
    }
}

/// Says what in the settings of Redis would hurt later, before anything depends on it.
async fn look_at(settings: &RedisSettings, clock: &dyn Clock) -> Result<(), StartError> {
    for finding in patiently(|| store::redis_checkup(settings, clock)).await? {
        if finding.is_fatal() {
            return Err(StartError::Unfit(finding));
        }
        warn!(store.kind = "redis", "{finding}");
    }
    Ok(())
}

async fn shared_secret(
    store: &SharedStore,
    name: SharedSecret,
    proposal: [u8; 32],
) -> Result<[u8; 32], StoreError> {
    patiently(|| store.secret(name, proposal)).await
}

/// Asks the store until it answers, for as long as a start may take.
async fn patiently<T, F: Future<Output = Result<T, StoreError>>>(
    ask: impl Fn() -> F,
) -> Result<T, StoreError> {
    let patience = tokio::time::Instant::now() + STORE_PATIENCE;
    loop {
        match ask().await {
            Err(error) if tokio::time::Instant::now() < patience => {
                let cause = error.cause();
                warn!(%error, %cause, "waiting for the store: {error} ({cause})");
                tokio::time::sleep(STORE_RETRY).await;
            }
            answer => return answer,
        }
    }
}

/// A whole gateway with its sockets bound, before it serves.
#[derive(Debug)]
pub struct BoundGateway {
    settings: ServerSettings,
    core: Core,
    upstreams: Upstreams,
    listeners: BoundListeners,
    admin: Arc<Admin>,
    admin_address: Option<SocketAddr>,
    /// Ends what runs beside the public side, when it is dropped or says so.
    end: watch::Sender<bool>,
}

impl BoundGateway {
    /// Binds the sockets, then opens the store. Must be called on the runtime that will serve.
    ///
    /// # Errors
    /// [`StartError`]. Nothing is left behind.
    pub async fn bind(config: &Config) -> Result<Self, StartError> {
        Self::bound(config, Arc::new(SystemClock)).await
    }

    /// The same by another clock than the system's.
    ///
    /// # Errors
    /// As [`BoundGateway::bind`].
    #[cfg(any(test, feature = "testing"))]
    pub async fn bind_with_clock(
        config: &Config,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, StartError> {
        Self::bound(config, clock).await
    }

    async fn bound(config: &Config, clock: Arc<dyn Clock>) -> Result<Self, StartError> {
        let listeners = BoundListeners::bind(&config.server.listen)?;
        let (end, ended) = watch::channel(false);
        let admin = Arc::new(Admin::default());
        let mut admin_address = None;
        if let Some(address) = config.server.admin_listen {
            let failed = |source| StartError::Admin { address, source };
            let listener = TcpListener::bind(address).await.map_err(failed)?;
            admin_address = Some(listener.local_addr().map_err(failed)?);
            // Served from now on: whoever asks while the store is slow is told "not ready".
            tokio::spawn(Arc::clone(&admin).serve(listener, ended));
        }
        let upstreams = Upstreams::resolve(&config.upstreams).await?;
        let core = Core::with_clock(config, clock).await?;
        let settings = config.server.clone();
        Ok(Self { settings, core, upstreams, listeners, admin, admin_address, end })
    }

    /// Where the public side listens, with real ports.
    #[must_use]
    pub fn addresses(&self) -> &[Listen] {
        self.listeners.addresses()
    }

    /// Where the admin side listens, with its real port.
    #[must_use]
    pub const fn admin_address(&self) -> Option<SocketAddr> {
        self.admin_address
    }

    /// The gate, the API and the queues.
    #[must_use]
    pub const fn core(&self) -> &Core {
        &self.core
    }

    /// Serves until `shutdown` says so, then drains.
    ///
    /// # Errors
    /// When serving ended without being told to.
    pub async fn run(self, mut shutdown: Shutdown) -> Result<(), StartError> {
        let Self { settings, core, upstreams, listeners, admin, end, .. } = self;
        let Core { gate, api, mirror, store, mut registry } = core;
        let drain = Drain::default();
        let gateway = Gateway {
            gate,
            api,
            upstreams: upstreams.clone(),
            limits: settings.limits.clone(),
            trusted_proxies: settings.trusted_proxies.clone(),
            metrics: Metrics::register(&mut registry),
            drain: drain.clone(),
        };
        let app = gateway.into_app(threads(&settings));
        admin.start(registry, Arc::clone(&mirror));
        // The background and the admin side end after the drain: requests in flight need both.
        let background = tokio::spawn(Core::run(mirror, end.subscribe()));
        let refresh = tokio::spawn(upstreams.refresh(end.subscribe()));
        let mut leaving = shutdown.leaving.clone();
        let readiness = tokio::spawn(async move {
            if leaving.wait_for(|leaving| *leaving).await.is_ok() {
                admin.leave();
            }
        });
        let served = tokio::select! {
            served = listeners.serve(app, shutdown.stop.clone(), &drain, settings.drain_timeout) => served,
            // A sender that is gone will never say it.
            Ok(_) = shutdown.now.wait_for(|now| *now) => Ok(Drained::Cut(drain.in_flight())),
        };
        readiness.abort();
        end.send_replace(true);
        let _ = background.await;
        let _ = refresh.await;
        let saved = store.close().await;
        match served? {
            Drained::Clean => info!("stopped; every request was answered"),
            Drained::Cut(requests) => {
                warn!(requests, "stopped; {requests} requests were still in flight");
            }
        }
        saved.map_err(StartError::Unsaved)
    }
}

/// Worker threads of a gateway.
#[must_use]
pub fn threads(settings: &ServerSettings) -> usize {
    settings
        .threads
        .or_else(|| std::thread::available_parallelism().ok().map(usize::from))
        .unwrap_or(1)
}
