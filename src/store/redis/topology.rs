//! Makes connections: to the one server, to the master that sentinels name, or to a cluster.
//!
//! It neither keeps a connection nor decides when another is needed.

use std::time::Duration;

use redis::aio::{ConnectionLike as _, MultiplexedConnection};
use redis::cluster::{ClusterClient, ClusterClientBuilder};
use redis::cluster_async::ClusterConnection;
use redis::cluster_routing::{MultipleNodeRoutingInfo, RoutingInfo};
use redis::io::tcp::TcpSettings;
use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionAddr, ConnectionInfo, ErrorKind,
    IntoConnectionInfo as _, RedisConnectionInfo, RedisError, RedisResult, TlsCertificates, Value,
};
use tokio::time::timeout;

use crate::store::{RedisSettings, StoreError};

use super::address::{Credentials, Host, RedisAddress, RedisTopology};
use super::failure::unavailable;
use super::sentinel::Sentinels;
use super::tls;

/// Commands waiting to be written: many requests ask at once, and none should queue outside.
const PIPELINE_BUFFER: usize = 4096;

/// How often a cluster command is sent on: after a move, to the master that was promoted meanwhile.
/// Time ends it first.
const REDIRECTS: u32 = 8;

/// How servers are reached.
#[derive(Debug)]
pub(super) struct Topology {
    kind: Kind,
    nodes: Nodes,
}

enum Kind {
    Server(Client),
    Sentinel(Sentinels),
    Cluster(Box<ClusterClient>),
}

impl std::fmt::Debug for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Server(_) => "Server",
            Self::Sentinel(_) => "Sentinel",
            Self::Cluster(_) => "Cluster",
        })
    }
}

/// What connections to all servers have in common.
#[derive(Debug)]
struct Nodes {
    login: RedisConnectionInfo,
    certificates: Option<TlsCertificates>,
    connect_timeout: Duration,
    response_timeout: Duration,
}

/// A connection, cheap to clone, that many commands share.
#[derive(Clone)]
pub(super) enum Link {
    /// To one server.
    Server(MultiplexedConnection),
    /// To all nodes of a cluster.
    Cluster(ClusterConnection),
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Server(_) => "Server",
            Self::Cluster(_) => "Cluster",
        })
    }
}

impl Topology {
    /// Prepares connections without making any.
    pub(super) fn new(settings: &RedisSettings) -> Result<Self, StoreError> {
        let address = RedisAddress::parse(&settings.url).map_err(unavailable)?;
        let RedisAddress { topology, encrypted, credentials, database } = address;
        let certificates = if encrypted {
            tls::settle_on_a_provider();
            Some(settings.tls.certificates())
        } else {
            None
        };
        let credentials = if settings.credentials.password.is_some() {
            &settings.credentials
        } else {
            &credentials
        };
        let nodes = Nodes {
            login: login(credentials).set_db(i64::from(database)),
            certificates,
            connect_timeout: settings.connect_timeout,
            response_timeout: settings.response_timeout,
        };
        let kind = nodes.kind(topology, &settings.sentinel_credentials).map_err(unavailable)?;
        Ok(Self { kind, nodes })
    }

    /// Whether there are many servers, of which one may fail alone.
    pub(super) const fn is_cluster(&self) -> bool {
        matches!(self.kind, Kind::Cluster(_))
    }

    /// The sentinels to ask now and then whether the master is still the same.
    pub(super) const fn sentinels(&self) -> Option<&Sentinels> {
        match &self.kind {
            Kind::Sentinel(sentinels) => Some(sentinels),
            _ => None,
        }
    }

    /// Connects; with sentinels, also says to which master. Takes a few `connect_timeout` at most.
    pub(super) async fn connect(&self) -> RedisResult<(Link, Option<Host>)> {
        let patience = 2 * (self.nodes.connect_timeout + self.nodes.response_timeout);
        let connected = timeout(patience, async {
            match &self.kind {
                Kind::Server(client) => Ok((Link::Server(self.nodes.connect(client).await?), None)),
                Kind::Sentinel(sentinels) => {
                    let master = sentinels.master().await?;
                    let connection = self.nodes.connect_to_master(&master).await?;
                    Ok((Link::Server(connection), Some(master)))
                }
                Kind::Cluster(client) => {
                    Ok((Link::Cluster(client.get_async_connection().await?), None))
                }
            }
        });
        connected.await.unwrap_or_else(|_| {
            Err(RedisError::from(std::io::Error::from(std::io::ErrorKind::TimedOut)))
        })
    }
}

fn login(credentials: &Credentials) -> RedisConnectionInfo {
    let mut login =
        RedisConnectionInfo::default().set_lib_name("anteroom", env!("CARGO_PKG_VERSION"));
    if let Some(password) = &credentials.password {
        login = login.set_password(password);
        if let Some(username) = &credentials.username {
            login = login.set_username(username);
        }
    }
    login
}

