//! The routes of a gateway, and which of them a request takes.
//!
//! The most specific route wins: an exact host before a wildcard (the longer first) before none;
//! then segment by segment a literal before a parameter before `*`; then a list of methods before
//! any. A route whose path matches but not its methods does not count. Two routes that could both
//! win are an error when the table is made, so the order of the file never matters.
//!
//! Every plausible reading of a path is routed (see [`super::reading`]). Where the readings lead
//! apart and one of them leads to a gated route, or to the gateway's own paths, the request is
//! refused. Building a table is slow and checks everything; [`RouteTable::resolve`] is the hot
//! path, allocates the target once, and reads neither headers nor a clock.

use std::collections::HashMap;
use std::sync::Arc;

use http::Method;

use super::action::{Cors, Gated, ParameterSource};
use super::host::{Host, HostPattern};
use super::lookup::{Candidate, Lookup, Sought};
use super::parameter;
use super::path::PathPattern;
use super::reading::{Reading, Readings, fold};
use super::target::{CanonicalTarget, TargetError};
use crate::queue::QueueTemplate;

/// What is answered under the prefix of the compatibility set.
pub const COMPATIBILITY_PATHS: [&str; 5] =
    ["/rank", "/queue", "/allowed", "/allow", "/waiting-room"];

/// One `[[route]]`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Route {
    /// Its name in logs and errors.
    pub label: String,
    /// The hosts it serves; empty serves any.
    pub hosts: Vec<HostPattern>,
    /// The paths it serves.
    pub path: PathPattern,
    /// The methods it serves; empty serves any. `GET` serves `HEAD` too, unless another route of
    /// the same path lists `HEAD`.
    pub methods: Vec<Method>,
    /// Whether letter case in the path does not count. Captured values are then in lower case.
    pub case_insensitive: bool,
    /// Whether the upstream keeps `%2F` apart from `/`, so that it is data and nothing else.
    pub allow_encoded_slash: bool,
    /// The name of the upstream.
    pub upstream: String,
    /// The gate, if it has one.
    pub gated: Option<Gated>,
    /// Whether the upstream is sent the token.
    pub forward_token: bool,
    /// Cross-origin rules.
    pub cors: Option<Cors>,
}

/// One `[[bypass]]`: requests that need no token on a gated route. It applies only if every
/// reading of the path matches all of it. Letter case counts in its path.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Bypass {
    /// The paths, never the query.
    pub path: PathPattern,
    /// Extensions of the last segment, with or without a dot before them, letter case ignored;
    /// empty takes any segment. A path that ends in a slash has none.
    pub extensions: Vec<String>,
    /// The methods; empty takes any. `GET` takes `HEAD` too.
    pub methods: Vec<Method>,
}

impl Bypass {
    fn applies(&self, method: &Method, reading: &Reading<'_>) -> bool {
        let method_fits = self.methods.is_empty()
            || self.methods.contains(method)
            || (*method == Method::HEAD && self.methods.contains(&Method::GET));
        method_fits && self.path.matches(reading.trimmed()) && self.extension_fits(&reading.path)
    }

    fn extension_fits(&self, path: &str) -> bool {
        let name = path.rsplit('/').next().unwrap_or_default();
        self.extensions.is_empty()
            || self.extensions.iter().any(|extension| {
                let extension = extension.strip_prefix('.').unwrap_or(extension);
                let dot = name.len().checked_sub(extension.len() + 1).filter(|dot| *dot > 0);
                dot.and_then(|dot| name.get(dot..))
                    .and_then(|end| end.strip_prefix('.'))
                    .is_some_and(|end| end.eq_ignore_ascii_case(extension))
            })
    }
}

/// Why a table cannot be made. `index` counts routes from 0 in the order they were given.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TableError {
    /// Two routes are equally specific and overlap.
    #[error("the routes `{first}` and `{second}` tie: same host, same path, overlapping methods")]
    Tie {
        /// The position of the later route.
        index: usize,
        /// The position of the earlier route.
        first_index: usize,
        /// The earlier route.
        first: String,
        /// The later route.
        second: String,
    },
    /// A route under the gateway's own prefix would never be used.
    #[error("the route `{route}` lies under `{prefix}`, which the gateway answers itself")]
    Reserved {
        /// The position of the route.
        index: usize,
        /// The route.
        route: String,
        /// The reserved prefix.
        prefix: String,
    },
    /// A route for exactly a path of the compatibility set.
    #[error("the route `{route}` is for `{path}`, which the compatibility set answers")]
    Compatibility {
        /// The position of the route.
        index: usize,
        /// The route.
        route: String,
        /// The path.
        path: String,
    },
    /// The queue's name needs a parameter that the path does not have.
    #[error("the route `{route}` has no `{{{parameter}}}` in its path, but its queue needs it")]
    Parameter {
        /// The position of the route.
        index: usize,
        /// The route.
        route: String,
        /// The parameter's name.
        parameter: String,
    },
    /// The prefix of the gateway's own paths, or that of the compatibility set, is not a plain
    /// path of literal segments, or the former is empty.
    #[error("`{prefix}` cannot be the prefix of the gateway's own paths")]
    Prefix {
        /// The prefix as written.
        prefix: String,
    },
}

