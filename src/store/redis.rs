//! The Redis store: one queue shared by any number of gateways.
//!
//! Each command is one Lua script, so Redis carries it out whole or not at all, by its own clock.
//! The scripts hold the rules of [`Line`](crate::queue::line::Line) a second time; the contract
//! suite compares every answer of both. This file only carries arguments there and answers back.
//! It needs Redis 7.0 or Valkey 7.2, without an eviction policy that takes keys away.

mod address;
mod checkup;
mod connection;
mod failure;
mod keys;
mod reply;
mod scripts;
mod sentinel;
mod tls;
mod topology;

use std::fmt::{self, Write as _};
use std::sync::Arc;

use async_trait::async_trait;
use redis::Value;

#[cfg(any(test, feature = "testing"))]
use crate::clock::Clock;
use crate::clock::Timestamp;
use crate::queue::command::{
    AdmitBy, Admitted, Configured, Entered, Evidence, Heartbeat, HeldLease, Left, LineCopy, Origin,
    Purpose, Reaped, Rebuilt, Recollection, Sighting, Standing, Synced, Versioned, Versions,
};
use crate::queue::line::GAP;
use crate::queue::settings::{Rate, Renew, Settings};
use crate::queue::{QueueName, Seq, UserTag};

use super::batching::batching;
use super::{QueueStore, RedisSettings, SharedSecret, SharedStore, StoreError};

pub use address::{Credentials, RedisAddress, RedisAddressError, RedisTopology};
pub use checkup::{RedisConcern, RedisFinding, redis_checkup};
pub use tls::{RedisTls, RedisTlsError};

use connection::Connection;
use keys::Keys;
use reply::Reply;
use scripts::Source;

/// A store in Redis. Connects on first use; must be called inside a tokio runtime.
///
/// Users who enter one queue at the same time go to Redis together.
///
/// # Errors
/// [`StoreError::Unavailable`] when the URL is no Redis URL. A Redis that does not answer shows
/// with the first command.
pub fn redis(settings: &RedisSettings) -> Result<SharedStore, StoreError> {
    Ok(batching(Arc::new(Redis::new(settings)?)))
}

/// The same store, but the queues it creates go by `clock` instead of the clock of Redis.
///
/// # Errors
/// As [`redis()`].
#[cfg(any(test, feature = "testing"))]
pub fn redis_with_clock(
    settings: &RedisSettings,
    clock: Arc<dyn Clock>,
) -> Result<SharedStore, StoreError> {
    let mut store = Redis::new(settings)?;
    store.clock = Some(clock);
    Ok(batching(Arc::new(store)))
}

#[derive(Debug)]
struct Redis {
    connection: Connection,
    keys: Keys,
    #[cfg(any(test, feature = "testing"))]
    clock: Option<Arc<dyn Clock>>,
}

/// The numbers of the settings that scripts need, as text, in the order of `configure.lua`.
fn fields(settings: &Settings) -> [String; 12] {
    // Settings that hold together are far below; this only keeps the scripts' arithmetic exact.
    let number = |number: u64| number.min(Seq::MAX.0).to_string();
    let millis =
        |span: std::time::Duration| number(u64::try_from(span.as_millis()).unwrap_or(u64::MAX));
    let moment = |at: Option<Timestamp>| at.map(|at| number(at.as_millis())).unwrap_or_default();
    let rate = match settings.rate {
        Rate::Unlimited => "-1".to_owned(),
        Rate::MicroPerMs(micro) => number(micro),
    };
    [
        settings.mode.as_str().to_owned(),
        number(settings.capacity),
        rate,
        millis(settings.active_ttl),
        millis(settings.active_max),
        u8::from(settings.renew == Renew::Sliding).to_string(),
        millis(settings.claim_ttl),
        number(settings.silent_epochs()),
        millis(settings.late_grace),
        number(settings.max_waiting),
        moment(settings.opens_at),
        moment(settings.closes_at),
    ]
}

fn optional(seq: Option<Seq>) -> String {
    seq.map(|seq| seq.to_string()).unwrap_or_default()
}

fn unexpected(value: &impl fmt::Debug) -> StoreError {
    StoreError::Corrupt(format!("an answer of another version: {value:?}"))
}

