//! Gateways as processes of their own: started, killed, stopped, and started again where they were.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener};
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;
use tokio::task::spawn_blocking;

use crate::support::soon;

/// A gateway in a process of its own. Dropped, it is killed.
#[derive(Debug)]
pub struct Process {
    /// Where clients find it, in this life and the next ones.
    pub address: SocketAddr,
    child: Option<Child>,
    directory: TempDir,
}

impl Process {
    /// Starts one. `config` is a configuration; what stands before its first header belongs to
    /// `[server]`, which has no `listen` yet.
    pub async fn start(config: &str) -> Self {
        let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
        let directory = tempfile::tempdir().expect("a temporary directory");
        let text = format!("[server]\nlisten = [\"{address}\"]\n{config}");
        std::fs::write(directory.path().join("gateway.toml"), text).expect("a file");
        let mut process = Self { address, child: None, directory };
        process.start_again().await;
        process
    }

    /// Starts it where it was, and waits until it listens.
    pub async fn start_again(&mut self) {
        assert!(self.child.is_none(), "it runs");
        let log = File::options().create(true).append(true).open(self.log()).expect("a file");
        let mut child = Command::new(env!("CARGO_BIN_EXE_anteroom"))
            .arg("--config")
            .arg(self.directory.path().join("gateway.toml"))
            .env("NO_COLOR", "1")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .expect("it was built");
        let stdout = child.stdout.take().expect("it was piped");
        self.child = Some(child);
        let first = spawn_blocking(move || BufReader::new(stdout).lines().next());
        let line = match soon(first).await.expect("no panic") {
            Some(line) => line.expect("text"),
            None => panic!("it ended at once: {}", self.last_words()),
        };
        assert_eq!(line, format!("listening on http://{}", self.address));
    }

    /// Ends it at once, as `kill -9` does.
    pub fn kill(&mut self) {
        let mut child = self.child.take().expect("it runs");
        child.kill().expect("it runs");
        child.wait().expect("it ended");
    }

    /// Asks it to stop, and waits until it has; it must have ended well.
    pub async fn stop(&mut self) {
        self.signal("TERM");
        let mut child = self.child.take().expect("it runs");
        let status = soon(spawn_blocking(move || child.wait())).await.expect("no panic");
        assert!(status.expect("its state").success(), "{}", self.last_words());
    }

    /// Sends a signal, as `STOP` or `CONT`.
    pub fn signal(&self, name: &str) {
        let pid = self.child.as_ref().expect("it runs").id().to_string();
        let status = Command::new("kill").args([&format!("-{name}"), &pid]).status();
        assert!(status.expect("kill is there").success());
    }

    /// What it logged last.
    pub fn last_words(&self) -> String {
        let log = std::fs::read_to_string(self.log()).unwrap_or_default();
        let from = log.lines().count().saturating_sub(20);
        log.lines().skip(from).collect::<Vec<_>>().join("\n")
    }

    fn log(&self) -> std::path::PathBuf {
        self.directory.path().join("log")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// A port that nobody uses, and that the system gives to no outgoing connection while whoever has
/// it is down: Linux takes those from 32768 up.
pub fn free_port() -> u16 {
    loop {
        let port = rand::random_range(10_000..32_000);
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}
