//! What a waiting user is told, without HTML or HTTP.
//!
//! The page, the queue API and the gate's refusals all show the same [`View`]. It says where
//! somebody stands; it does not find out.

use std::time::Duration;

use serde::{Serialize, Serializer};

use crate::clock::Timestamp;

use super::estimate::Estimate;
use super::name::QueueName;

/// What a user is told about one queue.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct View {
    /// The queue.
    pub queue: QueueName,
    /// Where the user stands.
    pub status: Status,
    /// 1-based position in line; 0 when active; `None` without a place, or while nobody can tell.
    pub rank: Option<u64>,
    /// When the user entered, by the store's clock.
    pub entered: Option<Timestamp>,
    /// When an active token ends unless it is used or prolonged before.
    pub expires: Option<Timestamp>,
    /// How long to wait before asking again; spread by jitter.
    pub poll_after: Duration,
    /// How long it will probably take; `None` while nobody can tell.
    pub estimate: Option<Estimate>,
}

/// Where a user stands with a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Status {
    /// A first visit: the visitor cookie is on its way and enters with the next request.
    Joining,
    /// The visitor cookie did not come back, so nobody can keep a place.
    CookiesNeeded,
    /// In the line.
    Waiting,
    /// In the late lane: missed a turn, came back in time, near the front again.
    Late,
    /// In the line, and the line stands still until an operator resumes it.
    Paused,
    /// Admitted.
    Active,
    /// The queue has not opened yet.
    NotOpen {
        /// When it will.
        opens_at: Timestamp,
    },
    /// The queue is closed for good.
    Closed,
    /// The line takes nobody else for now.
    Full,
    /// The store does not answer; a place, if there is one, is kept.
    StoreAway,
    /// The token is over: its time ran out, or its turn passed unused.
    Over,
    /// The user has just given the place back.
    Left,
}

impl View {
    /// [`View::poll_after`] in whole seconds, rounded up and at least 1: the value of `Retry-After`.
    #[must_use]
    pub fn retry_after_secs(&self) -> u64 {
        self.poll_after.ceil_secs().max(1)
    }

    /// The body of enter and rank for this view, with `token` if the caller is to be told it.
    /// `None` without a live place: such a view is answered with a problem instead.
    #[must_use]
    pub fn rank_body<'a>(&'a self, token: Option<&'a str>) -> Option<RankBody<'a>> {
        let status = match self.status {
            Status::Active => "ACTIVE",
            Status::Waiting | Status::Late | Status::Paused => "WAITING",
            Status::Joining
            | Status::CookiesNeeded
            | Status::NotOpen { .. }
            | Status::Closed
            | Status::Full
            | Status::StoreAway
            | Status::Over
            | Status::Left => return None,
        };
        Some(RankBody {
            token,
            queue: self.queue.as_str(),
            status,
            rank: self.rank?,
            entered_at: Rfc3339(self.entered?),
            expires_at: self.expires.map(Rfc3339),
            poll_after_ms: u64::try_from(self.poll_after.as_millis()).unwrap_or(u64::MAX),
            estimate: self.estimate.map(|estimate| EstimateBody {
                p50_seconds: estimate.p50.ceil_secs(),
                p90_seconds: estimate.p90.ceil_secs(),
            }),
        })
    }
}

/// The JSON body of enter and rank.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RankBody<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<&'a str>,
    queue: &'a str,
    status: &'static str,
    rank: u64,
    entered_at: Rfc3339,
    expires_at: Option<Rfc3339>,
    poll_after_ms: u64,
    estimate: Option<EstimateBody>,
}

#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct EstimateBody {
    p50_seconds: u64,
    p90_seconds: u64,
}

impl RankBody<'_> {
    /// Room for any body: the longest has a token, a 64-character name and two times.
    const ROOM: usize = 384;

    /// The body as JSON text.
    #[must_use]
    pub fn to_json(&self) -> Vec<u8> {
        let mut json = Vec::with_capacity(Self::ROOM);
        serde_json::to_writer(&mut json, self)
            .expect("strings, numbers and options go into a Vec without failing");
        json
    }
}

/// Seconds, rounded up.
trait CeilSecs {
    fn ceil_secs(&self) -> u64;
}

impl CeilSecs for Duration {
    fn ceil_secs(&self) -> u64 {
        self.as_secs().saturating_add(u64::from(self.subsec_nanos() > 0))
    }
}

/// A moment in the body.
#[derive(Clone, Copy, Debug)]
struct Rfc3339(Timestamp);

impl Serialize for Rfc3339 {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.0.rfc3339().as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(status: Status, rank: Option<u64>) -> View {
        View {
            queue: QueueName::new("deal-1").unwrap(),
            status,
            rank,
            entered: Some(Timestamp::from_millis(1_764_540_000_250)),
            expires: None,
            poll_after: Duration::from_millis(2_345),
            estimate: None,
        }
    }

    fn json(view: &View, token: Option<&str>) -> String {
        String::from_utf8(view.rank_body(token).unwrap().to_json()).unwrap()
    }

    #[test]
    fn a_waiting_body_has_the_documented_form() {
        let mut view = view(Status::Waiting, Some(12));
        view.estimate =
            Some(Estimate { p50: Duration::from_millis(61_001), p90: Duration::from_secs(90) });
        assert_eq!(
            json(&view, Some("tok")),
            r#"{"token":"tok","queue":"deal-1","status":"WAITING","rank":12,"enteredAt":"2025-11-30T22:00:00.25Z","expiresAt":null,"pollAfterMs":2345,"estimate":{"p50Seconds":62,"p90Seconds":90}}"#
        );
        assert_eq!(view.retry_after_secs(), 3);
    }

    #[test]
    fn an_active_body_has_rank_zero_an_end_and_no_token_unless_asked_for() {
        let mut view = view(Status::Active, Some(0));
        view.expires = Some(Timestamp::from_millis(1_764_540_045_000));
        assert_eq!(
            json(&view, None),
            r#"{"queue":"deal-1","status":"ACTIVE","rank":0,"enteredAt":"2025-11-30T22:00:00.25Z","expiresAt":"2025-11-30T22:00:45Z","pollAfterMs":2345,"estimate":null}"#
        );
    }

    #[test]
    fn late_and_paused_users_are_waiting_to_a_client() {
        for status in [Status::Late, Status::Paused] {
            assert!(json(&view(status, Some(1)), None).contains(r#""status":"WAITING""#));
        }
    }

    #[test]
    fn who_has_no_place_has_no_body() {
        for status in [
            Status::Joining,
            Status::CookiesNeeded,
            Status::NotOpen { opens_at: Timestamp::EPOCH },
            Status::Closed,
            Status::Full,
            Status::StoreAway,
            Status::Over,
            Status::Left,
        ] {
            assert!(view(status, Some(1)).rank_body(None).is_none(), "{status:?}");
        }
        assert!(view(Status::Waiting, None).rank_body(None).is_none());
    }

    #[test]
    fn a_token_cannot_break_out_of_its_string() {
        let view = view(Status::Waiting, Some(1));
        let body = json(&view, Some("\"},\u{0}<"));
        let parsed: serde_json::Value = serde_json::from_str(&body).unwrap();
        assert_eq!(parsed["token"], "\"},\u{0}<");
    }

    #[test]
    fn nobody_is_told_to_come_back_after_zero_seconds() {
        let mut view = view(Status::Waiting, Some(1));
        view.poll_after = Duration::ZERO;
        assert_eq!(view.retry_after_secs(), 1);
        view.poll_after = Duration::MAX;
        assert_eq!(view.retry_after_secs(), u64::MAX);
    }
}
