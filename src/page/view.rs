//! What the template is given for each state, and how a wait is put into words.

use std::time::Duration;

use serde::Serialize;

use crate::queue::estimate::Estimate;
use crate::queue::view::{Status, View};

/// How a page comes to know of changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Renewal {
    /// The script asks for the rank; without a script the document reloads itself.
    Poll,
    /// The document reloads itself.
    Reload,
    /// Nothing will change until the user acts.
    Never,
}

/// The name of a state in the template, and how its page is renewed.
pub(super) const fn state(status: Status) -> (&'static str, Renewal) {
    match status {
        Status::Joining => ("joining", Renewal::Reload),
        Status::CookiesNeeded => ("cookies", Renewal::Never),
        Status::Waiting => ("waiting", Renewal::Poll),
        Status::Late => ("late", Renewal::Poll),
        Status::Paused => ("paused", Renewal::Poll),
        Status::Active => ("active", Renewal::Reload),
        Status::NotOpen { .. } => ("not-open", Renewal::Reload),
        Status::Closed => ("closed", Renewal::Never),
        Status::Full => ("full", Renewal::Reload),
        Status::StoreAway => ("away", Renewal::Poll),
        Status::Over => ("over", Renewal::Never),
        Status::Left => ("left", Renewal::Never),
    }
}

/// Everything the template may show. All of it is escaped there.
#[derive(Debug, Serialize)]
pub(super) struct Content<'a> {
    pub(super) nonce: &'a str,
    pub(super) title: &'a str,
    pub(super) message: &'a str,
    pub(super) queue: &'a str,
    pub(super) state: &'static str,
    pub(super) polls: bool,
    /// Seconds until the document reloads itself where no script runs.
    pub(super) refresh_secs: Option<u64>,
    pub(super) poll_ms: u64,
    pub(super) rank: Option<u64>,
    /// The rank in groups of three digits.
    pub(super) rank_text: Option<String>,
    pub(super) estimate: Option<String>,
    pub(super) entered: Option<String>,
    pub(super) opens_at: Option<String>,
    pub(super) rank_url: &'a str,
    pub(super) leave_url: &'a str,
    pub(super) page_url: &'a str,
    /// Where the user wants to go in the end.
    pub(super) return_target: Option<&'a str>,
}

/// The opening time, for the one state that has one.
pub(super) fn opens_at(view: &View) -> Option<String> {
    match view.status {
        Status::NotOpen { opens_at } => Some(opens_at.to_rfc3339()),
        _ => None,
    }
}

/// `1234567` as `1,234,567`.
pub(super) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.char_indices() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

const MINUTE: u64 = 60;
const HOUR: u64 = 60 * MINUTE;

/// A wait in words, as wide as it is uncertain: `less than a minute`, `about 4–7 minutes`. The
/// script on the page says it in the same way.
pub(super) fn in_words(estimate: Estimate) -> String {
    let secs = |span: Duration| span.as_secs().saturating_add(u64::from(span.subsec_nanos() > 0));
    let (low, high) = (secs(estimate.p50), secs(estimate.p90));
    if high <= MINUTE {
        "less than a minute".to_owned()
    } else if high <= 90 * MINUTE {
        range(low, high, MINUTE, "minute")
    } else {
        range(low, high, HOUR, "hour")
    }
}

/// The low end is rounded down and the high end up, so that the words never promise more than the
/// numbers do.
fn range(low: u64, high: u64, unit_secs: u64, unit: &str) -> String {
    let high = high.div_ceil(unit_secs);
    let low = (low / unit_secs).clamp(1, high);
    match (low, high) {
        (1, 1) => format!("about 1 {unit}"),
        _ if low == high => format!("about {high} {unit}s"),
        _ => format!("about {low}–{high} {unit}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_are_told_as_ranges_a_person_can_use() {
        let words = |p50, p90| {
            in_words(Estimate { p50: Duration::from_secs(p50), p90: Duration::from_secs(p90) })
        };
        assert_eq!(words(0, 5), "less than a minute");
        assert_eq!(words(20, 60), "less than a minute");
        assert_eq!(words(20, 61), "about 1–2 minutes");
        assert_eq!(words(250, 420), "about 4–7 minutes");
        assert_eq!(words(240, 240), "about 4 minutes");
        assert_eq!(words(5400, 5401), "about 1–2 hours");
        assert_eq!(words(7200, 10_800), "about 2–3 hours");
        assert!(words(u64::MAX, u64::MAX).ends_with(" hours"));
    }

    #[test]
    fn long_ranks_are_grouped() {
        assert_eq!(grouped(7), "7");
        assert_eq!(grouped(123), "123");
        assert_eq!(grouped(1234), "1,234");
        assert_eq!(grouped(1_234_567), "1,234,567");
    }
}
