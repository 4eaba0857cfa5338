//! Two gateways before one shop on one Redis, a way to the store for each, and a crowd.

use std::net::SocketAddr;
use std::time::Instant;

use super::link::Link;
use super::origin::Origin;
use super::process::Process;
use super::store_samples::StoreSamples;
use super::verdict::{Evidence, Spell, Verdict};
use super::witness::Witness;
use crate::redis_server::RedisServer;

/// Options of a Redis that has every change on disk before it answers.
pub const DURABLE: &[&str] = &["--appendonly", "yes", "--appendfsync", "always"];

/// Lifetimes that no story reaches: who is slow is not out.
pub const LIFETIMES: &str = "claim_ttl = \"2m\"\nactive_ttl = \"10m\"\n";

/// Programs are refused, not sent to a page.
pub const REJECT: &str = "when_waiting = \"reject\"";

/// How many may be inside.
pub const CAPACITY: usize = 6;

/// How many want to be.
pub const SHOPPERS: u32 = 24;

/// A running story. Fields are dropped in this order: whoever asks Redis goes before it does.
#[derive(Debug)]
pub struct Scene {
    /// The store, with everything it acknowledged on disk.
    pub redis: RedisServer,
    /// The way of each gateway to the store.
    pub links: Vec<Link>,
    /// The gateways.
    pub gateways: Vec<Process>,
    /// The crowd.
    pub witness: Witness,
    origin: Origin,
    samples: Vec<StoreSamples>,
    faults: Vec<Spell>,
}

impl Scene {
    /// Opens the sale and waits until it goes well.
    pub async fn open(seed: u64) -> Self {
        Self::on(RedisServer::start_with(DURABLE), seed, LIFETIMES).await
    }

    /// The same on this Redis, with further keys for the queue.
    pub async fn on(redis: RedisServer, seed: u64, queue: &str) -> Self {
        let origin = Origin::open().await;
        let (mut links, mut gateways) = (Vec::new(), Vec::new());
        for _ in 0..2 {
            let link = Link::to(&redis.socket()).await;
            let url = format!("redis://{}", link.address);
            gateways.push(Process::start(&config(&url, origin.address, queue, REJECT)).await);
            links.push(link);
        }
        let addresses = gateways.iter().map(|gateway| gateway.address).collect();
        let scene = Self::at(redis, origin, addresses, seed).await;
        Self { links, gateways, ..scene }
    }

    /// The same at gateways that are none of its business.
    pub async fn at(
        redis: RedisServer,
        origin: Origin,
        gateways: Vec<SocketAddr>,
        seed: u64,
    ) -> Self {
        let scene = Self {
            links: Vec::new(),
            gateways: Vec::new(),
            witness: Witness::send(SHOPPERS, gateways, seed),
            samples: vec![StoreSamples::of("checkout", &redis.socket())],
            faults: Vec::new(),
            redis,
            origin,
        };
        scene.goes_on(10).await;
        scene
    }

    /// Waits until this many more have been served.
    pub async fn goes_on(&self, served: u64) {
        self.witness.grows(|tally| &tally.served, served).await;
    }

    /// Waits until it shows that the store is away, and until this many more requests have been
    /// answered without it.
    pub async fn is_cut_off(&self, answers: u64) {
        self.witness.is_refused(20, 3000).await;
        self.witness.grows(|tally| &tally.answered, answers).await;
    }

    /// From now on something is wrong: with one gateway, or with everything.
    pub fn fault_begins(&mut self, gateway: Option<usize>) {
        let now = Instant::now();
        self.faults.push(Spell { from: now, to: now, gateway });
    }

    /// From now on it is not.
    pub fn fault_ends(&mut self) {
        self.faults.last_mut().expect("one has begun").to = Instant::now();
    }

    /// From now on both gateways find `redis` where the store was, which has ended.
    pub fn moves_to(&mut self, redis: RedisServer) {
        for link in &self.links {
            link.lead_to(&redis.socket());
        }
        self.samples.push(StoreSamples::of("checkout", &redis.socket()));
        self.redis = redis;
    }

    /// Ends the sale and judges it.
    pub async fn verdict(self) -> Verdict {
        let without_answer = self.witness.without_answer();
        let (facts, not_served) = self.witness.finish().await;
        let evidence = Evidence {
            facts,
            not_served,
            without_answer,
            samples: self.samples.iter().flat_map(StoreSamples::all).collect(),
            hits: self.origin.hits(),
            capacity: CAPACITY,
            faults: self.faults,
        };
        for gateway in &self.gateways {
            println!("{}:\n{}", gateway.address, gateway.last_words());
        }
        evidence.verdict()
    }
}

/// The configuration of a gateway on the Redis at `url`, without its `listen`. `queue` and `route`
/// are further keys.
pub fn config(url: &str, origin: SocketAddr, queue: &str, route: &str) -> String {
    format!(
        r#"trusted_proxies = ["127.0.0.1/32"]
threads = 1

[store]
kind = "redis"
url = "{url}"

[identity]
sources = ["header"]

[identity.header]
name = "X-User-Id"

[[upstream]]
name = "shop"
servers = ["{origin}"]

[[queue]]
name = "checkout"
capacity = {CAPACITY}
{queue}

[[route]]
path = "/checkout/*"
upstream = "shop"
queue = "checkout"
{route}
"#
    )
}
