//! A master with a replica and three sentinels.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

use anteroom::clock::Clock;
use anteroom::store::contract::Fixture;
use anteroom::store::{RedisSettings, SharedStore, redis_with_clock};

use crate::servers::{SentinelServer, TcpServer, Watchdog, patient, traces, wait_for};

/// What the sentinels call the master.
const MASTER: &str = "line";

/// The password of the servers; sentinels have another.
const PASSWORD: &str = "of-servers";
const SENTINEL_PASSWORD: &str = "of-sentinels";

/// Two servers, one of them the master, and their sentinels.
pub(crate) struct Sentinels {
    servers: [TcpServer; 2],
    sentinels: Vec<SentinelServer>,
}

impl Sentinels {
    /// Starts all of them and waits until each sentinel knows the others and the replica.
    pub(crate) fn start() -> Self {
        let auth = ["--requirepass", PASSWORD, "--masterauth", PASSWORD];
        let delay = ["--repl-diskless-sync-delay", "0"];
        let master = TcpServer::start_with(&[&auth[..], &delay].concat());
        let port = master.port.to_string();
        let follow = ["--replicaof", "127.0.0.1", &port];
        let replica = TcpServer::start_with(&[&auth[..], &delay, &follow].concat());
        let lines = format!(
            "requirepass {SENTINEL_PASSWORD}\n\
             sentinel sentinel-pass {SENTINEL_PASSWORD}\n\
             sentinel monitor {MASTER} 127.0.0.1 {port} 2\n\
             sentinel auth-pass {MASTER} {PASSWORD}\n\
             sentinel down-after-milliseconds {MASTER} 1000\n\
             sentinel failover-timeout {MASTER} 5000\n"
        );
        let sentinels: Vec<_> = (0..3).map(|_| SentinelServer::start(&lines)).collect();
        let all = Self { servers: [master, replica], sentinels };
        for sentinel in &all.sentinels {
            let mut client = sentinel.client();
            redis::cmd("AUTH").arg(SENTINEL_PASSWORD).exec(&mut client).expect("the password");
            wait_for("sentinels that know each other", || {
                let ask = |what: &str| {
                    let mut question = redis::cmd("SENTINEL");
                    question.arg(what).arg(MASTER);
                    question
                };
                let known = ask("CKQUORUM").query::<String>(&mut client);
                let replicas = ask("REPLICAS").query::<Vec<redis::Value>>(&mut client);
                known.is_ok_and(|known| known.contains("3 usable"))
                    && replicas.is_ok_and(|replicas| replicas.len() == 1)
            });
        }
        all.wait_for_replica();
        all
    }

    fn wait_for_replica(&self) {
        let mut replica = self.client(1);
        wait_for("a replica with all data", || {
            let info: String =
                redis::cmd("INFO").arg("replication").query(&mut replica).unwrap_or_default();
            info.contains("master_link_status:up")
        });
    }

    /// How to reach whichever is the master.
    pub(crate) fn settings(&self) -> RedisSettings {
        let hosts: Vec<String> =
            self.sentinels.iter().map(|one| format!("127.0.0.1:{}", one.port)).collect();
        let url = format!("redis+sentinel://:{PASSWORD}@{}/{MASTER}/1", hosts.join(","));
        let mut settings = patient(url);
        settings.sentinel_credentials.password = Some(SENTINEL_PASSWORD.into());
        settings
    }

    /// The server that began as the master.
    pub(crate) fn first(&mut self) -> &mut TcpServer {
        &mut self.servers[0]
    }

    /// A plain client of one of the servers.
    pub(crate) fn client(&self, server: usize) -> redis::Connection {
        let url = format!("redis://:{PASSWORD}@127.0.0.1:{}/1", self.servers[server].port);
        redis::Client::open(url).expect("a URL").get_connection().expect("it runs")
    }

    /// Has the sentinels promote the replica though nothing is wrong.
    pub(crate) fn fail_over(&self) {
        let mut client = self.sentinels[0].client();
        redis::cmd("AUTH").arg(SENTINEL_PASSWORD).exec(&mut client).expect("the password");
        wait_for("a failover", || {
            redis::cmd("SENTINEL").arg("FAILOVER").arg(MASTER).exec(&mut client).is_ok()
        });
    }

    /// Which server the first sentinel takes for the master.
    pub(crate) fn master(&self) -> usize {
        let mut client = self.sentinels[0].client();
        redis::cmd("AUTH").arg(SENTINEL_PASSWORD).exec(&mut client).expect("the password");
        let (_, port): (String, u16) = redis::cmd("SENTINEL")
            .arg("GET-MASTER-ADDR-BY-NAME")
            .arg(MASTER)
            .query(&mut client)
            .expect("it knows");
        self.servers.iter().position(|server| server.port == port).expect("one of them")
    }

    /// Whether one of the servers is used by a store.
    pub(crate) fn is_used(&self, server: usize) -> bool {
        let mut list = redis::cmd("CLIENT");
        let clients: String = list.arg("LIST").query(&mut self.client(server)).expect("it runs");
        clients.contains("cmd=evalsha") || clients.contains("cmd=eval ")
    }

    fn traces(&self) -> impl Iterator<Item = (u32, PathBuf)> {
        let servers = [0, 1].map(|at| traces(&self.servers[at].server, &mut self.client(at)));
        servers.into_iter().chain(self.sentinels.iter().map(SentinelServer::traces))
    }
}

/// One case of the contract suite: keys of its own on servers that all cases share.
pub(crate) struct OnSentinels(RedisSettings);

impl OnSentinels {
    pub(crate) fn new() -> Self {
        static SHARED: LazyLock<(Sentinels, Watchdog)> = LazyLock::new(|| {
            let sentinels = Sentinels::start();
            let watchdog = Watchdog::over(sentinels.traces());
            (sentinels, watchdog)
        });
        static CASES: AtomicU64 = AtomicU64::new(0);
        let mut settings = SHARED.0.settings();
        settings.key_prefix = format!("case{}:", CASES.fetch_add(1, Ordering::Relaxed));
        Self(settings)
    }
}

impl Fixture for OnSentinels {
    fn store(&self, clock: Arc<dyn Clock>) -> SharedStore {
        redis_with_clock(&self.0, clock).expect("a URL of sentinels")
    }

    fn sequences(&self) -> u64 {
        10
    }
}
