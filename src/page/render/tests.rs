//! The page in every state, and what it must never contain.

use std::time::Duration;

use crate::clock::Timestamp;
use crate::queue::QueueName;
use crate::queue::estimate::Estimate;

use super::*;

const EVERY_STATUS: [Status; 12] = [
    Status::Joining,
    Status::CookiesNeeded,
    Status::Waiting,
    Status::Late,
    Status::Paused,
    Status::Active,
    Status::NotOpen { opens_at: Timestamp::from_millis(1_764_543_600_000) },
    Status::Closed,
    Status::Full,
    Status::StoreAway,
    Status::Over,
    Status::Left,
];

const CONTEXT: PageContext<'static> = PageContext {
    status: StatusCode::OK,
    page_url: "/_queue/deal-1/page?return=%2Fcheckout",
    return_target: Some("/checkout"),
};

fn view(status: Status) -> View {
    let waiting = matches!(status, Status::Waiting | Status::Late | Status::Paused);
    View {
        queue: QueueName::new("deal-1").unwrap(),
        status,
        rank: waiting.then_some(1234),
        entered: waiting.then(|| Timestamp::from_millis(1_764_540_000_250)),
        expires: None,
        poll_after: Duration::from_millis(4_100),
        estimate: waiting
            .then(|| Estimate { p50: Duration::from_secs(250), p90: Duration::from_secs(400) }),
    }
}

fn page() -> Page {
    Page::new(PageSettings::default(), "/_queue")
}

fn text(response: &Response<Bytes>) -> String {
    String::from_utf8(response.body().to_vec()).unwrap()
}

#[test]
fn every_state_has_its_own_heading_and_never_a_cacheable_or_large_answer() {
    let mut headings = Vec::new();
    for status in EVERY_STATUS {
        let response = page().render(&view(status), &CONTEXT);
        assert_eq!(response.status(), 200);
        let headers = response.headers();
        assert_eq!(headers["cache-control"], "no-store");
        assert_eq!(headers["content-type"], "text/html; charset=utf-8");
        assert_eq!(headers["x-content-type-options"], "nosniff");
        assert_eq!(headers["x-robots-tag"], "noindex, nofollow");
        assert!(!headers.contains_key("etag") && !headers.contains_key("last-modified"));
        let html = text(&response);
        assert!(html.len() < 30_000, "{status:?}: {} bytes", html.len());
        assert!(!html.contains("{{") && !html.contains("{%"), "{status:?}");
        let heading = html.split("<h1>").nth(1).unwrap().split("</h1>").next().unwrap();
        headings.push(heading.to_owned());
    }
    headings.sort();
    headings.dedup();
    assert_eq!(headings.len(), EVERY_STATUS.len());
}

