//! Everything that may go wrong between gateways, store and network, and is over when its strike
//! is.

use std::time::Duration;

use super::link::Weather;
use super::process::Process;
use super::scene::Scene;
use super::verdict::Policy;

/// One thing that goes wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// `kill -9` of a gateway, and a new start.
    KilledGateway,
    /// `SIGSTOP` of a gateway, then `SIGCONT`: it goes on with what it knew.
    PausedGateway,
    /// `SIGTERM` of one gateway after the other, each with a new start.
    RollingRestart,
    /// `kill -9` of Redis, and a new start from its log.
    KilledStore,
    /// `SIGSTOP` of Redis, then `SIGCONT`.
    PausedStore,
    /// Every answer of the store comes too late.
    SlowStore,
    /// Answers of the store to one gateway are lost.
    LostReplies,
    /// Requests of one gateway to the store are lost.
    LostRequests,
    /// The store takes connections of one gateway and says nothing.
    HalfOpenStore,
    /// Nothing listens where one gateway looks for the store.
    RefusingStore,
    /// All connections to the store are cut, again and again.
    CutConnections,
    /// Redis forgets its scripts, again and again.
    FlushedScripts,
    /// Redis ends its clients' connections, again and again.
    KilledClients,
    /// Redis has no memory left.
    FullStore,
    /// Redis takes no writes, as with a full disk or too few replicas.
    StoreWithoutWrites,
    /// Redis was made a replica, and is a primary again later.
    DemotedStore,
    /// Redis has lost everything.
    EmptiedStore,
    /// `kill -9` of a gateway while Redis stands still; it starts before Redis goes on.
    StartWithoutStore,
    /// `kill -9` of Redis and of all gateways at once, and a new start, as after a loss of power.
    KilledEverything,
}

/// How often what happens again and again does.
const AGAIN: u32 = 20;

/// More than the time a gateway gives the store, each way.
const TOO_SLOW: Duration = Duration::from_millis(400);

impl Fault {
    /// All of them.
    pub const ALL: [Self; 19] = [
        Self::KilledGateway,
        Self::PausedGateway,
        Self::RollingRestart,
        Self::KilledStore,
        Self::PausedStore,
        Self::SlowStore,
        Self::LostReplies,
        Self::LostRequests,
        Self::HalfOpenStore,
        Self::RefusingStore,
        Self::CutConnections,
        Self::FlushedScripts,
        Self::KilledClients,
        Self::FullStore,
        Self::StoreWithoutWrites,
        Self::DemotedStore,
        Self::EmptiedStore,
        Self::StartWithoutStore,
        Self::KilledEverything,
    ];

