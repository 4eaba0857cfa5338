//! Configuration files: the good ones load, the bad ones are reported line by line, and what the
//! documents say is what the reader does.
//!
//! `BLESS=1 cargo test --test config` writes the expected reports of `invalid/` anew.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says what it expects by failing")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anteroom::config::{Availability, Cause, Config, Report, Warnings};
use anteroom::proxy::Limits;
use anteroom::queue::UserSource;
use anteroom::queue::settings::{Rate, Settings};
use anteroom::route::WhenWaiting;
use anteroom::store::StoreSettings;
use proptest::prelude::*;

/// The environment of every test.
fn environment(name: &str) -> Option<String> {
    let value = match name {
        "ADMIN_SECRET" => "an-operator-may-do-everything",
        "JWT_SECRET" => "a-shared-secret-of-32-bytes-or-more",
        "SHORT_SECRET" => "hunter2",
        "REDIS_PASSWORD" => "a-password",
        "PUBLIC_KEY" => include_str!("config/valid/issuer.pem"),
        _ => return None,
    };
    Some(value.to_owned())
}

fn parse(text: &str, file: &str) -> Result<(Config, Warnings), Report> {
    Config::parse(text, file, &environment)
}

/// A text that stands in `tests/config/valid`.
fn parse_valid(text: &str) -> Result<(Config, Warnings), Report> {
    parse(text, "tests/config/valid/test.toml")
}

fn files(directory: &str, extension: &str) -> Vec<PathBuf> {
    let all = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> =
        all.filter(|path| path.extension().is_some_and(|own| own == extension)).collect();
    files.sort();
    assert!(!files.is_empty(), "{directory}");
    files
}

fn read(path: impl AsRef<Path>) -> String {
    let path = path.as_ref();
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn valid(name: &str) -> String {
    read(Path::new("tests/config/valid").join(name))
}

/// Everything a configuration says, as text. The hash of a queue's block says nothing new.
fn fingerprint(config: &Config) -> String {
    let text = format!("{config:?}");
    let mut parts = text.split("text_hash: ");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| text + part.trim_start_matches(|c: char| c.is_ascii_digit()))
}

#[test]
fn every_valid_file_loads() {
    for path in files("tests/config/valid", "toml") {
        let file = path.to_str().unwrap();
        if let Err(report) = parse(&read(&path), file) {
            panic!("{report}");
        }
    }
}

#[test]
fn every_invalid_file_gives_exactly_its_report() {
    for path in files("tests/config/invalid", "toml") {
        let file = path.file_name().unwrap().to_str().unwrap();
        // Reports name the file as the caller did; files beside it are found from its directory.
        let report = parse(&read(&path), path.to_str().unwrap()).expect_err(file).to_string();
        let found = report.replace("tests/config/invalid/", "") + "\n";
        let expected = path.with_extension("txt");
        if std::env::var_os("BLESS").is_some() {
            fs::write(&expected, &found).unwrap();
        }
        assert_eq!(found, read(&expected), "{file}");
    }
}

#[test]
fn the_exact_file_of_the_documented_contract_means_what_it_says() {
    let (config, warnings) = parse_valid(&valid("contract.toml")).unwrap();
    assert_eq!(warnings.list, []);
    assert_eq!(config.server.admin_listen, Some("127.0.0.1:9090".parse().unwrap()));
    assert_eq!(config.server.limits, Limits::default());
    assert_eq!(config.server.threads, None);
    assert!(config.server.public_origins.is_empty());
    assert!(config.server.trusted_proxies.networks.is_empty());
    assert_eq!(config.store, StoreSettings::Embedded(None));
    assert!(config.tokens.keys.is_empty());
    assert_eq!(config.tokens.header, "x-queue-token");
    assert_eq!(config.tokens.cookie, "queue_token");
    assert_eq!(config.identity.sources, [UserSource::Visitor]);
    assert!(config.identity.jwt.is_none() && config.identity.header.is_none());
    let [queue] = config.queues.as_slice() else { panic!("{:?}", config.queues) };
    let mut settings = Settings::new(100);
    settings.rate = Rate::per_second(50.0).unwrap();
    assert_eq!(queue.settings, settings);
    let [checkout, rest] = config.routes.routes() else { panic!("{:?}", config.routes) };
    let gated = checkout.gated.as_ref().unwrap();
    assert_eq!(gated.queue, queue.template);
    assert_eq!(gated.when_waiting, WhenWaiting::Reject);
    assert!(!gated.auto_enter);
    assert_eq!((gated.refuse_status.as_u16(), gated.page_status.as_u16()), (429, 503));
    assert!(rest.gated.is_none() && !rest.forward_token && rest.cors.is_none());
    assert_eq!(config.api.prefix, "/_queue");
    assert!(config.api.simple.is_none() && config.admin.is_empty());
    assert_eq!(config.page.frame_ancestors, ["'none'"]);
    assert_eq!(config.log.filter, "info");
}

