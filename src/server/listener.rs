//! Public listeners: bound before anything starts, served until told to stop, then drained.
//!
//! pingora's own server retries an address in use and then panics inside a task, leaving a process
//! without a listener; and it cannot say which port it was given. So the sockets are bound here,
//! where failing is an ordinary error, and handed over. What a connection may do is the guard's.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::IntoRawFd;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use pingora::apps::ServerApp;
use pingora::server::Fds;
use pingora::services::Service as _;
use pingora::services::listening::Service;
use tokio::sync::watch;
use tracing::{info, warn};

use crate::proxy::{Drain, Listen};

/// A listener that could not be bound.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// A TCP address, most often one in use.
    #[error("cannot listen on {address}")]
    Tcp {
        /// The address as configured.
        address: SocketAddr,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A Unix socket.
    #[error("cannot listen on unix:{}", path.display())]
    Unix {
        /// The path as configured.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// Serving that ended in another way than by being told to.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The listeners ended by themselves.
    #[error("the public listeners ended unexpectedly")]
    Ended,
    /// The task that serves them panicked.
    #[error("the public listeners failed")]
    Failed(#[source] tokio::task::JoinError),
}

/// How a drain ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Drained {
    /// Every request in flight was answered.
    Clean,
    /// This many requests were still in flight when the time was up.
    Cut(usize),
}

/// Sockets that are bound and listening, with nobody accepting yet.
#[derive(Debug)]
pub struct BoundListeners {
    sockets: Vec<Socket>,
    addresses: Vec<Listen>,
}

#[derive(Debug)]
enum Socket {
    Tcp(TcpListener, SocketAddr),
    Unix(UnixListener, PathBuf),
}

impl BoundListeners {
    /// Binds every listener, in order. A Unix socket left over by a process that is gone is
    /// replaced; one that somebody listens on is an error.
    ///
    /// # Errors
    /// [`BindError`] for the first that fails; those bound before it are closed again.
    pub fn bind(listen: &[Listen]) -> Result<Self, BindError> {
        let mut sockets = Vec::with_capacity(listen.len());
        let mut addresses = Vec::with_capacity(listen.len());
        for listen in listen {
            let socket = match listen {
                Listen::Tcp(address) => bind_tcp(*address)
                    .map_err(|source| BindError::Tcp { address: *address, source })?,
                Listen::Unix(path) => bind_unix(path)
                    .map_err(|source| BindError::Unix { path: path.clone(), source })?,
            };
            addresses.push(match &socket {
                Socket::Tcp(_, address) => Listen::Tcp(*address),
                Socket::Unix(_, path) => Listen::Unix(path.clone()),
            });
            sockets.push(socket);
        }
        Ok(Self { sockets, addresses })
    }

    /// Where they listen, in the order given to [`bind`](Self::bind), with the real port where 0
    /// was asked for.
    pub fn addresses(&self) -> &[Listen] {
        &self.addresses
    }

    /// Serves `app` until `stop` is true or its sender is gone, then stops accepting, lets
    /// kept-alive connections go, and waits until no request of `drain` is in flight, at most
    /// `drain_timeout`. Runs on the current tokio runtime.
    ///
    /// # Errors
    /// [`ServeError`] when it ended without being told to.
    pub async fn serve<A: ServerApp + Send + Sync + 'static>(
        self,
        app: A,
        mut stop: watch::Receiver<bool>,
        drain: &Drain,
        drain_timeout: Duration,
    ) -> Result<Drained, ServeError> {
        let mut service = Service::new("public".to_owned(), app);
        let mut fds = Fds::new();
        let mut files = Vec::new();
        for socket in self.sockets {
            match socket {
                Socket::Tcp(listener, address) => {
                    let key = address.to_string();
                    service.add_tcp(&key);
                    fds.add(key, listener.into_raw_fd());
                }
                Socket::Unix(listener, path) => {
                    let key = path.to_string_lossy().into_owned();
                    service.add_uds(&key, None);
                    fds.add(key, listener.into_raw_fd());
                    files.push(path);
                }
            }
        }
        let (close, closed) = watch::channel(false);
        let fds = Arc::new(parking_lot::Mutex::new(fds));
        let mut serving =
            tokio::spawn(async move { service.start_service(Some(fds), closed, 1).await });
        let ended = tokio::select! {
            _ = stop.wait_for(|stop| *stop) => None,
            ended = &mut serving => Some(ended),
        };
        let result = match ended {
            Some(Ok(())) => Err(ServeError::Ended),
            Some(Err(error)) => Err(ServeError::Failed(error)),
            None => {
                drain.close();
                close.send_replace(true);
                serving.await.map_err(ServeError::Failed)?;
                info!(requests.in_flight = drain.in_flight(), "no new connections are taken");
                Ok(wait_for_requests(drain, drain_timeout).await)
            }
        };
        for file in files {
            // Already gone is as good.
            let _ = std::fs::remove_file(file);
        }
        result
    }
}

async fn wait_for_requests(drain: &Drain, drain_timeout: Duration) -> Drained {
    if tokio::time::timeout(drain_timeout, drain.idle()).await.is_ok() {
        return Drained::Clean;
    }
    let left = drain.in_flight();
    warn!(requests.in_flight = left, "the drain timeout is over; {left} requests are cut off");
    Drained::Cut(left)
}

fn bind_tcp(address: SocketAddr) -> io::Result<Socket> {
    // Listens with a short backlog; pingora raises it when it takes the socket over.
    let listener = TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    Ok(Socket::Tcp(listener, address))
}

fn bind_unix(path: &Path) -> io::Result<Socket> {
    let listener = match UnixListener::bind(path) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse && is_left_over(path) => {
            std::fs::remove_file(path)?;
            UnixListener::bind(path)?
        }
        bound => bound?,
    };
    listener.set_nonblocking(true)?;
    Ok(Socket::Unix(listener, path.to_owned()))
}

/// Whether `path` is a socket that nobody listens on. Never true for a file of another kind.
fn is_left_over(path: &Path) -> bool {
    let is_socket =
        std::fs::symlink_metadata(path).is_ok_and(|metadata| metadata.file_type().is_socket());
    is_socket
        && UnixStream::connect(path)
            .is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loopback() -> Listen {
        Listen::Tcp(SocketAddr::from(([127, 0, 0, 1], 0)))
    }

    #[test]
    fn port_0_becomes_a_real_port_and_a_port_in_use_is_an_error() {
        let bound = BoundListeners::bind(&[loopback(), loopback()]).unwrap();
        let [Listen::Tcp(one), Listen::Tcp(two)] = bound.addresses() else {
            panic!("two TCP addresses")
        };
        assert_ne!(one.port(), 0);
        assert_ne!(one, two);
        let error = BoundListeners::bind(&[loopback(), Listen::Tcp(*one)]).unwrap_err();
        assert!(error.to_string().contains(&one.to_string()), "{error}");
        let BindError::Tcp { source, .. } = error else { panic!("TCP") };
        assert_eq!(source.kind(), io::ErrorKind::AddrInUse);
    }

    #[test]
    fn a_unix_socket_left_over_is_replaced_but_nothing_else_is() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("gateway.sock");
        let listen = [Listen::Unix(path.clone())];
        drop(UnixListener::bind(&path).unwrap());
        assert!(path.exists(), "left over");
        let bound = BoundListeners::bind(&listen).unwrap();
        assert!(BoundListeners::bind(&listen).is_err(), "somebody listens");
        drop(bound);
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, "not a socket").unwrap();
        assert!(BoundListeners::bind(&listen).is_err());
        assert_eq!(std::fs::read(&path).unwrap(), b"not a socket");
    }
}
