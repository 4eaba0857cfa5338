//! Nobody is forgotten, nobody overtakes, and never are too many inside, whatever is killed.
//!
//! Each story has a crowd at two gateways, breaks something, lets the crowd finish, and holds
//! everything that anybody was told against everything else. Each prints a line of a table.

mod chaos;
#[cfg(feature = "testing")]
mod clocks;
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
use scene::Scene;
use verdict::Policy;

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
}
