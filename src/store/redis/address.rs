//! What the URL of a Redis says: which servers, in which arrangement, and as whom.
//!
//! One form for all: `scheme://[user:password@]host[:port][,host[:port]…][/path]`. It accepts
//! nothing it would then ignore. No error shows a part of the text: an unescaped `/` or `@` would
//! make a password look like a host.

use std::path::PathBuf;

use percent_encoding::percent_decode_str;

/// Where a server listens when the URL does not say.
const PORT: u16 = 6379;

/// Where a sentinel listens when the URL does not say.
const SENTINEL_PORT: u16 = 26379;

/// The most servers a URL may name; more are found through them.
const MOST_HOSTS: usize = 64;

/// A server by name or address, and its port.
pub(super) type Host = (String, u16);

/// Which servers there are and how they belong together.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RedisTopology {
    /// One server, at a fixed address.
    Server(Host),
    /// One server, at a Unix socket.
    Socket(PathBuf),
    /// A master and its replicas, watched by sentinels that know which is which.
    Sentinel {
        /// Sentinels to ask, at least one.
        sentinels: Vec<Host>,
        /// What they call the master.
        master: String,
    },
    /// A cluster, whose nodes share the queues among themselves.
    Cluster {
        /// Nodes to ask first, at least one.
        seeds: Vec<Host>,
    },
}

/// Who logs in. Without a password nobody does.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Credentials {
    /// The ACL user; `None` is the user `default`.
    pub username: Option<String>,
    /// The password.
    pub password: Option<String>,
}

/// The password is not shown.
impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let password = self.password.as_ref().map(|_| "***");
        f.debug_struct("Credentials")
            .field("username", &self.username)
            .field("password", &password)
            .finish()
    }
}

/// A URL, read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RedisAddress {
    /// Which servers.
    pub topology: RedisTopology,
    /// Whether TLS protects every connection, to sentinels too.
    pub encrypted: bool,
    /// Who logs in to the servers; sentinels have credentials of their own.
    pub credentials: Credentials,
    /// The number of the database. A cluster has only 0.
    pub database: u32,
}

/// Why a URL names no Redis.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RedisAddressError {
    /// Another scheme, or none.
    #[error("a scheme other than {SCHEMES}")]
    Scheme,
    /// A host or port that is none.
    #[error("something other than hosts, each as `name`, `name:port` or `[IPv6]:port`")]
    Hosts,
    /// Several hosts where one is meant.
    #[error("several hosts; only Sentinel and Cluster have several")]
    ManyHosts,
    /// A user without a password, or text that is not percent-encoded UTF-8.
    #[error("credentials other than `user:password`, percent-encoded")]
    Credentials,
    /// No name of a master after the sentinels.
    #[error("sentinels without the master's name, as in `…/mymaster`")]
    Master,
    /// What follows the hosts is no number of a database.
    #[error("something other than the number of a database after the host")]
    Database,
    /// A cluster has no databases.
    #[error("a database for a cluster, which has only number 0")]
    ClusterDatabase,
    /// A socket without a path.
    #[error("a socket without an absolute path")]
    Socket,
    /// `?` or `#` and what follows.
    #[error("a part after `?` or `#` that means nothing here")]
    Extra,
}

/// The schemes as an error names them.
const SCHEMES: &str = "redis, rediss, redis+unix, redis+sentinel, rediss+sentinel, redis+cluster \
                       and rediss+cluster";

impl RedisAddress {
    /// Reads a URL.
    ///
    /// # Errors
    /// [`RedisAddressError`], without any part of the text.
    pub fn parse(url: &str) -> Result<Self, RedisAddressError> {
        let (scheme, rest) = url.split_once("://").ok_or(RedisAddressError::Scheme)?;
        if scheme == "redis+unix" || scheme == "unix" {
            return socket(rest);
        }
        let (tls, kind) = match scheme.strip_prefix("rediss") {
            Some(kind) => (true, kind),
            None => (false, scheme.strip_prefix("redis").ok_or(RedisAddressError::Scheme)?),
        };
        if !["", "+sentinel", "+cluster"].contains(&kind) {
            return Err(RedisAddressError::Scheme);
        }
        if rest.contains(['?', '#']) {
            return Err(RedisAddressError::Extra);
        }
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (credentials, hosts) = match authority.rsplit_once('@') {
            Some((user, hosts)) => (credentials(user)?, hosts),
            None => (Credentials::default(), authority),
        };
        let path = path.strip_suffix('/').unwrap_or(path);
        let (topology, database) = match kind {
            "+sentinel" => {
                let (master, database) = path.split_once('/').unwrap_or((path, ""));
                let master = decoded(master).ok_or(RedisAddressError::Master)?;
                if master.is_empty() {
                    return Err(RedisAddressError::Master);
                }
                let sentinels = read_hosts(hosts, SENTINEL_PORT)?;
                (RedisTopology::Sentinel { sentinels, master }, read_database(database)?)
            }
            "+cluster" => {
                if read_database(path)? != 0 {
                    return Err(RedisAddressError::ClusterDatabase);
                }
                (RedisTopology::Cluster { seeds: read_hosts(hosts, PORT)? }, 0)
            }
            _ => {
                let mut hosts = read_hosts(hosts, PORT)?.into_iter();
                match (hosts.next(), hosts.next()) {
                    (Some(host), None) => (RedisTopology::Server(host), read_database(path)?),
                    _ => return Err(RedisAddressError::ManyHosts),
                }
            }
        };
        Ok(Self { topology, encrypted: tls, credentials, database })
    }
}

