//! The device plugin for the kubelet: it offers thousandths and memory of the cards as countable
//! resources, and prepares the start of each container that requests them.

mod allocations;
mod checkpoint;
mod holders;
mod ids;
mod registration;
mod start;
#[cfg(test)]
mod tests;

use std::{collections::HashSet, path::PathBuf, sync::Arc, time::Duration};

use tautline_gpu_placement::node_inventory::NodeInventory;
use tokio::{sync::watch, time};

pub(crate) use self::start::{Give, Refusal};
use self::{
    allocations::Reader,
    ids::{Counted, Pool},
    registration::Registration,
    start::Starter,
};
use crate::{cdi::OwnSpecs, channels::set, kubelet::device_plugin::Device, metrics::Metrics};

/// The interval at which the kubelet's sockets are checked.
pub(crate) const SOCKET_POLL_INTERVAL: Duration = Duration::from_secs(1);
/// The interval at which old CDI specs are removed, and the age at which a spec is old.
const SWEEP_INTERVAL: Duration = Duration::from_secs(30);

/// The device plugin for both resources.
pub(crate) struct DevicePlugin {
    /// The kubelet's directory, usually `/var/lib/kubelet`.
    pub kubelet_dir: PathBuf,
    /// The cards to offer; without cards no resource is registered.
    pub inventory: watch::Receiver<Arc<NodeInventory>>,
    pub giver: Arc<dyn Give>,
    pub specs: OwnSpecs,
    pub metrics: Metrics,
}

impl DevicePlugin {
    /// Runs until it is dropped. The kubelet then has no allocatable devices, and forgets them
    /// after 5 minutes. `poll` is the interval at which the sockets are checked.
    pub async fn run(self, poll: Duration) {
        let starter = Arc::new(Starter {
            allocations: Reader::new(&self.kubelet_dir),
            giver: self.giver,
            specs: self.specs,
            metrics: self.metrics,
        });
        let resource = |counted| {
            let (listing, devices) = watch::channel(Arc::default());
            let registration = Registration {
                counted,
                plugins: self.kubelet_dir.join("device-plugins"),
                devices,
                starter: Arc::clone(&starter),
                poll,
            };
            let supplied = supply(counted, self.inventory.clone(), listing, &starter);
            async { tokio::join!(supplied, registration.run()) }
        };
        let sweeps = async {
            loop {
                time::sleep(SWEEP_INTERVAL).await;
                starter.sweep(SWEEP_INTERVAL).await;
            }
        };
        let (milli, memory) = (resource(Counted::Milli), resource(Counted::Memory));
        tokio::join!(milli, memory, sweeps);
    }
}

/// Updates a resource's list of devices when the inventory changes.
async fn supply(
    counted: Counted,
    mut inventory: watch::Receiver<Arc<NodeInventory>>,
    devices: watch::Sender<Arc<Vec<Device>>>,
    starter: &Starter,
) {
    let mut pool = Pool::new(counted);
    loop {
        let now = Arc::clone(&inventory.borrow_and_update());
        let faulty = now.cards.iter().any(|card| card.fault.is_some());
        let held = if faulty {
            starter.held(counted).await
        } else {
            HashSet::new()
        };
        pool.follow(&now, &held);
        set(&devices, Arc::new(pool.devices()));
        if inventory.changed().await.is_err() {
            return;
        }
    }
}
