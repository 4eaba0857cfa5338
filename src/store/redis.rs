//! Placeholder.

use super::{RedisSettings, SharedStore, StoreError};

/// Placeholder.
pub fn redis(_: &RedisSettings) -> Result<SharedStore, StoreError> {
    Err(StoreError::away())
}
