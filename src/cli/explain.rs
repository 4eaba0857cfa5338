//! `anteroom explain GET https://shop.example/checkout/pay`: which route, which rule, what would
//! happen and why.

use http::{Method, Uri};

use crate::config::Config;
use crate::problem::{Code, Problem};
use crate::route::{Matched, Route, RouteRequest};

use super::{ConfigFile, Outcome};

#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    file: ConfigFile,
    /// The method.
    method: Method,
    /// The whole URL, or a path.
    url: String,
    /// A header, as curl takes it.
    #[arg(short = 'H', long = "header", value_name = "NAME: VALUE")]
    headers: Vec<String>,
}

pub(super) fn explain(arguments: &Arguments) -> Outcome {
    let (config, _) = Config::load(&arguments.file.config)?;
    let header = |name: &str| {
        arguments.headers.iter().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            key.trim().eq_ignore_ascii_case(name).then(|| value.trim())
        })
    };
    // The target is taken from the text as it is: a parser would already have changed it.
    let (authority, target) = match arguments.url.split_once("://") {
        Some((_, rest)) => {
            let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
            let (authority, target) = rest.split_at(end);
            (Some(authority), if target.is_empty() { "/" } else { target })
        }
        None => (None, arguments.url.as_str()),
    };
    if target.parse::<Uri>().is_err() {
        println!("400 BAD_REQUEST: `{target}` is no request target");
        return Ok(());
    }
    let host = header("host").or(authority);
    let request = RouteRequest { method: &arguments.method, target, host };
    match config.routes.resolve(request) {
        Err(error) => say(&Problem::new(Code::BadRequest), &error.to_string()),
        Ok(matched) => {
            println!("canonical target: {}", matched.target().as_str());
            told(&config, &matched, header("accept"), header(config.tokens.header.as_str()));
        }
    }
    Ok(())
}

fn say(problem: &Problem, why: &str) {
    println!("{} {}: {why}", problem.code().status().as_u16(), problem.code().as_str());
}

fn told(config: &Config, matched: &Matched, accept: Option<&str>, token: Option<&str>) {
    let (route, bypassed) = match matched {
        Matched::Reserved { .. } => {
            return println!("served by the gateway itself: queue API and waiting room");
        }
        Matched::Nothing { .. } => return say(&Problem::new(Code::NotFound), "no route matches"),
        Matched::Route { route, bypassed, .. } => (route, *bypassed),
    };
    println!("route: {}", route.label);
    let Some(gated) = &route.gated else {
        return println!("open: forwarded to upstream `{}`", route.upstream);
    };
    if bypassed {
        return println!("a bypass rule matches: forwarded to upstream `{}`", route.upstream);
    }
    let name = match matched.queue_parameter() {
        Ok(value) => gated.queue.instance(value.as_deref()),
        Err(error) => return say(&Problem::new(Code::BadRequest), &error.to_string()),
    };
    let Some(name) = name else {
        return say(&Problem::new(Code::BadRequest), "the parameter names no queue");
    };
    println!("gated by queue `{name}`");
    if let Some(definition) = config.queues.iter().find(|definition| definition.owns(&name)) {
        let settings = &definition.settings;
        println!("  capacity {}, mode {}", settings.capacity, settings.mode.as_str());
    }
    println!("with an active token of `{name}`: forwarded to upstream `{}`", route.upstream);
    println!("without one: {}", otherwise(route, accept));
    if token.is_some() {
        println!("the token itself is not judged here: whether it is active is the store's word");
    }
}

fn otherwise(route: &Route, accept: Option<&str>) -> String {
    use crate::route::WhenWaiting::{Page, Redirect, Reject};
    let Some(gated) = &route.gated else { return String::new() };
    let refusal = format!("refused with {} and a problem in JSON", gated.refuse_status.as_u16());
    let navigates = accept.is_some_and(|accept| accept.contains("text/html"));
    let entered = if gated.auto_enter { ", and entered" } else { "" };
    match (gated.when_waiting, navigates) {
        (Reject, _) => refusal,
        (Redirect, true) => format!("303 to the waiting room{entered}"),
        (Page, true) => {
            format!("{} with the waiting room page{entered}", gated.page_status.as_u16())
        }
        (Redirect | Page, false) => format!("{refusal}; a browser gets the waiting room{entered}"),
    }
}
