//! TLS to real servers: who is trusted, who is not, and who must show a certificate.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use anteroom::queue::QueueName;
use anteroom::queue::command::Origin;
use anteroom::queue::settings::Settings;
use anteroom::store::contract::user;
use anteroom::store::{
    RedisSettings, RedisTls, RedisTlsError, SharedSecret, StoreError, redis as redis_store,
};

use crate::redis_server::RedisServer;
use crate::servers::{SentinelServer, free_port, patient};

/// An authority with certificates of its own making.
struct Authority(tempfile::TempDir);

impl Authority {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let authority = Self(directory);
        authority.openssl(
            "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 \
             -subj /CN=authority -keyout ca.key -out ca.crt",
        );
        authority
    }

    fn openssl(&self, arguments: &str) {
        let mut command = Command::new("openssl");
        command.args(arguments.split_whitespace()).current_dir(self.0.path());
        let done = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
        assert!(done.expect("openssl is installed").success(), "{arguments}");
    }

    /// Makes `name.crt` and `name.key` for a subject such as `IP:127.0.0.1`.
    fn issue(&self, name: &str, subject: &str) {
        self.openssl(&format!(
            "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN={name} \
             -addext subjectAltName={subject} -addext basicConstraints=critical,CA:false \
             -CA ca.crt -CAkey ca.key -keyout {name}.key -out {name}.crt"
        ));
    }

    fn path(&self, file: &str) -> PathBuf {
        self.0.path().join(file)
    }

    fn read(&self, file: &str) -> Vec<u8> {
        std::fs::read(self.path(file)).expect("it was made")
    }

    /// What a server needs to show a certificate at a port, as words of a command line.
    fn options(&self, name: &str, port: u16) -> Vec<String> {
        let file = |file: String| self.path(&file).display().to_string();
        [
            ("--tls-port", port.to_string()),
            ("--tls-cert-file", file(format!("{name}.crt"))),
            ("--tls-key-file", file(format!("{name}.key"))),
            ("--tls-ca-cert-file", file("ca.crt".into())),
        ]
        .into_iter()
        .flat_map(|(key, value)| [key.to_owned(), value])
        .collect()
    }

    /// A server that takes TLS at a port.
    fn server(&self, name: &str, more: &[&str]) -> (RedisServer, u16) {
        let port = free_port();
        let options = self.options(name, port);
        let options: Vec<&str> =
            options.iter().map(String::as_str).chain(more.iter().copied()).collect();
        (RedisServer::start_with(&options), port)
    }

    fn trusted(&self) -> RedisTls {
        RedisTls::new(Some(self.read("ca.crt")), None).expect("an authority")
    }

    fn client(&self, name: &str) -> RedisTls {
        let pair = (self.read(&format!("{name}.crt")), self.read(&format!("{name}.key")));
        RedisTls::new(Some(self.read("ca.crt")), Some(pair)).expect("a pair")
    }
}

fn settings(url: String, tls: RedisTls) -> RedisSettings {
    let mut settings = patient(url);
    settings.tls = tls;
    settings
}

async fn works(settings: &RedisSettings) {
    let queue = QueueName::new("encrypted").unwrap();
    let store = redis_store(settings).unwrap();
    store.configure(&queue, &Settings::new(1), Origin::Operator).await.unwrap();
    store.enter(&queue, &[user(1)]).await.unwrap();
    store.secret(SharedSecret::UserSalt, [1; 32]).await.unwrap();
}

async fn is_refused(settings: &RedisSettings) {
    let store = redis_store(settings).unwrap();
    let error = store.secret(SharedSecret::UserSalt, [1; 32]).await.unwrap_err();
    assert!(matches!(error, StoreError::Unavailable(_)), "{error:?}");
}

