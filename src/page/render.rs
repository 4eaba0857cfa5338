//! The page as an HTTP response: the template filled in, and headers that keep it private.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{
    CACHE_CONTROL, CONTENT_LANGUAGE, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY,
    REFRESH, RETRY_AFTER, X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderName, HeaderValue, Response, StatusCode};
use minijinja::Environment;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;

use crate::problem::{Code, Problem};
use crate::queue::view::{Status, View};

use super::PageSettings;
use super::view::{self, Content, Renewal};

/// Escaping is chosen by the ending of the name.
const TEMPLATE: &str = "page.html";

const ROBOTS: HeaderName = HeaderName::from_static("x-robots-tag");

/// The page of one gateway. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Page {
    templates: Arc<Environment<'static>>,
    settings: Arc<PageSettings>,
    prefix: Arc<str>,
    frame_ancestors: String,
}

/// What one rendering needs beside the view.
#[derive(Clone, Copy, Debug)]
pub struct PageContext<'a> {
    /// Status of the answer: 200 for the page under its own URL, a route's `page_status` for the
    /// page under the URL of the shop.
    pub status: StatusCode,
    /// Where this page is, without one-time parameters: path and query. Going on and trying again
    /// both lead there, and the server decides what is found.
    pub page_url: &'a str,
    /// Where the user wants to go, checked before as a return target. Shown as a link where that
    /// helps.
    pub return_target: Option<&'a str>,
}

impl Page {
    /// The page with these settings. `prefix` is the path prefix of the queue API, without a slash
    /// at its end.
    #[must_use]
    pub fn new(settings: PageSettings, prefix: &str) -> Self {
        let mut templates = Environment::new();
        let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
        templates.set_syntax(syntax.expect("the delimiters are the usual ones"));
        templates
            .add_template(TEMPLATE, include_str!("template.html"))
            .expect("the template is part of the program, and the tests render it");
        Self {
            templates: Arc::new(templates),
            frame_ancestors: frame_ancestors(&settings.frame_ancestors),
            settings: Arc::new(settings),
            prefix: prefix.into(),
        }
    }

    /// The answer that shows `view`. Never cached, never indexed, and without a single request to
    /// anybody else.
    ///
    /// `Refresh` is set while the document itself has to ask again. A page whose script polls has
    /// the same instruction in a `noscript`, so that a reload never interrupts a script.
    #[must_use]
    pub fn render(&self, view: &View, context: &PageContext<'_>) -> Response<Bytes> {
        let nonce = format!("{:032x}", rand::random::<u128>());
        let (state, renewal) = view::state(view.status);
        let refresh_secs = match (renewal, view.status) {
            (Renewal::Never, _) => None,
            (_, Status::Joining | Status::Active) => Some(1),
            _ => Some(view.retry_after_secs()),
        };
        let queue = view.queue.as_str();
        let rank = view.rank.filter(|rank| *rank > 0);
        let shown = Content {
            nonce: &nonce,
            title: &self.settings.title,
            message: &self.settings.message,
            queue,
            state,
            polls: renewal == Renewal::Poll,
            refresh_secs,
            poll_ms: u64::try_from(view.poll_after.as_millis()).unwrap_or(u64::MAX),
            rank,
            rank_text: rank.map(view::grouped),
            estimate: view.estimate.map(view::in_words),
            entered: view.entered.map(crate::clock::Timestamp::to_rfc3339),
            opens_at: view::opens_at(view),
            rank_url: &format!("{}/{queue}/rank", self.prefix),
            leave_url: &format!("{}/{queue}/leave", self.prefix),
            page_url: link(context.page_url).unwrap_or("/"),
            return_target: context.return_target.and_then(link),
        };
        let rendered = self
            .templates
            .get_template(TEMPLATE)
            .and_then(|template| template.render(Serde(&shown)));
        let Ok(html) = rendered else {
            return Problem::new(Code::Internal).into_response();
        };
        let mut response = Response::new(Bytes::from(html));
        *response.status_mut() = context.status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
        headers.insert(CONTENT_LANGUAGE, HeaderValue::from_static("en"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        headers.insert(ROBOTS, HeaderValue::from_static("noindex, nofollow"));
        // Not `no-referrer`: that would blank the Origin of the leave form.
        headers.insert(REFERRER_POLICY, HeaderValue::from_static("same-origin"));
        if let Ok(policy) = HeaderValue::try_from(self.policy(&nonce)) {
            headers.insert(CONTENT_SECURITY_POLICY, policy);
        }
        if renewal == Renewal::Reload
            && let Some(secs) = refresh_secs
        {
            headers.insert(REFRESH, HeaderValue::from(secs));
        }
        // A temporary status always says when to come back, or a crawler calls it an error.
        let temporary = [StatusCode::SERVICE_UNAVAILABLE, StatusCode::TOO_MANY_REQUESTS];
        if refresh_secs.is_some() || temporary.contains(&context.status) {
            let secs = refresh_secs.unwrap_or_else(|| view.retry_after_secs());
            headers.insert(RETRY_AFTER, HeaderValue::from(secs));
        }
        response
    }

    fn policy(&self, nonce: &str) -> String {
        format!(
            "default-src 'none'; style-src 'nonce-{nonce}'; script-src 'nonce-{nonce}'; \
             connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors {}",
            self.frame_ancestors
        )
    }
}

/// The sources of the directive. One that could end the directive or the header is left out;
/// without any, nobody may frame the page.
fn frame_ancestors(sources: &[String]) -> String {
    let sound: Vec<&str> = sources
        .iter()
        .map(String::as_str)
        .filter(|source| {
            !source.is_empty()
                && source.bytes().all(|b| b.is_ascii_graphic() && b != b';' && b != b',')
        })
        .collect();
    if sound.is_empty() { "'none'".to_owned() } else { sound.join(" ") }
}

/// A last look at where a link may lead: within the site, or to the web. Whether this target is
/// allowed has been decided before; here it only cannot become a script.
fn link(target: &str) -> Option<&str> {
    let local = target.starts_with('/') && !target.starts_with("//") && !target.contains('\\');
    let web = target.starts_with("https://") || target.starts_with("http://");
    ((local || web) && !target.chars().any(char::is_control)).then_some(target)
}

#[cfg(test)]
mod tests;
