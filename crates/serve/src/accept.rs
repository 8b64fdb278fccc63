//! Accepts connections on a port that stays reachable under a flood: it closes silent, slow and idle
//! connections. The servers of hyper-util and tonic do not, and silent connections blocked them,
//! with their probes.

use std::{future::Future, net::SocketAddr, sync::Arc, time::Duration};

use tokio::{
    net::{TcpListener, TcpStream},
    sync::oneshot,
};
use tokio_util::{either::Either, sync::CancellationToken};

use crate::{
    connection::Connection,
    connections::{CloseReason, Opened},
    os::is_out_of_files,
    port::Port,
    stream::{Protocol, Stream},
    tls::ServerTls,
};

impl Port {
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
}
