//! A cluster of three masters with a replica each.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

use anteroom::clock::Clock;
use anteroom::store::contract::Fixture;
use anteroom::store::{RedisSettings, SharedStore, redis_with_clock};

use crate::servers::{TcpServer, Watchdog, patient, traces, wait_for};

/// Slots of a cluster.
const SLOTS: u16 = 16384;

/// Six nodes: masters first, then the replica of each.
pub(crate) struct Cluster {
    nodes: Vec<TcpServer>,
}

impl Cluster {
    /// Starts the nodes, introduces them to each other and waits until all agree.
    pub(crate) fn start() -> Self {
        let settings = [
            "--cluster-enabled",
            "yes",
            "--cluster-config-file",
            "nodes.conf",
            "--cluster-node-timeout",
            "1500",
            "--cluster-replica-validity-factor",
            "0",
            "--repl-diskless-sync-delay",
            "0",
        ];
        let nodes: Vec<_> = (0..6).map(|_| TcpServer::start_with(&settings)).collect();
        let cluster = Self { nodes };
        for (at, node) in cluster.nodes.iter().enumerate() {
            let mut admin = node.server.client();
            redis::cmd("CLUSTER")
                .arg("SET-CONFIG-EPOCH")
                .arg(at + 1)
                .exec(&mut admin)
                .expect("new");
            if at < 3 {
                let share = |at: usize| u16::try_from(at * usize::from(SLOTS) / 3).expect("small");
                let mut slots = redis::cmd("CLUSTER");
                slots.arg("ADDSLOTSRANGE").arg(share(at)).arg(share(at + 1) - 1);
                slots.exec(&mut admin).expect("they are free");
            }
            let first = cluster.nodes[0].port;
            redis::cmd("CLUSTER")
                .arg("MEET")
                .arg("127.0.0.1")
                .arg(first)
                .exec(&mut admin)
                .expect("met");
        }
        cluster.wait_until_all_know(6);
        for at in 3..6 {
            let master: String = redis::cmd("CLUSTER")
                .arg("MYID")
                .query(&mut cluster.nodes[at - 3].server.client())
                .expect("an id");
            let mut admin = cluster.nodes[at].server.client();
            wait_for("a replica", || {
                redis::cmd("CLUSTER").arg("REPLICATE").arg(&master).exec(&mut admin).is_ok()
            });
        }
        wait_for("a complete cluster", || {
            cluster.nodes.iter().all(|node| {
                let slots =
                    redis::cmd("CLUSTER").arg("NODES").query::<String>(&mut node.server.client());
                let info =
                    redis::cmd("CLUSTER").arg("INFO").query::<String>(&mut node.server.client());
                let replication = redis::cmd("INFO")
                    .arg("replication")
                    .query::<String>(&mut node.server.client());
                slots.is_ok_and(|nodes| nodes.matches("slave").count() == 3)
                    && info.is_ok_and(|info| info.contains("cluster_state:ok"))
                    && replication.is_ok_and(|info| !info.contains("master_link_status:down"))
            })
        });
        cluster
    }

    fn wait_until_all_know(&self, nodes: usize) {
        wait_for("nodes that know each other", || {
            self.nodes.iter().all(|node| {
                let known =
                    redis::cmd("CLUSTER").arg("NODES").query::<String>(&mut node.server.client());
                known.is_ok_and(|known| {
                    known.lines().count() == nodes && !known.contains("handshake")
                })
            })
        });
    }

    /// How to reach it, from two of its nodes.
    pub(crate) fn settings(&self) -> RedisSettings {
        let (one, other) = (self.nodes[1].port, self.nodes[5].port);
        patient(format!("redis+cluster://127.0.0.1:{one},127.0.0.1:{other}"))
    }

    /// The number of the node that began as the master of `key`.
    pub(crate) fn master_of(&self, key: &str) -> usize {
        let slot = self.slot_of(key);
        let at = (0..3).find(|at| slot < u64::from(SLOTS) * (at + 1) / 3).expect("a slot");
        usize::try_from(at).expect("small")
    }