/// `/path[?db=1][&user=a][&pass=b]`: a path has no place for them.
fn socket(rest: &str) -> Result<RedisAddress, RedisAddressError> {
    let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
    let path = decoded(path).filter(|path| path.starts_with('/') && path.len() > 1);
    let path = path.ok_or(RedisAddressError::Socket)?;
    let mut credentials = Credentials::default();
    let mut database = 0;
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').ok_or(RedisAddressError::Extra)?;
        let text = || decoded(value).ok_or(RedisAddressError::Credentials);
        match name {
            "db" => database = read_database(value)?,
            "user" => credentials.username = Some(text()?),
            "pass" => credentials.password = Some(text()?),
            _ => return Err(RedisAddressError::Extra),
        }
    }
    if credentials.username.is_some() && credentials.password.is_none() {
        return Err(RedisAddressError::Credentials);
    }
    let topology = RedisTopology::Socket(PathBuf::from(path));
    Ok(RedisAddress { topology, encrypted: false, credentials, database })
}

fn decoded(text: &str) -> Option<String> {
    let text = percent_decode_str(text).decode_utf8().ok()?;
    (!text.contains('\0')).then(|| text.into_owned())
}

fn credentials(text: &str) -> Result<Credentials, RedisAddressError> {
    let (username, password) = text.split_once(':').ok_or(RedisAddressError::Credentials)?;
    let text = |text: &str| decoded(text).ok_or(RedisAddressError::Credentials);
    let (username, password) = (text(username)?, text(password)?);
    if password.is_empty() {
        return Err(RedisAddressError::Credentials);
    }
    let username = (!username.is_empty()).then_some(username);
    Ok(Credentials { username, password: Some(password) })
}

fn read_hosts(text: &str, port: u16) -> Result<Vec<Host>, RedisAddressError> {
    let hosts: Option<Vec<Host>> = text.split(',').map(|host| read_host(host, port)).collect();
    hosts.filter(|hosts| hosts.len() <= MOST_HOSTS).ok_or(RedisAddressError::Hosts)
}

fn read_host(text: &str, port: u16) -> Option<Host> {
    let (host, rest) = if let Some(text) = text.strip_prefix('[') {
        let (host, rest) = text.split_once(']')?;
        host.parse::<std::net::Ipv6Addr>().ok()?;
        (host, rest)
    } else {
        let (host, rest) = text.split_at(text.find(':').unwrap_or(text.len()));
        let sound = |b: u8| b.is_ascii_alphanumeric() || b"-._".contains(&b);
        if host.is_empty() || !host.bytes().all(sound) {
            return None;
        }
        (host, rest)
    };
    let port = match rest.strip_prefix(':') {
        Some(port) => port.parse().ok().filter(|port| *port > 0)?,
        None if rest.is_empty() => port,
        None => return None,
    };
    Some((host.to_owned(), port))
}

