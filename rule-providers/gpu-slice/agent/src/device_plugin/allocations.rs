//! Reads which devices the kubelet has allocated to containers.

use std::path::{Path, PathBuf};

use tokio::sync::Semaphore;

use super::checkpoint::{self, Entry};
use crate::{
    channels::Failure,
    kubelet::{PodResourcesClient, pod_resources::PodResources},
};

/// The number of reads at once: a node may start a hundred containers at once, the kubelet's list
/// may have megabytes, and it answers only 100 lists per second.
const MAX_READS: usize = 2;

/// The devices that the kubelet had allocated to containers at one moment.
#[derive(Debug, Default)]
pub(crate) struct Allocations {
    /// The pods with their devices, from the PodResources API.
    pub listed: Vec<PodResources>,
    /// The entries of the kubelet's checkpoint; empty if it cannot be read.
    pub recorded: Vec<Entry>,
}

/// Reads the allocations.
pub(crate) struct Reader {
    resources: PodResourcesClient,
    checkpoint: PathBuf,
    reads: Semaphore,
}

impl Reader {
    pub fn new(kubelet_dir: &Path) -> Self {
        Self {
            resources: PodResourcesClient::new(kubelet_dir),
            checkpoint: kubelet_dir.join("device-plugins/kubelet_internal_checkpoint"),
            reads: Semaphore::new(MAX_READS),
        }
    }

    pub async fn read(&self) -> Result<Allocations, Failure> {
        let _turn = self.reads.acquire().await;
        let recorded = checkpoint::read(&self.checkpoint);
        let (listed, recorded) = tokio::join!(self.resources.list(), recorded);
        let recorded = recorded.unwrap_or_else(|error| {
            let error = format!("{} does not read: {error}", self.checkpoint.display());
            tracing::warn!(error, "init containers with cards cannot start");
            Vec::new()
        });
        let listed = listed?;
        Ok(Allocations { listed, recorded })
    }
}