    /// The slot of a key.
    pub(crate) fn slot_of(&self, key: &str) -> u64 {
        let mut admin = self.nodes[4].server.client();
        redis::cmd("CLUSTER").arg("KEYSLOT").arg(key).query(&mut admin).expect("a slot")
    }

    /// A plain client of a node.
    pub(crate) fn client(&self, node: usize) -> redis::Connection {
        self.nodes[node].server.client()
    }

    /// Begins to move the slot of `key`, and one of its keys with it.
    pub(crate) fn begin_to_move(&self, key: &str, from: usize, to: usize) {
        let slot = self.slot_of(key);
        let setslot = |node: usize, state: &str, other: usize| {
            let id: String =
                redis::cmd("CLUSTER").arg("MYID").query(&mut self.client(other)).expect("an id");
            let mut command = redis::cmd("CLUSTER");
            command.arg("SETSLOT").arg(slot).arg(state).arg(id);
            command.exec(&mut self.client(node)).expect("it moves");
        };
        setslot(to, "IMPORTING", from);
        setslot(from, "MIGRATING", to);
        let keys = self.keys_in(slot, from);
        assert!(keys.len() > 1, "{keys:?}");
        self.migrate(&keys[..1], from, to);
    }

    /// Moves the rest and makes it known.
    pub(crate) fn finish_to_move(&self, key: &str, from: usize, to: usize) {
        let slot = self.slot_of(key);
        self.migrate(&self.keys_in(slot, from), from, to);
        let id: String =
            redis::cmd("CLUSTER").arg("MYID").query(&mut self.client(to)).expect("an id");
        for node in [to, from] {
            let mut command = redis::cmd("CLUSTER");
            command.arg("SETSLOT").arg(slot).arg("NODE").arg(&id);
            command.exec(&mut self.client(node)).expect("it moved");
        }
    }

    fn keys_in(&self, slot: u64, node: usize) -> Vec<String> {
        let mut command = redis::cmd("CLUSTER");
        command.arg("GETKEYSINSLOT").arg(slot).arg(100);
        command.query(&mut self.client(node)).expect("its keys")
    }

    fn migrate(&self, keys: &[String], from: usize, to: usize) {
        let mut command = redis::cmd("MIGRATE");
        command.arg("127.0.0.1").arg(self.nodes[to].port).arg("").arg(0).arg(5000);
        command.arg("KEYS").arg(keys).exec(&mut self.client(from)).expect("they move");
    }

    /// A node by its number: masters first, then the replica of each.
    pub(crate) fn node(&mut self, at: usize) -> &mut TcpServer {
        &mut self.nodes[at]
    }
}

/// One case of the contract suite: keys of its own on a cluster that all cases share.
pub(crate) struct OnCluster(RedisSettings);

impl OnCluster {
    pub(crate) fn new() -> Self {
        static SHARED: LazyLock<(Cluster, Watchdog)> = LazyLock::new(|| {
            let cluster = Cluster::start();
            let watchdog = Watchdog::over(
                cluster.nodes.iter().map(|node| traces(&node.server, &mut node.server.client())),
            );
            (cluster, watchdog)
        });
        static CASES: AtomicU64 = AtomicU64::new(0);
        let mut settings = SHARED.0.settings();
        settings.key_prefix = format!("case{}:", CASES.fetch_add(1, Ordering::Relaxed));
        Self(settings)
    }

    /// How to reach it.
    pub(crate) fn settings(&self) -> RedisSettings {
        self.0.clone()
    }
}

impl Fixture for OnCluster {
    fn store(&self, clock: Arc<dyn Clock>) -> SharedStore {
        redis_with_clock(&self.0, clock).expect("a URL of a cluster")
    }

    fn sequences(&self) -> u64 {
        10
    }
}
