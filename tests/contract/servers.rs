//! What several servers need beyond one on its socket: ports, sentinels, and an end.

use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anteroom::store::RedisSettings;

use crate::redis_server::RedisServer;

/// How long a server, or several of them, may take to be ready.
const PATIENCE: Duration = Duration::from_secs(60);

/// A server that also listens at a TCP port.
pub(crate) struct TcpServer {
    /// It.
    pub(crate) server: RedisServer,
    /// Where, at 127.0.0.1.
    pub(crate) port: u16,
}

impl TcpServer {
    /// Starts one with more options.
    pub(crate) fn start_with(options: &[&str]) -> Self {
        let port = free_port();
        let own = ["--port".to_owned(), port.to_string()];
        let own = own.iter().map(String::as_str);
        let options: Vec<&str> = own.chain(options.iter().copied()).collect();
        Self { server: RedisServer::start_with(&options), port }
    }
}

/// The process and the directory of a server.
pub(crate) fn traces(server: &RedisServer, client: &mut redis::Connection) -> (u32, PathBuf) {
    let info: String = redis::cmd("INFO").arg("server").query(client).expect("it runs");
    let line = info.lines().find_map(|line| line.strip_prefix("process_id:"));
    let pid = line.and_then(|pid| pid.trim().parse().ok()).expect("it knows its number");
    (pid, server.socket().parent().expect("a directory").to_owned())
}

/// Settings for a machine that may be busy with others.
pub(crate) fn patient(url: String) -> RedisSettings {
    let mut settings = RedisSettings::new(url);
    settings.connect_timeout = Duration::from_secs(5);
    settings.response_timeout = Duration::from_secs(5);
    settings
}

/// A port that nobody listens on, nor on the one that a cluster node derives from it. Linux takes
/// ports of outgoing connections from 32768 up.
pub(crate) fn free_port() -> u16 {
    let is_free = |port| TcpListener::bind(("127.0.0.1", port)).is_ok();
    loop {
        let port = rand::random_range(10_000..22_000);
        if is_free(port) && is_free(port + 10_000) {
            return port;
        }
    }
}

/// Waits for something to become true.
pub(crate) fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "waiting in vain: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A sentinel: its state is a file that it writes itself.
pub(crate) struct SentinelServer {
    process: Child,
    /// Where it listens, at 127.0.0.1.
    pub(crate) port: u16,
    directory: tempfile::TempDir,
}

impl SentinelServer {
    /// Starts one with these lines in its file.
    pub(crate) fn start(lines: &str) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let file = directory.path().join("sentinel.conf");
        let port = free_port();
        let own = format!("port {port}\ndir {}\n{lines}\n", directory.path().display());
        std::fs::write(&file, own).expect("it is ours");
        let mut command = Command::new("redis-server");
        command.arg(&file).arg("--sentinel").stdout(Stdio::null()).stderr(Stdio::null());
        let process = command.spawn().expect("redis-server is installed");
        wait_for("a sentinel", || TcpStream::connect(("127.0.0.1", port)).is_ok());
        Self { process, port, directory }
    }

    /// Its process and its directory.
    pub(crate) fn traces(&self) -> (u32, PathBuf) {
        (self.process.id(), self.directory.path().to_owned())
    }

    /// A plain client of it.
    pub(crate) fn client(&self) -> redis::Connection {
        let client = redis::Client::open(("127.0.0.1", self.port)).expect("an address");
        client.get_connection().expect("it runs")
    }
}

impl Drop for SentinelServer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Ends servers when this process ends, however it does: those in statics are never dropped.
pub(crate) struct Watchdog(#[expect(dead_code, reason = "its end is what matters")] Child);

impl Watchdog {
    /// Watches over servers: their processes and their directories.
    pub(crate) fn over(servers: impl IntoIterator<Item = (u32, PathBuf)>) -> Self {
        // The other end of its input closes with this process.
        let script = "read -r _; for word; do case $word in /*) rm -rf \"$word\";; *) kill -9 $word;; \
                      esac; done";
        let mut command = Command::new("sh");
        command.args(["-c", script, "watchdog"]);
        let (pids, directories): (Vec<u32>, Vec<PathBuf>) = servers.into_iter().unzip();
        command.args(pids.iter().map(u32::to_string)).args(directories);
        command.stdin(Stdio::piped()).stderr(Stdio::null());
        Self(command.spawn().expect("a shell"))
    }
}
