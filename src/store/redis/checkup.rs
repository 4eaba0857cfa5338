//! Looks at the servers once, at start, for settings that would hurt later.
//!
//! It changes nothing and asks only for what an ACL usually permits; what is forbidden is said to
//! be unknown. Only a server that is too old is refused.

use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use redis::{Cmd, Value, from_redis_value};

use crate::clock::{Clock, Timestamp};
use crate::store::{RedisSettings, StoreError};

use super::failure::unavailable;
use super::topology::{Link, Topology};

/// The first version with what the scripts need: flags, and bit ranges.
const OLDEST: (u32, u32) = (7, 0);

/// By how much clocks may differ before it is worth a word.
const CLOCK_MARGIN: Duration = Duration::from_secs(2);

/// The settings that matter here.
const SETTINGS: [&str; 5] =
    ["maxmemory", "maxmemory-policy", "save", "appendonly", "min-replicas-to-write"];

/// Something about the servers that the operator should know.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RedisFinding {
    /// Which node of a cluster; empty for a single server.
    pub server: String,
    /// What it is.
    pub what: RedisConcern,
}

/// What may be wrong with a server. Shown as a sentence that says what to do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RedisConcern {
    /// It lacks what the scripts need. It must not be used.
    TooOld {
        /// Its version.
        version: String,
    },
    /// It throws keys away when memory is full: whole queues would vanish.
    Evicts {
        /// `maxmemory-policy`.
        policy: String,
    },
    /// It writes nothing to disk: a restart empties every line.
    NoPersistence,
    /// It has replicas and does not need them: a master that is cut off goes on taking people whose
    /// places are lost after the failover.
    NoQuorum {
        /// How many replicas it has.
        replicas: u64,
    },
    /// Its clock differs from this machine's.
    Clock {
        /// By how much.
        by: Duration,
        /// Whether it is ahead of ours.
        ahead: bool,
    },
    /// A question was not answered, perhaps because the ACL forbids it.
    Unknown {
        /// The command.
        command: &'static str,
        /// What the server said.
        answer: String,
    },
}

impl fmt::Display for RedisFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let server = match self.server.as_str() {
            "" => "Redis".to_owned(),
            node => format!("Redis node {node}"),
        };
        match &self.what {
            RedisConcern::TooOld { version } => {
                write!(f, "{server} is version {version}: 7.0 is the oldest that works, upgrade it")
            }
            RedisConcern::Evicts { policy } => write!(
                f,
                "{server} throws keys away when its memory is full (maxmemory-policy {policy}), and \
                 whole lines with them: set maxmemory-policy to noeviction"
            ),
            RedisConcern::NoPersistence => write!(
                f,
                "{server} keeps nothing on disk: a restart empties every line; set appendonly to yes"
            ),
            RedisConcern::NoQuorum { replicas } => write!(
                f,
                "{server} has {replicas} replicas and does without them (min-replicas-to-write 0): \
                 places given while it is cut off are lost in a failover; set \
                 min-replicas-to-write to 1"
            ),
            RedisConcern::Clock { by, ahead } => write!(
                f,
                "the clock of {server} is {} s {} this machine's: opening and closing times go by \
                 the clock of Redis; synchronise both by NTP",
                by.as_secs(),
                if *ahead { "ahead of" } else { "behind" }
            ),
            RedisConcern::Unknown { command, answer } => write!(
                f,
                "{server} does not answer {command} ({answer}): what it would show was not checked; \
                 permit it, or check persistence and eviction by hand"
            ),
        }
    }
}

impl RedisFinding {
    /// Whether the server must not be used.
    #[must_use]
    pub const fn is_fatal(&self) -> bool {
        matches!(self.what, RedisConcern::TooOld { .. })
    }
}

/// Looks at every server that takes writes, over a connection of its own.
///
/// # Errors
/// [`StoreError::Unavailable`] when none can be reached; repeating is safe.
pub async fn redis_checkup(
    settings: &RedisSettings,
    clock: &dyn Clock,
) -> Result<Vec<RedisFinding>, StoreError> {
    let (link, _) = Topology::new(settings)?.connect().await.map_err(unavailable)?;
    let patience = settings.connect_timeout + settings.response_timeout;
    let mut checkup = Checkup { link, patience, findings: Vec::new() };

    let server = checkup.ask("INFO server", redis::cmd("INFO").arg("server")).await;
    checkup.note(&server, |server| too_old(&lines(server)));

    let replication = checkup.ask("INFO replication", redis::cmd("INFO").arg("replication")).await;
    let replicas: HashMap<&str, u64> = replication
        .iter()
        .map(|(node, answer)| (node.as_str(), number(&lines(answer), "connected_slaves")))
        .collect();

    let config = checkup.ask("CONFIG GET", redis::cmd("CONFIG").arg("GET").arg(&SETTINGS)).await;
    checkup.note(&config, |answer| evicts(&pairs(answer)));
    checkup.note(&config, |answer| no_persistence(&pairs(answer)));
    for (node, answer) in &config {
        let replicas = replicas.get(node.as_str()).copied().unwrap_or(0);
        if replicas > 0 && pairs(answer).get("min-replicas-to-write").is_some_and(|min| min == "0")
        {
            checkup.find(node, RedisConcern::NoQuorum { replicas });
        }
    }

    let asked = clock.now();
    let time = checkup.ask("TIME", &redis::cmd("TIME")).await;
    let answered = clock.now();
    checkup.note(&time, |answer| clock_differs(answer, asked, answered));
    Ok(checkup.findings)
}

