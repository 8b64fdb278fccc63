//! The agents' gRPC service on tonic's server, with small buffers: those of a generated server, 16 KiB
//! a stream, took 68 MB more with 5,000 agents.

use std::{
    convert::Infallible,
    task::{Context, Poll},
};

use tautline_proto::latency::{FromAgent, ToAgent, agents_server::SERVICE_NAME};
use tonic::{
    Status,
    body::Body,
    codec::{BufferSettings, Codec},
    codegen::{BoxFuture, Service, http},
    server::{Grpc, NamedService},
};
use tonic_prost::{ProstDecoder, ProstEncoder};
use tower::service_fn;

use super::stream::AgentService;

/// The longest message of an agent, in bytes: enough for a report of all its targets.
const MAX_MESSAGE_BYTES: usize = 256 << 10;
/// The initial size of a stream's buffers, in bytes: enough for a report of some targets. They grow
/// for larger ones.
const BUFFER_BYTES: usize = 512;

struct SmallBuffers;

impl Codec for SmallBuffers {
    type Encode = ToAgent;
    type Decode = FromAgent;
    type Encoder = ProstEncoder<ToAgent>;
    type Decoder = ProstDecoder<FromAgent>;

    fn encoder(&mut self) -> Self::Encoder {
        ProstEncoder::new(BufferSettings::new(BUFFER_BYTES, BUFFER_BYTES))
    }

    fn decoder(&mut self) -> Self::Decoder {
        ProstDecoder::new(BufferSettings::new(BUFFER_BYTES, BUFFER_BYTES))
    }
}

impl NamedService for AgentService {
    const NAME: &'static str = SERVICE_NAME;
}

impl Service<http::Request<Body>> for AgentService {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let service = self.clone();
        Box::pin(async move {
            if request.uri().path() != "/tautline.latency.v1.Agents/Follow" {
                return Ok(Status::unimplemented("").into_http());
            }
            let follow = service_fn(|request| std::future::ready(service.follow(request)));
            let mut server = Grpc::new(SmallBuffers).max_decoding_message_size(MAX_MESSAGE_BYTES);
            Ok(server.streaming(follow, request).await)
        })
    }
}
