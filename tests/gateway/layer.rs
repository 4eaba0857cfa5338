//! The gate as a layer in somebody's own service: the example, served as it is.

use std::net::SocketAddr;
use std::sync::Arc;

use anteroom::config::Config;
use anteroom::server::Core;
use tokio::net::TcpListener;
use tokio::sync::watch;

#[allow(dead_code, reason = "the example's own `main` is not what is tested")]
#[path = "../../examples/axum-layer.rs"]
mod axum_layer;

const CONFIG: &str = r#"
[server]
listen = ["127.0.0.1:0"]

[store]
kind = "embedded"

[[upstream]]
name = "shop"
servers = ["127.0.0.1:9"]

[[queue]]
name = "deal-1"
capacity = 1

[[route]]
path = "/checkout/*"
upstream = "shop"
queue = "deal-1"
when_waiting = "reject"

[[route]]
path = "/*"
upstream = "shop"
"#;

#[tokio::test]
async fn an_axum_service_wears_the_gate_without_a_proxy() {
    let (config, _) = Config::parse(CONFIG, "layer.toml", &|_| None).unwrap();
    let core = Core::open(&config).await.unwrap();
    let (_stop, stopped) = watch::channel(false);
    tokio::spawn(Core::run(Arc::clone(&core.mirror), stopped));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let shop_url = format!("http://{}", listener.local_addr().unwrap());
    let shop = axum_layer::shop(&core).into_make_service_with_connect_info::<SocketAddr>();
    tokio::spawn(async move { axum::serve(listener, shop).await.unwrap() });

    let client = reqwest::Client::new();
    let get = |path: &str, token: Option<&str>| {
        let request = client.get(format!("{shop_url}{path}")).header("x-queue-user", "admin");
        match token {
            Some(token) => request.header("x-queue-token", token),
            None => request,
        }
        .send()
    };
    let enter = || async {
        let url = format!("{shop_url}/_queue/deal-1/enter");
        let body = client.post(url).send().await.unwrap().bytes().await.unwrap();
        let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
        (body["token"].as_str().unwrap().to_owned(), body["status"].clone())
    };
    assert_eq!(get("/", None).await.unwrap().status(), 200);
    for disguised in ["/checkout/pay", "//checkout/pay", "/%63heckout/pay", "/x;y/..;/checkout/pay"]
    {
        let refused = get(disguised, None).await.unwrap().status();
        assert!(refused == 429 || refused == 400, "{disguised}: {refused}");
    }
    let (active, status) = enter().await;
    assert_eq!(status, "ACTIVE");
    let (waiting, status) = enter().await;
    assert_eq!(status, "WAITING");
    assert_eq!(get("/checkout/pay", Some(&waiting)).await.unwrap().status(), 429);
    let inside = get("/checkout/pay", Some(&active)).await.unwrap();
    assert_eq!(inside.status(), 200);
    let greeting = inside.text().await.unwrap();
    assert!(greeting.starts_with("welcome to the checkout, anon:"), "{greeting}");
}
