//! `[[route]]` and `[[bypass]]`: which request goes where, and who has to wait.

use http::{HeaderName, Method, StatusCode};

use crate::api::ApiSettings;
use crate::queue::QueueTemplate;
use crate::route::{
    Bypass, Cors, Gated, HostPattern, ParameterSource, PathPattern, PatternError, Route,
    RouteTable, TableError, WhenWaiting,
};

use super::origin;
use super::queue::Queue;
use super::raw::{Table, Value, one_of, whole};
use super::tokens;
use super::upstream::Upstream;

/// What routes refer to.
pub(super) struct Surroundings<'s, 'a> {
    pub(super) upstreams: &'s [Upstream<'a>],
    pub(super) queues: &'s [Queue<'a>],
    pub(super) api: &'s ApiSettings,
    /// Where `api.prefix` stands.
    pub(super) api_prefix: &'s Value<'a>,
    pub(super) token_header: &'s HeaderName,
}

/// Where the parts of a route stand that may not fit to other routes.
struct Place<'a> {
    path: Value<'a>,
    queue: Value<'a>,
}

/// The table of all routes; `None` when some routes do not fit together.
pub(super) fn read<'a>(root: &mut Table<'a>, around: &Surroundings<'_, 'a>) -> Option<RouteTable> {
    let (mut routes, mut places) = (Vec::new(), Vec::new());
    let mut used = Vec::new();
    for table in root.tables("route") {
        let (route, place, upstream) = read_route(table, around);
        used.extend(upstream);
        if let Some(route) = route {
            routes.push(route);
            places.push(place);
        }
    }
    let bypasses = root.tables("bypass").into_iter().filter_map(read_bypass).collect();
    for upstream in around.upstreams {
        if upstream.name.as_deref().is_some_and(|name| !used.contains(&name)) {
            upstream.warn_unused();
        }
    }
    let simple = around.api.simple.as_ref().map(|simple| simple.prefix.as_str());
    RouteTable::new(routes, bypasses, &around.api.prefix, simple)
        .map_err(|errors| {
            for error in &errors {
                report(error, &places, around);
            }
        })
        .ok()
}

/// Brings an error of the table back to the line it comes from.
fn report(error: &TableError, places: &[Place<'_>], around: &Surroundings<'_, '_>) {
    let place = |index: usize| places.get(index);
    match error {
        TableError::Tie { index, first_index, first, .. } => {
            if let (Some(second), Some(earlier)) = (place(*index), place(*first_index)) {
                second.path.refuse(
                    format_args!(
                        "{}, which ties with `{first}` in line {}",
                        second.path.shown(),
                        earlier.path.line()
                    ),
                    "routes that differ in host, path or methods",
                );
            }
        }
        TableError::Reserved { index, prefix, .. } => {
            if let Some(Place { path, .. }) = place(*index) {
                path.refuse(
                    format_args!("{} under {prefix:?}", path.shown()),
                    "a path that the gateway does not answer itself",
                );
            }
        }
        TableError::Compatibility { index, path: own, .. } => {
            if let Some(Place { path, .. }) = place(*index) {
                path.refuse(
                    format_args!("{}, but {own:?} belongs to the compatibility set", path.shown()),
                    "another path, or an api.simple_prefix",
                );
            }
        }
        TableError::Parameter { index, parameter, .. } => {
            if let Some(Place { queue, .. }) = place(*index) {
                queue.refuse(
                    format_args!("{}, but the path has no `{{{parameter}}}`", queue.shown()),
                    "the parameter in the path, or query_parameter = true",
                );
            }
        }
        TableError::Prefix { .. } => around.api_prefix.wrong("a plain path such as \"/_queue\""),
    }
}

/// A route with its places and the upstream it names; no route if a part cannot be read.
fn read_route<'a>(
    mut table: Table<'a>,
    around: &Surroundings<'_, 'a>,
) -> (Option<Route>, Place<'a>, Option<&'a str>) {
    let host = table.take("host");
    let path = table.take("path");
    let methods = table.take("methods");
    let upstream = table.take("upstream");
    let case_insensitive = table.take("case_insensitive");
    let allow_encoded_slash = table.take("allow_encoded_slash");
    let forward_token = table.take("forward_token");
    let mut cors = table.table("cors");
    let gate = Gate::take(&mut table);
    table.done();

    let hosts: Vec<HostPattern> = host
        .one_or_more()
        .unwrap_or_default()
        .iter()
        .filter_map(|host| {
            host.parsed("a host such as \"shop.example\" or \"*.shop.example\", no port", |text| {
                HostPattern::parse(text).ok()
            })
        })
        .collect();
    let path = path.required("a path such as \"/checkout/*\"");
    let pattern = read_path(&path);
    let methods = read_methods(&methods);
    let named = read_upstream(&upstream.required("the name of an upstream"), around);
    let cors = read_cors(&mut cors, &methods, around.token_header);
    let gated = gate.read(around);
    let place = Place { path, queue: gate.queue };
    let route = pattern.map(|path| Route {
        label: label(&hosts, &path, &methods),
        hosts,
        path,
        methods,
        case_insensitive: case_insensitive.flag().unwrap_or(false),
        allow_encoded_slash: allow_encoded_slash.flag().unwrap_or(false),
        upstream: named.unwrap_or_default().to_owned(),
        gated,
        forward_token: forward_token.flag().unwrap_or(false),
        cors,
    });
    (route, place, named)
}

