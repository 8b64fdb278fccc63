//! Reads from a ResourceClaim which parts of the node's cards it was allocated. The functions are
//! pure.

use k8s_openapi::api::resource::v1::{DeviceRequestAllocationResult, ResourceClaim};
use tautline_core::quantity::parse_milli;
use tautline_gpu_placement::{
    device_annotation::{self, CardShare},
    node_inventory::NodeInventory,
    shape::CARD_MILLI,
};

use super::{DRIVER, MILLI, prepared::PreparedDevice, slices::find_device};
use crate::assignment::{Denial, Part};

/// The remedy for an allocation that does not hold.
const CLAIM_ANEW: &str = "delete the pod and the claim, so that another device is allocated";

/// A device of this node that a claim was allocated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Grant {
    /// The request of the claim, without its alternative.
    pub request: String,
    pub device: String,
    pub share_id: Option<String>,
    pub part: Part,
    pub share: CardShare,
    /// True for administrative access, which consumes no capacity of the card.
    pub is_admin: bool,
}

impl Grant {
    /// Returns the device as the list of prepared claims has it.
    pub fn prepared(&self) -> PreparedDevice {
        PreparedDevice {
            device: self.device.clone(),
            share_id: self.share_id.clone(),
            share: device_annotation::format(std::slice::from_ref(&self.share)),
            is_admin: self.is_admin,
        }
    }
}

/// Returns what the claim was allocated of the node's cards; devices of other drivers do not count.
pub(super) fn grants(
    claim: &ResourceClaim,
    node: &str,
    inventory: &NodeInventory,
) -> Result<Vec<Grant>, Denial> {
    let allocation = claim.status.as_ref().and_then(|s| s.allocation.as_ref());
    let results = allocation
        .and_then(|a| a.devices.as_ref()?.results.as_deref())
        .unwrap_or_default();
    let own = results
        .iter()
        .filter(|r| r.driver == DRIVER && r.pool == node);
    let grants: Vec<Grant> = own
        .map(|result| grant(result, inventory))
        .collect::<Result<_, _>>()?;
    if grants.is_empty() {
        let text = format!("status.allocation has no device of {DRIVER} on this node");
        return Err(Denial::new("NotAllocated", text, "the kubelet tries again"));
    }
    Ok(grants)
}

fn grant(
    result: &DeviceRequestAllocationResult,
    inventory: &NodeInventory,
) -> Result<Grant, Denial> {
    let name = &result.device;
    let (card, instance) = find_device(inventory, name).ok_or_else(|| {
        let text = format!(
            "status.allocation names device {name}, whose card the node does not have any more"
        );
        Denial::new("UnknownCard", text, CLAIM_ANEW)
    })?;
    if let Some(fault) = card.fault.as_ref() {
        let text = format!("card {} is unhealthy: {fault}", card.uuid);
        let mend = "repair the card, or delete the pod and the claim";
        return Err(Denial::new("FaultyCard", text, mend));
    }
    let (milli, start) = match instance {
        Some((milli, start)) => (milli, Some(start)),
        None => (consumed(result)?, None),
    };
    let mig = card.mig.as_ref();
    if mig.is_some() != start.is_some() {
        let is = if mig.is_some() { "on" } else { "off" };
        let text = format!(
            "device {name} is of a time when MIG was not {is} on card {}",
            card.uuid
        );
        return Err(Denial::new("MigChanged", text, CLAIM_ANEW));
    }
    let request = result.request.split('/').next().unwrap_or_default();
    Ok(Grant {
        request: request.to_owned(),
        device: name.clone(),
        share_id: result.share_id.clone(),
        part: (card.clone(), milli),
        share: CardShare {
            card: card.uuid.as_str().into(),
            milli,
            start,
        },
        is_admin: result.admin_access == Some(true),
    })
}

