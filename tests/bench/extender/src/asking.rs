//! The least that asking two providers takes: each gets the names, as they are on
//! the wire, and what it answers is not looked at. For tests/bench/scheduler-perf, beside
//! the floor of the extender's protocol.

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

use crate::servers::Cheap;

/// Two providers on loopback, each on a connection that is kept.
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

    /// Asks both at once about `names`, a list as JSON has it.
    pub async fn ask(&self, names: &str) -> Result<(), Status> {
        let mut question = Vec::with_capacity(names.len());
        for name in names.split(',') {
            put_eligible_node(name.trim_matches('"'), &mut question);
        }
        let question = Bytes::from(question);
        let [one, other] = self.0.clone();
        tokio::try_join!(ask(one, question.clone()), ask(other, question))?;
        Ok(())
    }
}

async fn ask(channel: Channel, question: Bytes) -> Result<(), Status> {
    let mut client = Grpc::new(channel);
    let broken = |e: tonic::transport::Error| Status::unavailable(e.to_string());
    client.ready().await.map_err(broken)?;
    let path = PathAndQuery::from_static("/ruleprovider.RuleProvider/EndpointCost");
    client.unary(Request::new(question), path, Raw).await?;
    Ok(())
}

/// Messages as bytes.
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

/// A provider that has a cost for each node and knows nothing, until it is ended.
pub async fn provide(port: &str, admin: &str) -> Result<()> {
    let at = |port: &str| anyhow::Ok((Ipv4Addr::LOCALHOST, port.parse().context("a port")?).into());
    let config = Config {
        listen: at(port)?,
        admin: Some(at(admin)?),
        ..Config::default()
    };
    tautline_sdk::serve(Cheap, config).await
}