#[test]
fn the_default_configuration_and_the_examples_load_without_warnings() {
    let examples = fs::read_dir("examples").unwrap().map(|entry| entry.unwrap().path());
    let mut paths: Vec<PathBuf> =
        examples.map(|path| path.join("gateway.toml")).filter(|path| path.exists()).collect();
    paths.push("gateway.toml".into());
    assert!(paths.len() >= 4, "{paths:?}");
    for path in paths {
        match parse(&read(&path), path.to_str().unwrap()) {
            Ok((_, warnings)) => assert_eq!(warnings.list, [], "{}", path.display()),
            Err(report) => panic!("{report}"),
        }
    }
    assert_eq!(anteroom::config::DEFAULT, read("gateway.toml"));
}

/// Blocks of TOML in a Markdown text, each with the words after its fence.
fn blocks(markdown: &str) -> Vec<(String, String)> {
    let parts = markdown.split("```").skip(1).step_by(2);
    let fenced = parts.filter_map(|part| part.split_once('\n'));
    let toml = fenced.filter(|(words, _)| words.starts_with("toml"));
    toml.map(|(words, text)| (words.to_owned(), text.to_owned())).collect()
}

#[test]
fn every_block_in_the_documents_is_a_configuration_or_marked_as_a_fragment() {
    for file in ["docs/configuration.md", "README.md"] {
        let Ok(text) = fs::read_to_string(file) else { continue };
        for (words, block) in blocks(&text) {
            match parse(&block, "block.toml") {
                Ok(_) => assert_eq!(words, "toml", "{file}: not a fragment:\n{block}"),
                Err(report) if words == "toml fragment" => {
                    // What stands around a fragment may be missing; its own keys must be right.
                    let wrong = report.problems.iter().find(|problem| {
                        matches!(
                            problem.cause,
                            Cause::Syntax { .. } | Cause::Unknown { .. } | Cause::Later
                        )
                    });
                    assert!(wrong.is_none(), "{file}: {report}\n{block}");
                }
                Err(report) => panic!("{file}: {report}\n{block}"),
            }
        }
    }
}

/// The keys that the default configuration shows, commented ones included: everything that stands
/// before a ` = `, in the table above it. Keys of inline tables count for the list around them.
fn keys_of_default() -> BTreeSet<String> {
    let (mut table, mut keys) = (String::new(), BTreeSet::new());
    for line in read("gateway.toml").lines().map(|line| line.trim_start_matches("# ").trim()) {
        if let Some(header) = line.strip_prefix('[') {
            header.trim_start_matches('[').split(']').next().unwrap().clone_into(&mut table);
        } else if let Some(entry) = line.strip_prefix("{ ") {
            let inner = entry.split(", ").filter_map(|part| part.split_once(" = "));
            keys.extend(inner.map(|(key, _)| format!("{table}.tokens.{key}")));
        } else if let Some((key, _)) = line.split_once(" = ") {
            keys.insert(format!("{table}.{key}"));
        }
    }
    keys
}

/// The keys in the tables of `docs/configuration.md`, under the heading of their section.
fn keys_of_documentation() -> BTreeSet<String> {
    let (mut table, mut keys) = (String::new(), BTreeSet::new());
    for line in read("docs/configuration.md").lines() {
        if let Some(heading) = line.strip_prefix("## ") {
            heading.trim_matches(['`', '[', ']']).clone_into(&mut table);
        } else if let Some(row) = line.strip_prefix("| `")
            && let Some((key, _)) = row.split_once('`')
        {
            keys.insert(format!("{table}.{key}"));
        }
    }
    keys
}

