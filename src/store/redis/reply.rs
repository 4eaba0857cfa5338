//! Reads what the scripts answer. Whatever Redis sends, the worst outcome is
//! [`StoreError::Corrupt`].

use std::collections::BTreeSet;

use redis::Value;

use crate::clock::Timestamp;
use crate::queue::command::{
    Entered, Freshness, Gone, RecoveryState, Standing, Synced, Versioned, Versions,
};
use crate::queue::settings::Settings;
use crate::queue::{Place, QueueName, Seq};
use crate::store::StoreError;

/// What a script answers on a server that the queue was not fenced on.
const FENCE: &str = "FENCE";

/// The values of one answer, taken from the front.
#[derive(Debug)]
pub(super) struct Reply(std::vec::IntoIter<Value>);

fn corrupt(expected: &str, found: &impl std::fmt::Debug) -> StoreError {
    let found: String = format!("{found:?}").chars().take(80).collect();
    StoreError::Corrupt(format!("expected {expected}, found {found}"))
}

impl Reply {
    /// The answer of a script about `queue`: a list, or nothing when there is no such queue.
    pub(super) fn of(value: Value, queue: &QueueName) -> Result<Self, StoreError> {
        match value {
            Value::Nil => Err(StoreError::UnknownQueue(queue.clone())),
            Value::SimpleString(status) if status == FENCE => {
                Err(StoreError::NeedsFence(queue.clone()))
            }
            value => Self::list_of(value),
        }
    }

    fn list_of(value: Value) -> Result<Self, StoreError> {
        match value {
            Value::Array(values) => Ok(Self(values.into_iter())),
            other => Err(corrupt("a list", &other)),
        }
    }

    fn next(&mut self) -> Result<Value, StoreError> {
        self.0.next().ok_or_else(|| corrupt("another value", &"the end"))
    }

    /// A whole number.
    pub(super) fn number(&mut self) -> Result<u64, StoreError> {
        number(&self.next()?)
    }

    /// A moment.
    fn time(&mut self) -> Result<Timestamp, StoreError> {
        self.number().map(Timestamp::from_millis)
    }

    fn seq(&mut self) -> Result<Seq, StoreError> {
        self.number().map(Seq)
    }

    fn flag(&mut self) -> Result<bool, StoreError> {
        match self.number()? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(corrupt("0 or 1", &other)),
        }
    }

    /// What `read` makes of the next value; `None` if there is none.
    fn optional<T>(
        &mut self,
        read: impl FnOnce(Value) -> Result<T, StoreError>,
    ) -> Result<Option<T>, StoreError> {
        match self.next()? {
            Value::Nil => Ok(None),
            value => read(value).map(Some),
        }
    }

    /// The head of an answer that may have changed the line, and what `read` makes of the rest.
    pub(super) fn versioned<T>(
        mut self,
        read: impl FnOnce(&mut Self) -> Result<T, StoreError>,
    ) -> Result<Versioned<T>, StoreError> {
        let version = self.number()?;
        let incarnation = self.incarnation()?;
        let at = self.time()?;
        Ok(Versioned { version, incarnation, at, value: read(&mut self)? })
    }

    fn incarnation(&mut self) -> Result<u32, StoreError> {
        let number = self.number()?;
        u32::try_from(number).map_err(|_| corrupt("an incarnation", &number))
    }

    /// One row a user.
    pub(super) fn entered(&mut self) -> Result<Vec<Entered>, StoreError> {
        Self::list_of(self.next()?)?.0.map(|row| Self::list_of(row)?.entered_row()).collect()
    }

    fn entered_row(&mut self) -> Result<Entered, StoreError> {
        let kind = self.number()?;
        match kind {
            8 => return Ok(Entered::NotOpen { opens_at: self.time()? }),
            9 => return Ok(Entered::Closed),
            10 => return Ok(Entered::Full),
            12 => return Ok(Entered::Rebuilding),
            _ => {}
        }
        let standing = self.standing_as(kind)?;
        let freshness = if self.flag()? { Freshness::New } else { Freshness::Known };
        match standing {
            Standing::Waiting(place) => Ok(Entered::Waiting(place, freshness)),
            Standing::Late(place) => Ok(Entered::Late(place)),
            Standing::Active { place, until, claimed } => {
                Ok(Entered::Active { place, until, claimed, freshness })
            }
            Standing::Gone(gone) => Err(corrupt("an entry", &gone)),
        }
    }

    /// One row about one user.
    pub(super) fn standing(&mut self) -> Result<Standing, StoreError> {
        let mut row = Self::list_of(self.next()?)?;
        let kind = row.number()?;
        row.standing_as(kind)
    }

    fn standing_as(&mut self, kind: u64) -> Result<Standing, StoreError> {
        let place = Place { seq: self.seq()?, entered: self.time()? };
        let (until, claimed) = (self.time()?, self.flag()?);
        Ok(match kind {
            1 => Standing::Waiting(place),
            2 => Standing::Late(place),
            3 => Standing::Active { place, until, claimed },
            4 => Standing::Gone(Gone::Unknown),
            5 => Standing::Gone(Gone::Expired),
            6 => Standing::Gone(Gone::Missed),
            7 => Standing::Gone(Gone::Closed),
            11 => Standing::Gone(Gone::Lost),
            other => return Err(corrupt("a kind of standing", &other)),
        })
    }

    /// The answer of `sync.lua`.
    pub(super) fn synced(mut self) -> Result<Synced, StoreError> {
        let all = self.number()?;
        let incarnation = self.incarnation()?;
        let now = self.time()?;
        let versions = Versions {
            all,
            gone: self.number()?,
            late: self.number()?,
            settings: self.number()?,
            revoked: self.number()?,
        };
        let (head, tail) = (self.number()?, self.number()?);
        if head == 0 || head - 1 > tail || tail > Seq::MAX.0 {
            return Err(corrupt("a head at most one after the tail", &(head, tail)));
        }
        let (live, active, admitted) = (self.number()?, self.number()?, self.number()?);
        let gone = self.optional(|value| gone_bytes(value, head, tail))?;
        let late = self.optional(numbers)?;
        let settings = self.optional(settings)?;
        let revoked = self.optional(numbers)?;
        let recovery = RecoveryState {
            fences: self.number()?,
            lost: ranges(self.next()?)?,
            rebuilding: self.flag()?,
            issued_floor: self.time()?,
            admit_after: self.time()?,
        };
        Ok(Synced {
            now,
            incarnation,
            versions,
            head,
            tail,
            live,
            active,
            admitted,
            gone,
            late,
            settings,
            revoked,
            recovery,
        })
    }
}

