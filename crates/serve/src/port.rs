//! A port that stays reachable under a flood: it closes silent, slow and idle connections. The
//! servers of hyper-util and tonic do not, and silent connections blocked them, with their probes.

use std::{
    future::Future,
    io,
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::oneshot,
};
use tokio_util::{either::Either, sync::CancellationToken};

use crate::{
    connection::Connection,
    connections::{CloseReason, Connections, Opened},
    limits::{self, Limits},
    port_metrics::PortMetrics,
    stream::{Protocol, Stream},
    tls::ServerTls,
};

/// The state of a port. Clones share it.
#[derive(Clone, Debug)]
pub struct Port(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    limits: Limits,
    started: Instant,
    connections: Mutex<Connections<oneshot::Sender<()>>>,
    handshakes: Mutex<Connections<oneshot::Sender<()>>>,
    most_bytes: i64,
    metrics: PortMetrics,
}

impl Port {
    /// A port whose largest request has `largest` bytes.
    pub fn new(limits: Limits, largest: usize, metrics: PortMetrics) -> Self {
        let of_source = |all: usize| (all / 4 * 3).max(1);
        let most = limits::connections_within(limits.connections);
        Self(Arc::new(Inner {
            started: Instant::now(),
            connections: Mutex::new(Connections::new(most, of_source(most))),
            handshakes: Mutex::new(Connections::new(
                limits.handshakes,
                of_source(limits.handshakes),
            )),
            most_bytes: i64::try_from(limits.budget(largest)).unwrap_or(i64::MAX),
            metrics,
            limits,
        }))
    }

    /// The limits of the port.
    pub fn limits(&self) -> &Limits {
        &self.0.limits
    }

    /// The metrics of the port.
    pub fn metrics(&self) -> &PortMetrics {
        &self.0.metrics
    }

    pub(crate) fn most_bytes(&self) -> i64 {
        self.0.most_bytes
    }

    pub(crate) fn closed(&self, id: u64) {
        self.0.connections.lock().close(id);
        self.0.metrics.connections.open.dec();
    }

    pub(crate) fn now(&self) -> u64 {
        u64::try_from(self.0.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Accepts connections until `stop`, and runs `serve` in a task for each.
    pub async fn accept<F>(
        &self,
        listener: TcpListener,
        tls: Option<ServerTls>,
        protocol: Protocol,
        serve: impl Fn(Stream) -> F + Clone + Send + 'static,
        stop: CancellationToken,
    ) where
        F: Future<Output = ()> + Send + 'static,
    {
        let tick = self.0.limits.tick();
        let mut sweep = tokio::time::Instant::now() + tick;
        loop {
            let accepted = tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep_until(sweep), if self.is_used() => {
                    self.sweep();
                    sweep = tokio::time::Instant::now() + tick;
                    continue;
                }
                accepted = listener.accept() => accepted,
            };
            let (tcp, from) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    // The peer is gone, or file descriptors are used up; then close a connection.
                    tracing::debug!(%error, "accept failed");
                    if is_out_of_files(&error) && self.shed() {
                        tokio::task::yield_now().await;
                    } else {
                        tokio::time::sleep(Duration::from_millis(50)).await;
                    }
                    continue;
                }
            };
            // Nagle delays responses larger than a segment by 40 ms.
            _ = tcp.set_nodelay(true);
            match &tls {
                None => {
                    if let Some((connection, close)) = self.open(from) {
                        let stream = Stream::new(Either::Left(tcp), protocol, connection, close);
                        tokio::spawn(serve(stream));
                    }
                }
                Some(tls) => self.shake_hands((tcp, from), tls, protocol, serve.clone()),
            }
        }
    }

    fn shake_hands<F>(
        &self,
        (tcp, from): (TcpStream, SocketAddr),
        tls: &ServerTls,
        protocol: Protocol,
        serve: impl FnOnce(Stream) -> F + Send + 'static,
    ) where
        F: Future<Output = ()> + Send + 'static,
    {
        let (closer, close) = oneshot::channel();
        let opened = self.0.handshakes.lock().open(from.ip(), self.now(), closer);
        let Ok(Opened { id, closed, .. }) = opened else {
            return;
        };
        if closed.is_some() {
            self.0.metrics.connections.closed(CloseReason::Handshake);
        }
        let (port, acceptor) = (self.clone(), tls.acceptor());
        tokio::spawn(async move {
            let handshake = tokio::time::timeout(port.0.limits.handshake, acceptor.accept(tcp));
            let shaken = tokio::select! {
                shaken = handshake => shaken,
                // This handshake was closed to make room for another, and is already counted.
                _ = close => return,
            };
            // Open the connection before the handshake ends: without either the sweep pauses.
            let opened = matches!(shaken, Ok(Ok(_)))
                .then(|| port.open(from))
                .flatten();
            port.0.handshakes.lock().close(id);
            match shaken {
                Ok(Ok(tls)) => {
                    if let Some((connection, close)) = opened {
                        let socket = Either::Right(Box::new(tls));
                        serve(Stream::new(socket, protocol, connection, close)).await;
                    }
                }
                Ok(Err(error)) => tracing::debug!(%error, "TLS handshake failed"),
                Err(_) => port.0.metrics.connections.closed(CloseReason::Handshake),
            }
        });
    }

    fn open(&self, from: SocketAddr) -> Option<(Arc<Connection>, oneshot::Receiver<()>)> {
        let (closer, close) = oneshot::channel();
        let opened = self
            .0
            .connections
            .lock()
            .open(from.ip(), self.now(), closer);
        let Ok(opened) = opened else {
            self.0.metrics.connections.closed(CloseReason::NoRoom);
            return None;
        };
        if opened.closed.is_some() {
            self.0.metrics.connections.closed(CloseReason::MadeRoom);
        }
        self.0.metrics.connections.open.inc();
        let connection = Connection::new(self.clone(), opened);
        Some((Arc::new(connection), close))
    }

    fn is_used(&self) -> bool {
        !(self.0.handshakes.lock().is_empty() && self.0.connections.lock().is_empty())
    }

    fn sweep(&self) {
        let overdue = self
            .0
            .connections
            .lock()
            .overdue(&self.0.limits, self.now());
        for (_, reason) in overdue {
            self.0.metrics.connections.closed(reason);
        }
    }

    fn shed(&self) -> bool {
        let (now, inner) = (self.now(), &self.0);
        let closed = inner.connections.lock().shed(now);
        let closed = closed.or_else(|| inner.handshakes.lock().shed(now));
        if closed.is_some() {
            inner.metrics.connections.closed(CloseReason::MadeRoom);
        }
        closed.is_some()
    }
}

fn is_out_of_files(error: &io::Error) -> bool {
    use nix::errno::Errno;
    let code = error.raw_os_error().map(Errno::from_raw);
    matches!(code, Some(Errno::EMFILE | Errno::ENFILE))
}
