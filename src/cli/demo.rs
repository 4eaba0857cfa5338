//! `anteroom demo`: a sample shop and the gateway before it, in one process.
//!
//! So that one person at a browser sees a line that moves, a small crowd of other shoppers can be
//! simulated: they use the same store through the same rules.

use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::http::HeaderMap;
use axum::response::Html;
use axum::routing::get;
use rand::RngExt;
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::config::Config;
use crate::gate::{Entry, Gate};
use crate::proxy::Listen;
use crate::queue::{QueueName, UserId, UserSource};
use crate::server::shutdown::handle_signals;
use crate::server::{BoundGateway, threads};
use crate::store::mirror::{LocalQueue, Seen};
use crate::telemetry;
use crate::token::Claims;

use super::{Outcome, announce, report, runtime};

const QUEUE: &str = "flash-sale";

#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// Where the gateway listens.
    #[arg(long, default_value = "127.0.0.1:8080", value_name = "ADDRESS")]
    listen: SocketAddr,
    /// Where health and metrics are.
    #[arg(long, default_value = "127.0.0.1:9090", value_name = "ADDRESS")]
    admin_listen: SocketAddr,
    /// How many may shop at once.
    #[arg(long, default_value_t = 5)]
    capacity: u64,
    /// How many are let in a second.
    #[arg(long, default_value_t = 1.0)]
    admit_per_second: f64,
    /// Simulated shoppers who queue beside you.
    #[arg(long, default_value_t = 30)]
    crowd: u32,
    /// Keep the line in this Redis instead of in memory.
    #[arg(long, value_name = "URL")]
    redis: Option<String>,
}

impl Arguments {
    fn config(&self, shop: SocketAddr, operator: &str) -> String {
        let store = match &self.redis {
            None => "kind = \"embedded\"".to_owned(),
            Some(url) => format!("kind = \"redis\"\nurl = {url:?}"),
        };
        format!(
            r#"
[server]
listen = ["{listen}"]
admin_listen = "{admin}"

[store]
{store}

[api]
simple = true

[admin]
tokens = [{{ name = "demo", role = "operator", secret_env = "{operator}" }}]

[page]
title = "The Flash Sale"
message = "One hundred lamps at half price. Everybody gets a turn."

[[upstream]]
name = "shop"
servers = ["{shop}"]

[[queue]]
name = "{QUEUE}"
capacity = {capacity}
admit_per_second = {rate:?}
active_ttl = "2m"
claim_ttl = "45s"

[[queue]]
name = "default"
capacity = {capacity}
admit_per_second = {rate:?}

[[route]]
path = "/checkout/*"
upstream = "shop"
queue = "{QUEUE}"
when_waiting = "redirect"

[[route]]
path = "/*"
upstream = "shop"
"#,
            listen = self.listen,
            admin = self.admin_listen,
            capacity = self.capacity,
            rate = self.admit_per_second,
        )
    }
}

/// The variable that stands for the secret of the demo's operator; it exists only in the text
/// above.
const OPERATOR_VARIABLE: &str = "ANTEROOM_DEMO_OPERATOR";

pub(super) fn demo(arguments: &Arguments) -> Outcome {
    let secret = format!("{:032x}", rand::random::<u128>());
    let shop = std::net::TcpListener::bind("127.0.0.1:0")?;
    shop.set_nonblocking(true)?;
    let text = arguments.config(shop.local_addr()?, OPERATOR_VARIABLE);
    let environment = |name: &str| (name == OPERATOR_VARIABLE).then(|| secret.clone());
    let (config, _) = Config::parse(&text, "the demo's configuration", &environment)?;
    telemetry::start(&config.log)?;
    runtime(threads(&config.server))?.block_on(serve(arguments, &config, shop, &secret))
}

