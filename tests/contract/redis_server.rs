//! A real `redis-server` for one test: on a socket of its own and gone with the value; without files
//! unless it is told to keep some.

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anteroom::store::RedisSettings;

/// A running server.
#[derive(Debug)]
pub(crate) struct RedisServer {
    process: Child,
    directory: tempfile::TempDir,
    options: Vec<String>,
}

impl RedisServer {
    /// Starts one and waits until it takes connections.
    pub(crate) fn start() -> Self {
        Self::start_with(&[])
    }

    /// The same with more options, which last over restarts: `--port 0`, `--save ""` and
    /// `--appendonly no` stand before them. Its files are in a directory of its own.
    pub(crate) fn start_with(options: &[&str]) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let options: Vec<String> = options.iter().map(ToString::to_string).collect();
        let process = launch(directory.path(), &options);
        Self { process, directory, options }
    }

    /// Where it listens.
    pub(crate) fn socket(&self) -> PathBuf {
        socket_in(self.directory.path())
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

    /// Starts one in its place: empty, unless its options keep files.
    pub(crate) fn restart(&mut self) {
        self.process = launch(self.directory.path(), &self.options);
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

fn socket_in(directory: &Path) -> PathBuf {
    directory.join("redis.sock")
}

fn launch(directory: &Path, options: &[String]) -> Child {
    let socket = socket_in(directory);
    let _ = std::fs::remove_file(&socket);
    let mut process = Command::new("redis-server")
        .args(["--port", "0", "--save", "", "--appendonly", "no", "--loglevel", "warning"])
        .args(options)
        .arg("--unixsocket")
        .arg(&socket)
        .arg("--dir")
        .arg(directory)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("redis-server is installed");
    let deadline = Instant::now() + Duration::from_secs(20);
    while UnixStream::connect(&socket).is_err() {
        assert!(process.try_wait().expect("its state").is_none(), "redis-server ended at once");
        assert!(Instant::now() < deadline, "redis-server does not listen");
        std::thread::yield_now();
    }
    process
}