/// The route as people name it: `GET,POST shop.example/checkout/*`.
fn label(hosts: &[HostPattern], path: &PathPattern, methods: &[Method]) -> String {
    let join = |parts: Vec<String>| parts.join(",");
    let mut label = join(methods.iter().map(ToString::to_string).collect());
    if !label.is_empty() {
        label.push(' ');
    }
    label + &join(hosts.iter().map(ToString::to_string).collect()) + path.as_str()
}

fn read_path(value: &Value<'_>) -> Option<PathPattern> {
    let text = value.text()?;
    PathPattern::parse(text)
        .map_err(|error| match error {
            PatternError::NotAnchored { .. } => value.wrong("a path that starts with `/`"),
            PatternError::Star { .. } => value.wrong("`*` only as the whole last segment"),
            PatternError::Parameter { .. } => value.wrong(
                "parameters as whole segments, such as `/deals/{product_id}`, each name once",
            ),
            PatternError::Segment { segment, .. } => value.refuse(
                format_args!("{}, whose segment {segment:?} can never match", value.shown()),
                "segments that are not empty or dots and hold no `?`, `#`, `;`, `\\` or broken `%`",
            ),
            PatternError::Host { .. } => value.wrong("a path, not a host"),
        })
        .ok()
}

fn read_methods(value: &Value<'_>) -> Vec<Method> {
    let elements = value.list().unwrap_or_default();
    if value.is_set() && elements.is_empty() {
        value.refuse("no method", "a list such as [\"GET\", \"POST\"], or no `methods` at all");
    }
    let mut methods = Vec::new();
    for element in elements {
        // Methods are case-sensitive: "get" would never match.
        let method = element.parsed("a method in upper case such as \"GET\"", |text| {
            let upper = text.bytes().all(|b| b.is_ascii_uppercase() || b == b'-');
            upper.then(|| Method::from_bytes(text.as_bytes()).ok()).flatten()
        });
        let Some(method) = method else { continue };
        if methods.contains(&method) {
            element.refuse(format_args!("{} twice", element.shown()), "each method once");
        } else {
            methods.push(method);
        }
    }
    methods
}

fn read_upstream<'a>(value: &Value<'a>, around: &Surroundings<'_, 'a>) -> Option<&'a str> {
    let name = value.text()?;
    let names: Vec<&str> =
        around.upstreams.iter().filter_map(|upstream| upstream.name.as_deref()).collect();
    if names.contains(&name) {
        return Some(name);
    }
    value.contradicts(value.shown(), known("upstream", &names));
    None
}

fn known(kind: &str, names: &[&str]) -> String {
    if names.is_empty() { format!("a declared {kind}, and there is none") } else { one_of(names) }
}

fn read_cors(table: &mut Table<'_>, methods: &[Method], token_header: &HeaderName) -> Option<Cors> {
    let origins = table.take("origins");
    let cors_methods = table.take("methods");
    let headers = table.take("headers");
    table.done();
    if !table.is_set() {
        return None;
    }
    let origins = origins.required("a list of origins such as \"https://shop.example\"");
    let mut cors = Cors {
        origins: origin::list(&origins),
        methods: read_methods(&cors_methods),
        headers: Vec::new(),
    };
    if !cors_methods.is_set() {
        let simple = [Method::GET, Method::HEAD, Method::POST];
        cors.methods = if methods.is_empty() { simple.into() } else { methods.to_vec() };
    }
    cors.headers = match headers.list() {
        Some(list) => list.iter().filter_map(tokens::header_name).collect(),
        None => vec![token_header.clone(), http::header::CONTENT_TYPE],
    };
    Some(cors)
}

/// The keys of a route that has a queue.
struct Gate<'a> {
    queue: Value<'a>,
    query_parameter: Value<'a>,
    when_waiting: Value<'a>,
    auto_enter: Value<'a>,
    refuse_status: Value<'a>,
    page_status: Value<'a>,
}

