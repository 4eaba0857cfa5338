//! Stories and properties of one line.
//!
//! The stories say one promise each; the properties run random commands on the line and on a naive
//! list of people and compare every answer; the sale replays twenty thousand shoppers.

mod model;
mod properties;
mod sale;
mod stories;

use super::*;

/// A Sunday evening, at the start of an epoch.
const START_MS: u64 = 1_764_540_000_000;

/// User number `n`.
fn user(n: u64) -> UserTag {
    UserTag(n.to_be_bytes())
}

/// What must hold between any two commands, whatever they were.
fn check_invariants(line: &Line) -> Result<(), String> {
    line.check().map_err(|broken| broken.to_string())
}
