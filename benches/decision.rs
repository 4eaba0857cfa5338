//! What deciding costs, without sockets.
//!
//! Budgets, for one operation on one core of an ordinary server:
//!
//! | operation | budget | why |
//! |---|---|---|
//! | rank, at any length of line | 0.1 µs | a poll is answered from memory |
//! | token: parse and verify | 0.5 µs | on every gated request |
//! | poll: token, standing, body | 1 µs | all of a poll but HTTP |
//! | gate: route, identity, token, decision, header edits | 2 µs | every gated request of an active user |
//! | line: enter | 1 µs | 1 000 000 users enter within a second |
//! | line: standing | 0.5 µs | the first use, and whoever was silent |
//! | line: admit, each user | 1 µs | 1 000 users hold the lock for a millisecond |

mod measure;

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use anteroom::clock::{ManualClock, Timestamp};
use anteroom::config::Config;
use anteroom::gate::{Entry, Verdict};
use anteroom::identity::client_address::Connection;
use anteroom::identity::jwt::{JwtAlgorithm, JwtKey, JwtSettings, JwtVerifier};
use anteroom::queue::command::{AdmitBy, ProvenLease, Purpose};
use anteroom::queue::definition::Definition;
use anteroom::queue::line::Line;
use anteroom::queue::settings::{Mode, Settings};
use anteroom::queue::snapshot::Ranks;
use anteroom::queue::{Place, QueueName, QueueTemplate, Seq, UserSource, UserTag};
use anteroom::server::Core;
use anteroom::store::mirror::{LocalQueue, Mirror, Seen};
use anteroom::token::{Claims, Keyring, Proof, TokenKey, UnverifiedToken};
use jsonwebtoken::{EncodingKey, Header};

use measure::{Case, Run, Time, Walk};

const MICROSECOND: Duration = Duration::from_micros(1);
const NOW: Timestamp = Timestamp::from_millis(1_764_540_000_000);

fn tag(n: u64) -> UserTag {
    UserTag(n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes())
}

fn settings() -> Settings {
    let mut settings = Settings::new(Settings::MAX_CAPACITY);
    settings.mode = Mode::QueueAll;
    settings.max_waiting = 100_000_000;
    settings
}

/// A rank in a line of `waiting` people of whom one in twenty has gone.
fn rank(run: Run, waiting: u64) -> Case<'static> {
    let waiting = run.size(waiting);
    let bytes = usize::try_from(waiting / 8 + 1).expect("the line fits into memory");
    let gone: Vec<u8> = (0..bytes).map(|at| if at % 5 < 2 { 0x08 } else { 0 }).collect();
    let ranks = Ranks::new(1, waiting, &gone);
    let mut walk = Walk::below(waiting);
    let operations = run.size(1_000_000);
    Case::new(format!("rank, {waiting} waiting"), MICROSECOND / 10, move || {
        for _ in 0..operations {
            black_box(ranks.rank(walk.step() + 1));
        }
        operations
    })
}

fn keyring() -> Keyring {
    Keyring::new(vec![TokenKey::new(0, [7; 32])]).expect("one key is a ring")
}

fn token(run: Run, queue: &QueueName) -> Case<'static> {
    let keyring = keyring();
    let place = Place { seq: Seq(4711), entered: NOW };
    let (source, owner) = (UserSource::Visitor, tag(1));
    let claims = Claims { source, owner, incarnation: 1, place, proof: Proof::Entry };
    let (queue, text) = (queue.clone(), keyring.sign(queue, &claims));
    let operations = run.size(100_000);
    Case::new("token, parse and verify", MICROSECOND / 2, move || {
        for _ in 0..operations {
            let token = UnverifiedToken::parse(black_box(&text)).expect("it is well formed");
            black_box(keyring.verify(&queue, &token).expect("it is genuine"));
        }
        operations
    })
}

