//! The canonical form of a target, and what has none.

use proptest::prelude::*;

use super::*;

fn canonical(target: &str) -> String {
    CanonicalTarget::parse(target, None).unwrap().into_string()
}

fn refused(target: &str) -> TargetError {
    CanonicalTarget::parse(target, Some("shop.example")).unwrap_err()
}

#[test]
fn one_path_has_one_spelling() {
    for spelling in [
        "/checkout/pay",
        "//checkout/pay",
        "/./checkout/pay",
        "/x/../checkout/pay",
        "/%63heckout/pay",
        "/checkout//pay",
        "/x/%2e%2e/checkout/pay",
        "/../checkout/./pay",
        "/%2E/checkout/%70ay",
        "/x/y/../../checkout/pay",
        "/../../checkout///pay",
        "/checkout/x/.%2E/pay",
    ] {
        assert_eq!(canonical(spelling), "/checkout/pay", "{spelling}");
    }
    assert_eq!(canonical("/a/b/.."), "/a/");
    assert_eq!(canonical("/a/."), "/a/");
    assert_eq!(canonical("/.."), "/");
    assert_eq!(canonical("//"), "/");
    assert_eq!(canonical("/a/.../.b"), "/a/.../.b");
}

#[test]
fn reserved_characters_keep_their_encoding_in_upper_case() {
    assert_eq!(canonical("/a%2fb%3bc%5cd%3F%23%25"), "/a%2Fb%3Bc%5Cd%3F%23%25");
    assert_eq!(canonical("/caf%c3%a9"), "/caf%C3%A9");
    assert_eq!(canonical("/a;b=1,2@:!$&'()*+"), "/a;b=1,2@:!$&'()*+");
}

#[test]
fn what_has_no_place_in_a_path_is_encoded() {
    assert_eq!(canonical("/café\\\"<>^`{|}[]"), "/caf%C3%A9%5C%22%3C%3E%5E%60%7B%7C%7D%5B%5D");
}

#[test]
fn a_query_is_kept_byte_for_byte() {
    for target in [
        "/a?",
        "/a??b",
        "/a?%zz&%&%63=/../b//c",
        "/a?x=%2f;\\\"é",
        "/?/../x",
        "/a?return=http://b/",
    ] {
        assert_eq!(canonical(target), target);
    }
    let target = CanonicalTarget::parse("//a?b=%", None).unwrap();
    assert_eq!((target.path(), target.query(), target.as_str()), ("/a", Some("b=%"), "/a?b=%"));
    assert_eq!(CanonicalTarget::parse("/a", None).unwrap().query(), None);
}

#[test]
fn what_no_honest_client_sends_is_refused() {
    for (target, error) in [
        ("", TargetError::NotAPath),
        ("*", TargetError::NotAPath),
        ("checkout", TargetError::NotAPath),
        ("shop.example:443", TargetError::NotAPath),
        ("ftp://shop.example/checkout", TargetError::NotAPath),
        ("/a\0", TargetError::ForbiddenByte),
        ("/a b", TargetError::ForbiddenByte),
        ("/a\r\nHost: x", TargetError::ForbiddenByte),
        ("/a?b\tc", TargetError::ForbiddenByte),
        ("/a\u{7f}", TargetError::ForbiddenByte),
        ("/open#/checkout", TargetError::Fragment),
        ("/a?b#c", TargetError::Fragment),
        ("/a%", TargetError::BrokenEscape),
        ("/a%6", TargetError::BrokenEscape),
        ("/a%zz", TargetError::BrokenEscape),
        ("/a%u002f", TargetError::BrokenEscape),
        ("/a%+1", TargetError::BrokenEscape),
        ("/checkout%00", TargetError::EncodedControl),
        ("/checkout/%0d%0aX-Injected:%201", TargetError::EncodedControl),
        ("/a%7f", TargetError::EncodedControl),
    ] {
        assert_eq!(refused(target), error, "{target:?}");
    }
}

#[test]
fn an_absolute_target_must_name_the_host_of_the_request() {
    let parse =
        |target, host| CanonicalTarget::parse(target, host).map(CanonicalTarget::into_string);
    for (target, host, path) in [
        ("http://shop.example/checkout/pay", "shop.example", "/checkout/pay"),
        ("HTTP://SHOP.example:80//checkout?x", "shop.example", "/checkout?x"),
        ("https://shop.example", "shop.example:443", "/"),
        ("https://shop.example?x", "Shop.Example.", "/?x"),
        ("http://[::1]:8080/a", "[0::1]:8080", "/a"),
    ] {
        assert_eq!(parse(target, Some(host)).as_deref(), Ok(path), "{target}");
    }
    for (target, host, error) in [
        ("http://open.example/checkout", Some("shop.example"), TargetError::HostMismatch),
        ("http://shop.example:81/", Some("shop.example"), TargetError::HostMismatch),
        ("https://shop.example/", Some("shop.example:80"), TargetError::HostMismatch),
        ("http://169.254.169.254/", Some("shop.example"), TargetError::HostMismatch),
        ("http://shop.example/", None, TargetError::HostMismatch),
        ("http://a@shop.example/", Some("shop.example"), TargetError::InvalidHost),
        ("http:///checkout", Some("shop.example"), TargetError::InvalidHost),
        ("http://shop.example\\@x/", Some("shop.example"), TargetError::InvalidHost),
        ("http:/checkout", Some("shop.example"), TargetError::NotAPath),
    ] {
        assert_eq!(parse(target, host), Err(error), "{target}");
    }
}

proptest! {
    #[test]
    fn canonicalising_twice_changes_nothing(target in "/([a-c/.%;\\\\?é]|%2[eEfF5]|%[46]1|%3[bB]){0,24}") {
        if let Ok(target) = CanonicalTarget::parse(&target, None) {
            let again = CanonicalTarget::parse(target.as_str(), None);
            prop_assert_eq!(again.as_ref(), Ok(&target));
            prop_assert!(!target.path().contains("//"));
            prop_assert!(!target.path().split('/').any(|segment| matches!(segment, "." | "..")));
        }
    }

    #[test]
    fn no_target_panics(target in "\\PC{0,40}", host in "\\PC{0,12}") {
        let _ = CanonicalTarget::parse(&target, Some(&host));
        let _ = CanonicalTarget::parse(&format!("http://{host}/{target}"), Some(&host));
    }
}
