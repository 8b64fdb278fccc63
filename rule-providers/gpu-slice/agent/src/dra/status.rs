//! Writes to the status of prepared claims what their devices are, and how much of them is used.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};
use tautline_gpu_placement::node_inventory::{InventoryCard, NodeInventory};
use tautline_proto::gpu::Use;
use tautline_runtime::api_call::within;
use tokio::{sync::watch, time};

use super::{DRIVER, PreparedClaim, PreparedClaims};
use crate::{
    assignment::find_card,
    limits::{Mode, memory_mib},
    node::MANAGER,
    pods::{PodEntry, Pods},
    usage::Measured,
};

/// The interval at which new claims get a status.
const NEW_CLAIMS_INTERVAL: Duration = Duration::from_secs(2);
/// The number of these intervals between two looks at the use, which make a minute.
const INTERVALS_PER_USE: u32 = 30;
/// The step of the used memory, in MiB, so that a claim's status does not change with each process.
const USED_STEP_MIB: u64 = 256;
/// The longest time that a write may take.
const DEADLINE: Duration = Duration::from_secs(10);

/// Writes the statuses.
pub(crate) struct StatusWriter {
    pub client: Client,
    pub node: String,
    pub claims: Arc<PreparedClaims>,
    pub pods: Arc<Pods>,
    pub inventory: watch::Receiver<Arc<NodeInventory>>,
    pub mode: watch::Receiver<Mode>,
    pub uses: watch::Receiver<Option<Measured>>,
}

impl StatusWriter {
    /// Runs until it is dropped. A status is written when the claim is new, and once a minute if
    /// its use has changed.
    pub async fn run(self) {
        let mut written: BTreeMap<String, Value> = BTreeMap::new();
        for round in 0_u32.. {
            time::sleep(NEW_CLAIMS_INTERVAL).await;
            let claims = self.claims.all();
            written.retain(|uid, _| claims.iter().any(|(known, _)| known == uid));
            let all = round % INTERVALS_PER_USE == 0;
            for (uid, claim) in claims {
                if !all && written.contains_key(&uid) {
                    continue;
                }
                let status = self.status(&claim);
                if written.get(&uid) == Some(&status) {
                    continue;
                }
                let object = json!({
                    "apiVersion": "resource.k8s.io/v1",
                    "kind": "ResourceClaim",
                    "metadata": {"name": claim.name, "namespace": claim.namespace, "uid": uid},
                    "status": {"devices": status},
                });
                let api: Api<ResourceClaim> =
                    Api::namespaced(self.client.clone(), &claim.namespace);
                let params = PatchParams::apply(MANAGER).force();
                let patch = Patch::Apply(object);
                let patched = api.patch_status(&claim.name, &params, &patch);
                let last = match within(DEADLINE, patched).await {
                    Ok(_) => status,
                    Err(error) => {
                        let claim = format!("{}/{}", claim.namespace, claim.name);
                        tracing::info!(claim, %error, "the status of a claim is not written");
                        // The write is repeated in the next minute.
                        Value::Null
                    }
                };
                written.insert(uid, last);
            }
        }
    }

    fn status(&self, claim: &PreparedClaim) -> Value {
        let pods = self.pods.all();
        let is_of = |pod: &&Arc<PodEntry>| {
            *pod.namespace == *claim.namespace && pod.claims.iter().any(|name| **name == claim.name)
        };
        let pods: Vec<&str> = pods.iter().filter(is_of).map(|pod| &*pod.api_uid).collect();
        let uses = self.uses.borrow().clone();
        let used = uses.as_ref().map(|measured| &*measured.used);
        let inventory = Arc::clone(&self.inventory.borrow());
        let mode = *self.mode.borrow();
        devices(&self.node, claim, &pods, &inventory, mode, used)
    }
}

/// Returns `status.devices` of a claim whose pods have these UIDs.
fn devices(
    node: &str,
    claim: &PreparedClaim,
    pods: &[&str],
    inventory: &NodeInventory,
    mode: Mode,
    used: Option<&Use>,
) -> Value {
    let entries = claim.devices.iter().map(|device| {
        let share = device.share();
        let card: Option<&InventoryCard> = share
            .as_ref()
            .and_then(|share| find_card(inventory, &share.card));
        let milli = share.as_ref().map_or(0, |share| share.milli);
        let uuid = share.as_ref().map_or("", |share| &*share.card);
        let on_card = used.iter().flat_map(|used| &used.containers);
        let bytes: u64 = on_card
            .filter(|c| pods.contains(&c.pod_uid.as_str()) && c.card == uuid)
            .map(|c| c.memory_bytes)
            .sum();
        let mut data = json!({
            "card": uuid,
            "milli": milli,
            "limits": mode.to_string(),
            "memoryMiB": card.and_then(|card| memory_mib(card.memory_bytes, milli)),
        });
        if used.is_some() {
            data["usedMiB"] = (bytes >> 20).next_multiple_of(USED_STEP_MIB).into();
        }
        let mut entry = json!({"driver": DRIVER, "pool": node, "device": device.device,
            "data": data});
        if let Some(share_id) = &device.share_id {
            entry["shareID"] = share_id.as_str().into();
        }
        entry
    });
    entries.collect()
}

#[cfg(test)]
mod tests {
    use tautline_proto::gpu::ContainerUse;

    use super::*;
    use crate::dra::prepared::PreparedDevice;

    #[test]
    fn status_has_card_limits_and_use_of_the_claims_pods() {
        let claim = PreparedClaim {
            devices: vec![PreparedDevice {
                device: "gpu-a".to_owned(),
                share_id: Some("s1".to_owned()),
                share: "GPU-A:250".to_owned(),
                is_admin: false,
            }],
            ..PreparedClaim::default()
        };
        let inventory = NodeInventory {
            cards: vec![InventoryCard {
                uuid: "GPU-A".to_owned(),
                memory_bytes: 80 << 30,
                ..InventoryCard::default()
            }],
            ..NodeInventory::default()
        };
        let container = |pod: &str, card: &str, mib: u64| ContainerUse {
            pod_uid: pod.to_owned(),
            card: card.to_owned(),
            memory_bytes: mib << 20,
            ..ContainerUse::default()
        };
        let used = Use {
            containers: vec![
                container("p1", "GPU-A", 300),
                container("p1", "GPU-B", 9000),
                container("p2", "GPU-A", 9000),
            ],
            ..Use::default()
        };
        let entry = |data: Value| {
            json!([{"driver": DRIVER, "pool": "n1", "device": "gpu-a", "shareID": "s1",
                "data": data}])
        };
        let known = json!({"card": "GPU-A", "milli": 250, "limits": "mps", "memoryMiB": 20480});
        let status = |used| devices("n1", &claim, &["p1"], &inventory, Mode::Mps, used);
        assert_eq!(status(None), entry(known.clone()));
        let mut with_use = known;
        with_use["usedMiB"] = 512.into();
        assert_eq!(status(Some(&used)), entry(with_use));
    }
}