/// What of a request decides on its route.
#[derive(Clone, Copy, Debug)]
pub struct RouteRequest<'a> {
    /// The method on the request line. For a CORS preflight, the method it asks for.
    pub method: &'a Method,
    /// The request target as it came.
    pub target: &'a str,
    /// The `Host` field, or `:authority`. Without it only routes without hosts match.
    pub host: Option<&'a str>,
}

/// Where a request goes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Matched {
    /// To the gateway itself: the queue API, the page or the compatibility set.
    Reserved {
        /// The canonical target.
        target: CanonicalTarget,
    },
    /// To a route.
    Route {
        /// The route.
        route: Arc<Route>,
        /// The canonical target that was judged.
        target: CanonicalTarget,
        /// The path's parameters with their decoded values, in order.
        parameters: Vec<(Arc<str>, String)>,
        /// Whether a bypass lifts the gate. Always false on a route without one.
        bypassed: bool,
    },
    /// Nowhere.
    Nothing {
        /// The canonical target.
        target: CanonicalTarget,
    },
}

impl Matched {
    /// The canonical target.
    #[must_use]
    pub const fn target(&self) -> &CanonicalTarget {
        match self {
            Self::Reserved { target } | Self::Route { target, .. } | Self::Nothing { target } => {
                target
            }
        }
    }

    /// The value from which the queue's name is made; `None` where no parameter is needed.
    ///
    /// # Errors
    /// The parameter is absent, is there more than once for any plausible reader, or is not UTF-8.
    pub fn queue_parameter(&self) -> Result<Option<String>, TargetError> {
        let Self::Route { route, target, parameters, .. } = self else { return Ok(None) };
        let Some(Gated {
            queue: QueueTemplate::PerParameter { parameter, .. },
            parameter: source,
            ..
        }) = &route.gated
        else {
            return Ok(None);
        };
        match source {
            ParameterSource::Query => parameter::read(target.query(), parameter).map(Some),
            ParameterSource::Path => {
                let value = parameters.iter().find(|(name, _)| **name == **parameter);
                let (_, value) = value.ok_or(TargetError::ParameterMissing)?;
                Ok(Some(value.clone()))
            }
        }
    }
}

/// Where one reading leads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Outcome {
    Reserved,
    Route(usize),
    Nothing,
}

/// All routes, ready to be searched.
#[derive(Debug)]
pub struct RouteTable {
    routes: Vec<Arc<Route>>,
    bypasses: Vec<Bypass>,
    exact_hosts: HashMap<String, ByMethod>,
    /// The longest name first.
    wildcard_hosts: Vec<(HostPattern, ByMethod)>,
    any_host: ByMethod,
    /// In match form, without a trailing slash.
    reserved: String,
    compatibility: Vec<String>,
}

impl RouteTable {
    /// Checks and builds a table.
    ///
    /// - `reserved_prefix`: what the gateway answers itself on every host, such as `/_queue`.
    /// - `simple`: the prefix of the compatibility set (`""` for none), if that is on.
    ///
    /// # Errors
    /// All mistakes at once.
    pub fn new(
        routes: Vec<Route>,
        bypasses: Vec<Bypass>,
        reserved_prefix: &str,
        simple: Option<&str>,
    ) -> Result<Self, Vec<TableError>> {
        let mut errors = Vec::new();
        let mut literal = |text: &str, root: bool| {
            literal_path(text).filter(|path| root || path != "/").unwrap_or_else(|| {
                errors.push(TableError::Prefix { prefix: text.to_owned() });
                "/".to_owned()
            })
        };
        let reserved = literal(reserved_prefix, false);
        let mut compatibility = Vec::new();
        if let Some(simple) = simple.map(|simple| simple.trim_end_matches('/')) {
            let base = if simple.is_empty() { "/".to_owned() } else { literal(simple, true) };
            let below = |path| format!("{}{path}", base.trim_end_matches('/'));
            compatibility.extend(COMPATIBILITY_PATHS.map(below));
        }
        for (index, route) in routes.iter().enumerate() {
            check_route(index, route, &reserved, &compatibility, &mut errors);
            check_ties(index, &routes, &mut errors);
        }
        if !errors.is_empty() {
            return Err(errors);
        }
        let mut hosts: Vec<&HostPattern> = routes.iter().flat_map(|route| &route.hosts).collect();
        hosts.sort_by_key(|host| std::cmp::Reverse(host.fixed_bytes()));
        let (mut exact_hosts, mut wildcard_hosts) = (HashMap::new(), Vec::new());
        for host in hosts {
            let of_host = || ByMethod::new(&routes, |route| route.hosts.contains(host));
            match host.exact() {
                Some(name) if !exact_hosts.contains_key(name) => {
                    exact_hosts.insert(name.to_owned(), of_host());
                }
                None if wildcard_hosts.iter().all(|(known, _)| known != host) => {
                    wildcard_hosts.push((host.clone(), of_host()));
                }
                _ => {}
            }
        }
        let any_host = ByMethod::new(&routes, |route| route.hosts.is_empty());
        let routes = routes.into_iter().map(Arc::new).collect();
        Ok(Self {
            routes,
            bypasses,
            exact_hosts,
            wildcard_hosts,
            any_host,
            reserved,
            compatibility,
        })
    }

