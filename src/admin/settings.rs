//! Who may administer.

use std::fmt;

/// What a token allows.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Role {
    /// Reading.
    Viewer,
    /// Reading and changing.
    Operator,
}

/// One bearer token of an administrator.
#[derive(Clone, PartialEq, Eq)]
pub struct AdminToken {
    /// Who holds it; shown in logs.
    pub name: String,
    /// What it allows.
    pub role: Role,
    /// BLAKE3 of the secret: the secret itself is not kept.
    pub secret_hash: [u8; 32],
}

impl AdminToken {
    /// A token from its secret.
    #[must_use]
    pub fn new(name: impl Into<String>, role: Role, secret: &str) -> Self {
        Self { name: name.into(), role, secret_hash: *blake3::hash(secret.as_bytes()).as_bytes() }
    }

    /// Whether `secret` is this token's. Constant time.
    #[must_use]
    pub fn accepts(&self, secret: &str) -> bool {
        blake3::hash(secret.as_bytes()) == blake3::Hash::from_bytes(self.secret_hash)
    }
}

impl fmt::Debug for AdminToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AdminToken({}, {:?}, ***)", self.name, self.role)
    }
}
