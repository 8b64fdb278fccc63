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

/// The maximum number of streams whose agents have not proved their identity yet.
const MAX_UNAUTHENTICATED_STREAMS: usize = 1024;
const MAX_UNSENT_MESSAGES: usize = 4;

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
            unauthenticated: Arc::new(Semaphore::new(MAX_UNAUTHENTICATED_STREAMS)),
        }
    }

    /// Starts a stream and returns the messages to its agent. Fails if too many streams are
    /// unauthenticated.
    pub(super) fn follow(
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
            context: self.context.clone(),
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
