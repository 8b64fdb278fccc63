//! The device plugin for the kubelet: it offers thousandths and memory of the cards as countable
//! resources, and prepares the start of each container that requests them.

mod allocations;
mod checkpoint;
#[cfg(test)]
mod fake_kubelet;
mod holders;
mod ids;
mod registration;
mod server;
mod start;
#[cfg(test)]
mod tests;

use std::{collections::HashSet, path::PathBuf, sync::Arc, time::Duration};

use tautline_gpu_placement::node_inventory::NodeInventory;
use tokio::{sync::watch, time};
use tokio_util::sync::CancellationToken;

use self::{
    allocations::Reader,
    ids::{Counted, Pool},
    registration::Registration,
    start::Starter,
};
pub(crate) use self::{
    holders::PodRef,
    start::{Give, Refusal, Specs},
};
use crate::{
    kubelet::device_plugin::Device, metrics::Metrics, node::NodeFacts,
    pod_resources::PodResourcesClient,
};

/// The interval at which the kubelet's sockets are checked.
const SOCKET_POLL_INTERVAL: Duration = Duration::from_secs(1);
/// The interval at which old CDI specs are removed, and the age at which a spec is old.
const SWEEP_INTERVAL: Duration = Duration::from_secs(30);

/// The device plugin for both resources.
pub(crate) struct DevicePlugin<G, S> {
    /// The kubelet's directory, usually `/var/lib/kubelet`.
    pub kubelet_dir: PathBuf,
    /// The cards to offer; without cards no resource is registered.
    pub inventory: watch::Receiver<Arc<NodeInventory>>,
    /// The facts about the node; `None` until the node is read, and no resource is registered
    /// before.
    pub facts: watch::Receiver<Option<NodeFacts>>,
    pub giver: G,
    pub specs: S,
    pub metrics: Metrics,
}

impl<G: Give, S: Specs> DevicePlugin<G, S> {
    /// Runs until `stop`. The kubelet then has no allocatable devices, and forgets them after 5
    /// minutes.
    pub async fn run(self, stop: CancellationToken) {
        self.run_with(stop, SOCKET_POLL_INTERVAL).await;
    }

    async fn run_with(self, stop: CancellationToken, poll: Duration) {
        let plugins = self.kubelet_dir.join("device-plugins");
        let resources = PodResourcesClient::new(&self.kubelet_dir);
        let (allocations, reader) = Reader::new(resources, plugins.clone());
        let starter = Arc::new(Starter {
            allocations,
            giver: self.giver,
            specs: self.specs,
            metrics: self.metrics,
        });
        let resource = |counted| {
            let (listing, devices) = watch::channel(Arc::default());
            let (wanting, wanted) = watch::channel(false);
            let supply = Supply {
                pool: Pool::new(counted),
                counted,
                inventory: self.inventory.clone(),
                facts: self.facts.clone(),
                devices: listing,
                wanted: wanting,
            };
            let registration = Registration {
                counted,
                plugins: plugins.clone(),
                devices,
                wanted,
                starter: Arc::clone(&starter),
                poll,
            };
            let starter = Arc::clone(&starter);
            let until = stop.clone();
            async move {
                tokio::select! {
                    () = supply.run(&starter) => {}
                    () = registration.run(until) => {}
                }
            }
        };
        let sweeps = async {
            loop {
                tokio::select! {
                    () = time::sleep(SWEEP_INTERVAL) => starter.sweep(SWEEP_INTERVAL).await,
                    () = stop.cancelled() => return,
                }
            }
        };
        let resources = async {
            tokio::join!(resource(Counted::Milli), resource(Counted::Memory), sweeps);
        };
        tokio::select! {
            () = resources => {}
            () = reader.run() => {}
        }
    }
}

/// Updates a resource's list of devices when the inventory or the facts about the node change.
struct Supply {
    pool: Pool,
    counted: Counted,
    inventory: watch::Receiver<Arc<NodeInventory>>,
    facts: watch::Receiver<Option<NodeFacts>>,
    devices: watch::Sender<Arc<Vec<Device>>>,
    wanted: watch::Sender<bool>,
}

impl Supply {
    async fn run<G: Give, S: Specs>(mut self, starter: &Starter<G, S>) {
        loop {
            let inventory = Arc::clone(&self.inventory.borrow_and_update());
            let owned = match &*self.facts.borrow_and_update() {
                Some(facts) => facts.has_other_owner(),
                None => true,
            };
            let wanted = !owned && !inventory.cards.is_empty();
            let list = if wanted {
                let faulty = inventory.cards.iter().any(|card| card.fault.is_some());
                let held = if faulty {
                    starter.held(self.counted).await
                } else {
                    HashSet::new()
                };
                self.pool.follow(&inventory, &held);
                self.pool.devices()
            } else {
                Vec::new()
            };
            self.devices.send_if_modified(|devices| {
                let changed = **devices != list;
                if changed {
                    *devices = Arc::new(list);
                }
                changed
            });
            self.wanted.send_if_modified(|now| {
                let changed = *now != wanted;
                *now = wanted;
                changed
            });
            let more = tokio::select! {
                changed = self.inventory.changed() => changed,
                changed = self.facts.changed() => changed,
            };
            if more.is_err() {
                return;
            }
        }
    }
}
