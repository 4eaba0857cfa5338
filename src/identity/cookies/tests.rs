//! Names, lenient reading, and removal that leaves everything else alone.

use proptest::prelude::*;

use super::*;

fn names() -> CookieNames {
    CookieNames::new("queue_token").unwrap()
}

fn headers(lines: &[&[u8]]) -> HeaderMap {
    let values = lines.iter().map(|line| HeaderValue::from_bytes(line).unwrap());
    values.map(|value| (COOKIE, value)).collect()
}

fn removed(lines: &[&[u8]]) -> Option<Vec<Vec<u8>>> {
    let left = without(&headers(lines), |name| names().is_ours(name))?;
    Some(left.iter().map(|value| value.as_bytes().to_vec()).collect())
}

#[test]
fn each_scheme_has_its_own_names() {
    let queue = QueueName::new("deal-1").unwrap();
    assert_eq!(names().token(&queue, true), "__Host-queue_token-deal-1");
    assert_eq!(names().token(&queue, false), "queue_token-deal-1");
    assert_eq!(names().visitor(true), "__Host-queue_token-visitor");
    assert_eq!(names().visitor(false), "queue_token-visitor");
    assert_eq!(names().queue_of(b"__Host-queue_token-deal-1", true), Some(&b"deal-1"[..]));
    assert_eq!(names().queue_of(b"queue_token-deal-1", true), None);
    assert_eq!(names().queue_of(b"queue_token-deal-1", false), Some(&b"deal-1"[..]));
    assert_eq!(names().queue_of(b"__Host-queue_token-deal-1", false), None);
    assert_eq!(names().queue_of(b"queue_token-visitor", false), None);
}

#[test]
fn cookies_of_both_schemes_are_ours_and_nobody_elses_are() {
    for name in ["queue_token-a", "__Host-queue_token-a", "__host-queue_token-visitor"] {
        assert!(names().is_ours(name.as_bytes()), "{name}");
    }
    for name in ["queue_token", "queue_token-", "Queue_Token-a", "xqueue_token-a", "__Host-", ""] {
        assert!(!names().is_ours(name.as_bytes()), "{name}");
    }
}

#[test]
fn a_base_name_is_a_plain_cookie_name() {
    for base in ["", "a b", "a;b", "a=b", "ä", "__Host-a", "__secure-a", &"x".repeat(65)] {
        assert!(CookieNames::new(base).is_err(), "{base}");
    }
}

#[test]
fn cookies_are_read_over_several_lines_and_odd_bytes() {
    let lines = headers(&[b"a=\xc3\x28; x;=;q=\"1;2\"", b"", b" a = b=c ;a="]);
    let read: Vec<_> = pairs(&lines).collect();
    let expected: [(&[u8], &[u8]); 5] =
        [(b"a", b"\xc3\x28"), (b"", b""), (b"q", b"\"1"), (b"a", b"b=c"), (b"a", b"")];
    assert_eq!(read, expected);
    assert_eq!(values(&lines, "a").count(), 3);
}

#[test]
fn removal_keeps_the_other_bytes() {
    for (line, left) in [
        (&b"a=1; queue_token-x=t; b=2"[..], &b"a=1; b=2"[..]),
        (b"queue_token-x=t; b=\"2\"; ", b"b=\"2\"; "),
        (b"a=1;  b=\xff;queue_token-x=t", b"a=1;  b=\xff"),
        (b"a=1; queue_token-x=t;queue_token-visitor=v;;b", b"a=1;;b"),
        (b" queue_token-x = t ;\tb=2", b"b=2"),
    ] {
        assert_eq!(removed(&[line]), Some(vec![left.to_vec()]), "{line:?}");
    }
}