fn known(wanted: Availability) -> BTreeSet<String> {
    let known = Config::known_keys().into_iter();
    known.filter(|(_, availability)| *availability == wanted).map(|(key, _)| key).collect()
}

#[test]
fn every_key_is_documented_and_nothing_else_is() {
    let known_now = known(Availability::Now);
    assert_eq!(keys_of_documentation(), known_now);
    let missing: Vec<_> = known_now.difference(&keys_of_default()).cloned().collect();
    assert!(missing.is_empty(), "gateway.toml does not show {missing:?}");
    let text = read("docs/configuration.md");
    for key in known(Availability::Later) {
        assert!(text.contains(&format!("`{key}`")), "docs/configuration.md does not name {key}");
    }
}

#[test]
fn a_key_of_a_later_version_is_refused() {
    for key in known(Availability::Later) {
        let report = parse_valid(&format!("{key} = {{}}\n")).unwrap_err();
        let refused = report
            .problems
            .iter()
            .any(|problem| problem.key == key && matches!(problem.cause, Cause::Later));
        assert!(refused, "{report}");
    }
}

/// The paths of all keys of a table.
fn paths(table: &toml::Table, prefix: &str, into: &mut BTreeSet<String>) {
    for (key, value) in table {
        let path = if prefix.is_empty() { key.clone() } else { format!("{prefix}.{key}") };
        let mut inside = |value: &toml::Value| {
            if let Some(table) = value.as_table() {
                paths(table, &path, into);
            }
        };
        inside(value);
        value.as_array().into_iter().flatten().for_each(inside);
        into.insert(path);
    }
}

#[test]
fn every_key_changes_the_settings() {
    let mut used = BTreeSet::new();
    let files = [
        "everything",
        "key-set",
        "shared-secret",
        "policy",
        "redis-sentinel",
        "data-directory",
        "data-directory-sync",
    ];
    for name in files.map(|name| format!("{name}.toml")) {
        let text = valid(&name);
        let (config, _) = parse_valid(&text).unwrap();
        let whole = fingerprint(&config);
        paths(&text.parse().unwrap(), "", &mut used);
        let lines: Vec<&str> = text.lines().collect();
        for (at, line) in lines.iter().enumerate() {
            // There is one policy, so naming it changes nothing.
            if !line.contains(" = ") || line.starts_with('#') || line.starts_with("policy") {
                continue;
            }
            let mut rest = lines.clone();
            rest.remove(at);
            if let Ok((config, _)) = parse_valid(&rest.join("\n")) {
                assert_ne!(fingerprint(&config), whole, "{name}: `{line}` changes nothing");
            }
        }
    }
    let unused: Vec<_> = known(Availability::Now).difference(&used).cloned().collect();
    assert!(unused.is_empty(), "no valid file uses {unused:?}");
}

#[test]
fn the_summary_says_where_the_line_is_kept() {
    let summary = |store: &str| {
        let text = valid("contract.toml").replace("kind = \"embedded\"", store);
        parse_valid(&text).unwrap().0.summary().to_string()
    };
    let directory = std::env::temp_dir();
    let path = format!("path = {:?}", directory.display().to_string());
    let shown = format!("store:     embedded, in {}, ", directory.display());
    assert!(summary("").contains("store:     embedded, in memory only: a restart empties"));
    assert!(summary(&path).contains(&(shown.clone() + "saved every 5ms\n")));
    let sync = path + "\ndurability = \"sync\"";
    assert!(summary(&sync).contains(&(shown + "saved before every answer\n")));
}

