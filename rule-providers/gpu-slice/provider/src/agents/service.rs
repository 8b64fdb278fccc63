use std::{pin::Pin, sync::Arc};

use tautline_agent_link::{AgentAuth, Credentials};
use tautline_proto::gpu::{FromAgent, ToAgent, agents_server::Agents};
use tokio::sync::{Semaphore, mpsc};
use tokio_stream::{Stream, wrappers::ReceiverStream};
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status, Streaming, async_trait};

use super::{
    metrics::AgentMetrics,
    stream::{AgentStream, StreamContext},
};
use crate::provider::GpuSlice;

/// The greatest number of streams whose agents have not yet proved their node.
const MAX_UNAUTHENTICATED: usize = 256;

#[derive(Clone)]
pub(super) struct AgentService {
    context: StreamContext,
    unauthenticated: Arc<Semaphore>,
}

impl AgentService {
    pub fn new(
        provider: GpuSlice,
        (auth, metrics): (AgentAuth, AgentMetrics),
        stop: CancellationToken,
    ) -> Self {
        Self {
            context: StreamContext {
                provider,
                auth: Arc::new(auth),
                metrics,
                stop,
            },
            unauthenticated: Arc::new(Semaphore::new(MAX_UNAUTHENTICATED)),
        }
    }
}

#[async_trait]
impl Agents for AgentService {
    type FollowStream = Pin<Box<dyn Stream<Item = Result<ToAgent, Status>> + Send>>;

    async fn follow(
        &self,
        request: Request<Streaming<FromAgent>>,
    ) -> Result<Response<Self::FollowStream>, Status> {
        let permit = Arc::clone(&self.unauthenticated).try_acquire_owned();
        let permit = permit.map_err(|_| {
            Status::resource_exhausted("too many agents connect at once; connect again")
        })?;
        let credentials = Credentials::of(&request);
        let stream = AgentStream {
            context: self.context.clone(),
            inbound: request.into_inner(),
        };
        let (end, messages) = mpsc::channel(1);
        tokio::spawn(async move {
            // The task also ends when the agent has closed its side.
            let ended = tokio::select! {
                ended = stream.run(credentials, permit) => ended,
                () = end.closed() => return,
            };
            _ = end.try_send(Err(ended));
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(messages))))
    }
}
