//! Which keys sign, and how tokens are carried.

use super::TokenKey;

/// Tokens.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TokenSettings {
    /// Signing keys, newest first; empty means one that the store generates and shares.
    pub keys: Vec<TokenKey>,
    /// The request and response header, lower case. Default `x-queue-token`.
    pub header: http::HeaderName,
    /// The cookie's base name. Default `queue_token`.
    pub cookie: String,
}
