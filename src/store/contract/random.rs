//! Random commands, the same again from the same seed.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::clock::Timestamp;
use crate::queue::command::{
    AdmitBy, Evidence, HeldLease, Origin, ProvenLease, Purpose, Sighting, Versions,
};
use crate::queue::settings::{EPOCH_MS, Mode, Rate, Renew, Settings};
use crate::queue::{Place, Seq};

use super::{Fixture, Pair};

/// Commands a sequence.
const COMMANDS: usize = 250;

/// Replays random commands on both and compares every answer, and the whole picture now and then.
/// `CONTRACT_SEED` in the environment runs that one sequence.
pub async fn random_commands_get_the_answers_of_the_line(on: &impl Fixture) {
    let one = std::env::var("CONTRACT_SEED").ok().and_then(|seed| seed.parse().ok());
    let seeds = one.map_or(0..on.sequences(), |seed: u64| seed..seed + 1);
    for seed in seeds {
        let mut rng = StdRng::seed_from_u64(seed);
        let settings = settings(&mut rng, Timestamp::from_millis(1_800_000_000_000));
        let mut pair = Pair::named(on, settings, &format!("random-{seed}")).await;
        pair.log.insert(0, format!("CONTRACT_SEED={seed}"));
        // Few users meet often; many fill more than a word of bits.
        let users = [6, 40, 400][rng.random_range(0..3)];
        for _ in 0..COMMANDS {
            command(&mut pair, &mut rng, users).await;
        }
        pair.synced().await;
    }
}

async fn command(pair: &mut Pair, rng: &mut StdRng, users: u64) {
    let user = rng.random_range(0..users);
    let seq = match rng.random_range(0..4) {
        0 => Some(rng.random_range(1..users * 2)),
        1 => pair.seqs.get(&user).copied(),
        _ => None,
    };
    match rng.random_range(0..100) {
        0..22 => {
            let most = if rng.random_bool(0.1) { users } else { 4 };
            let many = rng.random_range(1..=most);
            let entering: Vec<u64> = (0..many).map(|_| rng.random_range(0..users)).collect();
            pair.enter_all(entering).await;
        }
        22..40 => {
            let purpose = if rng.random_bool(0.5) { Purpose::Poll } else { Purpose::Pass };
            pair.standing(user, seq, purpose).await;
        }
        40..48 => drop(pair.leave(user, seq).await),
        48..62 => {
            let max = [0, 1, 3, 10, 1000, u64::MAX][rng.random_range(0..6)];
            let by = if rng.random_bool(0.8) { AdmitBy::Tick } else { AdmitBy::Operator };
            pair.admit_by(max, by).await;
        }
        62..76 => {
            let longest = [20, 600, 3000, 50_000, 200_000][rng.random_range(0..5)];
            pair.pass(Duration::from_millis(rng.random_range(0..longest)));
        }
        76..80 => heartbeat(pair, rng).await,
        80..85 => {
            for _ in 0..rng.random_range(1..8) {
                let gateways: Vec<u64> = (1..=3).filter(|_| rng.random_bool(0.95)).collect();
                epoch(pair, rng, &gateways).await;
                if rng.random_bool(0.7) {
                    pair.reap().await;
                }
            }
        }
        85..88 => drop(pair.reap().await),
        88..91 => pair.compact([0, 10, 64, 200, u64::MAX][rng.random_range(0..5)]).await,
        91 => recover(pair, rng, user, seq).await,
        92..94 => {
            let settings = settings(rng, pair.now());
            let file = Origin::File(rng.random_range(1..4));
            let origin = if rng.random_bool(0.5) { file } else { Origin::Operator };
            pair.configure(&settings, origin).await;
        }
        _ => drop(pair.synced().await),
    }
}