fn tcp() -> TcpSettings {
    TcpSettings::default().set_nodelay(true)
}

impl Nodes {
    fn kind(&self, topology: RedisTopology, sentinel: &Credentials) -> RedisResult<Kind> {
        Ok(match topology {
            RedisTopology::Server(host) => Kind::Server(self.client(&host, &self.login)?),
            RedisTopology::Socket(path) => {
                let info = ConnectionAddr::Unix(path).into_connection_info()?;
                Kind::Server(Client::open(info.set_redis_settings(self.login.clone()))?)
            }
            RedisTopology::Sentinel { sentinels, master } => {
                let login = login(sentinel);
                let clients = sentinels.iter().map(|host| self.client(host, &login));
                let clients = clients.collect::<RedisResult<_>>()?;
                let config = self.config().set_response_timeout(Some(self.response_timeout));
                let patience = self.connect_timeout + self.response_timeout;
                Kind::Sentinel(Sentinels::new(clients, master, &config, patience))
            }
            RedisTopology::Cluster { seeds } => {
                let seeds = seeds.iter().map(|host| self.info(host, &self.login));
                let seeds = seeds.collect::<RedisResult<Vec<ConnectionInfo>>>()?;
                let mut cluster = ClusterClientBuilder::new(seeds)
                    .tcp_settings(tcp())
                    .connection_timeout(self.connect_timeout)
                    .response_timeout(self.response_timeout)
                    // The caller has a clock of its own, for everything together.
                    .overall_response_timeout(None)
                    .retries(REDIRECTS)
                    .min_retry_wait(5)
                    .max_retry_wait(40);
                if let Some(certificates) = &self.certificates {
                    cluster = cluster.certs(certificates.clone());
                }
                Kind::Cluster(Box::new(cluster.build()?))
            }
        })
    }

    fn info(
        &self,
        (host, port): &Host,
        login: &RedisConnectionInfo,
    ) -> RedisResult<ConnectionInfo> {
        let (host, port) = (host.clone(), *port);
        let address = if self.certificates.is_some() {
            ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None }
        } else {
            ConnectionAddr::Tcp(host, port)
        };
        let info = address.into_connection_info()?;
        Ok(info.set_redis_settings(login.clone()).set_tcp_settings(tcp()))
    }

    fn client(&self, host: &Host, login: &RedisConnectionInfo) -> RedisResult<Client> {
        let info = self.info(host, login)?;
        match &self.certificates {
            Some(certificates) => Client::build_with_tls(info, certificates.clone()),
            None => Client::open(info),
        }
    }

    fn config(&self) -> AsyncConnectionConfig {
        AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.connect_timeout))
            // The caller has a clock of its own.
            .set_response_timeout(None)
            .set_pipeline_buffer_size(PIPELINE_BUFFER)
    }

    async fn connect(&self, client: &Client) -> RedisResult<MultiplexedConnection> {
        client.get_multiplexed_async_connection_with_config(&self.config()).await
    }

    /// Sentinels may be late: the server itself must say that it is the master.
    async fn connect_to_master(&self, master: &Host) -> RedisResult<MultiplexedConnection> {
        let mut connection = self.connect(&self.client(master, &self.login)?).await?;
        let role = redis::cmd("ROLE").query_async::<Value>(&mut connection).await;
        // An ACL may forbid the question; a replica then shows with the first command.
        if let Ok(Value::Array(role)) = role
            && let Some(Value::BulkString(role)) = role.first()
            && role != b"master"
        {
            let words = "the server that sentinels name is not a master now";
            return Err(RedisError::from((ErrorKind::MasterNameNotFoundBySentinel, words)));
        }
        Ok(connection)
    }
}

impl Link {
    /// Sends a command to the server that has its keys.
    pub(super) async fn query(&mut self, command: &Cmd) -> RedisResult<Value> {
        match self {
            Self::Server(connection) => command.query_async(connection).await,
            Self::Cluster(connection) => command.query_async(connection).await,
        }
    }

    /// Sends a command to every master: who answered, and what. One server has no name.
    pub(super) async fn query_each(&mut self, command: &Cmd) -> RedisResult<Vec<(String, Value)>> {
        match self {
            Self::Server(connection) => {
                let value = connection.req_packed_command(command).await?.extract_error()?;
                Ok(vec![(String::new(), value)])
            }
            Self::Cluster(connection) => {
                let all = RoutingInfo::MultiNode((MultipleNodeRoutingInfo::AllMasters, None));
                match connection.route_command(command.clone(), all).await? {
                    Value::Map(answers) => answers
                        .into_iter()
                        .map(|(node, value)| {
                            Ok((redis::from_redis_value(node)?, value.extract_error()?))
                        })
                        .collect(),
                    other => Ok(vec![(String::new(), other)]),
                }
            }
        }
    }
}
