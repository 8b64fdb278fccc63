//! The minimum cost of calling two providers: each gets the names in wire format, and the
//! answers are not parsed. tests/bench/scheduler-perf uses it with the no-op extender.

use std::net::Ipv4Addr;

use anyhow::{Context, Result};
use bytes::{Buf, BufMut, Bytes};
use hyper::http::uri::PathAndQuery;
use tautline_proto::endpoint_cost::put_eligible_node;
use tautline_sdk::Config;
use tonic::{
    Request, Status,
    client::Grpc,
    codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder},
    transport::Channel,
};

use crate::servers::GeneratedCosts;

/// Two providers on loopback, each with a persistent connection.
#[derive(Clone)]
pub struct Providers([Channel; 2]);

impl Providers {
    pub fn at(ports: [&str; 2]) -> Result<Self> {
        let channel = |port| {
            let url = format!("http://{}:{port}", Ipv4Addr::LOCALHOST);
            anyhow::Ok(Channel::from_shared(url)?.connect_lazy())
        };
        Ok(Self([channel(ports[0])?, channel(ports[1])?]))
    }

    /// Calls both concurrently with `names`, a JSON list without brackets.
    pub async fn call(&self, names: &str) -> Result<(), Status> {
        let mut request = Vec::with_capacity(names.len());
        for name in names.split(',') {
            put_eligible_node(name.trim_matches('"'), &mut request);
        }
        let request = Bytes::from(request);
        let [one, other] = self.0.clone();
        tokio::try_join!(call(one, request.clone()), call(other, request))?;
        Ok(())
    }
}

async fn call(channel: Channel, request: Bytes) -> Result<(), Status> {
    let mut client = Grpc::new(channel);
    let unavailable = |e: tonic::transport::Error| Status::unavailable(e.to_string());
    client.ready().await.map_err(unavailable)?;
    let path = PathAndQuery::from_static("/ruleprovider.RuleProvider/EndpointCost");
    client.unary(Request::new(request), path, Raw).await?;
    Ok(())
}

/// Passes messages as bytes.
#[derive(Clone, Copy)]
struct Raw;

impl Codec for Raw {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }
    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, to: &mut EncodeBuf<'_>) -> Result<(), Status> {
        to.put(item);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(from.copy_to_bytes(from.remaining())))
    }
}

/// Serves a provider with generated costs until the process ends.
pub async fn serve(port: &str, admin: &str) -> Result<()> {
    let address =
        |port: &str| anyhow::Ok((Ipv4Addr::LOCALHOST, port.parse().context("a port")?).into());
    let config = Config {
        listen: address(port)?,
        admin: Some(address(admin)?),
        ..Config::default()
    };
    tautline_sdk::serve(GeneratedCosts::default(), config).await
}