/// An epoch in which most of those in line are heard, each by some gateway.
async fn epoch(pair: &mut Pair, rng: &mut StdRng, gateways: &[u64]) {
    let epoch = pair.epoch();
    let synced = pair.synced().await;
    pair.pass(Duration::from_millis(EPOCH_MS - pair.now().as_millis() % EPOCH_MS));
    for gateway in gateways {
        let mut heard = super::present(&synced);
        heard.retain(|_| rng.random_bool(0.5));
        let (first, bits) = super::bits_of(&heard);
        pair.heartbeat(epoch, *gateway, first, bits).await;
    }
}

/// What gateways do when they find that the store has lost something.
async fn recover(pair: &mut Pair, rng: &mut StdRng, user: u64, seq: Option<u64>) {
    let now = pair.now();
    let tail = pair.line.sync(Versions::default(), now).tail;
    let seq = seq.unwrap_or_else(|| (tail + 3).saturating_sub(rng.random_range(0..20))).max(1);
    let place = Place { seq: Seq(seq), entered: now };
    let until =
        now.minus(Duration::from_secs(5)).plus(Duration::from_millis(rng.random_range(0..60_000)));
    let lease = ProvenLease { until, claimed: rng.random_bool(0.5) };
    match rng.random_range(0..4) {
        0 => {
            let head = if rng.random_bool(0.1) { rng.random_range(0..tail + 3) } else { 0 };
            let tail = if rng.random_bool(0.3) { tail + rng.random_range(0..9) } else { 0 };
            pair.fence(Sighting { head, tail, issued: now }).await;
        }
        1 => drop(pair.restore(&[HeldLease { owner: super::user(user), place, lease }]).await),
        _ => {
            let lease = rng.random_bool(0.5).then_some(lease);
            pair.revive(user, Evidence { place, issued: now, lease }).await;
        }
    }
}

/// One that may be early, late, misplaced or odd.
async fn heartbeat(pair: &mut Pair, rng: &mut StdRng) {
    let epoch = pair.epoch() + 1 - rng.random_range(0..5);
    let first = match rng.random_range(0..10) {
        0 => rng.random_range(0..500),
        1 => u64::MAX - rng.random_range(0..20),
        _ => rng.random_range(0..60) * 8,
    };
    let bits = (0..rng.random_range(0..40)).map(|_| rng.random()).collect();
    pair.heartbeat(epoch, rng.random_range(1..4), first, bits).await;
}

fn settings(rng: &mut StdRng, now: Timestamp) -> Settings {
    let seconds = Duration::from_secs;
    let mut settings = Settings::new([0, 1, 3, 20, 500][rng.random_range(0..5)]);
    settings.rate = match rng.random_range(0..3) {
        0 => Rate::Unlimited,
        1 => Rate::MicroPerMs(rng.random_range(1..2000)),
        _ => Rate::MicroPerMs(rng.random_range(2000..200_000)),
    };
    settings.active_ttl = Duration::from_millis(rng.random_range(1000..200_000));
    settings.active_max = settings.active_ttl + seconds(rng.random_range(0..300));
    settings.claim_ttl = settings.active_ttl.min(seconds(rng.random_range(1..60)));
    settings.renew = if rng.random_bool(0.5) { Renew::Fixed } else { Renew::Sliding };
    settings.waiting_ttl = seconds(rng.random_range(60..190));
    settings.late_grace = seconds([0, 1, 30, 300][rng.random_range(0..4)]);
    settings.max_waiting = [1, 10, 10_000][rng.random_range(0..3)];
    settings.mode = match rng.random_range(0..20) {
        0 => Mode::Closed,
        1 => Mode::Paused,
        2 => Mode::PassAll,
        3..7 => Mode::QueueAll,
        _ => Mode::Auto,
    };
    if rng.random_bool(0.1) {
        settings.opens_at = Some(now.plus(seconds(rng.random_range(0..20))));
    }
    if rng.random_bool(0.1) {
        settings.closes_at = Some(now.plus(seconds(rng.random_range(21..200))));
    }
    settings
}
