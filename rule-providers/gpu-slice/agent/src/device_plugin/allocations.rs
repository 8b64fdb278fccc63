//! What the kubelet allocated, read once for all who ask meanwhile: the kubelet answers 100
//! lists a second, and a node may start as many containers at once.

use std::{path::PathBuf, sync::Arc};

use tautline_node_proto::pod_resources::PodResources;
use tokio::sync::{mpsc, oneshot};

use super::checkpoint::{self, Entry};
use crate::pod_resources::PodResourcesClient;

const QUEUE: usize = 1024;

/// What the kubelet allocated to containers, at one moment.
#[derive(Debug, Default)]
pub(crate) struct Allocations {
    pub listed: Vec<PodResources>,
    /// Empty if the kubelet's checkpoint does not read.
    pub recorded: Vec<Entry>,
}

type Answer = Result<Arc<Allocations>, String>;

/// Asks for the allocations. Clones share the reader.
#[derive(Clone)]
pub(crate) struct Asker(mpsc::Sender<oneshot::Sender<Answer>>);

impl Asker {
    /// The allocations, read after this call began.
    pub async fn ask(&self) -> Answer {
        let ended = |_| "the agent stops".to_owned();
        let (reply, answer) = oneshot::channel();
        self.0.send(reply).await.map_err(|_| ended(()))?;
        answer.await.unwrap_or_else(|_| Err(ended(())))
    }
}

/// Reads the allocations for those who ask.
pub(crate) struct Reader {
    resources: PodResourcesClient,
    plugins: PathBuf,
    asked: mpsc::Receiver<oneshot::Sender<Answer>>,
}

impl Reader {
    /// `plugins`: the kubelet's folder of device plugins.
    pub fn new(resources: PodResourcesClient, plugins: PathBuf) -> (Asker, Self) {
        let (asks, asked) = mpsc::channel(QUEUE);
        let reader = Self {
            resources,
            plugins,
            asked,
        };
        (Asker(asks), reader)
    }

    pub async fn run(mut self) {
        let mut waiting = Vec::new();
        while self.asked.recv_many(&mut waiting, QUEUE).await > 0 {
            let answer = self.read().await;
            for reply in waiting.drain(..) {
                _ = reply.send(answer.clone());
            }
        }
    }

    async fn read(&self) -> Answer {
        let recorded = checkpoint::read(&self.plugins);
        let (listed, recorded) = tokio::join!(self.resources.list(), recorded);
        let recorded = recorded.unwrap_or_else(|error| {
            tracing::warn!(error, "init containers with cards cannot start");
            Vec::new()
        });
        let listed = listed.map_err(|status| status.message().to_owned())?;
        Ok(Arc::new(Allocations { listed, recorded }))
    }
}
