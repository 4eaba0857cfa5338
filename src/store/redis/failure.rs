//! What a failure of Redis means: the one place that decides it.
//!
//! Every answer a server may give instead of a result stands in [`ANSWERS`], with what it says
//! about the command (nothing happened, it may have happened, the data is not ours) and what to do
//! about the connection. A failure to connect never gets here: then nothing was sent.

use redis::{ErrorKind, RedisError};

use crate::store::StoreError;

/// What a failure says about the command that met it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Meaning {
    /// Nothing happened; it may be repeated.
    Unavailable,
    /// It may have happened; repeating finds out.
    Indeterminate,
    /// The data or the server is not what this version knows.
    Corrupt,
}

/// What a failure says about the connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Reaction {
    /// It is sound.
    Keep,
    /// Another one is needed, and perhaps to another server: log in again, look for the master.
    Renew,
    /// It may be dead though nobody closed it.
    Suspect,
}

use Meaning::{Corrupt, Indeterminate, Unavailable};
use Reaction::{Keep, Renew, Suspect};

/// Error codes of a server. Unless a script raised them, they are sent before it begins.
pub(super) const ANSWERS: [(&str, Meaning, Reaction); 18] = [
    // A replica, perhaps a master that was demoted a moment ago.
    ("READONLY", Unavailable, Renew),
    // A replica that lost its master.
    ("MASTERDOWN", Unavailable, Renew),
    // It reads its files after a start.
    ("LOADING", Unavailable, Keep),
    // It is busy with somebody's long script.
    ("BUSY", Unavailable, Keep),
    // Memory is full; nothing may be evicted.
    ("OOM", Unavailable, Keep),
    // It cannot write its files and refuses to take what would not be saved.
    ("MISCONF", Unavailable, Keep),
    // Fewer replicas than min-replicas-to-write.
    ("NOREPLICAS", Unavailable, Keep),
    // Forgotten scripts; the connection has sent the text already when this gets here.
    ("NOSCRIPT", Unavailable, Keep),
    // Another node has the slot. The cluster client follows these; they get here when it gave up,
    // or when a cluster is configured as a single server.
    ("MOVED", Unavailable, Renew),
    ("ASK", Unavailable, Renew),
    // The slot is being moved to another node; or nobody serves it.
    ("TRYAGAIN", Unavailable, Keep),
    ("CLUSTERDOWN", Unavailable, Renew),
    // Not logged in, or no longer with the right password.
    ("NOAUTH", Unavailable, Renew),
    ("WRONGPASS", Unavailable, Renew),
    // Logged in, but not allowed.
    ("NOPERM", Unavailable, Keep),
    // A transaction that a proxy made of our command.
    ("EXECABORT", Unavailable, Keep),
    // Keys of different slots: our keys share one, so this is no server of ours.
    ("CROSSSLOT", Corrupt, Keep),
    // A key of ours holds something else.
    ("WRONGTYPE", Corrupt, Keep),
];

/// What appears in every error that a running script raised, since Redis 7.0.
const INSIDE_A_SCRIPT: &str = "user_script";

/// Judges a failure of a command that was handed to a connection.
pub(super) fn judge(error: &RedisError) -> (Meaning, Reaction) {
    match error.kind() {
        ErrorKind::Io if error.is_timeout() => (Indeterminate, Suspect),
        // Bytes that are no answer: what follows them cannot be trusted either.
        ErrorKind::Parse | ErrorKind::UnexpectedReturnType => (Corrupt, Renew),
        ErrorKind::AuthenticationFailed
        | ErrorKind::ClusterConnectionNotFound
        | ErrorKind::MasterNameNotFoundBySentinel => (Unavailable, Renew),
        ErrorKind::InvalidClientConfig | ErrorKind::Client => (Unavailable, Keep),
        ErrorKind::Server(_) | ErrorKind::Extension => {
            answered(error.code().unwrap_or_default(), error.detail().unwrap_or_default())
        }
        // A connection that broke, and whatever a later version of the library tells apart.
        _ => (Indeterminate, Renew),
    }
}

