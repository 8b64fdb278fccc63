//! The gRPC service that the agents on the nodes connect to: one stream for each node, and the
//! proof of the agent's identity.

mod grpc;
pub(crate) mod keys;
mod stream;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use tautline_agent_link::{AgentAuth, Credentials};
use tautline_proto::latency::{FromAgent, ToAgent};
use tokio::sync::{Semaphore, mpsc};
use tokio_util::sync::CancellationToken;
use tonic::{Request, Status, Streaming};

use crate::network::Network;
use keys::EchoKeys;
use stream::Stream;

/// The audience of the tokens by which agents prove their node.
pub(crate) const AUDIENCE: &str = "tautline-latency";
/// The maximum number of streams whose agents have not proved their identity yet.
const MAX_UNAUTHENTICATED_STREAMS: usize = 1024;
const MAX_UNSENT_MESSAGES: usize = 4;

/// A message to an agent, or the status that ends its stream. It is boxed because a channel
/// allocates room for 32 messages.
type Outgoing = Box<Result<ToAgent, Status>>;

#[derive(Clone, Debug)]
pub(crate) struct AgentService {
    network: Arc<Network>,
    auth: Arc<AgentAuth>,
    keys: EchoKeys,
    stop: CancellationToken,
    unauthenticated: Arc<Semaphore>,
}

impl AgentService {
    pub fn new(
        network: Arc<Network>,
        auth: AgentAuth,
        keys: EchoKeys,
        stop: CancellationToken,
    ) -> Self {
        Self {
            network,
            auth: Arc::new(auth),
            keys,
            stop,
            unauthenticated: Arc::new(Semaphore::new(MAX_UNAUTHENTICATED_STREAMS)),
        }
    }

    /// Starts a stream and returns the messages to its agent. Fails if too many streams are
    /// unauthenticated.
    fn follow(
        &self,
        request: Request<Streaming<FromAgent>>,
    ) -> Result<mpsc::Receiver<Outgoing>, Status> {
        let busy = |_| Status::resource_exhausted("too many agents connect at once; connect again");
        let permit = Arc::clone(&self.unauthenticated)
            .try_acquire_owned()
            .map_err(busy)?;
        let credentials = Credentials::of(&request);
        let (sender, messages) = mpsc::channel(MAX_UNSENT_MESSAGES);
        let stream = Stream {
            service: self.clone(),
            remote: request.remote_addr(),
            inbound: request.into_inner(),
            outbound: sender.clone(),
        };
        tokio::spawn(async move {
            let ended = stream.run(credentials, permit).await;
            // The reason is lost if the agent does not take its messages.
            _ = sender.try_send(Box::new(Err(ended)));
        });
        Ok(messages)
    }
}