    /// The routes, in the order they were given.
    pub fn routes(&self) -> &[Arc<Route>] {
        &self.routes
    }

    /// Where a request goes.
    ///
    /// # Errors
    /// [`TargetError`]: the target cannot be judged; answer 400 and send nothing upstream.
    pub fn resolve(&self, request: RouteRequest<'_>) -> Result<Matched, TargetError> {
        let target = CanonicalTarget::parse(request.target, request.host)?;
        let host = request.host.map(Host::parse).transpose()?;
        let readings = Readings::of(target.path())?;
        let outcome = self.outcome(request.method, host.as_ref(), &readings.canonical);
        let route = match outcome {
            Outcome::Route(index) => Some(&self.routes[index]),
            _ => None,
        };
        let slash_is_data = route.is_some_and(|route| route.allow_encoded_slash);
        for reading in readings.counted(slash_is_data).skip(1) {
            let other = self.outcome(request.method, host.as_ref(), reading);
            if other != outcome && (self.is_guarded(other) || self.is_guarded(outcome)) {
                return Err(TargetError::Ambiguous);
            }
        }
        let Some(route) = route.cloned() else {
            return Ok(match outcome {
                Outcome::Reserved => Matched::Reserved { target },
                _ => Matched::Nothing { target },
            });
        };
        let captures = |reading: &Reading<'_>| {
            if !route.path.has_parameters() {
                return Vec::new();
            }
            let sought = Sought::new(reading.trimmed());
            route.path.captures(sought.form(route.case_insensitive))
        };
        let parameters = captures(&readings.canonical);
        let mut bypassed = false;
        if let Some(gated) = &route.gated {
            bypassed = self.bypasses.iter().any(|bypass| {
                let mut counted = readings.counted(slash_is_data);
                counted.all(|reading| bypass.applies(request.method, reading))
            });
            // One path must not name two queues.
            if let QueueTemplate::PerParameter { parameter, .. } = &gated.queue
                && gated.parameter == ParameterSource::Path
            {
                let value =
                    |reading| captures(reading).into_iter().find(|(n, _)| **n == **parameter);
                let first = value(&readings.canonical);
                if readings.counted(slash_is_data).any(|reading| value(reading) != first) {
                    return Err(TargetError::Ambiguous);
                }
            }
        }
        Ok(Matched::Route { route, target, parameters, bypassed })
    }

    /// Whether doubt about this outcome is a refusal.
    fn is_guarded(&self, outcome: Outcome) -> bool {
        match outcome {
            Outcome::Reserved => true,
            Outcome::Route(index) => self.routes[index].gated.is_some(),
            Outcome::Nothing => false,
        }
    }

    fn outcome(&self, method: &Method, host: Option<&Host<'_>>, reading: &Reading<'_>) -> Outcome {
        let path = reading.trimmed();
        if is_under(path, &self.reserved) || self.compatibility.iter().any(|own| own == path) {
            return Outcome::Reserved;
        }
        let sought = Sought::new(path);
        let of_host = || {
            let host =
                host.filter(|_| !self.exact_hosts.is_empty() || !self.wildcard_hosts.is_empty())?;
            let exact = self.exact_hosts.get(&*host.name).and_then(|own| own.find(method, &sought));
            exact.or_else(|| {
                let mut below = self.wildcard_hosts.iter().filter(|(name, _)| name.matches(host));
                below.find_map(|(_, own)| own.find(method, &sought))
            })
        };
        let found = of_host().or_else(|| self.any_host.find(method, &sought));
        found.map_or(Outcome::Nothing, Outcome::Route)
    }
}

