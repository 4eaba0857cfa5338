//! The command line: run, check, explain, demo, default-config.
//!
//! Exit codes: 0 fine, 1 configuration or start-up failure with a readable reason, 2 usage.

mod demo;
mod explain;

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use tracing::error;

use crate::config::{self, Config};
use crate::proxy::Listen;
use crate::server::shutdown::handle_signals;
use crate::server::{BoundGateway, StartError, threads};
use crate::telemetry;

/// A self-hosted virtual waiting room at the edge.
#[derive(Debug, Parser)]
#[command(version, about, args_conflicts_with_subcommands = true)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    run: ConfigFile,
}

#[derive(Debug, clap::Args)]
struct ConfigFile {
    /// The configuration file.
    #[arg(long, short, default_value = "gateway.toml", value_name = "FILE")]
    config: PathBuf,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the gateway (the default).
    Run(ConfigFile),
    /// Validate a configuration without binding a port.
    Check(ConfigFile),
    /// Say which route a request takes and what would happen to it.
    Explain(explain::Arguments),
    /// Run a sample shop with a gateway before it.
    Demo(demo::Arguments),
    /// Print the default configuration.
    DefaultConfig,
}

/// Runs the command line of this process.
#[must_use]
pub fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let outcome = match arguments.command.unwrap_or(Command::Run(arguments.run)) {
        Command::Run(file) => run(&file),
        Command::Check(file) => check(&file),
        Command::Explain(arguments) => explain::explain(&arguments),
        Command::Demo(arguments) => demo::demo(&arguments),
        Command::DefaultConfig => {
            print!("{}", config::DEFAULT);
            Ok(())
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("anteroom: {}", whole(error.as_ref()));
            ExitCode::FAILURE
        }
    }
}

/// An error with all its causes.
fn whole(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        let more = next.to_string();
        if !text.ends_with(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        cause = next.source();
    }
    text
}

type Outcome = Result<(), Box<dyn Error>>;

fn run(file: &ConfigFile) -> Outcome {
    let (config, warnings) = Config::load(&file.config)?;
    telemetry::start(&config.log)?;
    eprint!("{warnings}");
    runtime(threads(&config.server))?.block_on(async {
        let gateway = BoundGateway::bind(&config).await?;
        announce(&gateway);
        let shutdown = handle_signals(config.server.shutdown_delay, None)?;
        gateway.run(shutdown).await
    })?;
    Ok(())
}

/// One line for each public listener, with the real port: scripts wait for it.
fn announce(gateway: &BoundGateway) {
    for address in gateway.addresses() {
        match address {
            Listen::Tcp(address) => println!("listening on http://{address}"),
            Listen::Unix(path) => println!("listening on unix:{}", path.display()),
        }
    }
    if let Some(address) = gateway.admin_address() {
        println!("administration on http://{address}");
    }
}

/// The one runtime of a gateway. A single thread needs no scheduler that shares work.
fn runtime(threads: usize) -> Result<tokio::runtime::Runtime, StartError> {
    let mut builder = match threads {
        0 | 1 => tokio::runtime::Builder::new_current_thread(),
        _ => tokio::runtime::Builder::new_multi_thread(),
    };
    Ok(builder.worker_threads(threads.max(1)).enable_all().build()?)
}

fn check(file: &ConfigFile) -> Outcome {
    let (config, warnings) = Config::load(&file.config)?;
    print!("{warnings}{}", config.summary());
    println!("{} is valid", file.config.display());
    Ok(())
}

/// Reports what a task of the demo could not do.
fn report(what: &str, outcome: Result<(), impl Error>) {
    if let Err(error) = outcome {
        error!(%error, "{what}: {}", whole(&error));
    }
}
