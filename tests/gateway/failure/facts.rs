//! What shoppers were told, one fact at a time.

use std::time::Instant;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

/// The place a token names.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Number {
    /// The queue's incarnation.
    pub incarnation: u64,
    /// The number in line.
    pub seq: u64,
}

impl Number {
    /// The place in a token: bytes 6..10 and 10..18.
    pub fn of(token: &str) -> Option<Self> {
        let bytes = URL_SAFE_NO_PAD.decode(token).ok()?;
        let number = |range| {
            let bytes: &[u8] = bytes.get::<std::ops::Range<usize>>(range)?;
            Some(bytes.iter().fold(0, |sum, byte| (sum << 8) | u64::from(*byte)))
        };
        Some(Self { incarnation: number(6..10)?, seq: number(10..18)? })
    }
}

/// What somebody was told.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum What {
    /// A place, by enter.
    Entered(Number),
    /// To wait, at this rank.
    Waiting(u64),
    /// That the turn has come.
    Active,
    /// The gate let it through.
    Passed,
    /// Its place was given back.
    Left,
    /// A place that had been acknowledged is denied.
    Lost(String),
    /// The gate let it through after it had left.
    Intruded,
    /// An answer that nobody should get.
    Odd(String),
}

/// Something that was acknowledged.
#[derive(Clone, Debug)]
pub struct Fact {
    /// The visit.
    pub user: u32,
    /// When the shopper began to ask for it; repeats belong to the same question.
    pub asked: Instant,
    /// When the answer was there.
    pub came: Instant,
    /// Which gateway gave it.
    pub gateway: usize,
    /// What was answered.
    pub what: What,
}

/// The name under which a visit's user is known to gateways and shop.
pub fn name_of(user: u32) -> String {
    format!("u{user}")
}