/// A whole number; Redis writes members of sorted sets as text.
fn number(value: &Value) -> Result<u64, StoreError> {
    let number = match value {
        Value::Int(number) => u64::try_from(*number).ok(),
        Value::BulkString(text) => std::str::from_utf8(text).ok().and_then(|s| s.parse().ok()),
        _ => None,
    };
    number.ok_or_else(|| corrupt("a whole number", value))
}

fn numbers(value: Value) -> Result<BTreeSet<u64>, StoreError> {
    Reply::list_of(value)?.0.map(|value| number(&value)).collect()
}

/// Pairs of first and last numbers, ascending.
fn ranges(value: Value) -> Result<Vec<(u64, u64)>, StoreError> {
    let numbers: Vec<u64> =
        Reply::list_of(value)?.0.map(|value| number(&value)).collect::<Result<_, _>>()?;
    if !numbers.len().is_multiple_of(2) || !numbers.is_sorted() {
        return Err(corrupt("ascending ranges", &numbers));
    }
    Ok(numbers.chunks_exact(2).map(|range| (range[0], range[1])).collect())
}

/// Bytes of any kind.
pub(super) fn bytes(value: Value) -> Result<Vec<u8>, StoreError> {
    match value {
        Value::BulkString(bytes) => Ok(bytes),
        other => Err(corrupt("bytes", &other)),
    }
}

/// The gone bytes from `head` to `tail`, with the zeros that Redis does not store.
fn gone_bytes(value: Value, head: u64, tail: u64) -> Result<Vec<u8>, StoreError> {
    let mut bytes = bytes(value)?;
    let length = if head > tail { 0 } else { tail / 8 - head / 8 + 1 };
    match usize::try_from(length) {
        // A bitmap in Redis is at most 512 MiB: more is no line of people.
        Ok(length) if bytes.len() <= length && length <= 1 << 29 => bytes.resize(length, 0),
        _ => return Err(corrupt("at most that many gone bytes", &(length, bytes.len()))),
    }
    Ok(bytes)
}

fn settings(value: Value) -> Result<Settings, StoreError> {
    serde_json::from_slice(&bytes(value)?)
        .map_err(|error| StoreError::Corrupt(format!("settings: {error}")))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn any_value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Nil),
            Just(Value::Okay),
            any::<i64>().prop_map(Value::Int),
            (0i64..12).prop_map(Value::Int),
            prop::collection::vec(any::<u8>(), 0..20).prop_map(Value::BulkString),
            ".*".prop_map(Value::SimpleString),
            any::<f64>().prop_map(Value::Double),
        ];
        leaf.prop_recursive(3, 64, 20, |inner| {
            prop::collection::vec(inner, 0..20).prop_map(Value::Array)
        })
    }

    proptest! {
        /// A store of another version, or something that is no Redis at all.
        #[test]
        fn no_answer_makes_the_reader_panic(value in any_value()) {
            let queue = QueueName::new("q").unwrap();
            let reply = || Reply::of(value.clone(), &queue);
            let _ = reply().and_then(Reply::synced);
            let _ = reply().and_then(|reply| reply.versioned(Reply::entered));
            let _ = reply().and_then(|reply| reply.versioned(Reply::standing));
            let _ = reply().and_then(|reply| reply.versioned(Reply::number));
        }

        #[test]
        fn no_list_of_numbers_makes_the_reader_panic(
            list in prop::collection::vec(prop_oneof![any::<i64>(), 0i64..12], 0..20),
        ) {
            let queue = QueueName::new("q").unwrap();
            let value = Value::Array(list.into_iter().map(Value::Int).collect());
            let _ = Reply::of(value.clone(), &queue).and_then(Reply::synced);
            let nested = Value::Array(vec![Value::Int(1), Value::Int(1), Value::Int(1), value]);
            let _ = Reply::of(nested, &queue).and_then(|reply| reply.versioned(Reply::standing));
        }
    }

    #[test]
    fn nothing_means_that_the_queue_is_unknown() {
        let queue = QueueName::new("q").unwrap();
        assert!(matches!(Reply::of(Value::Nil, &queue), Err(StoreError::UnknownQueue(_))));
        assert!(matches!(Reply::of(Value::Okay, &queue), Err(StoreError::Corrupt(_))));
    }
}
