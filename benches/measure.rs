//! How all benches measure: seven interleaved rounds, the median of each case, and how much of its
//! budget that is.
//!
//! Interleaving lets everything suffer alike from whatever else the machine does, so ratios hold
//! where absolute figures do not. Everything is bounded: rounds, operations, and a minute in total.
//! Numbers are taken only when run as `cargo bench`; otherwise, and with `--test`, each case runs
//! once on a small input.

use std::time::{Duration, Instant};

use cpu_time::ThreadTime;

/// The allocator of the program.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

pub(crate) const ROUNDS: usize = 7;
const AT_MOST: Duration = Duration::from_secs(60);

/// Whether numbers are wanted, or only that everything runs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Run {
    /// Seven rounds on inputs of full size.
    Measure,
    /// Once, on small inputs.
    Test,
}

impl Run {
    /// As the command line says.
    pub(crate) fn from_arguments() -> Self {
        let given = |flag| std::env::args().any(|argument| argument == flag);
        if given("--bench") && !given("--test") { Self::Measure } else { Self::Test }
    }

    /// A size: whole when measuring, at most a thousand when testing.
    pub(crate) fn size(self, whole: u64) -> u64 {
        if self == Self::Measure { whole } else { whole.min(1000) }
    }
}

/// One thing to measure.
pub(crate) struct Case<'a> {
    name: String,
    budget: Option<Duration>,
    round: Box<dyn FnMut() -> u64 + 'a>,
}

impl<'a> Case<'a> {
    /// A case whose `round` does some operations and returns how many; `budget` is for one.
    pub(crate) fn new(
        name: impl Into<String>,
        budget: impl Into<Option<Duration>>,
        round: impl FnMut() -> u64 + 'a,
    ) -> Self {
        Self { name: name.into(), budget: budget.into(), round: Box::new(round) }
    }
}

/// Which time counts.
#[derive(Clone, Copy)]
#[expect(dead_code, reason = "each bench uses one of them")]
pub(crate) enum Time {
    /// The processor time of the measuring thread: what else runs on the machine hardly shows.
    Processor,
    /// The time on the wall, for what waits for somebody else.
    Wall,
}

impl Time {
    /// How long `work` takes.
    fn of(self, work: impl FnOnce() -> u64) -> (u64, Duration) {
        match self {
            Self::Processor => {
                let began = ThreadTime::now();
                let done = work();
                (done, began.elapsed())
            }
            Self::Wall => {
                let began = Instant::now();
                let done = work();
                (done, began.elapsed())
            }
        }
    }
}

/// Runs the cases and prints a line for each: median, fastest and slowest round, budget, ratio.
pub(crate) fn run(run: Run, time: Time, mut cases: Vec<Case<'_>>) {
    let rounds = if run == Run::Measure { ROUNDS } else { 1 };
    let mut times = vec![Vec::new(); cases.len()];
    let start = Instant::now();
    for round in 0..rounds {
        if start.elapsed() > AT_MOST {
            println!("stopped after {round} rounds: {AT_MOST:?} are over");
            break;
        }
        for (case, times) in cases.iter_mut().zip(&mut times) {
            let (operations, took) = time.of(|| (case.round)());
            times.push(took.as_secs_f64() * 1e9 / operations_as_f64(operations.max(1)));
        }
    }
    if run == Run::Test {
        for case in &cases {
            println!("{:<44} ran", case.name);
        }
        return;
    }
    println!(
        "{:<44} {:>10} {:>21} {:>10} {:>7}",
        "", "median ns", "fastest..slowest", "budget", "ratio"
    );
    for (case, mut times) in cases.into_iter().zip(times) {
        times.sort_by(f64::total_cmp);
        let median = times[times.len() / 2];
        let range = format!("{:.1}..{:.1}", times[0], times[times.len() - 1]);
        let (budget, ratio) = case.budget.map_or((String::new(), String::new()), |budget| {
            let budget = budget.as_secs_f64() * 1e9;
            (format!("{budget:.0}"), format!("{:.2}", median / budget))
        });
        println!("{:<44} {median:>10.1} {range:>21} {budget:>10} {ratio:>7}", case.name);
    }
}

fn operations_as_f64(operations: u64) -> f64 {
    f64::from(u32::try_from(operations).unwrap_or(u32::MAX))
}

/// Numbers that look random and are the same in every run: a multiplicative walk over `0..below`.
pub(crate) struct Walk {
    at: u64,
    below: u64,
}

impl Walk {
    /// A walk over `0..below`.
    pub(crate) fn below(below: u64) -> Self {
        Self { at: 1, below: below.max(1) }
    }

    /// The next number.
    pub(crate) fn step(&mut self) -> u64 {
        self.at =
            self.at.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.at >> 11) % self.below
    }
}
