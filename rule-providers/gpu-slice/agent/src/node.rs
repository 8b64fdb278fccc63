//! Writes the cards to the agent's own Node object, and reads the node's settings from it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use k8s_openapi::api::core::v1::{Node, ObjectReference};
use kube::{
    Api, Client, ResourceExt,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};
use tautline_gpu_placement::node_inventory::INVENTORY_ANNOTATION;
use tautline_runtime::{
    admin::Readiness,
    api_call::within,
    events::{EventNote, Events},
    single_watch::watch_single,
};
use tokio::{sync::watch, time};
use tokio_util::sync::CancellationToken;

use crate::{
    channels::set,
    metrics::Metrics,
    pods::{Pods, has_nvidia_cards},
};

/// The field manager of the agent's writes, in `managedFields`.
pub(crate) const MANAGER: &str = "tautline-gpu-agent";
const LIMITS_LABEL: &str = "tautline.io/gpu-limits";
/// The label that GPU feature discovery sets.
const GFD_LABEL: &str = "nvidia.com/gfd.timestamp";
const DEADLINE: Duration = Duration::from_secs(10);
/// The shortest and the longest wait between two writes. The shortest avoids a race with another
/// writer; failures double the wait up to the longest.
const WRITE_WAITS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));
const EVENT_QUIET: Duration = Duration::from_secs(3600);
const OWNED_BY_PLUGIN: &str = "the node or a pod on it has cards of nvidia.com, so NVIDIA's device \
    plugin owns the cards and the agent gives out none; take that plugin and such pods off the node \
    (the kubelet forgets the plugin after 5 minutes), or the agent";

/// The labels and the inventory that the agent has to write; empty without cards.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NodeEntries {
    /// The labels that GPU feature discovery would set.
    pub labels: BTreeMap<String, String>,
    /// The inventory as JSON.
    pub inventory: Option<String>,
}

/// The facts about the node that the agent needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NodeFacts {
    /// The UID of the Node object.
    pub uid: String,
    /// The value of the label `tautline.io/gpu-limits`.
    pub limits: Option<String>,
    /// True if NVIDIA's device plugin offers cards on the node, and so owns all of them, or if a pod
    /// requests cards of that plugin. A tenant may create such a pod even on a node without it.
    pub other_owner: bool,
}

/// The parts of the Node object that the agent needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Seen {
    labels: BTreeMap<String, String>,
    inventory: Option<String>,
    /// The keys of the labels that the agent owns.
    own_labels: BTreeSet<String>,
    owns_inventory: bool,
    facts: NodeFacts,
}

/// The agent's node.
pub(crate) struct OwnNode {
    pub client: Client,
    pub name: String,
    /// The labels and the inventory to write; while they are `None`, not known yet, nothing is
    /// written.
    pub entries: watch::Receiver<Option<Arc<NodeEntries>>>,
    pub facts: watch::Sender<Option<NodeFacts>>,
    pub pods: Arc<Pods>,
    pub events: Arc<Events>,
    pub metrics: Metrics,
    /// The readiness whose condition `node` is met once the node is read.
    pub readiness: Readiness,
}

impl OwnNode {
    /// Reads and writes the node until it is dropped; the watch ends at `stop` at the latest.
    pub async fn run(self, stop: CancellationToken) {
        let (seen, _) = watch::channel(None);
        let api: Api<Node> = Api::all(self.client.clone());
        let watched = watch_single(api.clone(), &self.name, stop, |node| {
            set(&seen, node.as_ref().map(read));
        });
        tokio::join!(watched, self.follow(api, &seen));
    }