/// Everything of a poll but HTTP: token in, body out.
fn poll<'a>(
    run: Run,
    runtime: &'a tokio::runtime::Runtime,
    local: &Arc<LocalQueue>,
    waiting: u64,
) -> Case<'a> {
    let keyring = keyring();
    let local = Arc::clone(local);
    let tokens: Vec<String> = (1..=waiting.min(10_000))
        .map(|seq| {
            let place = Place { seq: Seq(seq * (waiting / waiting.min(10_000))), entered: NOW };
            let owner = tag(place.seq.0);
            let incarnation = local.picture().incarnation;
            let source = UserSource::Visitor;
            let claims = Claims { source, owner, incarnation, place, proof: Proof::Entry };
            keyring.sign(local.name(), &claims)
        })
        .collect();
    let mut walk = Walk::below(tokens.len() as u64);
    let operations = run.size(100_000);
    Case::new(format!("poll, {waiting} waiting"), MICROSECOND, move || {
        runtime.block_on(async {
            for _ in 0..operations {
                let text = &tokens[usize::try_from(walk.step()).unwrap_or(0)];
                let token = UnverifiedToken::parse(text).expect("it is well formed");
                let claims = keyring.verify(local.name(), &token).expect("it is genuine");
                let seen = local.poll(&claims).await.expect("the embedded store answers");
                let view = local.view(seen);
                black_box(view.rank_body(None).expect("the user waits").to_json());
            }
        });
        operations
    })
}

/// Enter, standing and admit on one line with `waiting` people.
fn line(run: Run, waiting: u64) -> [Case<'static>; 3] {
    let waiting = run.size(waiting);
    let filled = || {
        let mut line = Line::new(1, settings(), None, NOW);
        let users: Vec<_> = (1..=waiting).map(tag).collect();
        line.enter(&users, NOW);
        line
    };
    let (mut entering, mut standing, mut admitting) = (filled(), filled(), filled());
    let (mut next, operations) = (waiting + 1, run.size(10_000));
    let enter = Case::new(format!("line: enter, {waiting} waiting"), MICROSECOND, move || {
        for _ in 0..operations {
            black_box(entering.enter(&[tag(next)], NOW));
            next += 1;
        }
        operations
    });
    let mut walk = Walk::below(waiting);
    let stand =
        Case::new(format!("line: standing, {waiting} waiting"), MICROSECOND / 2, move || {
            for _ in 0..operations {
                black_box(standing.standing(tag(walk.step() + 1), None, Purpose::Pass, NOW));
            }
            operations
        });
    let admit =
        Case::new(format!("line: admit a user, {waiting} waiting"), MICROSECOND, move || {
            let calls = operations / 1000;
            (0..calls).map(|_| admitting.admit(1000, AdmitBy::Tick, NOW).value.count).sum()
        });
    [enter, stand, admit]
}

/// A gateway's core on the embedded store, kept fresh in the background.
const CONFIG: &str = r#"
[server]
listen = ["127.0.0.1:0"]
[store]
kind = "embedded"
[[upstream]]
name = "shop"
servers = ["127.0.0.1:9"]
[[queue]]
name = "deal-1"
capacity = 1000000
[[route]]
path = "/checkout/*"
upstream = "shop"
queue = "deal-1"
[[route]]
path = "/*"
upstream = "shop"
"#;

/// The whole decision on a warm token that came in a cookie, beside the visitor's cookie.
fn gate<'a>(run: Run, runtime: &'a tokio::runtime::Runtime, core: &Core) -> Case<'a> {
    let gate = Arc::clone(&core.gate);
    let name = QueueName::new("deal-1").expect("a name");
    let request = runtime.block_on(async {
        let queue = gate.mirror().queue(&name).await.expect("the store answers");
        let queue = queue.expect("it is declared");
        let (user, visitor) = gate.visitors().issue(false);
        let entry = gate.enter_user(&queue, &user).await.expect("the store answers");
        let Entry::Placed { claims, .. } = entry else { unreachable!("there is room") };
        let Seen::Active { until, .. } = queue.pass(&claims).await.expect("the store answers")
        else {
            unreachable!("there is room")
        };
        let token = gate.sign(
            &name,
            &Claims { proof: Proof::Lease(ProvenLease { until, claimed: true }), ..claims },
        );
        let visitor = visitor.to_str().expect("our own cookie").split(';').next().unwrap_or("");
        let cookies = format!("{visitor}; queue_token-deal-1={token}");
        let request = http::Request::get("/checkout/pay?item=18&colour=brass")
            .header("host", "shop.example")
            .header("accept", "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8")
            .header("accept-language", "en-GB,en;q=0.5")
            .header("user-agent", "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101")
            .header("sec-fetch-mode", "navigate")
            .header("cookie", cookies)
            .body(());
        request.expect("it is well formed").into_parts().0
    });
    let connection = Connection { peer: Some([127, 0, 0, 1].into()), tls: false };
    let operations = run.size(100_000);
    Case::new("gate: an active user passes", 2 * MICROSECOND, move || {
        runtime.block_on(async {
            for _ in 0..operations {
                match gate.judge(&request, &connection).await {
                    Verdict::Forward(forward) => black_box(forward),
                    other => unreachable!("an active user passes: {other:?}"),
                };
            }
        });
        operations
    })
}

