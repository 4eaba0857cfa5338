//! The configuration file: one TOML text becomes the settings that other modules own.
//!
//! Reading never stops at the first mistake: every one is reported at once, with file, line, column,
//! key, what was found and what was expected, and then there is no [`Config`] at all. A key that
//! would have no effect is a mistake too. Nothing here opens a socket or asks a name server, so
//! `anteroom check` and a reload see what a start sees. Files that the configuration names are read.

mod admin;
mod api;
mod data_directory;
mod identity;
mod jwt;
mod log;
mod networks;
mod notes;
mod origin;
mod page;
mod problem;
mod queue;
mod raw;
mod resolve;
mod route;
mod server;
mod spelling;
mod store;
mod summary;
mod syntax;
mod tokens;
mod units;
mod upstream;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use toml::de::DeTable;

use crate::admin::AdminToken;
use crate::api::ApiSettings;
use crate::identity::IdentitySettings;
use crate::page::PageSettings;
use crate::proxy::{ServerSettings, UpstreamSettings};
use crate::queue::definition::Definition;
use crate::route::RouteTable;
use crate::store::StoreSettings;
use crate::telemetry::LogSettings;
use crate::token::TokenSettings;

use self::notes::Notes;

pub use notes::Availability;
pub use problem::{Cause, Problem, Report, Warning, Warnings};
pub use summary::Summary;

/// The default configuration, as `anteroom default-config` prints it: the smallest useful one, with
/// every key explained.
pub const DEFAULT: &str = include_str!("../gateway.toml");

/// Everything the configuration file says, checked.
#[derive(Debug)]
pub struct Config {
    /// The public side: listeners and limits.
    pub server: ServerSettings,
    /// Where the line lives.
    pub store: StoreSettings,
    /// Which keys sign tokens, and how they are carried.
    pub tokens: TokenSettings,
    /// Who is asked who a user is.
    pub identity: IdentitySettings,
    /// The servers behind the gateway. Names are unique.
    pub upstreams: Vec<UpstreamSettings>,
    /// The declared queues. A name belongs to at most one.
    pub queues: Vec<Definition>,
    /// What is done with which request; upstreams and queues in it exist. Shared with requests.
    pub routes: Arc<RouteTable>,
    /// The queue API.
    pub api: ApiSettings,
    /// Who may administer; empty means reading from this machine only.
    pub admin: Vec<AdminToken>,
    /// The waiting room page.
    pub page: PageSettings,
    /// Logs.
    pub log: LogSettings,
}

impl Config {
    /// Reads the file at `path` and the environment of this process.
    ///
    /// # Errors
    /// [`Report`]: every mistake, or that the file cannot be read.
    pub fn load(path: &Path) -> Result<(Self, Warnings), Report> {
        let file = path.display().to_string();
        match std::fs::read_to_string(path) {
            Ok(text) => Self::parse(&text, &file, &|name| std::env::var(name).ok()),
            Err(source) => {
                let cause = Cause::Unreadable { path: file.clone(), source };
                let problem = Problem { line: 0, column: 0, key: String::new(), cause };
                Err(Report { file, problems: vec![problem] })
            }
        }
    }

    /// Reads `text`. `file_name` is used in reports, and the directory in it is where relative paths
    /// in the text start; `env` looks up variables of the environment.
    ///
    /// # Errors
    /// [`Report`]: every mistake.
    pub fn parse(
        text: &str,
        file_name: &str,
        env: &dyn Fn(&str) -> Option<String>,
    ) -> Result<(Self, Warnings), Report> {
        let repaired = syntax::repair(text);
        let mut notes = Notes::new(text, Path::new(file_name), env);
        notes.syntax(repaired.mistakes);
        // The repaired text is sound, so nothing is left to recover from.
        let (entries, _) = DeTable::parse_recoverable(&repaired.text);
        let config = resolve::resolve(&notes, entries.get_ref());
        let (problems, list) = notes.into_lists();
        let file = file_name.to_owned();
        match config {
            Some(config) if problems.is_empty() => Ok((config, Warnings { file, list })),
            _ => Err(Report { file, problems }),
        }
    }

    /// Every key that a configuration can have, e.g. `server.limits.head_bytes` or
    /// `queue.capacity`, and whether this version can do what it asks for.
    #[must_use]
    pub fn known_keys() -> BTreeMap<String, Availability> {
        // Lists are empty by default, so one element of each is needed for its keys.
        const ONE_OF_EACH: &str =
            "upstream = [{}]\nqueue = [{}]\nroute = [{}]\nbypass = [{}]\nadmin.tokens = [{}]\n";
        let (entries, _) = DeTable::parse_recoverable(ONE_OF_EACH);
        let notes = Notes::new(ONE_OF_EACH, Path::new(""), &|_| None);
        resolve::resolve(&notes, entries.get_ref());
        notes.into_known()
    }

    /// What the configuration amounts to, for people.
    #[must_use]
    pub const fn summary(&self) -> Summary<'_> {
        Summary(self)
    }
}
