//! What is true in Redis while a story runs, looked at past every gateway and every fault.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// One look, exact: a script is one moment of Redis.
#[derive(Clone, Debug)]
pub struct Sample {
    /// When it was asked for.
    pub asked: Instant,
    /// When it was there.
    pub came: Instant,
    /// The queue's incarnation.
    pub incarnation: u64,
    /// The number whose turn is next.
    pub head: u64,
    /// The last number given out.
    pub tail: u64,
    /// Users admitted so far.
    pub admitted: u64,
    /// Who is active.
    pub active: BTreeSet<u64>,
}

const LOOK: &str = r"
local m = redis.call('HMGET', KEYS[1], 'inc', 'head', 'tail', 'admitted', 'last_now')
if not m[1] then return false end
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
now = string.format('%.0f', math.max(now, tonumber(m[5])))
local active = redis.call('ZRANGEBYSCORE', KEYS[2], '(' .. now, '+inf')
return { tonumber(m[1]), tonumber(m[2]), tonumber(m[3]), tonumber(m[4]), active }
";

/// How long a look may take: a paused server is asked again.
const PATIENCE: Duration = Duration::from_millis(500);

/// How often Redis is looked at.
const EVERY: Duration = Duration::from_millis(10);

/// Somebody who looks at one queue all the time.
#[derive(Debug)]
pub struct StoreSamples {
    samples: Arc<Mutex<Vec<Sample>>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for StoreSamples {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl StoreSamples {
    /// Looks at `queue` in the server on this socket, from now on.
    pub fn of(queue: &str, socket: &Path) -> Self {
        let samples = Arc::<Mutex<Vec<Sample>>>::default();
        let stop = Arc::new(AtomicBool::new(false));
        let keys = ["m", "a"].map(|part| format!("anteroom:{{{queue}}}:{part}"));
        let url = format!("redis+unix://{}", socket.display());
        let client = redis::Client::open(url).expect("a URL");
        // A thread of its own: it must look even while everything else is busy.
        let thread = std::thread::spawn({
            let (samples, stop) = (Arc::clone(&samples), Arc::clone(&stop));
            move || {
                let mut connection = None;
                while !stop.load(Ordering::Relaxed) {
                    match look(&client, &mut connection, &keys) {
                        Ok(sample) => samples.lock().unwrap().extend(sample),
                        Err(_) => connection = None,
                    }
                    std::thread::sleep(EVERY);
                }
            }
        });
        Self { samples, stop, thread: Some(thread) }
    }

    /// All samples so far, in order.
    pub fn all(&self) -> Vec<Sample> {
        self.samples.lock().unwrap().clone()
    }
}

fn look(
    client: &redis::Client,
    connection: &mut Option<redis::Connection>,
    keys: &[String; 2],
) -> redis::RedisResult<Option<Sample>> {
    if connection.is_none() {
        let fresh = client.get_connection_with_timeout(PATIENCE)?;
        fresh.set_read_timeout(Some(PATIENCE))?;
        *connection = Some(fresh);
    }
    let Some(connection) = connection else { return Ok(None) };
    let asked = Instant::now();
    let seen: Option<(u64, u64, u64, u64, BTreeSet<u64>)> =
        redis::cmd("EVAL").arg(LOOK).arg(keys.len()).arg(keys).query(connection)?;
    let came = Instant::now();
    Ok(seen.map(|(incarnation, head, tail, admitted, active)| Sample {
        asked,
        came,
        incarnation,
        head,
        tail,
        admitted,
        active,
    }))
}