impl<'a> Gate<'a> {
    fn take(table: &mut Table<'a>) -> Self {
        Self {
            queue: table.take("queue"),
            query_parameter: table.take("query_parameter"),
            when_waiting: table.take("when_waiting"),
            auto_enter: table.take("auto_enter"),
            refuse_status: table.take("refuse_status"),
            page_status: table.take("page_status"),
        }
    }

    fn read(&self, around: &Surroundings<'_, 'a>) -> Option<Gated> {
        if !self.queue.is_set() {
            for value in [
                &self.query_parameter,
                &self.when_waiting,
                &self.auto_enter,
                &self.refuse_status,
                &self.page_status,
            ] {
                value.useless("`queue`");
            }
            return None;
        }
        let modes = [
            ("redirect", WhenWaiting::Redirect),
            ("page", WhenWaiting::Page),
            ("reject", WhenWaiting::Reject),
        ];
        let when_waiting = self.when_waiting.choice(&modes).unwrap_or_default();
        let auto_enter = self.auto_enter.flag();
        if when_waiting == WhenWaiting::Reject && auto_enter == Some(true) {
            self.auto_enter.contradicts(
                "true with when_waiting = \"reject\"",
                "false, or a page to wait on: nobody would see their place",
            );
        }
        let refuse_status = status(&self.refuse_status, "a status from 400 to 599", is_error);
        // The page may also come as 200, for shops that want no errors in their figures.
        let page_status = if when_waiting == WhenWaiting::Page {
            let sound = |status| status == StatusCode::OK || is_error(status);
            status(&self.page_status, "200 or a status from 400 to 599", sound)
        } else {
            self.page_status.useless("when_waiting = \"page\"");
            None
        };
        let queue = self.template(around)?;
        let parameter = self.parameter(&queue);
        Some(Gated {
            queue,
            parameter,
            when_waiting,
            refuse_status: refuse_status.unwrap_or(StatusCode::TOO_MANY_REQUESTS),
            page_status: page_status.unwrap_or(StatusCode::SERVICE_UNAVAILABLE),
            auto_enter: auto_enter.unwrap_or(when_waiting != WhenWaiting::Reject),
        })
    }

    /// The queue named here.
    fn template(&self, around: &Surroundings<'_, 'a>) -> Option<QueueTemplate> {
        let name = self.queue.text()?;
        if let Some(queue) = around.queues.iter().find(|queue| queue.written == Some(name)) {
            return queue.definition.as_ref().map(|definition| definition.template.clone());
        }
        let names: Vec<&str> = around.queues.iter().filter_map(|queue| queue.written).collect();
        self.queue.contradicts(self.queue.shown(), known("queue", &names));
        None
    }

    /// Where the value of a template's parameter comes from.
    fn parameter(&self, queue: &QueueTemplate) -> ParameterSource {
        let QueueTemplate::PerParameter { parameter, .. } = queue else {
            self.query_parameter.useless("a queue whose name has a `{parameter}`");
            return ParameterSource::Path;
        };
        let form = format!("true, false or {parameter:?}, the parameter in the queue's name");
        let in_query = self.query_parameter.read(form, |value| {
            value
                .as_bool()
                .or_else(|| value.as_str().and_then(|name| (name == parameter).then_some(true)))
        });
        if in_query == Some(true) { ParameterSource::Query } else { ParameterSource::Path }
    }
}

/// The status of an answer that is no success.
fn is_error(status: StatusCode) -> bool {
    (400..=599).contains(&status.as_u16())
}

fn status(
    value: &Value<'_>,
    expected: &str,
    sound: impl Fn(StatusCode) -> bool,
) -> Option<StatusCode> {
    value.read(expected, |value| {
        let number = whole(value).and_then(|number| u16::try_from(number).ok())?;
        StatusCode::from_u16(number).ok().filter(|status| sound(*status))
    })
}

fn read_bypass(mut table: Table<'_>) -> Option<Bypass> {
    let path = table.take("path");
    let extensions = table.take("extensions");
    let methods = table.take("methods");
    table.done();

    let path = path.required("a path such as \"/static/*\"");
    let methods = read_methods(&methods);
    let elements = extensions.list().unwrap_or_default();
    if extensions.is_set() && elements.is_empty() {
        extensions.refuse("an empty list", "extensions such as \"css\", or no `extensions` at all");
    }
    let extensions = elements
        .iter()
        .filter_map(|element| {
            element.parsed("a file name's extension such as \"css\"", |text| {
                let name = text.strip_prefix('.').unwrap_or(text);
                let sound = (1..=16).contains(&name.len())
                    && name.bytes().all(|b| b.is_ascii_alphanumeric());
                sound.then(|| name.to_ascii_lowercase())
            })
        })
        .collect();
    let pattern = read_path(&path)?;
    if pattern.as_str() == "/*" {
        path.warn("this lifts the gate of every route, whatever its path");
    }
    Some(Bypass { path: pattern, extensions, methods })
}
