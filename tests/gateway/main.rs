//! End-to-end stories: real sockets, port 0, a real upstream. One binary, so that pingora is
//! linked once; one file a theme.

#![allow(unreachable_pub, reason = "the stories share one binary, and say what is for the others")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a story fails by panicking")]

mod api;
mod attacks;
mod away;
mod failure;
mod gate;
mod identity;
mod layer;
mod modes;
mod pages;
mod paths;
mod proxying;
#[allow(dead_code, reason = "the contract suite uses the rest")]
#[path = "../contract/redis_server.rs"]
mod redis_server;
mod restart;
mod shop;
mod simple;
mod support;
mod tokens;