    async fn follow(&self, api: Api<Node>, seeing: &watch::Sender<Option<Seen>>) {
        let mut seen = seeing.subscribe();
        let mut entries = self.entries.clone();
        let mut pods = self.pods.changes();
        let mut wait = WRITE_WAITS.0;
        loop {
            let node = seen.borrow_and_update().clone();
            let wanted = entries.borrow_and_update().clone();
            pods.mark_unchanged();
            if let Some(node) = &node {
                self.tell(node);
            }
            let patch = node.zip(wanted);
            if let Some(patch) = patch.and_then(|(node, w)| plan(&self.name, &node, &w)) {
                let params = PatchParams::apply(MANAGER).force();
                let patch = Patch::Apply(patch);
                let written = api.patch(&self.name, &params, &patch);
                wait = match within(DEADLINE, written).await {
                    Ok(node) => {
                        set(seeing, Some(read(&node)));
                        WRITE_WAITS.0
                    }
                    Err(error) => {
                        tracing::warn!(node = self.name, %error, "the node's cards are not written");
                        self.metrics.node_failures.inc();
                        (wait * 2).min(WRITE_WAITS.1)
                    }
                };
                // After the wait the node is compared again, even if it has not changed.
                time::sleep(wait).await;
                continue;
            }
            let more = tokio::select! {
                changed = seen.changed() => changed,
                changed = entries.changed() => changed,
                changed = pods.changed() => changed,
            };
            if more.is_err() {
                return;
            }
        }
    }

    /// Publishes the facts about the node, once the pods are known too.
    fn tell(&self, node: &Seen) {
        let Some(pods_ask) = self.pods.ask_nvidia() else {
            return;
        };
        let mut now = node.facts.clone();
        now.other_owner |= pods_ask;
        let owned = now.other_owner;
        let turned = set(&self.facts, Some(now));
        self.readiness.done("node");
        if !turned || !owned {
            return;
        }
        tracing::warn!(
            node = self.name,
            "NVIDIA's device plugin owns the cards: the agent gives out none"
        );
        let regarding = ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Node".to_owned()),
            name: Some(self.name.clone()),
            uid: Some(node.facts.uid.clone()),
            ..ObjectReference::default()
        };
        self.events
            .publish_once(MANAGER.to_owned(), EVENT_QUIET, || {
                Some(EventNote {
                    regarding,
                    secondary: None,
                    warning: true,
                    reason: "GpuOwnedByNvidiaPlugin".to_owned(),
                    action: "Withdraw",
                    text: OWNED_BY_PLUGIN.to_owned(),
                })
            });
    }
}

fn read(node: &Node) -> Seen {
    let own = own_fields(node);
    let names = |of: &str| {
        let fields = own.get(of).and_then(Value::as_object).into_iter().flatten();
        fields.filter_map(|(key, _)| key.strip_prefix("f:").map(str::to_owned))
    };
    // Unlike allocatable, the capacity does not drop to 0 while the plugin restarts.
    let capacity = node.status.as_ref().and_then(|s| s.capacity.as_ref());
    let ours = |key: &str| key.starts_with("nvidia.com/") || key.starts_with("tautline.io/");
    let labels = node.labels().iter().filter(|(key, _)| ours(key));
    Seen {
        labels: labels.map(|(k, v)| (k.clone(), v.clone())).collect(),
        inventory: node.annotations().get(INVENTORY_ANNOTATION).cloned(),
        own_labels: names("f:labels").collect(),
        owns_inventory: names("f:annotations").any(|name| name == INVENTORY_ANNOTATION),
        facts: NodeFacts {
            uid: node.uid().unwrap_or_default(),
            limits: node.labels().get(LIMITS_LABEL).cloned(),
            other_owner: capacity.is_some_and(has_nvidia_cards),
        },
    }
}

/// Returns the `f:labels` and `f:annotations` that the agent applied.
fn own_fields(node: &Node) -> Value {
    let managers = node.managed_fields().iter();
    let mut own = managers.filter(|entry| {
        entry.manager.as_deref() == Some(MANAGER) && entry.operation.as_deref() == Some("Apply")
    });
    let fields = own.find_map(|entry| entry.fields_v1.as_ref());
    let metadata = fields.and_then(|fields| fields.0.get("f:metadata"));
    metadata.cloned().unwrap_or_default()
}

