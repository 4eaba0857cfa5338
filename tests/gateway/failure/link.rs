//! The network between a gateway and its store, in the hands of the test.
//!
//! A connection that lost bytes stays silent for good, in that direction, whatever the weather
//! becomes: TCP never delivers what comes after a gap.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::process::free_port;

/// What happens to bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Weather {
    /// They arrive.
    Clear,
    /// They arrive this much later.
    Slow(Duration),
    /// Requests arrive, answers do not.
    NoReplies,
    /// Requests do not arrive.
    NoRequests,
    /// Connections are taken, and nothing is ever heard on any.
    Silent,
    /// Connections are cut and refused.
    Refused,
}

/// One way to the store.
#[derive(Debug)]
pub struct Link {
    /// Where gateways find it.
    pub address: SocketAddr,
    weather: watch::Sender<Weather>,
    cuts: watch::Sender<u64>,
    socket: watch::Sender<PathBuf>,
    accepting: JoinHandle<()>,
}

impl Drop for Link {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl Link {
    /// A way to the server on this socket, in clear weather.
    pub async fn to(socket: &Path) -> Self {
        let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
        let (weather, forecast) = watch::channel(Weather::Clear);
        let (cuts, cut) = watch::channel(0);
        let listener = TcpListener::bind(address).await.expect("it was free");
        let (socket, leads_to) = watch::channel(socket.to_owned());
        let way = Way { leads_to, forecast, cut };
        let accepting = tokio::spawn(way.accept(listener));
        Self { address, weather, cuts, socket, accepting }
    }

    /// Changes the weather, for connections that are there and those to come.
    pub fn set(&self, weather: Weather) {
        self.weather.send_replace(weather);
    }

    /// Leads to another server from now on; connections to the one before are cut.
    pub fn lead_to(&self, socket: &Path) {
        self.socket.send_replace(socket.to_owned());
        self.cut();
    }

    /// Cuts every connection.
    pub fn cut(&self) {
        self.cuts.send_modify(|cuts| *cuts += 1);
    }
}

#[derive(Clone)]
struct Way {
    leads_to: watch::Receiver<PathBuf>,
    forecast: watch::Receiver<Weather>,
    cut: watch::Receiver<u64>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Requests,
    Replies,
}

impl Way {
    async fn accept(mut self, listener: TcpListener) {
        let address = listener.local_addr().expect("it is bound");
        let mut listener = Some(listener);
        loop {
            let Some(open) = &listener else {
                if self.forecast.wait_for(|weather| *weather != Weather::Refused).await.is_err() {
                    return;
                }
                listener = TcpListener::bind(address).await.ok();
                tokio::task::yield_now().await;
                continue;
            };
            tokio::select! {
                accepted = open.accept() => {
                    if let Ok((client, _)) = accepted {
                        tokio::spawn(self.clone().serve(client));
                    }
                }
                refused = async { self.forecast.wait_for(|w| *w == Weather::Refused).await.is_ok() } => {
                    if !refused {
                        return;
                    }
                    listener = None;
                }
            }
        }
    }

    /// One connection, until an end closes it, it is cut, or connections are refused.
    async fn serve(mut self, client: TcpStream) {
        self.cut.mark_unchanged();
        let (mut forecast, mut cut) = (self.forecast.clone(), self.cut.clone());
        tokio::select! {
            () = self.connect(client) => {}
            _ = cut.changed() => {}
            _ = async { forecast.wait_for(|weather| *weather == Weather::Refused).await.is_ok() } => {}
        }
    }

    async fn connect(self, client: TcpStream) {
        let _ = client.set_nodelay(true);
        let (mut from_client, to_client) = client.into_split();
        if *self.forecast.borrow() == Weather::Silent {
            return swallow(&mut from_client).await;
        }
        let socket = self.leads_to.borrow().clone();
        let Ok(server) = UnixStream::connect(socket).await else { return };
        let (from_server, to_server) = server.into_split();
        tokio::select! {
            () = self.carry(from_client, to_server, Direction::Requests) => {}
            () = self.carry(from_server, to_client, Direction::Replies) => {}
        }
    }

    async fn carry(
        &self,
        mut from: impl AsyncReadExt + Unpin,
        mut to: impl AsyncWriteExt + Unpin,
        direction: Direction,
    ) {
        let mut bytes = vec![0; 64 * 1024];
        loop {
            let read = match from.read(&mut bytes).await {
                Ok(read) if read > 0 => read,
                _ => return,
            };
            let weather = *self.forecast.borrow();
            match weather {
                Weather::Clear => {}
                Weather::Slow(delay) => tokio::time::sleep(delay).await,
                Weather::NoReplies if direction == Direction::Requests => {}
                Weather::NoRequests if direction == Direction::Replies => {}
                Weather::NoReplies | Weather::NoRequests | Weather::Silent => {
                    return swallow(&mut from).await;
                }
                Weather::Refused => return,
            }
            if to.write_all(&bytes[..read]).await.is_err() {
                return;
            }
        }
    }
}

/// Takes bytes and gives none, until the other end has had enough.
async fn swallow(from: &mut (impl AsyncReadExt + Unpin)) {
    let mut bytes = vec![0; 64 * 1024];
    while from.read(&mut bytes).await.is_ok_and(|read| read > 0) {}
}