#[test]
fn a_line_with_nothing_left_goes_and_the_others_stay() {
    assert_eq!(removed(&[b"a=1", b"b; queue_token=x"]), None);
    assert_eq!(removed(&[]), None);
    assert_eq!(removed(&[b"queue_token-x=t"]), Some(vec![]));
    assert_eq!(removed(&[b"queue_token-x=t; "]), Some(vec![]));
    let lines = [&b"a=1 ;"[..], b"__Host-queue_token-x=t", b" b=2"];
    assert_eq!(removed(&lines), Some(vec![b"a=1 ;".to_vec(), b" b=2".to_vec()]));
}

#[test]
fn set_and_clear_carry_the_same_attributes() {
    let age = Duration::from_secs(90);
    assert_eq!(
        set("__Host-q-x", "v", age, true).unwrap(),
        "__Host-q-x=v; HttpOnly; SameSite=Lax; Secure; Path=/; Max-Age=90"
    );
    assert_eq!(
        set("q-x", "v", age, false).unwrap(),
        "q-x=v; HttpOnly; SameSite=Lax; Path=/; Max-Age=90"
    );
    assert_eq!(
        clear("__Host-q-x", true).unwrap(),
        "__Host-q-x=; HttpOnly; SameSite=Lax; Secure; Path=/; Max-Age=0"
    );
    assert_eq!(set("q", "a\nb", age, false), None);
}

#[test]
fn the_name_in_a_set_cookie_line_is_the_one_a_browser_sends_back() {
    for (line, name) in [
        ("queue_token-x=t; Path=/", "queue_token-x"),
        (" queue_token-x =t", "queue_token-x"),
        ("=queue_token-x=t", "queue_token-x"),
        ("a", "a"),
        ("", ""),
        ("; a=b", ""),
    ] {
        assert_eq!(set_cookie_name(&HeaderValue::from_static(line)), name.as_bytes(), "{line}");
    }
}

/// Bytes that mean something in a cookie line, and any others.
fn line() -> impl Strategy<Value = Vec<u8>> {
    let part = prop_oneof![
        Just(b"queue_token-x=t".to_vec()),
        Just(b"__Host-queue_token-visitor=v".to_vec()),
        Just(b"; ".to_vec()),
        Just(b";".to_vec()),
        Just(b"=".to_vec()),
        Just(b" ".to_vec()),
        proptest::collection::vec(any::<u8>(), 0..6),
    ];
    proptest::collection::vec(part, 0..12).prop_map(|parts| parts.concat())
}

#[test]
fn a_token_cookie_is_known_by_the_one_name_it_is_given() {
    let (names, deal) = (names(), QueueName::new("deal-1").unwrap());
    for https in [false, true] {
        let own = names.token(&deal, https);
        assert!(names.is_token(own.as_bytes(), &deal, https));
        for other in [names.token(&deal, !https), format!("{own}0"), own.to_ascii_uppercase()] {
            assert!(!names.is_token(other.as_bytes(), &deal, https), "{other}");
        }
    }
}

proptest! {
    #[test]
    fn no_cookie_bytes_panic_and_removal_never_changes_the_others(
        lines in proptest::collection::vec(line(), 0..4),
    ) {
        let sound: HeaderMap = lines
            .iter()
            .filter_map(|line| Some((COOKIE, HeaderValue::from_bytes(line).ok()?)))
            .collect();
        let names = names();
        let kept = |map: &HeaderMap| -> Vec<Vec<u8>> {
            map.get_all(COOKIE)
                .iter()
                .flat_map(segments)
                .filter(|segment| !segment.trim_ascii().is_empty())
                .filter(|segment| !split(segment).is_some_and(|pair| names.is_ours(pair.0)))
                // The blank before the first of a line belongs to no cookie.
                .map(|segment| segment.trim_ascii_start().to_vec())
                .collect()
        };
        match without(&sound, |name| names.is_ours(name)) {
            None => prop_assert!(!pairs(&sound).any(|pair| names.is_ours(pair.0))),
            Some(left) => {
                let after: HeaderMap = left.into_iter().map(|value| (COOKIE, value)).collect();
                prop_assert_eq!(kept(&after), kept(&sound));
                prop_assert!(!pairs(&after).any(|pair| names.is_ours(pair.0)));
            }
        }
    }
}