fn index(number: u64) -> usize {
    usize::try_from(number).expect("it fits into memory")
}

/// Verifying a JSON Web Token: for the first time, and again within a minute. Not part of the
/// gate's budget.
fn jwt(run: Run) -> [Case<'static>; 2] {
    let secret = [7; 32];
    let key = JwtKey::from_secret(JwtAlgorithm::HS256, &secret).expect("it is long enough");
    let verifier = JwtVerifier::new(JwtSettings {
        keys: vec![key],
        issuer: None,
        audience: None,
        user_claim: "sub".into(),
        leeway: Duration::ZERO,
        cookie: None,
    });
    let verifier = Arc::new(verifier.expect("the settings hold together"));
    let again = Arc::clone(&verifier);
    let signing = EncodingKey::from_secret(&secret).expect("it is a secret");
    let token = |user: u64| {
        let claims = serde_json::json!({"sub": user.to_string(), "exp": NOW.as_secs() + 3600});
        jsonwebtoken::encode(&Header::default(), &claims, &signing).expect("it can be signed")
    };
    let known = token(0);
    let operations = run.size(20_000);
    // Signed beforehand: enough for every round.
    let mut tokens: Vec<String> = (1..=measure::ROUNDS as u64 * operations).map(token).collect();
    let first = Case::new("jwt HS256: verify", None, move || {
        let round = tokens.split_off(tokens.len().saturating_sub(index(operations)));
        for token in &round {
            black_box(verifier.verify(token.as_bytes(), NOW).expect("it is genuine"));
        }
        operations
    });
    let cached = Case::new("jwt HS256: verify again", None, move || {
        for _ in 0..operations {
            black_box(again.verify(known.as_bytes(), NOW).expect("it is genuine"));
        }
        operations
    });
    [first, cached]
}

fn core(runtime: &tokio::runtime::Runtime) -> Core {
    runtime.block_on(async {
        let config = Config::parse(CONFIG, "bench", &|_| None).expect("it is valid").0;
        let core = Core::open(&config).await.expect("the embedded store answers");
        let (stop, stopped) = tokio::sync::watch::channel(false);
        let mirror = Arc::clone(&core.mirror);
        tokio::spawn(async move {
            let _stays_open = stop;
            Core::run(mirror, stopped).await;
        });
        core
    })
}

fn main() {
    let run = Run::from_arguments();
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let queue = QueueName::new("bench").expect("a name");
    let waiting = run.size(1_000_000);
    let local = runtime.block_on(async {
        let clock = Arc::new(ManualClock::at(NOW));
        let store = anteroom::store::embedded(clock.clone());
        let definition = Definition {
            template: QueueTemplate::Fixed(queue.clone()),
            settings: settings(),
            identity: None,
            max_instances: Definition::DEFAULT_MAX_INSTANCES,
            text_hash: 1,
        };
        let mirror = Mirror::new(store.clone(), clock, 1, vec![definition]);
        let origin = anteroom::queue::command::Origin::File(1);
        store.configure(&queue, &settings(), origin).await.expect("the embedded store answers");
        let users: Vec<_> = (1..=waiting).map(tag).collect();
        for batch in users.chunks(1000) {
            store.enter(&queue, batch).await.expect("the embedded store answers");
        }
        mirror.open().await.expect("the embedded store answers");
        mirror.known(&queue).expect("the queue is open")
    });

    let served = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("a runtime");
    let core = core(&served);
    let mut cases = vec![rank(run, 1_000), rank(run, 100_000), rank(run, 1_000_000)];
    cases.push(token(run, &queue));
    cases.push(poll(run, &runtime, &local, waiting));
    cases.push(gate(run, &served, &core));
    cases.extend(jwt(run));
    cases.extend(line(run, 1_000_000));
    measure::run(run, Time::Processor, cases);
}
