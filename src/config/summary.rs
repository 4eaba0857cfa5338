//! What a configuration amounts to, in a few lines for people.

use std::fmt;

use crate::proxy::Listen;
use crate::queue::UserSource;
use crate::queue::definition::Definition;
use crate::queue::settings::{Mode, Renew};
use crate::store::{Durability, StoreSettings};

use super::Config;
use super::units::show_duration;

/// Shows a [`Config`] as `anteroom check` prints it, in lines that end. No secret is
/// in it.
#[derive(Debug)]
pub struct Summary<'a>(pub(super) &'a Config);

impl fmt::Display for Summary<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let config = self.0;
        let listen: Vec<String> = config.server.listen.iter().map(show_listen).collect();
        writeln!(f, "listen:    {}", listen.join(", "))?;
        match config.server.admin_listen {
            Some(address) if config.admin.is_empty() => {
                writeln!(f, "admin:     {address}, no token: reading only, from this machine")?;
            }
            Some(address) => {
                writeln!(f, "admin:     {address}, {}", count(config.admin.len(), "token"))?;
            }
            None => writeln!(f, "admin:     off")?,
        }
        match &config.store {
            StoreSettings::Embedded(None) => {
                writeln!(f, "store:     embedded, in memory only: a restart empties every line")?;
            }
            StoreSettings::Embedded(Some(disk)) => {
                write!(f, "store:     embedded, in {}, ", disk.path.display())?;
                match disk.durability {
                    Durability::Async { commit_interval } => {
                        writeln!(f, "saved every {}", show_duration(commit_interval))?;
                    }
                    Durability::Sync => writeln!(f, "saved before every answer")?,
                }
            }
            StoreSettings::Redis(redis) => {
                writeln!(f, "store:     redis, keys under {}", redis.key_prefix)?;
            }
        }
        match config.tokens.keys.len() {
            0 => writeln!(f, "tokens:    signed with a key that the store keeps")?,
            keys => writeln!(f, "tokens:    signed with {}", count(keys, "configured key"))?,
        }
        writeln!(f, "identity:  {}", show_sources(&config.identity.sources))?;
        if let Some(jwt) = &config.identity.jwt {
            writeln!(f, "jwt:       {}", super::jwt::describe(jwt))?;
        }
        for upstream in &config.upstreams {
            writeln!(f, "upstream:  {} at {}", upstream.name, upstream.servers.join(", "))?;
        }
        for queue in &config.queues {
            show_queue(f, queue)?;
        }
        let routes = config.routes.routes();
        let gated = routes.iter().filter(|route| route.gated.is_some()).count();
        write!(f, "routes:    {}, {gated} gated", routes.len())?;
        match &config.api.simple {
            Some(_) => writeln!(f, "; API under {}, with the compatibility set", config.api.prefix),
            None => writeln!(f, "; API under {}", config.api.prefix),
        }
    }
}

fn show_listen(listen: &Listen) -> String {
    match listen {
        Listen::Tcp(address) => address.to_string(),
        Listen::Unix(path) => format!("unix:{}", path.display()),
    }
}

fn show_sources(sources: &[UserSource]) -> String {
    sources.iter().map(|source| source.as_str()).collect::<Vec<_>>().join(", ")
}

fn show_queue(f: &mut fmt::Formatter<'_>, queue: &Definition) -> fmt::Result {
    let settings = &queue.settings;
    write!(f, "queue:     {}: capacity {}, ", queue.template.label(), settings.capacity)?;
    match settings.rate.as_per_second() {
        Some(users) => write!(f, "{users} a second")?,
        None => write!(f, "no rate limit")?,
    }
    write!(
        f,
        ", active for {}, {} to come, silent for {}",
        show_duration(settings.active_ttl),
        show_duration(settings.claim_ttl),
        show_duration(settings.waiting_ttl),
    )?;
    if settings.renew == Renew::Sliding {
        write!(f, ", sliding up to {}", show_duration(settings.active_max))?;
    }
    if settings.mode != Mode::Auto {
        write!(f, ", mode {}", settings.mode.as_str())?;
    }
    for (word, at) in [("opens", settings.opens_at), ("closes", settings.closes_at)] {
        if let Some(at) = at {
            write!(f, ", {word} {}", at.to_rfc3339())?;
        }
    }
    if let Some(sources) = &queue.identity {
        write!(f, ", identity {}", show_sources(sources))?;
    }
    writeln!(f)
}

fn count(number: usize, thing: &str) -> String {
    if number == 1 { format!("1 {thing}") } else { format!("{number} {thing}s") }
}