/// What is asked, and what has come up.
struct Checkup {
    link: Link,
    patience: Duration,
    findings: Vec<RedisFinding>,
}

/// What each node answered.
type Answers = Vec<(String, Value)>;

impl Checkup {
    /// The answers to a command; none, and a finding, if they do not come.
    async fn ask(&mut self, name: &'static str, command: &Cmd) -> Answers {
        let answers = tokio::time::timeout(self.patience, self.link.query_each(command)).await;
        let answer = match answers {
            Ok(Ok(answers)) => return answers,
            Ok(Err(error)) => error.to_string(),
            Err(elapsed) => elapsed.to_string(),
        };
        self.find("", RedisConcern::Unknown { command: name, answer });
        Vec::new()
    }

    fn note(&mut self, answers: &Answers, read: impl Fn(&Value) -> Option<RedisConcern>) {
        for (node, answer) in answers {
            if let Some(what) = read(answer) {
                self.find(node, what);
            }
        }
    }

    fn find(&mut self, node: &str, what: RedisConcern) {
        self.findings.push(RedisFinding { server: node.to_owned(), what });
    }
}

/// The `name:value` lines of INFO.
fn lines(answer: &Value) -> HashMap<String, String> {
    let text: String = from_redis_value(answer.clone()).unwrap_or_default();
    let pairs = text.lines().filter_map(|line| line.trim_end().split_once(':'));
    pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// The pairs of CONFIG GET.
fn pairs(answer: &Value) -> HashMap<String, String> {
    from_redis_value(answer.clone()).unwrap_or_default()
}

fn number(facts: &HashMap<String, String>, name: &str) -> u64 {
    facts.get(name).and_then(|value| value.parse().ok()).unwrap_or(0)
}

/// Valkey says here which Redis it is compatible with.
fn too_old(facts: &HashMap<String, String>) -> Option<RedisConcern> {
    let version = facts.get("redis_version")?;
    let mut parts = version.split('.').map(|part| part.parse::<u32>().ok());
    let numbers = (parts.next()??, parts.next().flatten().unwrap_or(0));
    (numbers < OLDEST).then(|| RedisConcern::TooOld { version: version.clone() })
}

/// Without a limit nothing is ever evicted.
fn evicts(settings: &HashMap<String, String>) -> Option<RedisConcern> {
    let policy = settings.get("maxmemory-policy")?;
    let limited = settings.get("maxmemory").is_none_or(|limit| limit != "0");
    (limited && policy != "noeviction").then(|| RedisConcern::Evicts { policy: policy.clone() })
}

fn no_persistence(settings: &HashMap<String, String>) -> Option<RedisConcern> {
    let (save, appendonly) = (settings.get("save")?, settings.get("appendonly")?);
    (save.is_empty() && appendonly == "no").then_some(RedisConcern::NoPersistence)
}

fn clock_differs(answer: &Value, asked: Timestamp, answered: Timestamp) -> Option<RedisConcern> {
    let (seconds, micros): (u64, u64) = from_redis_value(answer.clone()).ok()?;
    let theirs = Timestamp::from_millis(seconds.saturating_mul(1000).saturating_add(micros / 1000));
    let (ahead, behind) = (theirs.since(answered), asked.since(theirs));
    let (by, ahead) = if ahead > behind { (ahead, true) } else { (behind, false) };
    (by > CLOCK_MARGIN).then_some(RedisConcern::Clock { by, ahead })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(pairs: &[(&str, &str)]) -> HashMap<String, String> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn versions_before_seven_are_refused() {
        let is_old = |version| too_old(&facts(&[("redis_version", version)])).is_some();
        assert!(is_old("6.2.14") && is_old("5") && is_old("4.0.9"));
        assert!(!is_old("7.0.0") && !is_old("7.2.4") && !is_old("8") && !is_old("255.255.255"));
        assert!(!is_old("unstable"), "what cannot be read is not judged");
    }

    #[test]
    fn a_limit_with_eviction_is_a_concern_and_one_without_is_none() {
        let found = |limit, policy| {
            evicts(&facts(&[("maxmemory", limit), ("maxmemory-policy", policy)])).is_some()
        };
        assert!(found("1000000", "allkeys-lru") && found("1", "volatile-ttl"));
        assert!(!found("1000000", "noeviction") && !found("0", "allkeys-lru"));
    }

    #[test]
    fn either_kind_of_persistence_will_do() {
        let found = |save, append| {
            no_persistence(&facts(&[("save", save), ("appendonly", append)])).is_some()
        };
        assert!(found("", "no"));
        assert!(!found("3600 1", "no") && !found("", "yes"));
    }

    #[test]
    fn a_clock_is_judged_by_the_nearest_moment_of_the_question() {
        let at = Timestamp::from_millis;
        let time = |seconds: u64| {
            let text = |number: u64| Value::BulkString(number.to_string().into_bytes());
            Value::Array(vec![text(seconds), text(0)])
        };
        assert_eq!(clock_differs(&time(100), at(97_000), at(103_000)), None);
        let ahead = RedisConcern::Clock { by: Duration::from_secs(60), ahead: true };
        assert_eq!(clock_differs(&time(160), at(99_000), at(100_000)), Some(ahead));
        let behind = RedisConcern::Clock { by: Duration::from_secs(9), ahead: false };
        assert_eq!(clock_differs(&time(90), at(99_000), at(100_000)), Some(behind));
    }
}
