//! Where a queue's state lies in Redis.
//!
//! All keys of a queue share one hash tag, so that a cluster keeps them on one node and a script
//! may touch them together. `<q>` stands for `<prefix>{<queue>}`; numbers are decimal text, times
//! Unix milliseconds.
//!
//! | key | type | holds |
//! |---|---|---|
//! | `<q>:m` | hash | head, tail, base, counters, versions, token bucket, settings (JSON, and the numbers scripts need) |
//! | `<q>:g` | string | gone bits from number `base`, most significant bit first; missing bits are 0 |
//! | `<q>:u` | hash | user tag (8 bytes) → `seq entered claimed was_late`; `claimed` 0 = not used yet |
//! | `<q>:a` | sorted set | active numbers, score = end of the lease |
//! | `<q>:l` | sorted set | numbers in the late lane, score = the number |
//! | `<q>:k` | sorted set | seconds in which the head moved, score = the head after it |
//! | `<q>:t` | sorted set | `epoch:tail` of epochs in which somebody entered, score = the epoch |
//! | `<q>:r` | sorted set | revoked numbers, score = until when gateways are told |
//! | `<q>:d` | sorted set | lost numbers that are over for good, score = the number |
//! | `<q>:h:<epoch>` | string | who was heard in that epoch, from the number in `first` |
//! | `<q>:hg:<epoch>` | hash | gateways that reported that epoch, and `first` |
//! | `<q>:x`, `<q>:y` | string | scratch within one script |
//! | `<q>:inc` | string | the last incarnation; outlives the queue |
//! | `<prefix>secret:<name>` | string | 32 bytes all gateways share |

use crate::queue::QueueName;
use crate::store::SharedSecret;

/// Makes keys behind one prefix.
#[derive(Clone, Debug)]
pub(super) struct Keys {
    prefix: String,
}

impl Keys {
    /// Keys behind `prefix`.
    pub(super) fn new(prefix: impl Into<String>) -> Self {
        Self { prefix: prefix.into() }
    }

    /// The nine keys every script of `queue` gets, in the order of `line.lua`.
    pub(super) fn queue(&self, queue: &QueueName) -> Vec<String> {
        ["m", "g", "u", "a", "l", "k", "t", "r", "d"].map(|part| self.part(queue, part)).into()
    }

    /// The last incarnation of `queue`.
    pub(super) fn incarnation(&self, queue: &QueueName) -> String {
        self.part(queue, "inc")
    }

    /// The bits and the gateways of one epoch.
    pub(super) fn epoch(&self, queue: &QueueName, epoch: u64) -> [String; 2] {
        [self.part(queue, &format!("h:{epoch}")), self.part(queue, &format!("hg:{epoch}"))]
    }

    /// Two keys for use within one script.
    pub(super) fn scratch(&self, queue: &QueueName) -> [String; 2] {
        [self.part(queue, "x"), self.part(queue, "y")]
    }

    /// A shared secret.
    pub(super) fn secret(&self, name: SharedSecret) -> String {
        let name = match name {
            SharedSecret::UserSalt => "user_salt",
            SharedSecret::TokenKey => "token_key",
        };
        format!("{}secret:{name}", self.prefix)
    }

    fn part(&self, queue: &QueueName, part: &str) -> String {
        format!("{}{{{queue}}}:{part}", self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_keys_of_a_queue_share_one_hash_tag() {
        let keys = Keys::new("shop:");
        let queue = QueueName::new("deal-1").unwrap();
        let mut all = keys.queue(&queue);
        all.push(keys.incarnation(&queue));
        all.extend(keys.epoch(&queue, 7));
        all.extend(keys.scratch(&queue));
        assert!(all.iter().all(|key| key.starts_with("shop:{deal-1}:")), "{all:?}");
        assert_eq!(all.iter().collect::<std::collections::HashSet<_>>().len(), all.len());
        assert_eq!(keys.secret(SharedSecret::UserSalt), "shop:secret:user_salt");
    }
}
