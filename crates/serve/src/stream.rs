//! The socket of a connection, plain or TLS: tracks its phase, and fails once it must close.

use std::{
    future::Future,
    io::{self, IoSlice},
    net::SocketAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
    sync::oneshot,
};
use tokio_rustls::server::TlsStream;
use tokio_util::either::Either;

use crate::{connection::Connection, connections::Phase};

/// The bytes of a client's preface, and of the settings header after it.
const HTTP2_PREFACE_BYTES: usize = 24 + 9;

/// The protocol of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.1.
    Http1,
    /// HTTP/2.
    Http2,
}

/// An accepted connection.
#[derive(Debug)]
pub struct Stream {
    socket: Either<TcpStream, Box<TlsStream<TcpStream>>>,
    connection: Arc<Connection>,
    protocol: Protocol,
    preface: usize,
    close: oneshot::Receiver<()>,
    closing: bool,
}

impl Stream {
    pub(crate) fn new(
        socket: Either<TcpStream, Box<TlsStream<TcpStream>>>,
        protocol: Protocol,
        connection: Arc<Connection>,
        close: oneshot::Receiver<()>,
    ) -> Self {
        Self {
            socket,
            connection,
            protocol,
            preface: 0,
            close,
            closing: false,
        }
    }

    /// The connection's state and memory.
    pub fn connection(&self) -> &Arc<Connection> {
        &self.connection
    }

    fn tcp(&self) -> &TcpStream {
        match &self.socket {
            Either::Left(tcp) => tcp,
            Either::Right(tls) => tls.get_ref().0,
        }
    }

    /// The client's address.
    ///
    /// # Errors
    /// The connection is broken.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.tcp().peer_addr()
    }

    /// The server's address.
    ///
    /// # Errors
    /// The connection is broken.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.tcp().local_addr()
    }

    /// The TLS session, if there is one.
    pub fn session(&self) -> Option<&TlsStream<TcpStream>> {
        match &self.socket {
            Either::Left(_) => None,
            Either::Right(tls) => Some(tls),
        }
    }

    /// Fails once the connection must close; a request in progress is answered first.
    fn check(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        self.closing = self.closing || Pin::new(&mut self.close).poll(cx).is_ready();
        if self.closing && !self.connection.activity.is_working() {
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        Ok(())
    }

    fn arrived(&mut self, bytes: usize) {
        let connection = &self.connection;
        match (connection.activity.phase(), self.protocol) {
            (Phase::New, _) | (Phase::Idle, Protocol::Http1) => connection.enter(Phase::Head),
            _ => {}
        }
        if self.protocol == Protocol::Http2 && self.preface < HTTP2_PREFACE_BYTES {
            self.preface += bytes;
            // From here on pings detect dead peers.
            if self.preface >= HTTP2_PREFACE_BYTES {
                connection.enter(Phase::Idle);
            }
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.connection.closed();
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.check(cx)?;
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.socket).poll_read(cx, buffer))?;
        let bytes = buffer.filled().len() - before;
        if bytes > 0 {
            self.arrived(bytes);
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.check(cx)?;
        Pin::new(&mut self.socket).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.check(cx)?;
        Pin::new(&mut self.socket).poll_write_vectored(cx, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.check(cx)?;
        ready!(Pin::new(&mut self.socket).poll_flush(cx))?;
        // HTTP/1 flushes after its last write.
        if self.connection.activity.phase() == Phase::Flush {
            self.connection.release();
            self.connection.enter(Phase::Idle);
        }
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }
}
