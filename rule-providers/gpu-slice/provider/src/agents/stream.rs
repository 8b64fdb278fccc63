//! The stream of one agent: its authentication, then its reports of the use of cards.

use std::{sync::Arc, time::Duration};

use tautline_agent_link::{AgentAuth, Credentials, RateLimit, is_node_name};
use tautline_proto::gpu::{FromAgent, from_agent::What};
use tokio::{
    sync::OwnedSemaphorePermit,
    time::{Instant, sleep_until, timeout},
};
use tokio_util::sync::CancellationToken;
use tonic::{Status, Streaming};

use super::metrics::AgentMetrics;
use crate::{provider::GpuSlice, use_store::SessionId};

/// The time within which an agent must send its first message and prove its node.
const HELLO_TIMEOUT: Duration = Duration::from_secs(10);
/// The time without a message after which a stream ends.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Clone)]
pub(super) struct StreamContext {
    pub provider: GpuSlice,
    pub auth: Arc<AgentAuth>,
    pub metrics: AgentMetrics,
    pub stop: CancellationToken,
}

pub(super) struct AgentStream {
    pub context: StreamContext,
    pub inbound: Streaming<FromAgent>,
}

/// The node's session, which ends when it is dropped.
struct Session<'a> {
    context: &'a StreamContext,
    node: &'a str,
    id: SessionId,
}

impl<'a> Session<'a> {
    fn open(context: &'a StreamContext, node: &'a str) -> Self {
        context.metrics.agents.inc();
        let id = context.provider.state.lock().uses.open(node);
        Self { context, node, id }
    }
}

impl Drop for Session<'_> {
    fn drop(&mut self) {
        self.context.metrics.agents.dec();
        let mut state = self.context.provider.state.lock();
        state.uses.close(self.node, self.id);
    }
}

impl AgentStream {
    pub async fn run(mut self, credentials: Credentials, permit: OwnedSemaphorePermit) -> Status {
        let node = match self.authenticate(&credentials).await {
            Ok(node) => node,
            Err(status) => return status,
        };
        drop(permit);
        tracing::debug!(node, "agent connected");
        let session = Session::open(&self.context, &node);
        let ended = serve(&session, &mut self.inbound).await;
        tracing::debug!(node, reason = ended.message(), "agent disconnected");
        ended
    }

    async fn authenticate(&mut self, credentials: &Credentials) -> Result<String, Status> {
        let stop = self.context.stop.clone();
        tokio::select! {
            () = stop.cancelled() => Err(stopping()),
            hello = timeout(HELLO_TIMEOUT, self.hello(credentials)) => hello
                .unwrap_or_else(|_| Err(Status::deadline_exceeded("no Hello within 10 s"))),
        }
    }

    async fn hello(&mut self, credentials: &Credentials) -> Result<String, Status> {
        let first = self.inbound.message().await?.and_then(|m| m.what);
        let Some(What::Hello(hello)) = first else {
            return Err(Status::invalid_argument(
                "the first message must be a Hello",
            ));
        };
        let node = hello.node;
        if !is_node_name(&node) {
            return Err(Status::invalid_argument(
                "Hello, node: expected the name of a Node: up to 253 letters, digits, `-` and `.`",
            ));
        }
        if let Err(status) = self.context.auth.check(credentials, &node).await {
            self.context.metrics.refused.inc();
            tracing::debug!(node, reason = status.message(), "agent refused");
            return Err(status);
        }
        // The check bounds the number of nodes, also where agents give no proof.
        let nodes = self.context.provider.store.snapshot();
        match nodes.node(&node) {
            Some(_) => Ok(node),
            None => Err(Status::failed_precondition(format!(
                "node {node} is not known (yet); connect again"
            ))),
        }
    }
}

async fn serve(session: &Session<'_>, inbound: &mut Streaming<FromAgent>) -> Status {
    let mut limit = RateLimit::new(Instant::now());
    // The next message is not read before this time.
    let mut read_at = Instant::now();
    let stop = &session.context.stop;
    loop {
        let next = async {
            sleep_until(read_at).await;
            inbound.message().await
        };
        let next = tokio::select! {
            () = stop.cancelled() => return stopping(),
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
            let mut state = session.context.provider.state.lock();
            let now = std::time::Instant::now();
            if let Err(status) = state.report_use(session.node, session.id, used, now) {
                return status;
            }
        }
    }
}

fn stopping() -> Status {
    Status::unavailable("the provider stops; connect again")
}
