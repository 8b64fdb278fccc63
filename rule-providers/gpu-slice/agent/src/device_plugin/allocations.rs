//! Reads which devices the kubelet has allocated to containers. One read answers all requests that
//! wait for it: the kubelet answers only 100 lists per second, and a node may start as many
//! containers at once.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use tokio::sync::mpsc;

use super::checkpoint::{self, Entry};
use crate::{
    channels::{self, Call, Failure},
    kubelet::{PodResourcesClient, pod_resources::PodResources},
};

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

type Answer = Result<Arc<Allocations>, Failure>;

/// A handle to ask for the allocations.
pub(crate) struct Asker(mpsc::Sender<Call<(), Answer>>);

impl Asker {
    /// Returns the allocations, from a read that begins after this call.
    pub async fn ask(&self) -> Answer {
        let answer = channels::ask(&self.0, ()).await;
        answer.unwrap_or_else(|| Err(Failure::stopping()))
    }
}

/// Reads the allocations and answers the requests.
pub(crate) struct Reader {
    resources: PodResourcesClient,
    checkpoint: PathBuf,
    asked: mpsc::Receiver<Call<(), Answer>>,
}

impl Reader {
    pub fn new(kubelet_dir: &Path) -> (Asker, Self) {
        let (asks, asked) = mpsc::channel(MAX_REQUESTS);
        let reader = Self {
            resources: PodResourcesClient::new(kubelet_dir),
            checkpoint: kubelet_dir.join("device-plugins/kubelet_internal_checkpoint"),
            asked,
        };
        (Asker(asks), reader)
    }

    pub async fn run(mut self) {
        let mut waiting = Vec::new();
        while self.asked.recv_many(&mut waiting, MAX_REQUESTS).await > 0 {
            let answer = self.read().await;
            for ((), reply) in waiting.drain(..) {
                _ = reply.send(answer.clone());
            }
        }
    }

    async fn read(&self) -> Answer {
        let recorded = checkpoint::read(&self.checkpoint);
        let (listed, recorded) = tokio::join!(self.resources.list(), recorded);
        let recorded = recorded.unwrap_or_else(|error| {
            let error = format!("{} does not read: {error}", self.checkpoint.display());
            tracing::warn!(error, "init containers with cards cannot start");
            Vec::new()
        });
        let listed = listed?;
        Ok(Arc::new(Allocations { listed, recorded }))
    }
}
