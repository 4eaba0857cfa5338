//! Asks sentinels which server is the master.
//!
//! All are asked at once and the one that knows of the latest promotion is believed: a sentinel
//! cut off together with the old master still names that one. Whether the server agrees is for the
//! caller to ask.

use std::collections::HashMap;
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt as _};
use parking_lot::Mutex;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, ErrorKind, RedisError, RedisResult};
use tokio::time::timeout;

use super::address::Host;

/// How long the first answer waits for a better one.
const GRACE: Duration = Duration::from_millis(50);

/// The sentinels of one master.
#[derive(Debug)]
pub(super) struct Sentinels {
    all: Vec<Sentinel>,
    master: String,
    /// The longest any sentinel is waited for.
    patience: Duration,
}

struct Sentinel {
    client: Client,
    config: AsyncConnectionConfig,
    /// The connection that worked last time.
    connection: Mutex<Option<MultiplexedConnection>>,
}

impl std::fmt::Debug for Sentinel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sentinel").finish_non_exhaustive()
    }
}

impl Sentinels {
    /// The sentinels behind `clients`.
    pub(super) fn new(
        clients: Vec<Client>,
        master: String,
        config: &AsyncConnectionConfig,
        patience: Duration,
    ) -> Self {
        let sentinel =
            |client| Sentinel { client, config: config.clone(), connection: Mutex::default() };
        Self { all: clients.into_iter().map(sentinel).collect(), master, patience }
    }

    /// Where the master is.
    ///
    /// # Errors
    /// The error of the sentinel that failed last, if none knows.
    pub(super) async fn master(&self) -> RedisResult<Host> {
        let ask = |sentinel| timeout(self.patience, self.ask(sentinel));
        let mut asked: FuturesUnordered<_> = self.all.iter().map(ask).collect();
        let mut best: Option<(u64, Host)> = None;
        let mut failed = late();
        loop {
            let next = match &best {
                None => asked.next().await,
                Some(_) => timeout(GRACE, asked.next()).await.unwrap_or_default(),
            };
            match next {
                None => break,
                Some(Ok(Ok((epoch, host)))) => {
                    if best.as_ref().is_none_or(|(latest, _)| epoch > *latest) {
                        best = Some((epoch, host));
                    }
                }
                Some(Ok(Err(error))) => failed = error,
                Some(Err(_)) => failed = late(),
            }
        }
        best.map(|(_, host)| host).ok_or(failed)
    }

    /// What one sentinel believes: the number of the last promotion, and the master's address.
    async fn ask(&self, sentinel: &Sentinel) -> RedisResult<(u64, Host)> {
        // Taken out meanwhile: a connection that does not answer is not kept.
        let kept = sentinel.connection.lock().take();
        if let Some(connection) = kept
            && let Ok(answer) = self.ask_on(&mut connection.clone()).await
        {
            *sentinel.connection.lock() = Some(connection);
            return Ok(answer);
        }
        let fresh = sentinel.client.get_multiplexed_async_connection_with_config(&sentinel.config);
        let connection = fresh.await?;
        let answer = self.ask_on(&mut connection.clone()).await?;
        *sentinel.connection.lock() = Some(connection);
        Ok(answer)
    }

    async fn ask_on(&self, connection: &mut MultiplexedConnection) -> RedisResult<(u64, Host)> {
        let mut address = redis::cmd("SENTINEL");
        address.arg("GET-MASTER-ADDR-BY-NAME").arg(&self.master);
        // While a failover is under way this is the new master already, unlike `ip` below.
        let address: Option<(String, u16)> = address.query_async(connection).await?;
        let Some(host) = address else {
            return Err(RedisError::from((
                ErrorKind::MasterNameNotFoundBySentinel,
                "the sentinel does not know this master",
            )));
        };
        let mut master = redis::cmd("SENTINEL");
        master.arg("MASTER").arg(&self.master);
        // An ACL may forbid it; then all sentinels count the same.
        let facts: RedisResult<HashMap<String, String>> = master.query_async(connection).await;
        let epoch = facts.ok().and_then(|facts| facts.get("config-epoch")?.parse().ok());
        Ok((epoch.unwrap_or(0), host))
    }
}

fn late() -> RedisError {
    RedisError::from(std::io::Error::from(std::io::ErrorKind::TimedOut))
}
