//! Every store keeps the contract: one line each, and what only shows on a real one under load.
#![cfg(feature = "testing")]
#![expect(clippy::panic, clippy::unwrap_used, reason = "tests say what they expect by unwrapping")]

mod concurrency;
mod durable;
mod million;
mod outage;
mod redis_server;

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
store_contract!(embedded_on_disk, crate::durable::OnDisk::asynchronous());
store_contract!(embedded_on_disk_before_answers, crate::durable::OnDisk::synchronous());
store_contract!(embedded_opened_again, crate::durable::OnDisk::reopened());
