//! A crowd before a gateway: thousands of shoppers enter, wait, shop and leave, and every promise a
//! client can check is checked. Ends with a report; exit code 1 when one was broken.
//!
//! It knows the public queue API only and is bounded in shoppers, connections and time:
//!
//! ```text
//! cargo run --release --example crowd -- --queue deal-1 --path /checkout/pay --shoppers 5000
//! ```

mod client;
mod report;
mod samples;
mod shopper;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout_at};

use client::Client;
use report::Report;
use shopper::{Shopper, Visit};

/// A crowd of shoppers before a gateway.
#[derive(Clone, Debug, Parser)]
#[command(name = "crowd")]
pub(crate) struct Arguments {
    /// A gateway's origin. Repeat for several.
    #[arg(long, default_value = "http://127.0.0.1:8080")]
    gateway: Vec<String>,
    /// Every request goes to another gateway; otherwise each shopper stays with one.
    #[arg(long)]
    switch: bool,
    /// The queue.
    #[arg(long, default_value = "deal-1")]
    queue: String,
    /// A path behind the gate.
    #[arg(long, default_value = "/checkout/crowd")]
    path: String,
    /// Path prefix of the queue API.
    #[arg(long, default_value = "/_queue")]
    prefix: String,
    /// Name of the token header.
    #[arg(long, default_value = "X-Queue-Token")]
    header: String,
    /// How many shoppers come.
    #[arg(long, default_value_t = 5000, value_parser = clap::value_parser!(u32).range(1..=200_000))]
    shoppers: u32,
    /// The time in which they arrive.
    #[arg(long, default_value = "20s", value_parser = humantime::parse_duration)]
    over: Duration,
    /// How long each stays once inside.
    #[arg(long, default_value = "2s", value_parser = humantime::parse_duration)]
    stay: Duration,
    /// Share of shoppers who do not come when called, 0 to 1.
    #[arg(long, default_value_t = 0.0)]
    no_show: f64,
    /// Share of polls after which a waiting shopper tries the gate, 0 to 1.
    #[arg(long, default_value_t = 0.25)]
    push: f64,
    /// The most requests at once.
    #[arg(long, default_value_t = 256)]
    connections: usize,
    /// When to stop, whoever still waits.
    #[arg(long, default_value = "240s", value_parser = humantime::parse_duration)]
    deadline: Duration,
    /// Arrivals and choices are the same for the same seed.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Do not sample the queue's status.
    #[arg(long)]
    no_status: bool,
    /// Sample the active set in this Redis: its size, and the order in which numbers get in.
    #[arg(long)]
    sample_redis: Option<String>,
    /// What stands before the store's keys.
    #[arg(long, default_value = "anteroom:")]
    redis_prefix: String,
}

#[tokio::main]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match run(&arguments).await {
        Ok(report) => {
            println!("{report}");
            if report.is_clean() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(error) => {
            eprintln!("crowd: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(arguments: &Arguments) -> Result<Report, Box<dyn std::error::Error>> {
    let client = Arc::new(Client::new(arguments)?);
    let (stop, stopped) = watch::channel(());
    let status = (!arguments.no_status)
        .then(|| tokio::spawn(samples::status(Arc::clone(&client), stopped.clone())));
    let store = match &arguments.sample_redis {
        Some(url) => {
            let keys = samples::Keys::new(&arguments.redis_prefix, &arguments.queue);
            let connection =
                redis::Client::open(url.as_str())?.get_multiplexed_async_connection().await?;
            Some(tokio::spawn(samples::store(connection, keys, stopped)))
        }
        None => None,
    };

    let start = Instant::now();
    let deadline = start + arguments.deadline;
    let mut random = StdRng::seed_from_u64(arguments.seed);
    let mut crowd = JoinSet::new();
    for number in 0..arguments.shoppers {
        let arrival = start + arguments.over.mul_f64(random.random_range(0.0..1.0));
        let comes = !random.random_bool(arguments.no_show.clamp(0.0, 1.0));
        let random = StdRng::seed_from_u64(random.random());
        let mut shopper = Shopper::new(arguments, number, comes, Arc::clone(&client), random);
        crowd.spawn(async move {
            sleep_until(arrival).await;
            // Whoever runs into the deadline reports what it saw so far.
            let _ = timeout_at(deadline, shopper.visit(start)).await;
            shopper.seen
        });
    }
    let mut visits: Vec<Visit> = Vec::new();
    while let Some(visit) = crowd.join_next().await {
        visits.push(visit?);
    }
    let took = start.elapsed();
    drop(stop);
    let status = match status {
        Some(samples) => Some(samples.await?),
        None => None,
    };
    let store = match store {
        Some(samples) => Some(samples.await??),
        None => None,
    };
    Ok(Report { visits, took, status, store, one_gateway_each: !arguments.switch })
}
