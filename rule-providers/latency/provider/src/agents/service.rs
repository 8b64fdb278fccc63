use std::sync::Arc;

use tautline_agent_link::{AgentAuth, Credentials};
use tautline_proto::latency::FromAgent;
use tokio::sync::{Semaphore, mpsc};
use tokio_util::sync::CancellationToken;
use tonic::{Request, Status, Streaming};

use super::{
    context::{Outgoing, StreamContext},
    keys::EchoKeys,
    stream::Stream,
};
use crate::network::Network;

/// Streams whose agents have not proved yet who they are.
const MAX_UNAUTHENTICATED: usize = 1024;
const MAX_UNSENT: usize = 4;

#[derive(Clone, Debug)]
pub(crate) struct AgentService {
    context: StreamContext,
    unauthenticated: Arc<Semaphore>,
}

impl AgentService {
    pub fn new(network: Network, auth: AgentAuth, keys: EchoKeys, stop: CancellationToken) -> Self {
        Self {
            context: StreamContext {
                network,
                auth: Arc::new(auth),
                keys,
                stop,
            },
            unauthenticated: Arc::new(Semaphore::new(MAX_UNAUTHENTICATED)),
        }
    }

    /// Starts a stream, unless too many are unauthenticated; returns the messages to its agent.
    pub(super) fn follow(
        &self,
        request: Request<Streaming<FromAgent>>,
    ) -> Result<mpsc::Receiver<Outgoing>, Status> {
        let permit = Arc::clone(&self.unauthenticated).try_acquire_owned();
        let permit = permit.map_err(|_| {
            Status::resource_exhausted("too many agents connect at once; connect again")
        })?;
        let credentials = Credentials::of(&request);
        let (sender, messages) = mpsc::channel(MAX_UNSENT);
        let stream = Stream {
            context: self.context.clone(),
            remote: request.remote_addr(),
            inbound: request.into_inner(),
            outbound: sender.clone(),
        };
        tokio::spawn(async move {
            let ended = stream.run(credentials, permit).await;
            // An agent that takes no messages does not get the reason.
            _ = sender.try_send(Box::new(Err(ended)));
        });
        Ok(messages)
    }
}
