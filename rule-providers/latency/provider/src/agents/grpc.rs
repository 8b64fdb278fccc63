//! The gRPC server of the agent service, written by hand. A generated server would hold 16 KiB of
//! buffers and a buffer of the longest message for each stream, too much for thousands of streams.

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

use super::stream::{AgentService, Outgoing};

const METHOD: &str = "Follow";
/// The longest message of an agent, in bytes: enough for a report of all its targets.
const MAX_MESSAGE_BYTES: usize = 256 << 10;
/// The initial receive buffer of a stream, in bytes: enough for a report of some targets. It grows
/// for larger ones.
const BUFFER_BYTES: usize = 512;

impl NamedService for AgentService {
    const NAME: &'static str = SERVICE_NAME;
}

impl HttpService<http::Request<Body>> for AgentService {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let messages = decoded(request).and_then(|request| self.follow(request));
        ready(Ok(match messages {
            Ok(messages) => {
                let mut response = http::Response::new(Body::new(Messages(Some(messages))));
                let headers = response.headers_mut();
                headers.insert(http::header::CONTENT_TYPE, GRPC_CONTENT_TYPE);
                response
            }
            Err(status) => status.into_http(),
        }))
    }
}

fn decoded(request: http::Request<Body>) -> Result<Request<Streaming<FromAgent>>, Status> {
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
        Streaming::new_request(MessageDecoder, body, None, Some(MAX_MESSAGE_BYTES))
    })))
}

struct MessageDecoder;

impl Decoder for MessageDecoder {
    type Item = FromAgent;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<FromAgent>, Status> {
        let invalid = |e| Status::invalid_argument(format!("FromAgent: {e}"));
        FromAgent::decode(from).map(Some).map_err(invalid)
    }

    fn buffer_settings(&self) -> BufferSettings {
        BufferSettings::new(BUFFER_BYTES, BUFFER_BYTES)
    }
}

struct Messages(Option<mpsc::Receiver<Outgoing>>);

impl http_body::Body for Messages {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let this = self.get_mut();
        let Some(messages) = &mut this.0 else {
            return Poll::Ready(None);
        };
        let ended = match ready!(messages.poll_recv(context)).map(|message| *message) {
            Some(Ok(message)) => {
                return Poll::Ready(Some(Ok(Frame::data(encoded(&message)))));
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

/// Encodes a message with its gRPC prefix: a zero byte (no compression) and the length in bytes.
fn encoded(message: &ToAgent) -> Bytes {
    let length = message.encoded_len();
    let mut out = Vec::with_capacity(5 + length);
    out.put_u8(0);
    out.put_u32(u32::try_from(length).unwrap_or(u32::MAX));
    // Encoding cannot fail, because a Vec grows.
    _ = message.encode(&mut out);
    out.into()
}
