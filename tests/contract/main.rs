//! Every store keeps the contract: one line each, and what only shows on a real one under load.
#![cfg(feature = "testing")]
#![expect(clippy::panic, clippy::unwrap_used, reason = "tests say what they expect by unwrapping")]

mod access;
mod answers;
mod cluster;
mod concurrency;
mod durable;
mod encryption;
mod failover;
#[allow(unreachable_pub, dead_code, reason = "the end-to-end stories use the rest")]
#[path = "../gateway/failure/link.rs"]
mod link;
mod million;
mod outage;
#[allow(dead_code, reason = "the end-to-end stories use the rest")]
mod redis_server;
mod repeats;
mod sentinels;
mod servers;

/// Where `link` finds it in its other binary.
mod process {
    pub(crate) use crate::servers::free_port;
}

use std::sync::Arc;

use anteroom::clock::Clock;
use anteroom::store::contract::Fixture;
use anteroom::store::{SharedStore, embedded, redis_with_clock};
use anteroom::store_contract;

use redis_server::RedisServer;

struct Embedded;

impl Fixture for Embedded {
    fn store(&self, clock: Arc<dyn Clock>) -> SharedStore {
        embedded(clock)
    }

    fn sequences(&self) -> u64 {
        400
    }
}

impl Fixture for RedisServer {
    fn store(&self, clock: Arc<dyn Clock>) -> SharedStore {
        redis_with_clock(&self.settings(), clock).expect("a Redis URL")
    }

    fn sequences(&self) -> u64 {
        60
    }
}

store_contract!(embedded_store, crate::Embedded);
store_contract!(redis_store, crate::RedisServer::start());
store_contract!(sentinel_store, crate::sentinels::OnSentinels::new());
store_contract!(cluster_store, crate::cluster::OnCluster::new());
store_contract!(embedded_on_disk, crate::durable::OnDisk::asynchronous());
store_contract!(embedded_on_disk_before_answers, crate::durable::OnDisk::synchronous());
store_contract!(embedded_opened_again, crate::durable::OnDisk::reopened());