impl Redis {
    fn new(settings: &RedisSettings) -> Result<Self, StoreError> {
        Ok(Self {
            connection: Connection::new(settings)?,
            keys: Keys::new(&settings.key_prefix),
            #[cfg(any(test, feature = "testing"))]
            clock: None,
        })
    }

    /// The test clock as the scripts take it; empty for the clock of Redis.
    #[cfg(any(test, feature = "testing"))]
    fn test_time(&self) -> String {
        self.clock.as_ref().map(|clock| clock.now().as_millis().to_string()).unwrap_or_default()
    }

    #[cfg(not(any(test, feature = "testing")))]
    #[expect(clippy::unused_self, reason = "tests have a clock here")]
    const fn test_time(&self) -> String {
        String::new()
    }

    /// What `create.lua` takes.
    fn declaration(&self, settings: &Settings, origin: &Origin) -> Result<Vec<String>, StoreError> {
        let json = serde_json::to_string(settings)
            .map_err(|error| StoreError::Corrupt(format!("settings: {error}")))?;
        let hash = match origin {
            Origin::File(hash) => hash.to_string(),
            Origin::Operator => String::new(),
        };
        let for_tests = if self.test_time().is_empty() { "" } else { "1" };
        let mut args = vec![for_tests.to_owned(), hash, json];
        args.extend(fields(settings));
        Ok(args)
    }

    /// Runs a script on `queue` with more keys after the queue's own.
    async fn run_with(
        &self,
        script: &Source,
        queue: &QueueName,
        more: impl IntoIterator<Item = String>,
        args: &[&[u8]],
    ) -> Result<Value, StoreError> {
        let mut keys = self.keys.queue(queue);
        keys.extend(more);
        let time = self.test_time();
        let mut all = Vec::with_capacity(args.len() + 1);
        all.push(time.as_bytes());
        all.extend(args);
        self.connection.run(script, &keys, &all).await
    }

    /// Runs a script on `queue` and opens its answer.
    async fn ask(
        &self,
        script: &Source,
        queue: &QueueName,
        args: &[&[u8]],
    ) -> Result<Reply, StoreError> {
        Reply::of(self.run_with(script, queue, [], args).await?, queue)
    }
}

