//! Reads which devices the kubelet has allocated to containers. One read answers all requests that
//! wait for it: the kubelet answers only 100 lists per second, and a node may start as many
//! containers at once.

use std::{path::PathBuf, sync::Arc};

use tokio::sync::{mpsc, oneshot};

use super::checkpoint::{self, Entry};
use crate::{kubelet::pod_resources::PodResources, pod_resources::PodResourcesClient};

/// The largest number of requests that wait for a read.
const MAX_REQUESTS: usize = 1024;

/// The devices that the kubelet had allocated to containers at one moment.
#[derive(Debug, Default)]
pub(crate) struct Allocations {
    /// The pods with their devices, from the PodResources API.
    pub listed: Vec<PodResources>,
    /// The entries of the kubelet's checkpoint; empty if it cannot be read.
    pub recorded: Vec<Entry>,
}

type Answer = Result<Arc<Allocations>, String>;

/// A handle to ask for the allocations; clones share the reader.
#[derive(Clone)]
pub(crate) struct Asker(mpsc::Sender<oneshot::Sender<Answer>>);

impl Asker {
    /// Returns the allocations, from a read that begins after this call.
    pub async fn ask(&self) -> Answer {
        let ended = |_| "the agent stops".to_owned();
        let (reply, answer) = oneshot::channel();
        self.0.send(reply).await.map_err(|_| ended(()))?;
        answer.await.unwrap_or_else(|_| Err(ended(())))
    }
}

/// Reads the allocations and answers the requests.
pub(crate) struct Reader {
    resources: PodResourcesClient,
    plugins: PathBuf,
    asked: mpsc::Receiver<oneshot::Sender<Answer>>,
}

impl Reader {
    /// Creates a reader; `plugins` is the kubelet's directory of device plugins.
    pub fn new(resources: PodResourcesClient, plugins: PathBuf) -> (Asker, Self) {
        let (asks, asked) = mpsc::channel(MAX_REQUESTS);
        let reader = Self {
            resources,
            plugins,
            asked,
        };
        (Asker(asks), reader)
    }

    pub async fn run(mut self) {
        let mut waiting = Vec::new();
        while self.asked.recv_many(&mut waiting, MAX_REQUESTS).await > 0 {
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
