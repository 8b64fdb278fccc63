//! Checks how the GPU agents deliver cards: by devices of DRA, or by a device plugin.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::{
    core::v1::Node,
    resource::v1::{Device, DeviceClass, ResourceSlice},
};
use kube::ResourceExt;
pub(in crate::doctor) use tautline_gpu_placement::dra::AGENT_DRIVER as DRIVER;

use crate::doctor::{
    cluster::State,
    finding::{Fault, Finding, counted, first_of, passed, problem},
    workload::{Role::GpuAgent, Workload},
};

/// The extended resource of the class: a whole card.
const CARD: &str = "tautline.io/gpu";
/// The first minor version of Kubernetes 1 that shares devices between claims by default.
const SHARES_DEVICES: u32 = 36;
/// The prefixes of the resources by which a device plugin offers cards.
const PLUGIN_RESOURCES: [&str; 3] = ["tautline.io/gpu-", "nvidia.com/gpu", "nvidia.com/mig-"];
/// The maximum number of nodes that one finding names.
const MAX_NODES: usize = 5;

/// Says which delivery is in force, and checks that the cluster can share cards by it.
pub(super) fn delivery(state: &State<'_>, out: &mut Vec<Finding>) -> Option<Finding> {
    let agents = state.of(GpuAgent).next()?;
    let kubernetes = &state.cluster.kubernetes;
    if !is_dra(agents) {
        let text = format!(
            "a device plugin delivers cards, without --delivery=dra ({kubernetes}): pods ask for \
             tautline.io/gpu-milli or tautline.io/gpu-memory"
        );
        return Some(passed("GpuDelivery", agents.object(), text));
    }
    let effect = "cards are given whole only, and not in parts";
    let fault = match (undivided(state), minor(kubernetes)) {
        (Some((slice, device)), _) => Some((
            format!("ResourceSlice {slice}"),
            format!(
                "spec.devices[{device}].allowMultipleAllocations was dropped by the API server: \
                 {effect}"
            ),
        )),
        (None, Some(minor)) if minor < SHARES_DEVICES && !is_offered(state) => Some((
            agents.object(),
            format!(
                "has --delivery=dra, and {kubernetes} is older than 1.{SHARES_DEVICES}: {effect}"
            ),
        )),
        _ => None,
    };
    if let Some((object, text)) = fault {
        let fix = "set gpu.delivery of the chart to device-plugin or auto, or turn on the feature \
                   gates DRAConsumableCapacity and DRAExtendedResource of the control plane and the \
                   kubelets";
        out.push(problem("GpuCardsWhole", object, text, fix));
    }
    let text = format!(
        "DRA delivers cards, by --delivery=dra ({kubernetes}): pods ask for {CARD}, or have claims \
         of the class {DRIVER}"
    );
    Some(passed("GpuDelivery", agents.object(), text))
}

/// Checks that the cards of each node are offered, in one way only.
pub(super) fn cards(state: &State<'_>, out: &mut Vec<Finding>) -> Option<Finding> {
    let agents = state.of(GpuAgent).next()?;
    let cluster = state.cluster;
    let (nodes, slices) = (cluster.nodes.as_ref()?, cluster.resource_slices.as_ref()?);
    let own = slices.iter().filter(|s| is_own(s));
    let sliced: BTreeSet<&str> = own.filter_map(|s| s.spec.node_name.as_deref()).collect();
    let is_sliced = |node: &&Node| sliced.contains(node.name_any().as_str());
    if is_dra(agents) {
        if let Some((check, text)) = cluster.device_classes.as_deref().and_then(class_fault) {
            let object = format!("DeviceClass {DRIVER}");
            let fix = format!(
                "{}; an API server before 1.{SHARES_DEVICES} drops the field unless its feature \
                 gate DRAExtendedResource is on",
                state.reapply()
            );
            out.push(problem(check, object, text, fix));
        }
        let pods = agents.pods(cluster.pods.as_deref().unwrap_or_default());
        let specs = pods.filter_map(|p| p.spec.as_ref());
        let hosts: BTreeSet<&str> = specs.filter_map(|s| s.node_name.as_deref()).collect();
        let with_cards = nodes.iter().filter(|n| {
            hosts.contains(n.name_any().as_str()) && has_cards(n) && plugin_resource(n).is_none()
        });
        let without = with_cards.filter(|n| !is_sliced(n));
        let without: Vec<String> = without.map(ResourceExt::name_any).collect();
        if !without.is_empty() {
            let text = format!(
                "no ResourceSlice of {DRIVER} names {} with cards (label nvidia.com/gpu.count) in \
                 spec.nodeName: {}; pods do not get these cards",
                counted(without.len(), "node"),
                first_of(&without, MAX_NODES)
            );
            let fix = format!("{}; its ClusterRole and policies", state.logs(agents));
            out.push(problem("GpuSlicesMissing", agents.object(), text, fix));
        }
    }
    for (resource, twice) in twice(nodes.iter().filter(is_sliced)) {
        let (effect, fix) = if resource.starts_with("nvidia.com/") {
            (
                "a card could be given twice",
                "take NVIDIA's device plugin off these nodes, and wait until the kubelet forgets it \
                 (5 minutes)"
                    .to_owned(),
            )
        } else {
            (
                "the agents give no card twice, so a pod waits for one that another pod holds",
                format!(
                    "give all agents one gpu.delivery, and delete the slices or the agents of the \
                     other one: kubectl get resourceslices; kubectl -n {} get pods -o wide",
                    cluster.namespace
                ),
            )
        };
        let text = format!(
            "have ResourceSlices of {DRIVER}, and status.allocatable {resource} above 0: {}; {effect}",
            first_of(&twice, MAX_NODES)
        );
        let object = counted(twice.len(), "node");
        out.push(problem("GpuCardsTwice", object, text, fix));
    }
    let text = "their cards are offered, in one way only";
    Some(passed(
        "GpuCardsOffered",
        counted(sliced.len(), "node"),
        text,
    ))
}

