//! A real `redis-server` for one test: on a socket of its own, without files, gone with the value.

use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anteroom::store::RedisSettings;

/// A running server.
pub(crate) struct RedisServer {
    process: Child,
    directory: tempfile::TempDir,
}

impl RedisServer {
    /// Starts one and waits until it takes connections.
    pub(crate) fn start() -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let process = launch(&directory.path().join("redis.sock"));
        Self { process, directory }
    }

    fn socket(&self) -> PathBuf {
        self.directory.path().join("redis.sock")
    }

    /// How to reach it.
    pub(crate) fn settings(&self) -> RedisSettings {
        let mut settings = RedisSettings::new(format!("redis+unix://{}", self.socket().display()));
        // The machine that runs the tests may be busy with others.
        settings.connect_timeout = Duration::from_secs(5);
        settings.response_timeout = Duration::from_secs(5);
        settings
    }

    /// Ends it at once, without a word to its clients.
    pub(crate) fn kill(&mut self) {
        self.process.kill().expect("it runs");
        self.process.wait().expect("it ended");
    }

    /// Starts an empty one in its place.
    pub(crate) fn restart(&mut self) {
        self.process = launch(&self.socket());
    }

    /// Sends a signal, as `STOP` or `CONT`.
    pub(crate) fn signal(&self, name: &str) {
        let pid = self.process.id().to_string();
        let status = Command::new("kill").args([&format!("-{name}"), &pid]).status();
        assert!(status.expect("kill is there").success());
    }

    /// A plain client, for what the port does not show.
    pub(crate) fn client(&self) -> redis::Connection {
        let url = format!("redis+unix://{}", self.socket().display());
        redis::Client::open(url).expect("a URL").get_connection().expect("it runs")
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn launch(socket: &std::path::Path) -> Child {
    let _ = std::fs::remove_file(socket);
    let mut process = Command::new("redis-server")
        .args(["--port", "0", "--save", "", "--appendonly", "no", "--loglevel", "warning"])
        .arg("--unixsocket")
        .arg(socket)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("redis-server is installed");
    let deadline = Instant::now() + Duration::from_secs(20);
    while UnixStream::connect(socket).is_err() {
        assert!(process.try_wait().expect("its state").is_none(), "redis-server ended at once");
        assert!(Instant::now() < deadline, "redis-server does not listen");
        std::thread::yield_now();
    }
    process
}
