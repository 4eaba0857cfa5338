//! The connection to Redis: made on first use, shared by all, replaced when it fails, and never
//! waited for longer than the settings say.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use redis::io::tcp::TcpSettings;
use redis::{Client, Cmd, ErrorKind, IntoConnectionInfo, RedisError, ServerErrorKind, Value};

use crate::store::{RedisSettings, StoreError};

use super::scripts::Source;

/// Commands waiting to be written: many requests ask at once, and none should queue outside.
const PIPELINE_BUFFER: usize = 4096;

/// Timeouts in a row after which the connection counts as dead though nobody closed it, as when
/// the machine at its other end is gone.
const TIMEOUTS_IN_A_ROW: u32 = 3;

/// A connection that comes back by itself.
#[derive(Debug)]
pub(super) struct Connection {
    client: Client,
    config: ConnectionManagerConfig,
    manager: ArcSwap<ConnectionManager>,
    timeouts: AtomicU32,
    /// The longest any call takes.
    patience: Duration,
}

impl Connection {
    /// Prepares a connection without making it. Must be called inside a tokio runtime.
    pub(super) fn new(settings: &RedisSettings) -> Result<Self, StoreError> {
        let info = settings.url.as_str().into_connection_info().map_err(refused)?;
        let info = info.set_tcp_settings(TcpSettings::default().set_nodelay(true));
        let client = Client::open(info).map_err(refused)?;
        let config = ConnectionManagerConfig::new()
            .set_connection_timeout(Some(settings.connect_timeout))
            .set_response_timeout(Some(settings.response_timeout))
            .set_number_of_retries(1)
            .set_min_delay(Duration::from_millis(10))
            .set_max_delay(Duration::from_millis(50))
            .set_pipeline_buffer_size(PIPELINE_BUFFER);
        let manager = ConnectionManager::new_lazy_with_config(client.clone(), config.clone())
            .map_err(refused)?;
        Ok(Self {
            client,
            config,
            manager: ArcSwap::from_pointee(manager),
            timeouts: AtomicU32::new(0),
            patience: settings.connect_timeout + settings.response_timeout,
        })
    }

    /// Runs a script; sends its text if Redis has forgotten it.
    pub(super) async fn run(
        &self,
        script: &Source,
        keys: &[String],
        args: &[&[u8]],
    ) -> Result<Value, StoreError> {
        let command = |verb: &str, script: &str| {
            let mut command = redis::cmd(verb);
            command.arg(script).arg(keys.len()).arg(keys).arg(args);
            command
        };
        match self.ask(&command("EVALSHA", &script.hash)).await {
            Err(Failure::Redis(error))
                if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) =>
            {
                self.ask(&command("EVAL", script.text)).await.map_err(StoreError::from)
            }
            other => other.map_err(StoreError::from),
        }
    }

    /// Sends one command.
    pub(super) async fn send(&self, command: &Cmd) -> Result<Value, StoreError> {
        self.ask(command).await.map_err(StoreError::from)
    }

    async fn ask(&self, command: &Cmd) -> Result<Value, Failure> {
        let manager = self.manager.load_full();
        let mut connection = ConnectionManager::clone(&manager);
        let answer =
            tokio::time::timeout(self.patience, command.query_async::<Value>(&mut connection));
        let answer = match answer.await {
            Ok(answer) => answer.map_err(Failure::Redis),
            Err(elapsed) => Err(Failure::Late(elapsed)),
        };
        match &answer {
            Err(Failure::Late(_)) => self.count_timeout(&manager),
            Err(Failure::Redis(error)) if error.is_timeout() => self.count_timeout(&manager),
            // A manager that was refused at login never tries again by itself, and one whose server
            // was demoted to a replica stays with it.
            Err(Failure::Redis(error)) if needs_another(error.kind()) => self.replace(&manager),
            _ => self.timeouts.store(0, Ordering::Relaxed),
        }
        answer
    }

    fn count_timeout(&self, manager: &Arc<ConnectionManager>) {
        if self.timeouts.fetch_add(1, Ordering::Relaxed) + 1 >= TIMEOUTS_IN_A_ROW {
            self.timeouts.store(0, Ordering::Relaxed);
            self.replace(manager);
        }
    }

    /// Starts over with a new connection, unless somebody else just did.
    fn replace(&self, dead: &Arc<ConnectionManager>) {
        let fresh =
            ConnectionManager::new_lazy_with_config(self.client.clone(), self.config.clone());
        if let Ok(fresh) = fresh {
            self.manager.compare_and_swap(dead, Arc::new(fresh));
        }
    }
}

const fn needs_another(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::AuthenticationFailed | ErrorKind::Server(ServerErrorKind::ReadOnly))
}

/// Why there is no answer.
#[derive(Debug)]
enum Failure {
    Redis(RedisError),
    Late(tokio::time::error::Elapsed),
}

impl From<Failure> for StoreError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Late(elapsed) => Self::Indeterminate(Box::new(elapsed)),
            Failure::Redis(error) => from_redis(error),
        }
    }
}

/// What a failure of Redis means for the caller. A script that fails at run time met data it does
/// not understand; every other answer of the server is a refusal made before the first step.
fn from_redis(error: RedisError) -> StoreError {
    let failed_script = matches!(error.kind(), ErrorKind::Server(ServerErrorKind::ResponseError))
        && error.detail().is_some_and(|detail| detail.contains("script"));
    match error.kind() {
        _ if failed_script || error.code() == Some("WRONGTYPE") => {
            StoreError::Corrupt(error.to_string())
        }
        ErrorKind::Parse | ErrorKind::UnexpectedReturnType => {
            StoreError::Corrupt(error.to_string())
        }
        ErrorKind::Io if !error.is_connection_refusal() => {
            StoreError::Indeterminate(Box::new(error))
        }
        _ => refused(error),
    }
}

fn refused(error: RedisError) -> StoreError {
    StoreError::Unavailable(Box::new(error))
}