#[tokio::test]
async fn a_server_is_believed_only_by_name_and_authority() {
    let authority = Authority::new();
    authority.issue("here", "IP:127.0.0.1,DNS:localhost");
    authority.issue("elsewhere", "DNS:redis.example");
    let no_clients = ["--tls-auth-clients", "no"];
    let (_server, port) = authority.server("here", &no_clients);
    works(&settings(format!("rediss://127.0.0.1:{port}"), authority.trusted())).await;
    works(&settings(format!("rediss://localhost:{port}/1"), authority.trusted())).await;
    let stranger = Authority::new().trusted();
    is_refused(&settings(format!("rediss://127.0.0.1:{port}"), stranger)).await;
    is_refused(&settings(format!("rediss://127.0.0.1:{port}"), RedisTls::default())).await;
    is_refused(&settings(format!("redis://127.0.0.1:{port}"), RedisTls::default())).await;
    let (_other, port) = authority.server("elsewhere", &no_clients);
    is_refused(&settings(format!("rediss://127.0.0.1:{port}"), authority.trusted())).await;
}

#[tokio::test]
async fn a_server_that_asks_for_a_certificate_gets_ours() {
    let authority = Authority::new();
    authority.issue("here", "IP:127.0.0.1");
    authority.issue("gateway", "DNS:gateway.example");
    let (server, port) = authority.server("here", &["--tls-auth-clients", "yes"]);
    let url = format!("rediss://gate:secret@127.0.0.1:{port}");
    let rules = ["on", ">secret", "~*", "+@all"];
    let mut set = redis::cmd("ACL");
    set.arg("SETUSER").arg("gate").arg(&rules).exec(&mut server.client()).unwrap();
    works(&settings(url.clone(), authority.client("gateway"))).await;
    is_refused(&settings(url, authority.trusted())).await;
}

#[tokio::test]
async fn sentinels_and_the_master_they_name_are_reached_by_tls() {
    let authority = Authority::new();
    authority.issue("here", "IP:127.0.0.1");
    let (_master, master) = authority.server("here", &["--tls-auth-clients", "no"]);
    let file = |file: &str| authority.path(file).display().to_string();
    let port = free_port();
    let _sentinel = SentinelServer::start(&format!(
        "tls-port {port}\ntls-cert-file {}\ntls-key-file {}\ntls-ca-cert-file {}\n\
         tls-auth-clients no\ntls-replication yes\nsentinel monitor line 127.0.0.1 {master} 1\n",
        file("here.crt"),
        file("here.key"),
        file("ca.crt"),
    ));
    let url = format!("rediss+sentinel://127.0.0.1:{port}/line");
    works(&settings(url.clone(), authority.trusted())).await;
    is_refused(&settings(url, Authority::new().trusted())).await;
}

#[tokio::test]
async fn every_node_of_a_cluster_is_reached_by_tls() {
    let authority = Authority::new();
    authority.issue("here", "IP:127.0.0.1");
    let cluster = ["--cluster-enabled", "yes", "--tls-cluster", "yes", "--tls-auth-clients", "no"];
    let (node, port) = authority.server("here", &cluster);
    let mut slots = redis::cmd("CLUSTER");
    slots.arg("ADDSLOTSRANGE").arg(0).arg(16383).exec(&mut node.client()).unwrap();
    crate::servers::wait_for("a complete cluster", || {
        let info = redis::cmd("CLUSTER").arg("INFO").query::<String>(&mut node.client());
        info.is_ok_and(|info| info.contains("cluster_state:ok"))
    });
    let url = format!("rediss+cluster://127.0.0.1:{port}");
    works(&settings(url.clone(), authority.trusted())).await;
    is_refused(&settings(url, Authority::new().trusted())).await;
}

#[test]
fn what_is_no_certificate_and_what_does_not_belong_together_is_said_at_once() {
    let authority = Authority::new();
    authority.issue("one", "DNS:one");
    authority.issue("other", "DNS:other");
    let read = |file: &str| authority.read(file);
    let pair = |certificate: &str, key: &str| {
        RedisTls::new(None, Some((read(certificate), read(key)))).unwrap_err()
    };
    assert_eq!(pair("one.crt", "other.key"), RedisTlsError::Mismatch);
    assert_eq!(pair("one.key", "one.key"), RedisTlsError::Certificate);
    assert_eq!(pair("one.crt", "one.crt"), RedisTlsError::Key);
    let error = RedisTls::new(Some(b"text".to_vec()), None).unwrap_err();
    assert_eq!(error, RedisTlsError::Authorities);
    let broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    let error = RedisTls::new(Some(broken.into()), None).unwrap_err();
    assert_eq!(error, RedisTlsError::Authorities);
}