fn read_database(text: &str) -> Result<u32, RedisAddressError> {
    if text.is_empty() {
        return Ok(0);
    }
    let digits = text.bytes().all(|b| b.is_ascii_digit());
    let number = if digits { text.parse().ok() } else { None };
    // Redis counts databases in a C int.
    number.filter(|number| i32::try_from(*number).is_ok()).ok_or(RedisAddressError::Database)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn host(name: &str, port: u16) -> Host {
        (name.to_owned(), port)
    }

    fn error(url: &str) -> RedisAddressError {
        RedisAddress::parse(url).unwrap_err()
    }

    #[test]
    fn one_server_with_or_without_everything() {
        let plain = RedisAddress::parse("redis://10.0.0.5").unwrap();
        assert_eq!(plain.topology, RedisTopology::Server(host("10.0.0.5", 6379)));
        assert_eq!((plain.encrypted, plain.database), (false, 0));
        assert_eq!(plain.credentials, Credentials::default());
        let whole = RedisAddress::parse("rediss://gate:p%40ss%2Fword@[::1]:7000/3").unwrap();
        assert_eq!(whole.topology, RedisTopology::Server(host("::1", 7000)));
        assert_eq!((whole.encrypted, whole.database), (true, 3));
        assert_eq!(whole.credentials.username.as_deref(), Some("gate"));
        assert_eq!(whole.credentials.password.as_deref(), Some("p@ss/word"));
        let alone = RedisAddress::parse("redis://:secret@a/").unwrap().credentials;
        assert_eq!((alone.username, alone.password.as_deref()), (None, Some("secret")));
    }

    #[test]
    fn a_socket_takes_the_rest_from_its_query() {
        let socket = RedisAddress::parse("redis+unix:///run/redis.sock?db=2&pass=x").unwrap();
        assert_eq!(socket.topology, RedisTopology::Socket("/run/redis.sock".into()));
        assert_eq!((socket.database, socket.encrypted), (2, false));
        assert_eq!(socket.credentials.password.as_deref(), Some("x"));
        assert_eq!(error("redis+unix://relative"), RedisAddressError::Socket);
        assert_eq!(error("redis+unix:///a?tls=1"), RedisAddressError::Extra);
    }

    #[test]
    fn sentinels_need_a_master_and_may_have_a_database() {
        let url = "rediss+sentinel://u:p@s1,s2:26380,[::1]/main/4";
        let address = RedisAddress::parse(url).unwrap();
        let sentinels = vec![host("s1", 26379), host("s2", 26380), host("::1", 26379)];
        let master = "main".to_owned();
        assert_eq!(address.topology, RedisTopology::Sentinel { sentinels, master });
        assert_eq!((address.database, address.encrypted), (4, true));
        assert_eq!(error("redis+sentinel://s1"), RedisAddressError::Master);
        assert_eq!(error("redis+sentinel://s1/main/x"), RedisAddressError::Database);
    }

    #[test]
    fn a_cluster_has_seeds_and_no_databases() {
        let address = RedisAddress::parse("redis+cluster://a:7000,b").unwrap();
        let seeds = vec![host("a", 7000), host("b", 6379)];
        assert_eq!(address.topology, RedisTopology::Cluster { seeds });
        assert!(RedisAddress::parse("redis+cluster://a/0").is_ok());
        assert_eq!(error("redis+cluster://a/1"), RedisAddressError::ClusterDatabase);
    }

    #[test]
    fn what_would_be_ignored_is_refused() {
        for (url, expected) in [
            ("http://a", RedisAddressError::Scheme),
            ("a:6379", RedisAddressError::Scheme),
            ("redisss://a", RedisAddressError::Scheme),
            ("rediss+unix:///a", RedisAddressError::Scheme),
            ("redis://", RedisAddressError::Hosts),
            ("redis://a:", RedisAddressError::Hosts),
            ("redis://a:0", RedisAddressError::Hosts),
            ("redis://a:65536", RedisAddressError::Hosts),
            ("redis://a b", RedisAddressError::Hosts),
            ("redis://[a]", RedisAddressError::Hosts),
            ("redis+cluster://a,,b", RedisAddressError::Hosts),
            ("redis://a,b", RedisAddressError::ManyHosts),
            ("redis://user@a", RedisAddressError::Credentials),
            ("redis://user:@a", RedisAddressError::Credentials),
            ("redis://:%ff@a", RedisAddressError::Credentials),
            ("redis://a/-1", RedisAddressError::Database),
            ("redis://a/2147483648", RedisAddressError::Database),
            ("rediss://a#insecure", RedisAddressError::Extra),
            ("redis://a?db=1", RedisAddressError::Extra),
        ] {
            assert_eq!(error(url), expected, "{url}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_the_reader_panic_or_shows_up(text in "\\PC{0,40}") {
            for scheme in ["", "redis://", "redis+unix://", "redis+sentinel://", "rediss+cluster://"] {
                if let Err(error) = RedisAddress::parse(&format!("{scheme}{text}")) {
                    prop_assert!(error.to_string().len() < 120);
                }
            }
        }
    }
}