#[test]
fn all_warnings_name_their_line() {
    let text = "\
[server]
listen = [\"127.0.0.1:0\"]
trusted_proxies = [\"10.1.2.3/8\", \"0.0.0.0/0\"]

[[upstream]]
name = \"spare\"
servers = [\"127.0.0.1:9000\"]

[[queue]]
name = \"a\"
capacity = 0
claim_ttl = \"5s\"
waiting_ttl = \"90s\"

[[bypass]]
path = \"/*\"
";
    let (_, warnings) = parse(text, "gateway.toml").unwrap();
    let expected = "\
gateway.toml:3:20: server.trusted_proxies[0]: warning: means the whole network 10.0.0.0/8
gateway.toml:3:34: server.trusted_proxies[1]: warning: everybody is trusted to say who a client is
gateway.toml:5:1: upstream[0]: warning: no route uses this upstream
gateway.toml:11:12: queue[0].capacity: warning: a capacity of 0 admits nobody
gateway.toml:12:13: queue[0].claim_ttl: warning: 5s to come when called is short: waiting users \
must ask every 2.2 s
gateway.toml:13:15: queue[0].waiting_ttl: warning: a tab in the background speaks once a minute: \
under 2m one lost request costs the place in line
gateway.toml:16:8: bypass[0].path: warning: this lifts the gate of every route, whatever its path
";
    assert_eq!(warnings.to_string(), expected);
}

#[test]
fn token_keys_may_come_from_the_environment() {
    let with = |keys: &'static str| {
        let environment = move |name: &str| (name == "ANTEROOM_TOKEN_KEYS").then(|| keys.into());
        Config::parse("server.listen = [\"127.0.0.1:0\"]", "gateway.toml", &environment)
    };
    let (config, _) = with(
        "k2:mBUwS9pU3kxPqoV1Yd7yq4rP0i5bJf2K8cXhZtNaLQw=, \
         k1:nBUwS9pU3kxPqoV1Yd7yq4rP0i5bJf2K8cXhZtNaLQw=\n",
    )
    .unwrap();
    assert_eq!(format!("{:?}", config.tokens.keys), "[TokenKey(k2:***), TokenKey(k1:***)]");
    assert!(with("").unwrap().0.tokens.keys.is_empty());
    let report = with("k1:c2VjcmV0, hunter2").unwrap_err().to_string();
    assert_eq!(report.lines().count(), 2, "{report}");
    assert!(!report.contains("c2VjcmV0") && !report.contains("hunter2"), "{report}");
}

#[test]
fn secrets_show_up_neither_in_reports_nor_in_debug_nor_in_the_summary() {
    let secrets = [
        "a-password",
        "another-password",
        "PRIVATE KEY",
        "an-operator-may",
        "an-eye-sees",
        "a-shared-secret",
    ];
    let text = valid("everything.toml");
    let key = text.lines().find(|line| line.starts_with("keys = ")).unwrap();
    let key = key.split(':').nth(1).unwrap().trim_end_matches(['"', ']']);
    let (config, _) = parse_valid(&text).unwrap();
    let mut shown = vec![format!("{config:?}"), config.summary().to_string()];
    for (from, to) in [
        ("keys = [\"k1:", "keys = [\"k1 "),
        ("keys = [\"k1:", "kes = [\"k1:"),
        ("keys = [\"k1:", "keys = [\"k999:"),
        ("[store]", "[store"),
        ("[tokens]", "[log]"),
        ("rediss+sentinel://", "redi://a-password:a-password@"),
        ("rediss+sentinel://", "redis://u:a-password@"),
        ("password_env = \"REDIS_PASSWORD\"", "password_env = \"a-password\""),
        ("\"redis-password\"", "\"gateway.key"),
        ("\"gateway.pem\"", "\"gateway.key\""),
        ("url = ", "uri = "),
        ("\nkeys = [\"", "\nkeys = \""),
        ("/2\"", "/2"),
        ("kind = \"redis\"", "kind = \"embedded\""),
        ("secret_env = \"ADMIN_SECRET\"", "secret_env = \"an-operator-may\""),
        ("secret_env = \"ADMIN_SECRET\"", "secret = \"an-operator-may\""),
    ] {
        let broken = text.replacen(from, to, 1);
        assert_ne!(broken, text, "{from}");
        let report = parse_valid(&broken).unwrap_err();
        shown.push(format!("{report}"));
        shown.push(format!("{report:?}"));
    }
    for text in shown {
        for secret in secrets.iter().chain([&key]) {
            assert!(!text.contains(secret), "{secret} in {text}");
        }
    }
}

#[test]
fn the_summary_says_what_matters() {
    let (config, _) = parse_valid(&valid("everything.toml")).unwrap();
    let expected = "\
listen:    127.0.0.1:0, unix:/run/anteroom.sock
admin:     0.0.0.0:9091, 2 tokens
store:     redis, keys under shop:
tokens:    signed with 1 configured key
identity:  jwt, header, cookie
jwt:       RS256 by https://id.example for shop, user in `uid`, from cookie `session`, leeway 30s
upstream:  shop at 10.1.0.1:8443, shop.internal:8443
queue:     sale: capacity 10, 0.5 a second, active for 20m, 30s to come, silent for 4m, sliding up \
to 2h, mode queue_all, opens 2026-11-27T08:00:00Z, closes 2026-11-27T20:00:00Z, identity jwt
queue:     deal-{product_id}: capacity 10, 0.5 a second, active for 10m, 45s to come, silent for 3m
routes:    2, 2 gated; API under /-/queue, with the compatibility set
";
    assert_eq!(config.summary().to_string(), expected);
}

#[test]
fn a_file_that_is_not_there_is_a_report() {
    let report = Config::load(Path::new("tests/config/none.toml")).unwrap_err().to_string();
    assert!(report.starts_with("tests/config/none.toml: `tests/config/none.toml` cannot be read"));
}

#[test]
fn every_example_of_a_mistake_is_found_although_others_come_first() {
    // One mistake per section; none may hide another.
    let texts: BTreeMap<&str, &str> = BTreeMap::from([
        ("server.listen", "[server]\nlisten = []\n"),
        ("store.kind", "[store]\nkind = \"disk\"\n"),
        ("tokens.cookie", "[tokens]\ncookie = \"\"\n"),
        ("identity.sources[0]", "[identity]\nsources = [\"ldap\"]\n"),
        ("upstream[0].servers", "[[upstream]]\nname = \"a\"\n"),
        ("queue[0].capacity", "[[queue]]\nname = \"a\"\n"),
        ("route[0].upstream", "[[route]]\npath = \"/\"\n"),
        ("bypass[0].path", "[[bypass]]\n"),
        ("api.prefix", "[api]\nprefix = \"\"\n"),
        ("admin.tokens", "[admin]\ntokens = 1\n"),
        ("page.title", "[page]\ntitle = \"\"\n"),
        ("log.format", "[log]\nformat = \"\"\n"),
    ]);
    let all: String = texts.values().copied().collect();
    let report = parse_valid(&all).unwrap_err();
    let keys: BTreeSet<&str> = report.problems.iter().map(|problem| problem.key.as_str()).collect();
    assert_eq!(keys, texts.keys().copied().collect());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_text_makes_the_reader_panic(
        edits in prop::collection::vec((any::<prop::sample::Index>(), 0..12usize, any::<prop::sample::Index>()), 1..8)
    ) {
        let snippets = [
            "", "\"", "[", "]", "=", "\n", "-1", "{", "}", "é\u{0}", "99999999999999999999", "[[queue]]\n",
            "1979-05-27T07:32:60-12:59", "'\u{202e}'", "inf", "0x", "\"\"\"", "#", ",", ".",
        ];
        let mut text: Vec<char> = valid("everything.toml").chars().collect();
        for (at, length, snippet) in edits {
            let start = at.index(text.len());
            let end = (start + length).min(text.len());
            text.splice(start..end, snippet.get(&snippets).chars());
        }
        let text: String = text.into_iter().collect();
        match parse_valid(&text) {
            Ok((config, _)) => drop(config.summary().to_string()),
            Err(report) => prop_assert!(!report.to_string().is_empty()),
        }
    }

    #[test]
    fn any_value_at_any_key_is_read_or_reported(key in any::<prop::sample::Index>(), value in any::<prop::sample::Index>()) {
        let values = [
            "true", "-1", "0", "1e400", "nan", "''", "'x'", "[]", "[[]]", "{}", "[{}]", "1979-05-27", "07:32:00Z",
            "1979-05-27T07:32:00Z", "9223372036854775807", "'99999999999999999999s'", "'{'", "'}{'", "['', '*', '/']",
        ];
        let keys: Vec<String> = Config::known_keys().into_keys().collect();
        let path = key.get(&keys).as_str();
        let (table, key) = path.rsplit_once('.').unwrap();
        let header = match table {
            "upstream" | "queue" | "route" | "bypass" | "admin.tokens" => format!("[[{table}]]"),
            _ => format!("[{table}]"),
        };
        let text = format!("{header}\n{key} = {}\n", value.get(&values));
        // Always at least one problem: there is no listener.
        prop_assert!(parse_valid(&text).is_err());
    }
}
