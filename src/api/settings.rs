//! What can be set about the queue API.

use ipnet::IpNet;

/// The queue API.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ApiSettings {
    /// The reserved path prefix, e.g. `/_queue`; no slash at the end.
    pub prefix: String,
    /// Origins that may call the API from a browser on another origin.
    pub cors_origins: Vec<String>,
    /// The compatibility set, when it is on.
    pub simple: Option<SimpleSettings>,
    /// Event streams at once on this gateway. Default 10 000.
    pub max_event_streams: usize,
}

/// The compatibility set: `/rank`, `/queue`, `/allowed`, `/allow`, `/waiting-room`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SimpleSettings {
    /// What stands before its paths; empty by default.
    pub prefix: String,
    /// Peers that may name a user in the query. Default: loopback.
    pub clients: Vec<IpNet>,
}