async fn serve(
    arguments: &Arguments,
    config: &Config,
    shop: std::net::TcpListener,
    secret: &str,
) -> Result<(), Box<dyn Error>> {
    let shop = TcpListener::from_std(shop)?;
    tokio::spawn(async move { report("the sample shop ended", axum_serve(shop).await) });
    let gateway = BoundGateway::bind(config).await?;
    announce(&gateway);
    println!("the operator's token is {secret}");
    println!();
    if let Some(Listen::Tcp(address)) = gateway.addresses().first() {
        println!("open http://{address}/ in a browser and go to the checkout");
    }
    let (end, ended) = watch::channel(false);
    let name = QueueName::new(QUEUE).ok_or("the demo's queue has a bad name")?;
    if let Some(queue) = gateway.core().mirror.known(&name) {
        for number in 0..arguments.crowd {
            let shopper = Shopper {
                gate: Arc::clone(&gateway.core().gate),
                queue: Arc::clone(&queue),
                number,
            };
            tokio::spawn(shopper.shop_until(ended.clone()));
        }
    }
    let shutdown = handle_signals(config.server.shutdown_delay, None)?;
    gateway.run(shutdown).await?;
    end.send_replace(true);
    Ok(())
}

/// A shop with a front page and a checkout.
async fn axum_serve(listener: TcpListener) -> std::io::Result<()> {
    let front = || async {
        Html(
            "<!doctype html><html lang=en><meta name=viewport content='width=device-width'>\
             <title>Lamps</title><body style='font-family:system-ui;max-width:36rem;margin:4rem auto'>\
             <h1>One hundred lamps at half price</h1>\
             <p>This page is open to everybody. The checkout is behind the waiting room.</p>\
             <p><a href='/checkout/lamp?colour=brass'>Go to the checkout</a></p>",
        )
    };
    let checkout = |headers: HeaderMap| async move {
        let told = |name: &str| {
            let value = headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or("-");
            value.replace(['<', '>', '&'], "")
        };
        Html(format!(
            "<!doctype html><html lang=en><meta name=viewport content='width=device-width'>\
             <title>Checkout</title><body style='font-family:system-ui;max-width:36rem;margin:4rem auto'>\
             <h1>You are in</h1><p>The shop was told: user {}, in line since {}.</p>\
             <form method=post action='/_queue/{QUEUE}/leave'><button>Pay and leave</button></form>",
            told("x-queue-user"),
            told("x-queue-entered-at"),
        ))
    };
    let router = Router::new().route("/checkout/{*item}", get(checkout)).fallback(get(front));
    axum::serve(listener, router).await
}

/// One simulated shopper.
struct Shopper {
    gate: Arc<Gate>,
    queue: Arc<LocalQueue>,
    number: u32,
}

impl Shopper {
    async fn shop_until(self, mut ended: watch::Receiver<bool>) {
        let shop = async {
            loop {
                self.shop_once().await;
                self.pause(5..40).await;
            }
        };
        tokio::select! {
            () = shop => {}
            _ = ended.wait_for(|ended| *ended) => {}
        }
    }

    /// Queues, waits for the turn, shops for a while and leaves.
    async fn shop_once(&self) {
        let name = format!("shopper-{}", self.number);
        let Some(user) = UserId::new(UserSource::Query, name) else { return };
        let entered = self.gate.enter_user(&self.queue, &user).await;
        let Ok(Entry::Placed { claims, .. }) = entered else { return };
        if self.wait(&claims).await {
            self.pause(5..15).await;
            report("a simulated shopper could not leave", self.leave(&claims).await);
        }
    }

    /// Waits for the turn and uses it; false when the place is over.
    async fn wait(&self, claims: &Claims) -> bool {
        loop {
            match self.queue.poll(claims).await {
                Ok(Seen::Active { .. }) => {
                    return matches!(self.queue.pass(claims).await, Ok(Seen::Active { .. }));
                }
                Ok(Seen::Waiting { .. }) | Err(_) => self.pause(1..4).await,
                Ok(Seen::Gone(_)) => return false,
            }
        }
    }

    async fn leave(&self, claims: &Claims) -> Result<(), crate::store::StoreError> {
        self.queue.leave(claims.owner, Some(claims.place.seq)).await.map(drop)
    }

    async fn pause(&self, secs: std::ops::Range<u64>) {
        let span = Duration::from_secs(rand::rng().random_range(secs));
        tokio::time::sleep(span).await;
    }
}
