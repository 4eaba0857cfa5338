//! Every plausible reading of a target, and which of them count.

use proptest::prelude::*;

use super::*;
use crate::route::target::CanonicalTarget;

/// Every reading of a target, the canonical one first.
fn readings(target: &str) -> Vec<String> {
    let target = CanonicalTarget::parse(target, None).unwrap();
    let readings = Readings::of(target.path()).unwrap();
    readings.counted(false).map(|reading| reading.trimmed().to_owned()).collect()
}

#[test]
fn a_plain_path_has_one_reading_and_borrows_it() {
    for path in ["/", "/checkout/pay", "/a@b,c/", "/caf%C3%A9"] {
        let readings = Readings::of(path).unwrap();
        assert!(readings.others.is_empty(), "{path}");
        assert!(matches!(readings.canonical.path, Cow::Borrowed(same) if same == path), "{path}");
    }
    assert_eq!(readings("/a%20b%40"), ["/a b@"]);
}

#[test]
fn each_habit_of_a_back_end_is_a_reading() {
    for (target, hidden) in [
        ("/checkout%2Fpay", "/checkout/pay"),
        ("/shop%2f..%2fcheckout/pay", "/checkout/pay"),
        ("/open/..%2Fcheckout", "/checkout"),
        ("/checkout%5Cpay", "/checkout/pay"),
        ("/checkout\\pay", "/checkout/pay"),
        ("/open\\..\\checkout", "/checkout"),
        ("/checkout;x=1/pay", "/checkout/pay"),
        ("/checkout;/pay", "/checkout/pay"),
        ("/checkout%3bx/pay", "/checkout/pay"),
        ("/open/..;/checkout/pay", "/checkout/pay"),
        ("/;x/checkout", "/checkout"),
        ("/%2563heckout", "/checkout"),
        ("/%252563heckout", "/checkout"),
        ("/checkout%252Fpay", "/checkout/pay"),
        ("/open/%252e%252e/checkout", "/checkout"),
        ("/checkout%C0%AFpay", "/checkout/pay"),
        ("/%C1%A3heckout", "/checkout"),
        ("/checkout%E0%80%AFpay", "/checkout/pay"),
        ("/checkout%3Fx", "/checkout"),
        ("/checkout%23/x", "/checkout"),
        ("/open%2F..;a%2Fcheckout", "/checkout"),
        ("/checkout%253Bx%252Fpay", "/checkout"),
    ] {
        let all = readings(target);
        assert!(all.iter().any(|reading| reading == hidden), "{target}: {all:?}");
    }
}

#[test]
fn hidden_dot_segments_are_read_resolved_and_as_they_are() {
    assert_eq!(readings("/open%2F..%2Fa"), ["/open%2F..%2Fa", "/a", "/open/../a"]);
}

#[test]
fn data_stays_data_where_nobody_could_misread_it() {
    assert_eq!(readings("/caf%C3%A9/%E2%9C%93"), ["/caf%C3%A9/%E2%9C%93"]);
    assert_eq!(readings("/100%25-off"), ["/100%25-off"]);
}

#[test]
fn a_slash_that_is_data_has_no_reading_of_its_own() {
    let readings = Readings::of("/files/a%2Fb;c").unwrap();
    let all: Vec<_> = readings.counted(true).map(|reading| &*reading.path).collect();
    assert_eq!(all, ["/files/a%2Fb;c", "/files/a%2Fb"]);
}

#[test]
fn too_many_doubts_composed_escapes_and_doubly_encoded_controls_are_refused() {
    assert!(Readings::of("/a%2Fb%5Cc;d").is_ok());
    assert_eq!(Readings::of("/a%2Fb%5Cc;d%3F").unwrap_err(), TargetError::Ambiguous);
    let long = "x".repeat(LONG_BYTES);
    assert!(Readings::of(&format!("/{long};a")).is_ok());
    assert_eq!(Readings::of(&format!("/{long}%2F;a")).unwrap_err(), TargetError::Ambiguous);
    for composed in ["/gat%25%25365", "/%25%2536%2537ate", "/%256%2537ate"] {
        assert_eq!(Readings::of(composed).unwrap_err(), TargetError::Ambiguous, "{composed}");
    }
    assert_eq!(Readings::of("/a%2500").unwrap_err(), TargetError::EncodedControl);
}

#[test]
fn letter_case_is_folded_after_decoding() {
    assert_eq!(fold("/CAF%C3%89"), fold("/caf%C3%A9"));
    assert_eq!(fold("/A%2Fb"), "/a%2fb");
    assert_eq!(fold("/a%252FB"), "/a%252fb");
    assert_eq!(fold("/A%FF"), "/a%ff");
    assert!(matches!(fold("/plain"), Cow::Borrowed(_)));
}

proptest! {
    #[test]
    fn readings_are_few_and_hold_no_separator_by_accident(
        target in "/([a-c/.;\\\\]|%2[eEfF5]|%5[cC]|%3[bBfF]|%25|%[cC]0){0,24}"
    ) {
        if let Ok(target) = CanonicalTarget::parse(&target, None)
            && let Ok(readings) = Readings::of(target.path())
        {
            prop_assert!(readings.others.len() < 16);
            for reading in readings.counted(false) {
                prop_assert!(reading.path.starts_with('/'));
                prop_assert!(!reading.path.contains("//"));
            }
        }
    }
}
