//! The service on the wire, in place of a generated server: that one keeps 16 KiB of
//! buffers a stream for as long as it lasts, and the longest message's beside, which
//! is much where thousands of streams say little.

use std::{
    convert::Infallible,
    future::{Ready, ready},
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::{BufMut, Bytes};
use http_body::Frame;
use prost::Message;
use tautline_proto::latency::{FromAgent, ToAgent, agents_server::SERVICE_NAME};
use tokio::sync::mpsc;
use tonic::{
    Request, Status, Streaming,
    body::Body,
    codec::{BufferSettings, DecodeBuf, Decoder},
    codegen::{Service as HttpService, http},
    metadata::GRPC_CONTENT_TYPE,
    server::NamedService,
};

use super::{Service, Told};

const METHOD: &str = "Follow";
/// A report of all targets that anyone gives to an agent fits.
const MOST_BYTES: usize = 256 << 10;
/// A report of some targets fits; the buffer grows for others.
const BUFFER_BYTES: usize = 512;

impl NamedService for Service {
    const NAME: &'static str = SERVICE_NAME;
}

impl HttpService<http::Request<Body>> for Service {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let told = received(request).and_then(|request| self.follow(request));
        ready(Ok(match told {
            Ok(told) => {
                let mut response = http::Response::new(Body::new(Messages(Some(told))));
                let headers = response.headers_mut();
                headers.insert(http::header::CONTENT_TYPE, GRPC_CONTENT_TYPE);
                response
            }
            Err(status) => status.into_http(),
        }))
    }
}

/// What an agent says, message by message.
fn received(request: http::Request<Body>) -> Result<Request<Streaming<FromAgent>>, Status> {
    let method = request.uri().path().rsplit('/').next();
    if method != Some(METHOD) {
        let why = format!("{SERVICE_NAME} has one method, {METHOD}");
        return Err(Status::unimplemented(why));
    }
    let encoding = request.headers().get("grpc-encoding");
    if encoding.is_some_and(|e| e != "identity") {
        return Err(Status::unimplemented("messages must not be compressed"));
    }
    Ok(Request::from_http(request.map(|body| {
        Streaming::new_request(Reader, body, None, Some(MOST_BYTES))
    })))
}

struct Reader;

impl Decoder for Reader {
    type Item = FromAgent;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<FromAgent>, Status> {
        let message = FromAgent::decode(from);
        let message = message.map_err(|e| Status::invalid_argument(format!("FromAgent: {e}")))?;
        Ok(Some(message))
    }

    fn buffer_settings(&self) -> BufferSettings {
        BufferSettings::new(BUFFER_BYTES, BUFFER_BYTES)
    }
}

/// What an agent is told, each message in bytes of its own, then the status.
struct Messages(Option<mpsc::Receiver<Told>>);

impl http_body::Body for Messages {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let this = self.get_mut();
        let Some(told) = &mut this.0 else {
            return Poll::Ready(None);
        };
        let ended = match ready!(told.poll_recv(context)).map(|told| *told) {
            Some(Ok(message)) => {
                return Poll::Ready(Some(Ok(Frame::data(framed(&message)))));
            }
            Some(Err(status)) => status,
            None => Status::ok(""),
        };
        this.0 = None;
        let mut trailers = http::HeaderMap::new();
        let added = ended.add_header(&mut trailers);
        Poll::Ready(Some(added.map(|()| Frame::trailers(trailers))))
    }
}

/// A message after its five bytes: not compressed, and how long it is.
fn framed(message: &ToAgent) -> Bytes {
    let length = message.encoded_len();
    let mut out = Vec::with_capacity(5 + length);
    out.put_u8(0);
    out.put_u32(u32::try_from(length).unwrap_or(u32::MAX));
    // A Vec has room for all.
    _ = message.encode(&mut out);
    out.into()
}
