//! Gateways whose clocks are wrong, and are set while people queue.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use anteroom::clock::{Clock, SystemClock, Timestamp};
use anteroom::config::Config;
use anteroom::proxy::Listen;
use anteroom::server::BoundGateway;
use anteroom::server::shutdown::{self, Signal};
use tokio::sync::mpsc;

use super::origin::Origin;
use super::scene::{DURABLE, LIFETIMES, REJECT, Scene, config};
use super::verdict::Policy;
use crate::redis_server::RedisServer;

const HOUR_MS: i64 = 3_600_000;

/// The system's clock, and how far this one is ahead of it.
#[derive(Debug)]
struct WrongClock(AtomicI64);

impl WrongClock {
    fn ahead(hours: i64) -> Arc<Self> {
        Arc::new(Self(AtomicI64::new(hours * HOUR_MS)))
    }

    fn set(&self, hours: i64) {
        self.0.store(hours * HOUR_MS, Ordering::Relaxed);
    }
}

impl Clock for WrongClock {
    fn now(&self) -> Timestamp {
        let ahead = self.0.load(Ordering::Relaxed);
        Timestamp::from_millis(SystemClock.now().as_millis().saturating_add_signed(ahead))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clocks_that_are_set_while_people_queue_change_nothing() {
    let redis = RedisServer::start_with(DURABLE);
    let origin = Origin::open().await;
    let clocks = [WrongClock::ahead(24), WrongClock::ahead(-24)];
    let (mut addresses, mut running) = (Vec::new(), Vec::new());
    for clock in &clocks {
        let url = format!("redis+unix://{}", redis.socket().display());
        let keys = config(&url, origin.address, LIFETIMES, REJECT);
        let text = format!("[server]\nlisten = [\"127.0.0.1:0\"]\n{keys}");
        let (config, _) = Config::parse(&text, "gateway.toml", &|_| None).expect("it is valid");
        let clock = Arc::clone(clock) as Arc<dyn Clock>;
        let gateway = BoundGateway::bind_with_clock(&config, clock).await.expect("it starts");
        let Listen::Tcp(address) = gateway.addresses()[0] else { panic!("a TCP listener") };
        addresses.push(address);
        let (signals, heard) = mpsc::channel::<Signal>(1);
        let shutdown = shutdown::follow(heard, std::time::Duration::ZERO, None);
        running.push((signals, tokio::spawn(gateway.run(shutdown))));
    }
    let mut scene = Scene::at(redis, origin, addresses, 11).await;
    scene.fault_begins(None);
    for (first, second) in [(25, -24), (25, -48), (-25, 0), (0, 1000), (1, -1), (0, 0)] {
        clocks[0].set(first);
        clocks[1].set(second);
        scene.goes_on(3).await;
    }
    scene.fault_ends();
    let name = "clocks of both gateways set by hours, 6 times";
    scene.verdict().await.holds(name, &Policy::default());
}
