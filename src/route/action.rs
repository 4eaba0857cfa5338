//! What a matched route does with a request.

use http::StatusCode;

use crate::queue::QueueTemplate;

/// What a route does with who may not pass yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum WhenWaiting {
    /// Navigations are sent to the waiting room page; everything else is refused.
    #[default]
    Redirect,
    /// Navigations get the waiting room under the same URL; everything else is refused.
    Page,
    /// Everything is refused.
    Reject,
}

/// Where the value of a queue template's parameter comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ParameterSource {
    /// A `{name}` segment of the route's path.
    Path,
    /// The query parameter of the same name; it must occur exactly once.
    Query,
}

/// The gate on a route.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Gated {
    /// The queue, or how its name is made from a parameter.
    pub queue: QueueTemplate,
    /// Where the parameter comes from, for a template.
    pub parameter: ParameterSource,
    /// What happens to who may not pass.
    pub when_waiting: WhenWaiting,
    /// Status of a refusal. Default 429.
    pub refuse_status: StatusCode,
    /// Status of the inline page. Default 503.
    pub page_status: StatusCode,
    /// Whether a navigation without a token is entered by itself.
    pub auto_enter: bool,
}

/// Cross-origin rules of a route, used to answer preflights.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Cors {
    /// Allowed origins, each `scheme://host[:port]`. Never `*`: answers carry credentials.
    pub origins: Vec<String>,
    /// Allowed methods.
    pub methods: Vec<http::Method>,
    /// Allowed request headers, lower case.
    pub headers: Vec<http::HeaderName>,
}