    /// Its name in the table.
    pub const fn name(self) -> &'static str {
        match self {
            Self::KilledGateway => "`kill -9` of one of two gateways, restart",
            Self::PausedGateway => "one gateway stands still (`SIGSTOP`), goes on",
            Self::RollingRestart => "rolling restart of two gateways",
            Self::KilledStore => "`kill -9` of Redis (AOF, fsync always), restart",
            Self::PausedStore => "Redis stands still (`SIGSTOP`), goes on",
            Self::SlowStore => "the store's answers are late (800 ms)",
            Self::LostReplies => "the store's answers to one gateway are lost",
            Self::LostRequests => "one gateway's commands to the store are lost",
            Self::HalfOpenStore => "the store is silent to one gateway",
            Self::RefusingStore => "the store refuses one gateway",
            Self::CutConnections => "connections to the store cut, 20 times",
            Self::FlushedScripts => "`SCRIPT FLUSH`, 20 times",
            Self::KilledClients => "`CLIENT KILL` of all gateways, 20 times",
            Self::FullStore => "Redis has no memory left, gets some",
            Self::StoreWithoutWrites => "Redis refuses writes (too few replicas)",
            Self::DemotedStore => "Redis becomes a replica (`READONLY`), a primary again",
            Self::EmptiedStore => "`FLUSHALL`",
            Self::StartWithoutStore => "`kill -9` of a gateway, restart while Redis stands still",
            Self::KilledEverything => "`kill -9` of Redis (AOF, fsync always) and all gateways",
        }
    }

    /// What it may cost.
    pub fn policy(self) -> Policy {
        Policy {
            // The line is made again from a gateway's copy, which is a moment old.
            goes_back: self == Self::EmptiedStore,
            no_gateway: self == Self::KilledEverything,
            ..Policy::default()
        }
    }

    /// Whether the others go on as if nothing was.
    const fn is_about_one_gateway(self) -> bool {
        matches!(
            self,
            Self::KilledGateway
                | Self::PausedGateway
                | Self::StartWithoutStore
                | Self::LostReplies
                | Self::LostRequests
                | Self::HalfOpenStore
                | Self::RefusingStore
        )
    }

    /// Lets it happen, until it shows and `answers` requests were answered under it, and ends it.
    /// What concerns one gateway concerns `gateway`.
    pub async fn strike(self, scene: &mut Scene, gateway: usize, answers: u64) {
        scene.fault_begins(self.is_about_one_gateway().then_some(gateway));
        match self {
            Self::KilledGateway => {
                scene.gateways[gateway].kill();
                scene.goes_on(5).await;
                scene.gateways[gateway].start_again().await;
            }
            Self::PausedGateway => {
                scene.gateways[gateway].signal("STOP");
                // Others go on; whoever asks this one waits, for less than a client's patience.
                scene.witness.grows(|tally| &tally.acknowledged, 60).await;
                scene.gateways[gateway].signal("CONT");
            }
            Self::RollingRestart => {
                for gateway in 0..scene.gateways.len() {
                    scene.gateways[gateway].stop().await;
                    scene.gateways[gateway].start_again().await;
                    scene.goes_on(3).await;
                }
            }
            Self::KilledStore => {
                scene.redis.kill();
                scene.is_cut_off(answers).await;
                scene.redis.restart();
            }
            Self::PausedStore => {
                scene.redis.signal("STOP");
                scene.is_cut_off(answers).await;
                scene.redis.signal("CONT");
            }
            Self::SlowStore => {
                for link in &scene.links {
                    link.set(Weather::Slow(TOO_SLOW));
                }
                scene.is_cut_off(answers).await;
                for link in &scene.links {
                    link.set(Weather::Clear);
                }
            }
            Self::LostReplies => bad(scene, gateway, Weather::NoReplies, answers).await,
            Self::LostRequests => bad(scene, gateway, Weather::NoRequests, answers).await,
            Self::HalfOpenStore => bad(scene, gateway, Weather::Silent, answers).await,
            Self::RefusingStore => bad(scene, gateway, Weather::Refused, answers).await,
            Self::CutConnections => {
                for _ in 0..AGAIN {
                    for link in &scene.links {
                        link.cut();
                    }
                    something_happens(scene).await;
                }
            }
            Self::FlushedScripts => again(scene, "SCRIPT FLUSH").await,
            Self::FullStore => {
                let [begin, end] = [set("maxmemory 1"), set("maxmemory 0")];
                between(scene, &begin, &end, answers).await;
            }
            Self::StoreWithoutWrites => {
                let [begin, end] = [set("min-replicas-to-write 1"), set("min-replicas-to-write 0")];
                between(scene, &begin, &end, answers).await;
            }
            Self::DemotedStore => {
                // Of nobody: what it holds stays.
                between(scene, "REPLICAOF 127.0.0.1 1", "REPLICAOF NO ONE", answers).await;
            }
            Self::EmptiedStore => tell(&mut scene.redis.client(), "FLUSHALL"),
            Self::StartWithoutStore => {
                scene.redis.signal("STOP");
                let mut killed = scene.gateways.remove(gateway);
                killed.kill();
                let goes_on = async {
                    // Whoever connects to a gateway that starts waits with it for the store.
                    scene.is_cut_off(answers.min(40)).await;
                    scene.redis.signal("CONT");
                };
                tokio::join!(killed.start_again(), goes_on);
                scene.gateways.insert(gateway, killed);
            }
            Self::KilledEverything => {
                scene.redis.kill();
                scene.gateways.iter_mut().for_each(Process::kill);
                scene.redis.restart();
                for gateway in &mut scene.gateways {
                    gateway.start_again().await;
                }
            }
            Self::KilledClients => again(scene, "CLIENT KILL TYPE normal SKIPME yes").await,
        }
        scene.fault_ends();
    }
}

/// One way to the store is bad for a while.
async fn bad(scene: &Scene, gateway: usize, weather: Weather, answers: u64) {
    scene.links[gateway].set(weather);
    scene.is_cut_off(answers).await;
    scene.links[gateway].set(Weather::Clear);
}

/// A command to Redis, again and again.
async fn again(scene: &Scene, command: &str) {
    let mut admin = scene.redis.client();
    for _ in 0..AGAIN {
        tell(&mut admin, command);
        something_happens(scene).await;
    }
}

/// A command that Redis suffers from, and one that ends it.
async fn between(scene: &Scene, begin: &str, end: &str, answers: u64) {
    let mut admin = scene.redis.client();
    tell(&mut admin, begin);
    scene.is_cut_off(answers).await;
    tell(&mut admin, end);
}

fn set(setting: &str) -> String {
    format!("CONFIG SET {setting}")
}

/// Has Redis carry out a command, once it has read its log.
fn tell(redis: &mut redis::Connection, command: &str) {
    let words: Vec<_> = command.split(' ').collect();
    loop {
        match redis::cmd(words[0]).arg(&words[1..]).exec(redis) {
            Err(error) if error.code() == Some("LOADING") => std::thread::yield_now(),
            carried_out => return carried_out.expect("it runs"),
        }
    }
}

/// Waits for a few acknowledged operations.
async fn something_happens(scene: &Scene) {
    scene.witness.grows(|tally| &tally.acknowledged, 10).await;
}
