//! The user a trusted caller names in the query, for the compatibility set only.
//!
//! Anybody can write a query, so this is no source of the chain and never passes the gate: the
//! compatibility calls ask for it by hand, after they have checked who is calling.

use std::borrow::Cow;

use percent_encoding::percent_decode;

use crate::queue::{UserId, UserSource};

use super::Finding;

/// The parameter's name.
pub const USER_ID_PARAMETER: &str = "user_id";

/// The user that `user_id` names: decoded once, `+` meaning itself.
///
/// [`Finding::Absent`] without the parameter. [`Finding::Rejected`] when it comes more than once
/// (its name percent-encoded or not), has a broken escape, is not UTF-8, or is no sound id.
#[must_use]
pub fn user_id(query: Option<&str>) -> Finding {
    let mut values = query
        .unwrap_or_default()
        .split('&')
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
        .filter(|(name, _)| decode(name).is_some_and(|name| name == USER_ID_PARAMETER))
        .map(|(_, value)| value);
    match (values.next(), values.next()) {
        (None, _) => Finding::Absent,
        (Some(value), None) => decode(value)
            .and_then(|id| UserId::new(UserSource::Query, id))
            .map_or(Finding::Rejected, Finding::Verified),
        (Some(_), Some(_)) => Finding::Rejected,
    }
}

/// Decodes once; `None` for a broken escape or for what is not UTF-8.
fn decode(text: &str) -> Option<Cow<'_, str>> {
    let whole = text.split('%').skip(1).all(|after| {
        after.as_bytes().get(..2).is_some_and(|hex| hex.iter().all(u8::is_ascii_hexdigit))
    });
    percent_decode(text.as_bytes()).decode_utf8().ok().filter(|_| whole)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn found(query: &str) -> Result<Option<String>, ()> {
        match user_id(Some(query)) {
            Finding::Absent => Ok(None),
            Finding::Verified(user) => Ok(Some(user.id().to_owned())),
            Finding::Rejected => Err(()),
        }
    }

    #[test]
    fn one_user_id_is_decoded_once() {
        for (query, id) in [
            ("queue=default&user_id=100", "100"),
            ("user%5Fid=a%2540b+c", "a%40b+c"),
            ("user_id=%C3%A4&x=%zz", "ä"),
            ("user_id=a=b", "a=b"),
        ] {
            assert_eq!(found(query), Ok(Some(id.to_owned())), "{query}");
        }
        assert_eq!(found("User_Id=1&x&=&user_ids=1"), Ok(None));
        assert_eq!(user_id(None), Finding::Absent);
    }

    #[test]
    fn an_unsound_or_repeated_user_id_is_refused() {
        for query in [
            "user_id=1&user_id=1",
            "user_id=1&user%5fid=2",
            "user_id",
            "user_id=",
            "user_id=%",
            "user_id=%4",
            "user_id=%+1",
            "user_id=%FF",
            "user_id=a%0Ab",
            "user_id=anon:x",
            &format!("user_id={}", "x".repeat(257)),
        ] {
            assert_eq!(found(query), Err(()), "{query}");
        }
    }

    proptest! {
        #[test]
        fn no_query_panics(query in "(user_id|%|=|&|\\+|[0-9a-f]|\\PC){0,20}") {
            let _ = user_id(Some(&query));
        }
    }
}