/// Returns the patch that the node needs; `None` if it is up to date. The API server removes the
/// agent's own labels and annotations that the patch leaves out. A label that another manager has
/// set is not changed.
fn plan(name: &str, node: &Seen, wanted: &NodeEntries) -> Option<Value> {
    let discovered = node.labels.contains_key(GFD_LABEL);
    let mut labels = wanted.labels.clone();
    labels.retain(|key, value| {
        let free = |now| now == value || node.own_labels.contains(key);
        !discovered && node.labels.get(key).is_none_or(free)
    });
    let has_labels = labels
        .iter()
        .all(|(key, value)| node.own_labels.contains(key) && node.labels.get(key) == Some(value))
        && node.own_labels.iter().all(|key| labels.contains_key(key));
    let has_inventory = match &wanted.inventory {
        Some(_) => node.owns_inventory && node.inventory == wanted.inventory,
        None => !node.owns_inventory,
    };
    if has_labels && has_inventory {
        return None;
    }
    let annotations = wanted.inventory.iter();
    let annotations: BTreeMap<_, _> = annotations.map(|i| (INVENTORY_ANNOTATION, i)).collect();
    Some(json!({
        "apiVersion": "v1",
        "kind": "Node",
        // The UID prevents a write to another node with the same name.
        "metadata": {
            "name": name, "uid": node.facts.uid, "labels": labels, "annotations": annotations
        },
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pods::PodEntry;

    fn wanted() -> NodeEntries {
        NodeEntries {
            labels: [
                ("nvidia.com/gpu.count", "8"),
                ("nvidia.com/gpu.product", "NVIDIA-H200"),
            ]
            .map(|(k, v)| (k.to_owned(), v.to_owned()))
            .into(),
            inventory: Some("{}".to_owned()),
        }
    }

    /// A node as the API server has it after the agent's patch, and with `others`' labels.
    fn node(own: Option<&Value>, others: &[(&str, &str)]) -> Node {
        let mut node = json!({
            "metadata": {"name": "n1", "uid": "u", "labels": {}, "annotations": {}},
            "status": {
                "capacity": {"cpu": "8", "nvidia.com/gpu": "0"},
                "allocatable": {"cpu": "8", "nvidia.com/gpu": "0"},
            },
        });
        for (key, value) in others {
            node["metadata"]["labels"][key] = (*value).into();
        }
        if let Some(patch) = own {
            let mut fields = json!({});
            for part in ["labels", "annotations"] {
                for (key, value) in patch["metadata"][part].as_object().unwrap() {
                    node["metadata"][part][key] = value.clone();
                    fields[format!("f:{part}")][format!("f:{key}")] = json!({});
                }
            }
            node["metadata"]["managedFields"] = json!([
                {"manager": "kubelet", "operation": "Update", "fieldsV1": {"f:metadata": {}}},
                {"manager": MANAGER, "operation": "Apply", "fieldsV1": {"f:metadata": fields}},
            ]);
        }
        serde_json::from_value(node).unwrap()
    }

    fn patch_of(node: &Node, wanted: &NodeEntries) -> Option<Value> {
        plan("n1", &read(node), wanted)
    }

    #[test]
    fn patch_has_all_once() {
        let patch = patch_of(&node(None, &[]), &wanted()).unwrap();
        assert_eq!(patch["metadata"]["uid"], "u");
        assert_eq!(patch["metadata"]["labels"], json!(wanted().labels));
        assert_eq!(
            patch["metadata"]["annotations"],
            json!({INVENTORY_ANNOTATION: "{}"})
        );
        assert_eq!(patch_of(&node(Some(&patch), &[]), &wanted()), None);
    }

    #[test]
    fn what_somebody_removed_or_changed_is_written_again() {
        let patch = patch_of(&node(None, &[]), &wanted()).unwrap();
        let mut less = node(Some(&patch), &[]);
        less.labels_mut().remove("nvidia.com/gpu.count");
        assert!(patch_of(&less, &wanted()).is_some());
        let mut changed = node(Some(&patch), &[]);
        changed.annotations_mut().clear();
        assert!(patch_of(&changed, &wanted()).is_some());
    }

    #[test]
    fn labels_of_others_stay() {
        let other = node(None, &[("nvidia.com/gpu.product", "Mine")]);
        let patch = patch_of(&other, &wanted()).unwrap();
        assert_eq!(
            patch["metadata"]["labels"],
            json!({"nvidia.com/gpu.count": "8"})
        );
        let after = node(Some(&patch), &[("nvidia.com/gpu.product", "Mine")]);
        assert_eq!(patch_of(&after, &wanted()), None);
    }

    #[test]
    fn feature_discovery_takes_the_labels_over() {
        let patch = patch_of(&node(None, &[]), &wanted()).unwrap();
        let taken = node(Some(&patch), &[(GFD_LABEL, "1700000000")]);
        let patch = patch_of(&taken, &wanted()).unwrap();
        assert_eq!(patch["metadata"]["labels"], json!({}));
        assert_eq!(
            patch["metadata"]["annotations"],
            json!({INVENTORY_ANNOTATION: "{}"})
        );
        let after = node(Some(&patch), &[(GFD_LABEL, "1700000000")]);
        assert_eq!(patch_of(&after, &wanted()), None);
    }

    #[test]
    fn without_cards_all_is_removed() {
        let none = NodeEntries::default();
        assert_eq!(patch_of(&node(None, &[]), &none), None);
        let patch = patch_of(&node(None, &[]), &wanted()).unwrap();
        let patch = patch_of(&node(Some(&patch), &[]), &none).unwrap();
        assert_eq!(patch["metadata"]["labels"], json!({}));
        assert_eq!(patch["metadata"]["annotations"], json!({}));
        assert_eq!(patch_of(&node(Some(&patch), &[]), &none), None);
    }

    #[test]
    fn facts_are_the_label_and_nvidias_resource() {
        let labelled = node(None, &[(LIMITS_LABEL, "mps")]);
        let facts = read(&labelled).facts;
        assert_eq!(facts.limits.as_deref(), Some("mps"));
        assert!(!facts.other_owner);
        let mut owned = labelled;
        let status = owned.status.as_mut().unwrap();
        let capacity = status.capacity.as_mut().unwrap();
        capacity.get_mut("nvidia.com/gpu").unwrap().0 = "8".to_owned();
        assert!(read(&owned).facts.other_owner);
    }

    #[tokio::test]
    async fn pods_that_ask_nvidias_plugin_count_once_the_pods_are_known() {
        let told = |pods| {
            let client = tower::service_fn(|_: http::Request<kube::client::Body>| async {
                Err::<http::Response<kube::client::Body>, _>(std::io::Error::other("no API server"))
            });
            let own = OwnNode {
                client: Client::new(client, "default"),
                name: "n1".to_owned(),
                entries: watch::channel(None).1,
                facts: watch::Sender::default(),
                pods,
                events: Events::new().0,
                metrics: Metrics::default(),
                readiness: Readiness::default(),
            };
            own.readiness.expect("node");
            own.tell(&read(&node(None, &[])));
            let facts = own.facts.borrow().clone();
            assert_eq!(own.readiness.missing().is_empty(), facts.is_some());
            facts.map(|facts| facts.other_owner)
        };
        let asking = PodEntry {
            nvidia: true,
            ..PodEntry::default()
        };
        assert_eq!(told(Pods::of([asking])), Some(true));
        assert_eq!(told(Pods::of([])), Some(false));
        assert_eq!(told(Arc::default()), None);
    }
}
