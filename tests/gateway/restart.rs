//! The gateway as a process of its own, with a data directory: stopped, killed, started twice, and
//! out of disk. What clients were promised holds afterwards.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process, prlimit};
use serde_json::Value;

use crate::shop::json;
use crate::support::{Message, PATIENCE, Wire};

/// A gateway in a process of its own, killed with the value.
#[derive(Debug)]
struct Process {
    child: Child,
    address: SocketAddr,
    admin: SocketAddr,
    log: Arc<Mutex<String>>,
    logging: Option<JoinHandle<()>>,
}

fn write_config(directory: &Path, durability: &str) {
    let text = format!(
        r#"
[server]
listen = ["127.0.0.1:0"]
admin_listen = "127.0.0.1:0"
trusted_proxies = ["127.0.0.0/8"]
[store]
path = "data"
durability = "{durability}"
[identity]
sources = ["header"]
[identity.header]
name = "X-User-Id"
[[upstream]]
name = "shop"
servers = ["127.0.0.1:9"]
[[queue]]
name = "sale"
capacity = 0
[[route]]
path = "/*"
upstream = "shop"
queue = "sale"
when_waiting = "reject"
"#
    );
    std::fs::write(directory.join("gateway.toml"), text).unwrap();
}

/// The command to run a gateway. A write beyond a limit on file sizes is an error to it, as on a
/// full disk, and no signal.
fn command(directory: &Path) -> Command {
    let mut command = Command::new("bash");
    command
        .args(["-c", "trap '' XFSZ; exec \"$0\" run -c \"$1\""])
        .arg(env!("CARGO_BIN_EXE_anteroom"))
        .arg(directory.join("gateway.toml"))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

impl Process {
    fn start(directory: &Path) -> Self {
        let mut child = command(directory).spawn().unwrap();
        let log = Arc::new(Mutex::new(String::new()));
        let stderr = child.stderr.take().unwrap();
        let logging = std::thread::spawn({
            let log = Arc::clone(&log);
            move || {
                for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                    log.lock().unwrap().push_str(&(line + "\n"));
                }
            }
        });
        let (mut address, mut admin) = (None, None);
        for line in BufReader::new(child.stdout.take().unwrap()).lines() {
            let line = line.unwrap();
            if let Some(at) = line.strip_prefix("listening on http://") {
                address = Some(at.parse().unwrap());
            }
            if let Some(at) = line.strip_prefix("administration on http://") {
                admin = Some(at.parse().unwrap());
                break;
            }
        }
        let (Some(address), Some(admin)) = (address, admin) else {
            panic!("it did not start:\n{}", log.lock().unwrap());
        };
        Self { child, address, admin, log, logging: Some(logging) }
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Power cut, as far as a process can tell. What it had logged.
    fn kill(mut self) -> String {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.whole_log()
    }

    fn stop(mut self) -> (ExitStatus, String) {
        kill_process(self.pid(), Signal::TERM).unwrap();
        let status = self.child.wait().unwrap();
        (status, self.whole_log())
    }

    /// What it logged, now that it has ended.
    fn whole_log(&mut self) -> String {
        self.logging.take().unwrap().join().unwrap();
        self.log.lock().unwrap().clone()
    }

    /// The most that a file may grow to.
    fn limit_files(&self, bytes: Option<u64>) {
        prlimit(Some(self.pid()), Resource::Fsize, Rlimit { current: bytes, maximum: None })
            .unwrap();
    }

    async fn metrics(&self) -> String {
        let mut wire = Wire::connect(self.admin).await;
        wire.send("GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n").await;
        wire.answer().await.text().to_owned()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Somebody's answer to a request, unless the gateway is gone.
async fn ask(
    wire: &mut Wire,
    method: &str,
    path: &str,
    user: &str,
    token: &str,
) -> Option<Message> {
    let token =
        if token.is_empty() { String::new() } else { format!("X-Queue-Token: {token}\r\n") };
    let request = format!(
        "{method} /_queue/sale/{path} HTTP/1.1\r\nHost: shop.example\r\nX-User-Id: {user}\r\n\
         {token}Content-Length: 0\r\n\r\n"
    );
    wire.try_send(request).await.ok()?;
    let head = wire.try_head().await?;
    let body = wire.try_body(&head).await?;
    Some(Message { body, ..head })
}

async fn enter(wire: &mut Wire, user: &str) -> Option<Message> {
    ask(wire, "POST", "enter", user, "").await
}

/// Whether somebody has a place: a new one, or the one from before.
fn is_in(answer: &Message) -> bool {
    [200, 201].contains(&answer.status())
}

fn token(answer: &Message) -> String {
    assert!(is_in(answer), "{} {}", answer.status(), answer.text());
    json(answer)["token"].as_str().unwrap().to_owned()
}

/// People enter side by side until the gateway is killed in the middle of it. The tokens of all
/// who were answered, by user, and what the gateway had logged.
async fn enter_until_killed(gateway: Process, round: usize) -> (BTreeMap<String, String>, String) {
    let tokens = Arc::new(Mutex::new(BTreeMap::new()));
    let crowd: Vec<_> = (0..4)
        .map(|lane| {
            let (address, tokens) = (gateway.address, Arc::clone(&tokens));
            tokio::spawn(async move {
                let mut wire = Wire::connect(address).await;
                for number in 0.. {
                    let user = format!("user-{round}-{lane}-{number}");
                    let Some(answer) = enter(&mut wire, &user).await else { return };
                    tokens.lock().unwrap().insert(user, token(&answer));
                }
            })
        })
        .collect();
    let patience = Instant::now() + PATIENCE;
    while tokens.lock().unwrap().len() < 60 {
        assert!(Instant::now() < patience, "nobody gets in");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let log = gateway.kill();
    for lane in crowd {
        lane.await.unwrap();
    }
    (Arc::into_inner(tokens).unwrap().into_inner().unwrap(), log)
}

#[tokio::test(flavor = "multi_thread")]
async fn with_durability_sync_no_answer_is_lost_however_often_the_gateway_is_killed() {
    let directory = tempfile::tempdir().unwrap();
    write_config(directory.path(), "sync");
    let mut all: BTreeMap<String, String> = BTreeMap::new();
    for round in 0..4 {
        let gateway = Process::start(directory.path());
        let mut wire = Wire::connect(gateway.address).await;
        for (user, before) in &all {
            let answer = enter(&mut wire, user).await.unwrap();
            assert_eq!(&token(&answer), before, "round {round}: the place of {user}");
        }
        let (tokens, log) = enter_until_killed(gateway, round).await;
        assert_eq!(log.contains("is fenced"), round > 0, "{log}");
        all.extend(tokens);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn with_durability_async_a_kill_costs_nobody_the_place() {
    let directory = tempfile::tempdir().unwrap();
    write_config(directory.path(), "async");
    let (tokens, _) = enter_until_killed(Process::start(directory.path()), 0).await;
    let gateway = Process::start(directory.path());
    let mut wire = Wire::connect(gateway.address).await;
    let patience = Instant::now() + PATIENCE;
    // A rank is of a moment ago, and whoever was lost comes back by asking: soon all are right.
    loop {
        let mut ranks: Vec<(String, u64)> = Vec::new();
        for (user, token) in &tokens {
            let answer = ask(&mut wire, "GET", "rank", user, token).await.unwrap();
            assert_eq!(answer.status(), 200, "{user}: {answer:?}");
            let body: Value = json(&answer);
            assert_eq!(body["status"], "WAITING", "{body}");
            ranks.push((
                body["enteredAt"].as_str().unwrap().trim_end_matches('Z').to_owned(),
                body["rank"].as_u64().unwrap(),
            ));
        }
        ranks.sort_by_key(|(_, rank)| *rank);
        let apart = ranks.windows(2).all(|pair| pair[0].1 < pair[1].1);
        if apart && ranks.is_sorted() {
            break;
        }
        assert!(Instant::now() < patience, "{ranks:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clean_stop_leaves_everything_as_it_was() {
    let directory = tempfile::tempdir().unwrap();
    write_config(directory.path(), "async");
    let gateway = Process::start(directory.path());
    let mut wire = Wire::connect(gateway.address).await;
    let first = token(&enter(&mut wire, "first").await.unwrap());
    let last = json(&enter(&mut wire, "last").await.unwrap());
    drop(wire);
    let (status, log) = gateway.stop();
    assert!(status.success(), "{log}");
    let gateway = Process::start(directory.path());
    let mut wire = Wire::connect(gateway.address).await;
    let again = json(&enter(&mut wire, "last").await.unwrap());
    for member in ["token", "enteredAt", "rank"] {
        assert_eq!(again[member], last[member]);
    }
    assert_eq!(token(&enter(&mut wire, "first").await.unwrap()), first);
    assert_eq!(json(&enter(&mut wire, "next").await.unwrap())["rank"], 3);
    drop(wire);
    let (_, log) = gateway.stop();
    assert!(!log.contains("fenced"), "{log}");
}

#[test]
fn a_second_gateway_on_the_same_directory_says_whose_it_is_and_exits_with_1() {
    let directory = tempfile::tempdir().unwrap();
    write_config(directory.path(), "async");
    let _first = Process::start(directory.path());
    let mut second = command(directory.path()).spawn().unwrap();
    assert_eq!(second.wait().unwrap().code(), Some(1));
    let mut said = String::new();
    second.stderr.unwrap().read_to_string(&mut said).unwrap();
    let data = directory.path().join("data").display().to_string();
    assert!(said.contains(&data) && said.contains("in use by another process"), "{said}");
}

/// What a limit on the size of files does is what a full disk does: writing is refused for a while.
#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_refuses_newcomers_and_ends_by_itself() {
    for durability in ["async", "sync"] {
        let directory = tempfile::tempdir().unwrap();
        write_config(directory.path(), durability);
        let gateway = Process::start(directory.path());
        let mut wire = Wire::connect(gateway.address).await;
        let first = token(&enter(&mut wire, "first").await.unwrap());
        gateway.limit_files(Some(0));
        let mut tokens = Vec::new();
        let patience = Instant::now() + PATIENCE;
        for number in 0.. {
            let user = format!("user-{number}");
            let answer = enter(&mut wire, &user).await.unwrap();
            if !is_in(&answer) {
                assert_eq!(
                    (answer.status(), answer.problem().as_str()),
                    (503, "STORE_UNAVAILABLE")
                );
                break;
            }
            assert_eq!(durability, "async", "an answer that is not on the disk");
            tokens.push((user, token(&answer)));
            assert!(Instant::now() < patience, "it does not notice");
        }
        let metrics = gateway.metrics().await;
        assert!(metrics.contains("\nanteroom_store_failing 1\n"), "{metrics}");
        gateway.limit_files(None);
        let patience = Instant::now() + PATIENCE;
        while !is_in(&enter(&mut wire, "late").await.unwrap()) {
            assert!(Instant::now() < patience, "it does not come back");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let metrics = gateway.metrics().await;
        assert!(metrics.contains("\nanteroom_store_failing 0\n"), "{metrics}");
        drop(wire);
        let (status, log) = gateway.stop();
        assert!(status.success(), "{log}");
        assert_eq!(log.matches("takes nothing until it can").count(), 1, "{log}");
        assert_eq!(log.matches("can be written again").count(), 1, "{log}");
        let gateway = Process::start(directory.path());
        let mut wire = Wire::connect(gateway.address).await;
        assert_eq!(token(&enter(&mut wire, "first").await.unwrap()), first);
        for (user, before) in tokens {
            assert_eq!(token(&enter(&mut wire, &user).await.unwrap()), before, "{user}");
        }
    }
}
