//! The gRPC service that agents connect to, with one stream for each node. Agents report the use of
//! cards by containers.

use std::{pin::Pin, sync::Arc, time::Duration};

use tautline_agent_link::{AgentAuth, Credentials, RateLimit};
use tautline_core::dns;
use tautline_proto::gpu::{
    FromAgent, ToAgent,
    agents_server::{Agents, AgentsServer},
    from_agent::What,
};
use tautline_sdk::Server;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, mpsc},
    time::{Instant, sleep_until, timeout},
};
use tokio_stream::{Stream, wrappers::ReceiverStream};
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status, Streaming, async_trait};

use crate::{
    provider::GpuSlice,
    use_store::{AgentMetrics, SessionId},
};

/// The audience of the tokens that agents show.
pub const AUDIENCE: &str = "tautline-gpu";

/// The maximum length of a message: it must hold the use of a node with the most cards and
/// containers.
const MAX_MESSAGE_BYTES: usize = 1 << 20;
/// The greatest number of streams whose agents have not yet proved their node.
const MAX_UNAUTHENTICATED: usize = 256;
/// The time within which an agent must send its first message and prove its node.
const HELLO_TIMEOUT: Duration = Duration::from_secs(10);
/// The time without a message after which a stream ends.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);

impl GpuSlice {
    /// Adds the agents' service and metrics to the server. Streams end with `stop`.
    pub fn serve_agents(&self, auth: AgentAuth, server: &mut Server, stop: CancellationToken) {
        let metrics = self.state.lock().uses.metrics.clone();
        metrics.register("", &mut server.registry);
        let service = AgentService {
            provider: self.clone(),
            auth: Arc::new(auth),
            metrics,
            stop,
            unauthenticated: Arc::new(Semaphore::new(MAX_UNAUTHENTICATED)),
        };
        let service = AgentsServer::new(service).max_decoding_message_size(MAX_MESSAGE_BYTES);
        server.add_service(service);
    }
}

#[derive(Clone)]
struct AgentService {
    provider: GpuSlice,
    auth: Arc<AgentAuth>,
    metrics: AgentMetrics,
    stop: CancellationToken,
    unauthenticated: Arc<Semaphore>,
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
        let (service, inbound) = (self.clone(), request.into_inner());
        let (end, messages) = mpsc::channel(1);
        tokio::spawn(async move {
            // The task also ends when the agent has closed its side.
            let ended = tokio::select! {
                ended = service.run(inbound, credentials, permit) => ended,
                () = end.closed() => return,
            };
            _ = end.try_send(Err(ended));
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(messages))))
    }
}

impl AgentService {
    /// Serves a stream, and returns the reason for its end.
    async fn run(
        &self,
        mut inbound: Streaming<FromAgent>,
        credentials: Credentials,
        permit: OwnedSemaphorePermit,
    ) -> Status {
        let hello = tokio::select! {
            () = self.stop.cancelled() => Err(stopping()),
            hello = timeout(HELLO_TIMEOUT, self.hello(&mut inbound, &credentials)) => hello
                .unwrap_or_else(|_| Err(Status::deadline_exceeded("no Hello within 10 s"))),
        };
        let node = match hello {
            Ok(node) => node,
            Err(status) => return status,
        };
        drop((credentials, permit));
        tracing::debug!(node, "agent connected");
        let session = Session {
            service: self,
            node: &node,
            id: self.provider.state.lock().uses.open(&node),
        };
        let ended = session.serve(&mut inbound).await;
        tracing::debug!(node, reason = ended.message(), "agent disconnected");
        ended
    }

    /// Reads the first message, and returns the node that the agent proves.
    async fn hello(
        &self,
        inbound: &mut Streaming<FromAgent>,
        credentials: &Credentials,
    ) -> Result<String, Status> {
        let first = inbound.message().await?.and_then(|m| m.what);
        let Some(What::Hello(hello)) = first else {
            return Err(Status::invalid_argument(
                "the first message must be a Hello",
            ));
        };
        let node = hello.node;
        if !dns::is_subdomain(&node) {
            return Err(Status::invalid_argument(
                "Hello, node: expected the name of a Node: up to 253 letters, digits, `-` and `.`",
            ));
        }
        if let Err(status) = self.auth.check(credentials, &node).await {
            self.metrics.refused.inc();
            tracing::debug!(node, reason = status.message(), "agent refused");
            return Err(status);
        }
        // The check bounds the number of nodes, also where agents give no proof.
        let nodes = self.provider.store.snapshot();
        match nodes.node(&node) {
            Some(_) => Ok(node),
            None => Err(Status::failed_precondition(format!(
                "node {node} is not known (yet); connect again"
            ))),
        }
    }
}

/// The node's session, which ends when it is dropped.
struct Session<'a> {
    service: &'a AgentService,
    node: &'a str,
    id: SessionId,
}

impl Drop for Session<'_> {
    fn drop(&mut self) {
        let mut state = self.service.provider.state.lock();
        state.uses.close(self.node, self.id);
    }
}

impl Session<'_> {
    async fn serve(&self, inbound: &mut Streaming<FromAgent>) -> Status {
        let mut limit = RateLimit::new(Instant::now());
        // The next message is not read before this time.
        let mut read_at = Instant::now();
        loop {
            let next = async {
                sleep_until(read_at).await;
                inbound.message().await
            };
            let next = tokio::select! {
                () = self.service.stop.cancelled() => return stopping(),
                () = sleep_until(read_at + IDLE_TIMEOUT) => {
                    return Status::deadline_exceeded("silent for 30 s");
                }
                next = next => next,
            };
            let message = match next {
                Ok(Some(message)) => message,
                Ok(None) => return Status::ok(""),
                Err(status) => return status,
            };
            read_at = Instant::now() + limit.record(Instant::now());
            if let Some(What::Use(used)) = message.what {
                let mut state = self.service.provider.state.lock();
                let now = std::time::Instant::now();
                if let Err(status) = state.report_use(self.node, self.id, used, now) {
                    return status;
                }
            }
        }
    }
}

fn stopping() -> Status {
    Status::unavailable("the provider stops; connect again")
}

#[cfg(test)]
mod tests;
