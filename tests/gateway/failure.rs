//! Nobody is forgotten, nobody overtakes, and never are too many inside, whatever is killed.
//!
//! Each story has a crowd at two gateways, breaks something, lets the crowd finish, and holds
//! everything that anybody was told against everything else. Each prints a line of a table.

mod chaos;
#[cfg(feature = "testing")]
mod clocks;
mod facts;
mod faults;
mod link;
mod origin;
mod policies;
mod process;
mod scene;
mod store_samples;
mod verdict;
mod witness;

use faults::Fault;
use scene::{CAPACITY, SHOPPERS, Scene};
use verdict::Policy;

use crate::redis_server::RedisServer;
use crate::shop::until;

/// A story of one fault, in which nothing may be lost.
async fn story(fault: Fault) {
    let mut scene = Scene::open(7).await;
    fault.strike(&mut scene, 0, 400).await;
    scene.goes_on(15).await;
    scene.verdict().await.holds(fault.name(), &Policy::default());
}

macro_rules! stories {
    ($($name:ident: $fault:ident,)+) => {$(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $name() {
            story(Fault::$fault).await;
        }
    )+};
}

stories! {
    a_killed_gateway_takes_nobody_with_it: KilledGateway,
    a_gateway_that_stood_still_trusts_nothing_it_knew: PausedGateway,
    a_rolling_restart_fails_no_request: RollingRestart,
    a_killed_redis_comes_back_with_everybody: KilledStore,
    a_redis_that_stands_still_forgets_nobody: PausedStore,
    a_slow_store_admits_nobody_twice: SlowStore,
    a_place_whose_acknowledgement_was_lost_is_the_same_place: LostReplies,
    a_gateway_whose_commands_are_lost_finds_the_store_again: LostRequests,
    a_gateway_with_a_silent_store_finds_it_again: HalfOpenStore,
    a_gateway_that_is_refused_finds_the_store_again: RefusingStore,
    connections_that_are_cut_are_made_anew: CutConnections,
    forgotten_scripts_are_sent_again: FlushedScripts,
    killed_clients_come_back: KilledClients,
    a_full_redis_keeps_what_it_has: FullStore,
    a_redis_that_refuses_writes_keeps_what_it_has: StoreWithoutWrites,
    a_redis_that_was_demoted_is_tried_again: DemotedStore,
}

/// What is documented for a store that lost everything: everybody enters again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_lost_everything_is_entered_anew() {
    let mut scene = Scene::open(7).await;
    scene.fault_begins(None);
    redis::cmd("FLUSHALL").exec(&mut scene.redis.client()).unwrap();
    scene.fault_ends();
    scene.goes_on(30).await;
    let everybody = usize::try_from(SHOPPERS).unwrap();
    let policy = Policy {
        lost: everybody,
        out_of_order: usize::MAX,
        // Until the next copy, those who were inside are.
        over_admitted: CAPACITY,
        ..Policy::default()
    };
    scene.verdict().await.holds("`FLUSHALL`", &policy);
}

/// What a controlled failover does: the replica has everything when it takes over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_has_everything_takes_over_with_everybody() {
    let port = process::free_port().to_string();
    let primary = RedisServer::start_with(&["--port", &port]);
    let replica = RedisServer::start_with(&["--replicaof", &format!("127.0.0.1 {port}")]);
    let mut scene = Scene::on(primary, 7).await;
    scene.fault_begins(None);
    let (mut old, mut new) = (scene.redis.client(), replica.client());
    redis::cmd("CLIENT").arg("PAUSE").arg(60_000).arg("WRITE").exec(&mut old).unwrap();
    until(
        || {
            let [written, received] = [&mut old, &mut new].map(replicated);
            std::future::ready((written, received))
        },
        |(written, received)| written == received && written.is_some(),
    )
    .await;
    redis::cmd("REPLICAOF").arg("NO").arg("ONE").exec(&mut new).unwrap();
    scene.redis.kill();
    scene.moves_to(replica);
    scene.fault_ends();
    scene.goes_on(15).await;
    scene.verdict().await.holds("failover to a replica that has everything", &Policy::default());
}

/// How much of the primary's history a server has, once the two are in touch.
fn replicated(server: &mut redis::Connection) -> Option<String> {
    let text: String = redis::cmd("INFO").arg("replication").query(server).unwrap();
    let of = |key: &str| text.lines().find_map(|line| line.strip_prefix(key)).map(str::to_owned);
    let in_touch = text.contains("master_link_status:up") || text.contains("connected_slaves:1");
    let received = of("slave_repl_offset:").or_else(|| of("master_repl_offset:"));
    received.filter(|_| in_touch)
}
