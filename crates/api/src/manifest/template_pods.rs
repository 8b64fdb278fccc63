//! Adds the pods of workloads to the objects of manifests.

use std::collections::{HashMap, HashSet};

use k8s_openapi::api::core::v1::{Affinity, Pod, PodSpec, Toleration};
use tautline_core::{
    index::{Index, Snapshot},
    node_filter::{NodeFilter, UnschedulableReason},
};

use super::{Item, Workload, workload::namespace_of};
use crate::{
    Metadata,
    convert::{self, Indexed},
};

/// The maximum number of pods that one workload's templates add.
pub const MAX_TEMPLATE_PODS: usize = 100;

/// Adds the pods of each workload that has no pods among `objects`, after the workload. There are
/// as many as its replicas, up to [`MAX_TEMPLATE_PODS`]; a DaemonSet has a pod on each node of
/// `objects` that admits it.
pub fn add_template_pods<W: Copy>(objects: Vec<(W, Item)>) -> Vec<(W, Item)> {
    let missing = without_pods(&objects);
    if !missing.contains(&true) {
        return objects;
    }
    let pods = objects.iter().filter_map(|(_, object)| pod_of(object));
    let mut names: HashSet<(String, String)> = pods
        .map(|pod| {
            let name = pod.name.clone().unwrap_or_default();
            (namespace_of(pod).to_owned(), name)
        })
        .collect();
    let nodes = Nodes::of(&objects);
    let mut all = Vec::with_capacity(objects.len());
    for ((place, object), missing) in objects.into_iter().zip(missing) {
        let new: Vec<Pod> = match &object {
            Item::Workload(w) if missing && w.is_per_node() => nodes.pods(w),
            Item::Workload(w) if missing => {
                let count = w.replicas().min(MAX_TEMPLATE_PODS);
                (0..count).map(|number| w.pod(number)).collect()
            }
            _ => Vec::new(),
        };
        let new: Vec<Pod> = match &object {
            Item::Workload(w) => {
                let numbered = new.into_iter().enumerate();
                let apart = numbered.map(|(i, pod)| named_apart(w, i, pod, &mut names));
                apart.collect()
            }
            _ => new,
        };
        all.push((place, object));
        all.extend(new.into_iter().map(|pod| (place, Item::Pod(Box::new(pod)))));
    }
    all
}

/// Returns for each object whether it is a workload that runs and has no pods.
fn without_pods<W>(objects: &[(W, Item)]) -> Vec<bool> {
    let mut pods = HashMap::<&str, Vec<&Metadata>>::new();
    for pod in objects.iter().filter_map(|(_, object)| pod_of(object)) {
        pods.entry(namespace_of(pod)).or_default().push(pod);
    }
    let missing = |(_, object): &(W, Item)| {
        let Item::Workload(w) = object else {
            return false;
        };
        let mut known = pods.get(w.namespace()).into_iter().flatten();
        w.runs() && !known.any(|pod| w.owns(pod))
    };
    objects.iter().map(missing).collect()
}

fn pod_of(object: &Item) -> Option<&Metadata> {
    match object {
        Item::Pod(pod) => Some(&pod.metadata),
        _ => None,
    }
}

/// Returns a workload's pod with a name that is not in `names`, because two workloads may have one
/// name.
fn named_apart(
    workload: &Workload,
    number: usize,
    mut pod: Pod,
    names: &mut HashSet<(String, String)>,
) -> Pod {
    let namespace = workload.namespace().to_owned();
    let name = pod.metadata.name.clone().unwrap_or_default();
    if !names.insert((namespace.clone(), name)) {
        let kind = workload.kind().to_lowercase();
        let name = format!("{}-{kind}-{number}", workload.name());
        names.insert((namespace, name.clone()));
        pod.metadata.name = Some(name);
    }
    pod
}

/// The nodes of the manifests, empty.
struct Nodes(Snapshot);

impl Nodes {
    fn of<W>(objects: &[(W, Item)]) -> Self {
        let has_daemons = |(_, object): &(W, Item)| matches!(object, Item::Workload(workload) if workload.is_per_node());
        let mut index = Index::default();
        if objects.iter().any(has_daemons) {
            let nodes = objects.iter().filter_map(|(_, object)| match object {
                Item::Node(node) => node.object().ok(),
                _ => None,
            });
            nodes.for_each(|node| _ = index.apply(node));
        }
        Self(index.snapshot())
    }

    /// Returns a DaemonSet's pods. Its controller makes one for each node whose labels and taints
    /// admit it; they take their room before other pods are placed.
    fn pods(&self, workload: &Workload) -> Vec<Pod> {
        let mut pod = workload.pod(0);
        let spec = pod.spec.get_or_insert_default();
        tolerate_node_conditions(spec);
        let constraints = convert::pod(&Pod {
            metadata: Metadata::default(),
            spec: Some(node_constraints(spec)),
            status: None,
        });
        let filter = NodeFilter::new(&self.0, &constraints);
        let admits = |reason: Option<UnschedulableReason>| {
            matches!(reason, None | Some(UnschedulableReason::Insufficient(_)))
        };
        let nodes = self.0.nodes().filter(|n| admits(filter.reason(n)));
        let mut nodes: Vec<String> = nodes.map(|n| n.name.to_string()).collect();
        nodes.sort();
        let on_node = |node: String| {
            let mut pod = pod.clone();
            pod.metadata.name = Some(format!("{}-{node}", workload.name()));
            pod.spec.get_or_insert_default().node_name = Some(node);
            pod
        };
        nodes.into_iter().map(on_node).collect()
    }
}

/// Returns the fields by which a DaemonSet's controller chooses nodes.
fn node_constraints(spec: &PodSpec) -> PodSpec {
    let affinity = spec.affinity.as_ref();
    PodSpec {
        node_selector: spec.node_selector.clone(),
        tolerations: spec.tolerations.clone(),
        affinity: affinity.map(|a| Affinity {
            node_affinity: a.node_affinity.clone(),
            ..Affinity::default()
        }),
        ..PodSpec::default()
    }
}

/// Adds the tolerations that a DaemonSet's controller gives its pods.
fn tolerate_node_conditions(spec: &mut PodSpec) {
    let of_network = spec.host_network.unwrap_or(false);
    let keys = [
        ("not-ready", "NoExecute"),
        ("unreachable", "NoExecute"),
        ("disk-pressure", "NoSchedule"),
        ("memory-pressure", "NoSchedule"),
        ("pid-pressure", "NoSchedule"),
        ("unschedulable", "NoSchedule"),
        ("network-unavailable", "NoSchedule"),
    ];
    let keys = keys
        .into_iter()
        .filter(|(key, _)| of_network || *key != "network-unavailable");
    let tolerations = spec.tolerations.get_or_insert_default();
    tolerations.extend(keys.map(|(key, effect)| Toleration {
        key: Some(format!("node.kubernetes.io/{key}")),
        operator: Some("Exists".to_owned()),
        effect: Some(effect.to_owned()),
        ..Toleration::default()
    }));
}
