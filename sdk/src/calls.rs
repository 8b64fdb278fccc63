//! The connections of the gRPC port. A connection with a call in progress is never closed as idle.

use std::{
    convert::Infallible,
    future::Future,
    io::{self, IoSlice},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use hyper::body::{Body as HttpBody, Frame, SizeHint};
use tautline_serve::{http::Connection, stream::Stream};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};
use tokio_rustls::server::TlsStream;
use tonic::{
    body::Body,
    codegen::{
        Service,
        http::{Request, Response},
    },
    service::Routes,
    transport::server::{Connected, TcpConnectInfo, TlsConnectInfo},
};

pub(crate) struct Socket(pub Stream);

#[derive(Clone)]
pub(crate) struct ConnectionInfo {
    connection: Arc<Connection>,
    tcp: TcpConnectInfo,
    tls: Option<TlsConnectInfo<TcpConnectInfo>>,
}

impl Connected for Socket {
    type ConnectInfo = ConnectionInfo;

    fn connect_info(&self) -> ConnectionInfo {
        ConnectionInfo {
            connection: Arc::clone(self.0.connection()),
            tcp: TcpConnectInfo {
                local_addr: self.0.local_addr().ok(),
                remote_addr: self.0.peer_addr().ok(),
            },
            tls: self.0.session().map(TlsStream::<TcpStream>::connect_info),
        }
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write_vectored(cx, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.0.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

struct CallInProgress(Option<Arc<Connection>>);

impl CallInProgress {
    fn begin(connection: Arc<Connection>) -> Self {
        connection.open_stream();
        Self(Some(connection))
    }
}

impl Drop for CallInProgress {
    fn drop(&mut self) {
        if let Some(connection) = &self.0 {
            connection.close_stream();
        }
    }
}

#[derive(Clone)]
pub(crate) struct TrackedRoutes(pub Routes);

impl Service<Request<Body>> for TrackedRoutes {
    type Response = Response<TrackedBody>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<TrackedBody>, Infallible>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Service::<Request<Body>>::poll_ready(&mut self.0, cx)
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        let call = match request.extensions_mut().remove::<ConnectionInfo>() {
            None => CallInProgress(None),
            Some(ConnectionInfo {
                connection,
                tcp,
                tls,
            }) => {
                // `remote_addr` and `peer_certs` expect the extensions that tonic's own listeners
                // set.
                let known = request.extensions_mut();
                match tls {
                    Some(tls) => _ = known.insert(tls),
                    None => _ = known.insert(tcp),
                }
                // Every client may watch health and reflection indefinitely: such a connection is
                // idle.
                if request.uri().path().starts_with("/grpc.") {
                    CallInProgress(None)
                } else {
                    CallInProgress::begin(connection)
                }
            }
        };
        let answer = self.0.call(request);
        Box::pin(async move {
            let answer = answer.await?;
            Ok(answer.map(|body| TrackedBody { body, _call: call }))
        })
    }
}

/// A response body that ends its call when dropped.
pub(crate) struct TrackedBody {
    body: Body,
    _call: CallInProgress,
}

impl HttpBody for TrackedBody {
    type Data = <Body as HttpBody>::Data;
    type Error = <Body as HttpBody>::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
