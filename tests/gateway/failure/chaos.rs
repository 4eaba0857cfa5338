//! Many faults in one run, by hand: `scripts/chaos`.

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::faults::Fault;
use super::scene::Scene;
use super::verdict::Policy;

/// A number from the environment.
fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text} is no number")))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes minutes; scripts/chaos runs it"]
async fn whatever_happens_in_whatever_order_nobody_is_forgotten() {
    let seed = number("ANTEROOM_CHAOS_SEED").unwrap_or_else(|| rand::random_range(0..1_000_000));
    let faults = number("ANTEROOM_CHAOS_FAULTS").unwrap_or(20);
    let mut random = StdRng::seed_from_u64(seed);
    let mut scene = Scene::open(seed).await;
    eprintln!("seed {seed}");
    for number in 1..=faults {
        let fault = Fault::ALL[random.random_range(0..Fault::ALL.len())];
        let gateway = random.random_range(0..scene.gateways.len());
        // From a blink to some ten seconds.
        let answers = 20 * 2_u64.pow(random.random_range(0..9));
        eprintln!("{number:3}. gateway {gateway}, {answers} answers: {}", fault.name());
        fault.strike(&mut scene, gateway, answers).await;
        // The next one comes when this one is forgotten, or when it is not. Only a line that was lost
        // has to be back: losing all gateways together with the store is documented to cost more.
        let calm = random.random_range(0..3) * 5;
        scene.goes_on(calm.max(u64::from(fault == Fault::EmptiedStore))).await;
    }
    scene.goes_on(20).await;
    let name = format!("{faults} faults one after the other, seed {seed}");
    let policy = Policy { goes_back: true, no_gateway: true, ..Policy::default() };
    scene.verdict().await.holds(&name, &policy);
}