/// Returns whether the agents deliver cards by DRA.
pub(in crate::doctor) fn is_dra(agents: &Workload<'_>) -> bool {
    agents.flag("--delivery") == Some("dra")
}

fn is_own(slice: &ResourceSlice) -> bool {
    slice.spec.driver == DRIVER
}

/// Returns the devices of the agents, each with its slice.
fn devices<'s>(state: &'s State<'_>) -> impl Iterator<Item = (&'s ResourceSlice, &'s Device)> {
    let slices = state.cluster.resource_slices.iter().flatten();
    let devices = |slice: &'s ResourceSlice| slice.spec.devices.iter().flatten();
    slices
        .filter(|s| is_own(s))
        .flat_map(move |s| devices(s).map(move |d| (s, d)))
}

fn is_offered(state: &State<'_>) -> bool {
    devices(state).next().is_some()
}

/// Finds a card that the API server made indivisible: it has thousandths, and one owner.
fn undivided<'s>(state: &'s State<'_>) -> Option<(String, &'s str)> {
    let has_parts = |d: &Device| d.capacity.iter().flatten().any(|(name, _)| name == "milli");
    let (slice, device) =
        devices(state).find(|(_, d)| has_parts(d) && d.allow_multiple_allocations != Some(true))?;
    Some((slice.name_any(), &device.name))
}

fn class_fault(classes: &[DeviceClass]) -> Option<Fault> {
    let Some(class) = classes.iter().find(|c| c.name_any() == DRIVER) else {
        let text = "does not exist: claims of cards stay without an allocation";
        return Some(("DeviceClassMissing", text.to_owned()));
    };
    let is = match class.spec.extended_resource_name.as_deref() {
        Some(CARD) => return None,
        Some(other) => format!("is {other}, not {CARD}"),
        None => format!("is missing, not {CARD}"),
    };
    let text = format!("spec.extendedResourceName {is}: pods that ask for {CARD} stay Pending");
    Some(("DeviceClassUnnamed", text))
}

/// Returns whether an agent or NVIDIA's feature discovery found cards.
fn has_cards(node: &Node) -> bool {
    let count = node.labels().get("nvidia.com/gpu.count");
    count.is_some_and(|c| c.parse::<u32>().is_ok_and(|c| c > 0))
}

/// Returns a resource by which a device plugin offers cards of the node.
fn plugin_resource(node: &Node) -> Option<&str> {
    let status = node.status.as_ref()?;
    let mut offered = status.allocatable.iter().flatten();
    let (resource, _) = offered.find(|(resource, quantity)| {
        PLUGIN_RESOURCES.iter().any(|p| resource.starts_with(p)) && quantity.0 != "0"
    })?;
    Some(resource)
}

/// Returns the nodes that a device plugin offers too, by its resource.
fn twice<'n>(nodes: impl Iterator<Item = &'n Node>) -> BTreeMap<&'n str, Vec<String>> {
    let mut twice = BTreeMap::<&str, Vec<String>>::new();
    for node in nodes {
        if let Some(resource) = plugin_resource(node) {
            twice.entry(resource).or_default().push(node.name_any());
        }
    }
    twice
}

/// Returns the minor version of a version as the API server writes it, such as `v1.36.3-gke.1`.
fn minor(version: &str) -> Option<u32> {
    version.strip_prefix("v1.")?.split('.').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn minor_is_read_from_versions_of_providers() {
        assert_eq!(minor("v1.36.3"), Some(36));
        assert_eq!(minor("v1.35.4-gke.1828000"), Some(35));
        assert_eq!(minor(""), None);
        assert_eq!(minor("v2.0.0"), None);
    }
}
