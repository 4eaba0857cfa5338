//! The documented ACL rules are enough and necessary, and what the checkup says of servers.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use anteroom::clock::{Clock, ManualClock, SystemClock, Timestamp};
use anteroom::store::contract::Fixture;
use anteroom::store::{
    RedisConcern, RedisSettings, SharedStore, StoreError, redis_checkup, redis_with_clock,
};

use crate::cluster::OnCluster;
use crate::redis_server::RedisServer;
use crate::servers::{TcpServer, patient};

/// The rules as the documentation gives them.
fn documented_rules() -> Vec<String> {
    let text = std::fs::read_to_string("docs/operations.md").expect("the documentation");
    let rules = text.lines().find_map(|line| line.strip_prefix("ACL SETUSER anteroom "));
    let rules = rules.expect("the rules").replace(">password", ">a-password");
    rules.split_whitespace().map(str::to_owned).collect()
}

/// A server on which a user has exactly the documented permissions.
struct Restricted(TcpServer);

impl Restricted {
    fn start() -> Self {
        let server = TcpServer::start_with(&[]);
        let mut set = redis::cmd("ACL");
        set.arg("SETUSER").arg("anteroom").arg(documented_rules());
        set.exec(&mut server.server.client()).expect("the rules are valid");
        Self(server)
    }

    fn settings(&self) -> RedisSettings {
        patient(format!("redis://anteroom:a-password@127.0.0.1:{}", self.0.port))
    }
}

impl Fixture for Restricted {
    fn store(&self, clock: Arc<dyn Clock>) -> SharedStore {
        redis_with_clock(&self.settings(), clock).expect("a Redis URL")
    }

    fn sequences(&self) -> u64 {
        20
    }
}

anteroom::store_contract!(restricted_store, crate::access::Restricted::start());

async fn concerns(settings: &RedisSettings) -> Vec<RedisConcern> {
    let findings = redis_checkup(settings, &SystemClock).await.expect("it answers");
    findings.into_iter().map(|finding| finding.what).collect()
}

#[tokio::test]
async fn the_checkup_names_what_would_hurt_later() {
    let server = RedisServer::start();
    assert_eq!(concerns(&server.settings()).await, [RedisConcern::NoPersistence]);
    let evicting =
        RedisServer::start_with(&["--maxmemory", "1gb", "--maxmemory-policy", "allkeys-lru"]);
    let policy = "allkeys-lru".to_owned();
    let expected = [RedisConcern::Evicts { policy }, RedisConcern::NoPersistence];
    assert_eq!(concerns(&evicting.settings()).await, expected);
    let durable = RedisServer::start_with(&["--appendonly", "yes"]);
    assert_eq!(concerns(&durable.settings()).await, []);
    let ahead = ManualClock::at(Timestamp::from_millis(1_000_000_000));
    let findings = redis_checkup(&durable.settings(), &ahead).await.unwrap();
    assert!(matches!(findings[0].what, RedisConcern::Clock { ahead: true, .. }), "{findings:?}");
}

#[tokio::test]
async fn replicas_that_nobody_waits_for_are_named() {
    let master = TcpServer::start_with(&["--appendonly", "yes", "--repl-diskless-sync-delay", "0"]);
    let port = master.port.to_string();
    let _replica = RedisServer::start_with(&["--replicaof", "127.0.0.1", &port]);
    let settings = master.server.settings();
    let deadline = std::time::Instant::now() + Duration::from_secs(30);
    while concerns(&settings).await != [RedisConcern::NoQuorum { replicas: 1 }] {
        assert!(std::time::Instant::now() < deadline, "{:?}", concerns(&settings).await);
    }
    let mut admin = master.server.client();
    redis::cmd("CONFIG").arg("SET").arg("min-replicas-to-write").arg(1).exec(&mut admin).unwrap();
    assert_eq!(concerns(&settings).await, []);
}

#[tokio::test]
async fn what_the_acl_forbids_to_ask_is_said_to_be_unknown() {
    let restricted = Restricted::start();
    let found = concerns(&restricted.settings()).await;
    let unknown: Vec<&str> = found
        .iter()
        .map(|concern| match concern {
            RedisConcern::Unknown { command, .. } => *command,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(unknown, ["CONFIG GET"], "INFO is among the rules, CONFIG is not");
}

#[tokio::test]
async fn every_master_of_a_cluster_is_looked_at() {
    let findings = redis_checkup(&OnCluster::new().settings(), &SystemClock).await.unwrap();
    let persistence: Vec<_> =
        findings.iter().filter(|found| found.what == RedisConcern::NoPersistence).collect();
    assert_eq!(persistence.len(), 3, "{findings:?}");
    let replicas = RedisConcern::NoQuorum { replicas: 1 };
    assert_eq!(findings.iter().filter(|found| found.what == replicas).count(), 3, "{findings:?}");
    assert!(findings.iter().all(|found| found.server.starts_with("127.0.0.1:")), "{findings:?}");
}

#[tokio::test]
async fn a_server_that_is_not_there_is_no_finding() {
    let settings = patient("redis://127.0.0.1:1".to_owned());
    let error = redis_checkup(&settings, &SystemClock).await.unwrap_err();
    assert!(matches!(error, StoreError::Unavailable(_)), "{error:?}");
}

#[test]
fn the_documented_rules_permit_what_scripts_call_and_nothing_more() {
    let mut needed: BTreeSet<String> =
        ["evalsha", "eval", "ping", "select", "role", "asking", "cluster|slots"]
            .map(str::to_owned)
            .into();
    for file in std::fs::read_dir("src/store/redis").expect("the scripts") {
        let path = file.expect("a file").path();
        if path.extension().is_some_and(|extension| extension == "lua") {
            let text = std::fs::read_to_string(path).expect("a script");
            let calls = text.split("redis.call(").skip(1);
            let names =
                calls.filter_map(|call| call.trim_start().strip_prefix('\'')?.split('\'').next());
            needed.extend(names.map(str::to_lowercase));
        }
    }
    let permitted: BTreeSet<String> = documented_rules()
        .iter()
        .filter_map(|rule| rule.strip_prefix('+').map(str::to_owned))
        .collect();
    assert_eq!(permitted, needed);
}
