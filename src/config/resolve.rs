//! From the text to settings: reads every section, then compares them with each other.

use std::sync::Arc;

use toml::de::DeTable;

use super::notes::Notes;
use super::raw::Table;
use super::{
    Config, admin, api, identity, log, page, queue, route, server, store, tokens, upstream,
};

/// The configuration in `notes`, which keeps every mistake; with one, the result means nothing. `None` only with
/// mistakes.
pub(super) fn resolve<'a>(notes: &'a Notes<'a>, entries: &'a DeTable<'a>) -> Option<Config> {
    let mut root = Table::root(notes, entries);
    let server = server::read(&mut root);
    let store = store::read(&mut root);
    let tokens = tokens::read(&mut root);
    let mut identity = identity::read(&mut root);
    let upstreams = upstream::read(&mut root);
    let queues = queue::read(&mut root);
    let api = api::read(&mut root);
    let admin = admin::read(&mut root);
    let page = page::read(&mut root);
    let log = log::read(&mut root);
    let routes = route::read(
        &mut root,
        &route::Surroundings {
            upstreams: &upstreams,
            queues: &queues,
            api: &api.settings,
            api_prefix: &api.prefix,
            token_header: &tokens.header,
        },
    );
    root.done();

    let in_queues: Vec<_> = queues.iter().map(|queue| &queue.identity).collect();
    let trusted = &server.settings.trusted_proxies;
    identity.check(&in_queues, trusted, &tokens, api.settings.simple.is_some());
    check_admin(&server, admin.is_empty());
    for upstream in &upstreams {
        upstream.check_loops(&server);
    }

    Some(Config {
        server: server.settings,
        store,
        tokens,
        identity: identity.settings,
        upstreams: upstreams.into_iter().map(|upstream| upstream.settings).collect(),
        queues: queues.into_iter().filter_map(|queue| queue.definition).collect(),
        routes: Arc::new(routes?),
        api: api.settings,
        admin,
        page,
        log,
    })
}

/// Without a token anybody who reaches the admin listener may read; that must be nobody from
/// outside this machine.
fn check_admin(server: &server::Server<'_>, no_token: bool) {
    if let Some(address) = server.settings.admin_listen
        && no_token
        && !address.ip().to_canonical().is_loopback()
    {
        server.admin_listen.contradicts(
            format_args!("{} and no admin token", server.admin_listen.shown()),
            "a loopback address, or [admin] tokens",
        );
    }
}