/// The routes of one host pattern.
#[derive(Debug)]
struct ByMethod {
    /// For each method that some route lists, all routes that serve it.
    listed: Vec<(Method, Lookup)>,
    /// The routes that serve any method.
    other: Lookup,
}

impl ByMethod {
    fn new(routes: &[Route], of_host: impl Fn(&Route) -> bool) -> Self {
        let own: Vec<(usize, &Route)> =
            routes.iter().enumerate().filter(|(_, route)| of_host(route)).collect();
        let mut methods: Vec<&Method> = own.iter().flat_map(|(_, route)| &route.methods).collect();
        if methods.contains(&&Method::GET) {
            methods.push(&Method::HEAD);
        }
        let mut listed: Vec<(Method, Lookup)> = Vec::new();
        for method in methods {
            if listed.iter().all(|(known, _)| known != method) {
                listed.push((method.clone(), lookup(&own, Some(method))));
            }
        }
        Self { listed, other: lookup(&own, None) }
    }

    fn find(&self, method: &Method, sought: &Sought<'_>) -> Option<usize> {
        let listed = self.listed.iter().find(|(known, _)| known == method);
        listed.map_or(&self.other, |(_, lookup)| lookup).find(sought)
    }
}

/// The routes that serve a method (`None`: one that nobody lists), the more specific first.
fn lookup(routes: &[(usize, &Route)], method: Option<&Method>) -> Lookup {
    let rank = |route: &Route| match method {
        _ if route.methods.is_empty() => Some(2),
        Some(method) if route.methods.contains(method) => Some(0),
        Some(method) if *method == Method::HEAD && route.methods.contains(&Method::GET) => Some(1),
        _ => None,
    };
    let mut serving: Vec<(u8, usize, &Route)> =
        routes.iter().filter_map(|(index, route)| Some((rank(route)?, *index, *route))).collect();
    serving.sort_by_key(|(rank, index, _)| (*rank, *index));
    Lookup::new(serving.into_iter().map(|(rank, index, route)| Candidate {
        index,
        path: &route.path,
        case_insensitive: route.case_insensitive,
        method_rank: 2 - rank,
    }))
}

/// A path of literal segments, in match form; `/` for none.
fn literal_path(text: &str) -> Option<String> {
    let pattern = PathPattern::parse(text).ok()?;
    pattern.is_literal().then(|| pattern.literal_prefix())
}

/// Whether a path is `prefix` or lies below it.
pub(super) fn is_under(path: &str, prefix: &str) -> bool {
    path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn check_route(
    index: usize,
    route: &Route,
    reserved: &str,
    compatibility: &[String],
    errors: &mut Vec<TableError>,
) {
    let label = || route.label.clone();
    let own = route.path.literal_prefix();
    let form = |path: &str| {
        if route.case_insensitive { fold(path).into_owned() } else { path.to_owned() }
    };
    if is_under(&form(&own), &form(reserved)) {
        errors.push(TableError::Reserved { index, route: label(), prefix: reserved.to_owned() });
    }
    let same = |path: &&String| route.path.is_literal() && form(&own) == form(path);
    if let Some(path) = compatibility.iter().find(same) {
        errors.push(TableError::Compatibility { index, route: label(), path: path.clone() });
    }
    if let Some(gated) = &route.gated
        && let QueueTemplate::PerParameter { parameter, .. } = &gated.queue
        && gated.parameter == ParameterSource::Path
        && !route.path.parameters().any(|name| name == parameter)
    {
        errors.push(TableError::Parameter { index, route: label(), parameter: parameter.clone() });
    }
}

/// Compares the route at `index` with those before it.
fn check_ties(index: usize, routes: &[Route], errors: &mut Vec<TableError>) {
    let second = &routes[index];
    for (first_index, first) in routes[..index].iter().enumerate() {
        let any_case = first.case_insensitive || second.case_insensitive;
        let same_path = first.path.is_open() == second.path.is_open()
            && first.path.shape(any_case) == second.path.shape(any_case);
        let same_host = (first.hosts.is_empty() && second.hosts.is_empty())
            || first.hosts.iter().any(|host| second.hosts.contains(host));
        let same_method = (first.methods.is_empty() && second.methods.is_empty())
            || first.methods.iter().any(|method| second.methods.contains(method));
        if same_path && same_host && same_method {
            errors.push(TableError::Tie {
                index,
                first_index,
                first: first.label.clone(),
                second: second.label.clone(),
            });
        }
    }
}

#[cfg(test)]
mod spelling_tests;
#[cfg(test)]
mod tests;