/// Returns the thousandths that the allocation consumes. An API server without consumable capacity
/// allocates whole cards and writes none.
fn consumed(result: &DeviceRequestAllocationResult) -> Result<u16, Denial> {
    let capacity = result.consumed_capacity.as_ref();
    let Some(quantity) = capacity.and_then(|c| c.get(MILLI)) else {
        return Ok(CARD_MILLI);
    };
    let units = parse_milli(&quantity.0).map(|m| m / 1000).unwrap_or(0);
    let milli = u16::try_from(units)
        .ok()
        .filter(|m| (1..=CARD_MILLI).contains(m));
    milli.ok_or_else(|| {
        let text = format!(
            "status.allocation consumes {MILLI} {} of device {}, not 1 to 1000",
            quantity.0, result.device
        );
        Denial::new("BadCapacity", text, CLAIM_ANEW)
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use tautline_gpu_placement::{
        mig::{MigLayout, MigProfile},
        node_inventory::InventoryCard,
    };

    use super::*;

    fn inventory() -> NodeInventory {
        let card = |uuid: &str, index| InventoryCard {
            uuid: uuid.to_owned(),
            index,
            ..InventoryCard::default()
        };
        let profile = MigProfile {
            name: "1g.10gb".to_owned(),
            milli: 125,
            size: 1,
            compute: 1,
            starts: vec![0, 1],
        };
        let divided = InventoryCard {
            mig: Some(MigLayout {
                profiles: vec![profile],
                taken: Vec::new(),
            }),
            ..card("GPU-M", 2)
        };
        let broken = InventoryCard {
            fault: Some("Xid79".to_owned()),
            ..card("GPU-F", 3)
        };
        NodeInventory {
            cards: vec![card("GPU-A", 0), card("GPU-B", 1), divided, broken],
            ..NodeInventory::default()
        }
    }

    fn read(results: Value) -> Result<Vec<Grant>, String> {
        let claim = json!({"metadata": {"name": "c"}, "spec": {},
            "status": {"allocation": {"devices": {"results": results}}}});
        let claim = serde_json::from_value(claim).unwrap();
        grants(&claim, "n1", &inventory()).map_err(|d| format!("{}: {d}", d.code))
    }

    fn result(device: &str, more: Value) -> Value {
        let mut all =
            json!({"driver": DRIVER, "pool": "n1", "device": device, "request": "gpu/l4"});
        let fields = more.as_object().unwrap().clone();
        all.as_object_mut().unwrap().extend(fields);
        all
    }

    #[test]
    fn grants_are_the_devices_of_this_node() {
        let other =
            json!({"driver": "net.example.com", "pool": "n1", "device": "d", "request": "r"});
        let away = result("gpu-a", json!({"pool": "n2"}));
        let quarter = result(
            "gpu-b",
            json!({"consumedCapacity": {"milli": "250"}, "shareID": "s1"}),
        );
        let whole = result("gpu-a", json!({"consumedCapacity": {"milli": "1k"}}));
        let instance = result("gpu-m-mig-1-125", json!({"adminAccess": true}));
        let got = read(json!([other, away, quarter, whole, instance])).unwrap();
        let shown: Vec<_> = got
            .iter()
            .map(|g| (&*g.share.card, g.share.milli, g.share.start, g.is_admin))
            .collect();
        assert_eq!(
            shown,
            [
                ("GPU-B", 250, None, false),
                ("GPU-A", 1000, None, false),
                ("GPU-M", 125, Some(1), true)
            ]
        );
        assert_eq!(
            (&*got[0].request, got[0].share_id.as_deref()),
            ("gpu", Some("s1"))
        );
        // Without consumable capacity the card is given whole.
        assert_eq!(
            read(json!([result("gpu-a", json!({}))])).unwrap()[0]
                .share
                .milli,
            1000
        );
    }

    #[test]
    fn allocations_that_do_not_hold_say_why() {
        let refused = |results| read(results).unwrap_err();
        assert!(refused(json!([])).starts_with("NotAllocated: status.allocation has no device"));
        let gone = refused(json!([result("gpu-x", json!({}))]));
        assert_eq!(
            gone,
            "UnknownCard: status.allocation names device gpu-x, whose card the node does not have \
             any more"
        );
        assert!(refused(json!([result("gpu-f", json!({}))])).contains("unhealthy: Xid79"));
        assert!(refused(json!([result("gpu-m", json!({}))])).starts_with("MigChanged"));
        assert!(refused(json!([result("gpu-a-mig-0-125", json!({}))])).starts_with("MigChanged"));
        for milli in ["0", "1001", "x"] {
            let bad = result("gpu-a", json!({"consumedCapacity": {"milli": milli}}));
            assert!(refused(json!([bad])).starts_with("BadCapacity"), "{milli}");
        }
    }
}