#[async_trait]
impl QueueStore for Redis {
    fn kind(&self) -> &'static str {
        "redis"
    }

    async fn secret(&self, name: SharedSecret, proposal: [u8; 32]) -> Result<[u8; 32], StoreError> {
        let mut command = redis::cmd("SET");
        command.arg(self.keys.secret(name)).arg(&proposal[..]).arg("NX").arg("GET");
        match self.connection.send(&command).await? {
            Value::Nil => Ok(proposal),
            stored => reply::bytes(stored)?
                .try_into()
                .map_err(|_| StoreError::Corrupt("a shared secret that is not 32 bytes".into())),
        }
    }

    async fn configure(
        &self,
        queue: &QueueName,
        settings: &Settings,
        origin: Origin,
    ) -> Result<Configured, StoreError> {
        let args = self.declaration(settings, &origin)?;
        let args: Vec<&[u8]> = args.iter().map(String::as_bytes).collect();
        let incarnation = [self.keys.incarnation(queue)];
        match self.run_with(&scripts::CONFIGURE, queue, incarnation, &args).await? {
            Value::Int(0) => Ok(Configured::Kept),
            Value::Int(1) => Ok(Configured::Changed),
            Value::Int(2) => Ok(Configured::Created),
            other => Err(unexpected(&other)),
        }
    }

    async fn enter(
        &self,
        queue: &QueueName,
        users: &[UserTag],
    ) -> Result<Versioned<Vec<Entered>>, StoreError> {
        let tags: Vec<&[u8]> = users.iter().map(|user| user.0.as_slice()).collect();
        let entered = self.ask(&scripts::ENTER, queue, &tags).await?.versioned(Reply::entered)?;
        if entered.value.len() != users.len() {
            let (asked, got) = (users.len(), entered.value.len());
            return Err(StoreError::Corrupt(format!("{got} answers for {asked} users")));
        }
        Ok(entered)
    }

    async fn standing(
        &self,
        queue: &QueueName,
        user: UserTag,
        seq: Option<Seq>,
        purpose: Purpose,
    ) -> Result<Versioned<Standing>, StoreError> {
        let purpose: &[u8] = match purpose {
            Purpose::Poll => b"poll",
            Purpose::Pass => b"pass",
        };
        let seq = optional(seq);
        let args = [&user.0, seq.as_bytes(), purpose];
        self.ask(&scripts::STANDING, queue, &args).await?.versioned(Reply::standing)
    }

    async fn leave(
        &self,
        queue: &QueueName,
        user: UserTag,
        seq: Option<Seq>,
    ) -> Result<Versioned<Left>, StoreError> {
        let seq = optional(seq);
        let args = [&user.0, seq.as_bytes()];
        self.ask(&scripts::LEAVE, queue, &args).await?.versioned(|reply| match reply.number()? {
            0 => Ok(Left::Nothing),
            1 => Ok(Left::Gave),
            other => Err(StoreError::Corrupt(format!("{other} is no way to leave"))),
        })
    }

    async fn admit(
        &self,
        queue: &QueueName,
        max: u64,
        by: AdmitBy,
    ) -> Result<Versioned<Admitted>, StoreError> {
        let by: &[u8] = match by {
            AdmitBy::Tick => b"tick",
            AdmitBy::Operator => b"operator",
        };
        let max = max.to_string();
        self.ask(&scripts::ADMIT, queue, &[max.as_bytes(), by]).await?.versioned(|reply| {
            Ok(Admitted { count: reply.number()?, late: reply.number()?, head: reply.number()? })
        })
    }

    async fn heartbeat(&self, queue: &QueueName, heartbeat: &Heartbeat) -> Result<(), StoreError> {
        let [bits, gateways] = self.keys.epoch(queue, heartbeat.epoch);
        let [scratch, _] = self.keys.scratch(queue);
        let [epoch, gateway, first] =
            [heartbeat.epoch, heartbeat.gateway, heartbeat.first].map(|number| number.to_string());
        let args = [epoch.as_bytes(), gateway.as_bytes(), first.as_bytes(), &heartbeat.bits];
        let more = [bits, gateways, scratch];
        match self.run_with(&scripts::HEARTBEAT, queue, more, &args).await? {
            Value::Int(1) => Ok(()),
            other => {
                Err(Reply::of(other, queue).map_or_else(|error| error, |reply| unexpected(&reply)))
            }
        }
    }

    async fn reap(&self, queue: &QueueName) -> Result<Reaped, StoreError> {
        // Which epochs to name only the store knows: it answers the first, empty guess with them.
        let (mut epoch, mut reach) = (0, 0);
        for _ in 0..3 {
            let epochs = (1..=reach)
                .flat_map(|back| self.keys.epoch(queue, u64::saturating_sub(epoch, back)));
            let more: Vec<String> = self.keys.scratch(queue).into_iter().chain(epochs).collect();
            let args = [epoch.to_string(), reach.to_string()];
            let args = [args[0].as_bytes(), args[1].as_bytes()];
            let mut reply =
                Reply::of(self.run_with(&scripts::REAP, queue, more, &args).await?, queue)?;
            let (kind, a, b) = (reply.number()?, reply.number()?, reply.number()?);
            match kind {
                0 => return Ok(Reaped::Absent(a)),
                1 => return Ok(Reaped::Already),
                2 => return Ok(Reaped::Incomplete),
                3 if b <= MAX_REACH => (epoch, reach) = (a, b),
                _ => return Err(StoreError::Corrupt(format!("reaping answered {kind} {a} {b}"))),
            }
        }
        // The settings change faster than they can be read: judge at the next occasion.
        Ok(Reaped::Incomplete)
    }

    async fn sync(&self, queue: &QueueName, known: Versions) -> Result<Synced, StoreError> {
        let known = [known.gone, known.late, known.settings, known.revoked].map(|v| v.to_string());
        let args: Vec<&[u8]> = known.iter().map(String::as_bytes).collect();
        self.ask(&scripts::SYNC, queue, &args).await?.synced()
    }

    async fn compact(&self, queue: &QueueName, keep: u64) -> Result<(), StoreError> {
        let keep = keep.to_string();
        match self.run_with(&scripts::COMPACT, queue, [], &[keep.as_bytes()]).await? {
            Value::Int(1) => Ok(()),
            other => {
                Err(Reply::of(other, queue).map_or_else(|error| error, |reply| unexpected(&reply)))
            }
        }
    }

    async fn fence(&self, queue: &QueueName, seen: &Sighting) -> Result<Versioned<()>, StoreError> {
        let args =
            [seen.head, seen.tail, seen.issued.as_millis(), GAP].map(|number| number.to_string());
        let args: Vec<&[u8]> = args.iter().map(String::as_bytes).collect();
        self.ask(&scripts::FENCE, queue, &args).await?.versioned(|_| Ok(()))
    }

    async fn revive(
        &self,
        queue: &QueueName,
        user: UserTag,
        evidence: &Evidence,
    ) -> Result<Versioned<Standing>, StoreError> {
        let Evidence { place, issued, lease } = evidence;
        let until = lease.map(|lease| lease.until.as_millis().to_string()).unwrap_or_default();
        let claimed = if lease.is_some_and(|lease| lease.claimed) { "1" } else { "0" };
        let args = [place.seq.0, place.entered.as_millis(), issued.as_millis()];
        let args = args.map(|number| number.to_string());
        let mut all: Vec<&[u8]> = vec![&user.0];
        all.extend(args.iter().map(String::as_bytes));
        all.extend([until.as_bytes(), claimed.as_bytes()]);
        self.ask(&scripts::REVIVE, queue, &all).await?.versioned(Reply::standing)
    }

    async fn restore(
        &self,
        queue: &QueueName,
        leases: &[HeldLease],
    ) -> Result<Versioned<u64>, StoreError> {
        let mut args: Vec<Vec<u8>> = Vec::with_capacity(leases.len() * 5);
        for HeldLease { owner, place, lease } in leases {
            args.push(owner.0.to_vec());
            let numbers = [
                place.seq.0,
                place.entered.as_millis(),
                lease.until.as_millis(),
                u64::from(lease.claimed),
            ];
            args.extend(numbers.map(|number| number.to_string().into_bytes()));
        }
        let args: Vec<&[u8]> = args.iter().map(Vec::as_slice).collect();
        self.ask(&scripts::RESTORE, queue, &args).await?.versioned(Reply::number)
    }

    async fn rebuild(
        &self,
        queue: &QueueName,
        settings: &Settings,
        origin: Origin,
        from: &Recollection,
    ) -> Result<Rebuilt, StoreError> {
        let Recollection { incarnation, sighting, copy } = from;
        let numbers = [
            u64::from(*incarnation),
            sighting.head,
            sighting.tail,
            sighting.issued.as_millis(),
            GAP,
            u64::from(copy.is_some()),
        ];
        let args = self.declaration(settings, &origin)?;
        let args = args.into_iter().chain(numbers.map(|number| number.to_string()));
        let mut args: Vec<Vec<u8>> = args.map(String::into_bytes).collect();
        if let Some(copy) = copy {
            args.extend(copied(copy));
        }
        let args: Vec<&[u8]> = args.iter().map(Vec::as_slice).collect();
        let incarnation = [self.keys.incarnation(queue)];
        match self.run_with(&scripts::REBUILD, queue, incarnation, &args).await? {
            Value::Int(0) => Ok(Rebuilt::Done),
            Value::Int(1) => Ok(Rebuilt::Known),
            Value::Int(2) => Ok(Rebuilt::Refused),
            other => Err(unexpected(&other)),
        }
    }
}

/// A gateway's copy as `rebuild.lua` takes it.
fn copied(copy: &LineCopy) -> Vec<Vec<u8>> {
    let LineCopy { gone, late, admitted, versions, passed } = copy;
    let Versions { all, gone: gone_bits, late: late_lane, settings, revoked } = versions;
    let numbers = [*admitted, *all, *gone_bits, *late_lane, *settings, *revoked];
    let spaced = |numbers: &mut dyn Iterator<Item = u64>| {
        let mut text = String::new();
        for number in numbers {
            // Writing to a string cannot fail.
            let _ = write!(text, "{number} ");
        }
        text.into_bytes()
    };
    let mut args = vec![gone.clone()];
    args.extend(numbers.map(|number| number.to_string().into_bytes()));
    args.push(spaced(&mut late.iter().copied()));
    args.push(spaced(&mut passed.iter().flat_map(|(second, head)| [*second, *head])));
    args
}

/// The most epochs a judgement looks back; the longest `waiting_ttl` has 120.
const MAX_REACH: u64 = 4096;