/// Judges an answer by its code and the words after it.
fn answered(code: &str, words: &str) -> (Meaning, Reaction) {
    let known = ANSWERS.iter().find(|(name, ..)| *name == code);
    match known {
        // Redis kills a script only while it has written nothing.
        _ if words.contains("Script killed by user") => (Unavailable, Keep),
        Some(&(_, Corrupt, reaction)) => (Corrupt, reaction),
        // A script was stopped in the middle by something that is usually said before it begins,
        // such as a command that the ACL user may not run.
        Some(&(_, _, reaction)) if words.contains(INSIDE_A_SCRIPT) => (Indeterminate, reaction),
        Some(&(_, meaning, reaction)) => (meaning, reaction),
        None if is_forbidden_inside(words) => (Indeterminate, Keep),
        // It met data it does not understand.
        None if words.contains(INSIDE_A_SCRIPT) => (Corrupt, Keep),
        // It closes the connection after it.
        None if words.contains("max number of clients") => (Unavailable, Renew),
        // Any other answer is a refusal made before the first step.
        None => (Unavailable, Keep),
    }
}

/// How Redis says that the ACL forbids a command within a script.
fn is_forbidden_inside(words: &str) -> bool {
    words.contains("ACL failure in script") || words.contains("can't run this command")
}

/// A failed command as the port's error.
pub(super) fn failed(error: RedisError) -> StoreError {
    match judge(&error).0 {
        Unavailable => unavailable(error),
        Indeterminate => StoreError::Indeterminate(Box::new(error)),
        Corrupt => StoreError::Corrupt(error.to_string()),
    }
}

/// A failure before anything was sent.
pub(super) fn unavailable(error: impl std::error::Error + Send + Sync + 'static) -> StoreError {
    StoreError::Unavailable(Box::new(error))
}

#[cfg(test)]
mod tests {
    use redis::parse_redis_value;

    use super::*;

    fn judged(answer: &str) -> (Meaning, Reaction) {
        let value = parse_redis_value(format!("-{answer}\r\n").as_bytes()).unwrap();
        judge(&value.extract_error().unwrap_err())
    }

    #[test]
    fn every_answer_of_the_table_is_found_by_its_code() {
        for (code, meaning, reaction) in ANSWERS {
            assert_eq!(judged(&format!("{code} some words")), (meaning, reaction), "{code}");
        }
    }

    #[test]
    fn what_a_running_script_says_is_not_a_refusal() {
        let inside = "script: 0123, on @user_script:12.";
        assert_eq!(judged(&format!("ERR user_script:12: no head {inside}")), (Corrupt, Keep));
        assert_eq!(judged(&format!("WRONGTYPE Operation against {inside}")), (Corrupt, Keep));
        assert_eq!(judged(&format!("OOM command not allowed {inside}")), (Indeterminate, Keep));
        let forbidden = format!("ERR ACL failure in script: User a has no permissions {inside}");
        assert_eq!(judged(&forbidden), (Indeterminate, Keep));
        let killed = format!("ERR Error running script: Script killed by user {inside}");
        assert_eq!(judged(&killed), (Unavailable, Keep));
    }

    #[test]
    fn other_answers_are_refusals() {
        assert_eq!(judged("ERR unknown command 'EVALSHA'"), (Unavailable, Keep));
        assert_eq!(judged("ERR max number of clients reached"), (Unavailable, Renew));
        assert_eq!(judged("NEWCODE of a later version"), (Unavailable, Keep));
    }

    #[test]
    fn silence_and_a_broken_connection_leave_it_open() {
        let error = |kind: std::io::ErrorKind| RedisError::from(std::io::Error::from(kind));
        assert_eq!(judge(&error(std::io::ErrorKind::TimedOut)), (Indeterminate, Suspect));
        assert_eq!(judge(&error(std::io::ErrorKind::ConnectionReset)), (Indeterminate, Renew));
        assert_eq!(judge(&error(std::io::ErrorKind::BrokenPipe)), (Indeterminate, Renew));
    }
}