#[test]
fn a_waiting_user_sees_rank_and_honest_wait() {
    let html = text(&page().render(&view(Status::Waiting), &CONTEXT));
    assert!(html.contains(r#"<p id="rank">1,234</p>"#));
    assert!(html.contains("about 4–7 minutes"));
    let mut unknown = view(Status::Waiting);
    unknown.estimate = None;
    let html = text(&page().render(&unknown, &CONTEXT));
    assert!(html.contains(r#"<span id="estimate">not known yet</span>"#));
    unknown.rank = None;
    let html = text(&page().render(&unknown, &CONTEXT));
    assert!(html.contains(r#"<p id="rank">…</p>"#), "the script finds a place to put it");
}

#[test]
fn without_a_script_a_waiting_page_reloads_and_with_one_it_polls() {
    let response = page().render(&view(Status::Waiting), &CONTEXT);
    let html = text(&response);
    assert!(html.contains(r#"<noscript><meta http-equiv="refresh" content="5"></noscript>"#));
    assert!(html.contains(r#"data-rank-url="&#x2f;_queue&#x2f;deal-1&#x2f;rank""#), "{html}");
    assert!(html.contains(r#"data-poll-ms="4100""#));
    assert!(html.contains(r#"method="post" action="&#x2f;_queue&#x2f;deal-1&#x2f;leave""#));
    assert_eq!(response.headers()["retry-after"], "5");
    assert!(!response.headers().contains_key("refresh"), "it would interrupt the script");
}

#[test]
fn a_state_that_will_change_refreshes_and_a_final_one_does_not() {
    let refresh = |status| {
        let response = page().render(&view(status), &CONTEXT);
        let header = response.headers().get("refresh").cloned();
        (header, text(&response).contains("http-equiv=\"refresh\""))
    };
    assert_eq!(refresh(Status::Joining), (Some(HeaderValue::from(1)), false));
    assert_eq!(refresh(Status::Active), (Some(HeaderValue::from(1)), false));
    assert_eq!(refresh(Status::Full), (Some(HeaderValue::from(5)), false));
    assert_eq!(refresh(EVERY_STATUS[6]), (Some(HeaderValue::from(5)), false));
    for status in [Status::CookiesNeeded, Status::Closed, Status::Over, Status::Left] {
        assert_eq!(refresh(status), (None, false), "{status:?}");
    }
}

#[test]
fn a_temporary_status_always_says_when_to_come_back() {
    for status in EVERY_STATUS {
        let context = PageContext { status: StatusCode::SERVICE_UNAVAILABLE, ..CONTEXT };
        let response = page().render(&view(status), &context);
        assert_eq!(response.status(), 503);
        let after: u64 = response.headers()["retry-after"].to_str().unwrap().parse().unwrap();
        assert!((1..=20).contains(&after));
    }
}

#[test]
fn scripts_and_styles_run_only_with_the_nonce_of_this_answer() {
    let (one, two) = (
        page().render(&view(Status::Waiting), &CONTEXT),
        page().render(&view(Status::Waiting), &CONTEXT),
    );
    let policy = |response: &Response<Bytes>| {
        response.headers()["content-security-policy"].to_str().unwrap().to_owned()
    };
    assert_ne!(policy(&one), policy(&two));
    let nonce = policy(&one).split("script-src 'nonce-").nth(1).unwrap()[..32].to_owned();
    let html = text(&one);
    assert!(html.contains(&format!("<script nonce=\"{nonce}\">")));
    assert!(html.contains(&format!("<style nonce=\"{nonce}\">")));
    assert_eq!(html.matches("<script").count(), 1);
    assert!(!html.contains(" style=") && !html.contains(" onclick"));
    assert!(policy(&one).starts_with("default-src 'none';"));
    assert!(policy(&one).ends_with("frame-ancestors 'none'"));
}

#[test]
fn a_framing_source_cannot_add_a_directive_or_a_header() {
    let sources = ["https://shop.example", "x; script-src *", "y\r\nSet-Cookie: a=1", "é", ""];
    let settings = PageSettings {
        frame_ancestors: sources.map(String::from).to_vec(),
        ..PageSettings::default()
    };
    let response = Page::new(settings, "/_queue").render(&view(Status::Closed), &CONTEXT);
    let policy = response.headers()["content-security-policy"].to_str().unwrap();
    assert!(policy.ends_with("frame-ancestors https://shop.example"), "{policy}");
    let none = PageSettings { frame_ancestors: Vec::new(), ..PageSettings::default() };
    let response = Page::new(none, "/_queue").render(&view(Status::Closed), &CONTEXT);
    let policy = response.headers()["content-security-policy"].to_str().unwrap();
    assert!(policy.ends_with("frame-ancestors 'none'"));
}

#[test]
fn no_text_from_outside_becomes_markup_or_script() {
    let evil = r#""><script>alert(1)</script><img src=x onerror='alert(2)'>{{ nonce }}"#;
    let settings = PageSettings {
        title: evil.to_owned(),
        message: evil.to_owned(),
        ..PageSettings::default()
    };
    let page = Page::new(settings, "/_queue");
    let address = format!("/a?b={evil}");
    let context = PageContext { page_url: &address, return_target: Some(&address), ..CONTEXT };
    for status in EVERY_STATUS {
        let html = text(&page.render(&view(status), &context));
        assert_eq!(html.matches("<script").count(), 1, "{status:?}");
        assert!(!html.contains("<img") && !html.contains("onerror='"), "{status:?}");
        assert!(html.contains("&lt;script&gt;"), "{status:?}");
    }
}

#[test]
fn a_link_never_leads_to_a_script_or_off_by_a_trick() {
    for evil in
        ["javascript:alert(1)", "data:text/html,x", "//evil.example", "/\\evil", "/\t/e", ""]
    {
        let context = PageContext { page_url: evil, return_target: Some(evil), ..CONTEXT };
        let html = text(&page().render(&view(Status::Active), &context));
        assert!(html.contains("data-page-url=\"&#x2f;\""), "{evil}");
        assert!(html.contains("href=\"&#x2f;\""), "{evil}");
    }
}
