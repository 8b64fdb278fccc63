//! The pods of the load, and the nodes.

use serde_json::{Value, json};

/// A kind of pod, labelled `app` by its name.
pub struct Kind {
    pub name: &'static str,
    /// Percentage of the pods.
    pub share: usize,
    /// Rules with their requests; empty: ungoverned.
    pub rules: &'static [(&'static str, &'static str)],
    /// The milli of a card that its rule requests.
    pub milli: u32,
}

/// The rule of the clocks.
pub const LATENCY: &str = "latency";
/// The rule of `tautline provider scripted`.
pub const ZONE: &str = "zone";
pub const GPU: &str = "gpu-slice";

pub static KINDS: [Kind; 6] = [
    kind("plain", 38, &[], 0),
    kind("near", 22, &[(LATENCY, "")], 0),
    kind("zone", 13, &[(ZONE, "")], 0),
    kind("quarter", 15, &[(GPU, "250m")], 250),
    kind("half-near", 8, &[(GPU, "500m"), (LATENCY, "")], 500),
    kind(WHOLE, 4, &[(GPU, "1")], 1000),
];
pub const WHOLE: &str = "whole";

/// Nodes with cards come first.
pub const GPU_NODES: usize = 7;
pub const NODES: usize = 20;
pub const CARDS: u32 = 4;
/// A card in thousandths.
pub const CARD: u32 = 1000;
/// The annotation with a pod's cards.
pub const DEVICES: &str = "tautline.io/gpu-devices";

const fn kind(
    name: &'static str,
    share: usize,
    rules: &'static [(&'static str, &'static str)],
    milli: u32,
) -> Kind {
    Kind {
        name,
        share,
        rules,
        milli,
    }
}

impl Kind {
    pub fn of(app: &str) -> Option<&'static Self> {
        KINDS.iter().find(|k| k.name == app)
    }

    pub fn has(&self, rule: &str) -> bool {
        self.rules.iter().any(|(name, _)| *name == rule)
    }

    pub fn pod(&self, name: &str) -> Value {
        let mut requests = json!({"cpu": "1"});
        let mut limits = json!({});
        if !self.rules.is_empty() {
            for all in [&mut requests, &mut limits] {
                all["constraint.ciena.com/governed"] = "1".into();
            }
        }
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": "default", "labels": {"app": self.name}},
            "spec": {"automountServiceAccountToken": false, "containers": [
                {"name": "main", "image": "example.com/app:1",
                 "resources": {"requests": requests, "limits": limits}}]},
        })
    }

    /// Its policy and offer; a pod waits while a provider is down.
    pub fn policy(&self) -> [Value; 2] {
        let rule = |(name, request): &(&str, &str)| match request.is_empty() {
            true => json!({"name": name}),
            false => json!({"name": name, "request": request}),
        };
        let rules: Vec<Value> = self.rules.iter().map(rule).collect();
        let of = |kind: &str, spec: Value| {
            json!({"apiVersion": "constraint.ciena.com/v1alpha1", "kind": kind,
                   "metadata": {"name": self.name, "namespace": "default"}, "spec": spec})
        };
        let selector = json!({"matchLabels": {"app": self.name}});
        [
            of("ConstraintPolicy", json!({"rules": rules})),
            of(
                "ConstraintPolicyOffer",
                json!({"targets": [{"apiVersion": "v1", "kind": "Pod", "labelSelector": selector}],
                       "policies": [self.name], "providerUnavailable": "Reject"}),
            ),
        ]
    }
}

pub fn node_name(i: usize) -> String {
    format!("n{i:02}")
}

pub fn node_names() -> impl Iterator<Item = String> {
    (0..NODES).map(node_name)
}

/// The cards and CPUs of a node; `None`: there is no such node.
pub fn room(node: &str) -> Option<(u32, usize)> {
    let i = node_names().position(|n| n == node)?;
    Some(if i < GPU_NODES { (CARDS, 16) } else { (0, 8) })
}

pub fn cpus() -> usize {
    node_names()
        .filter_map(|n| room(&n))
        .map(|(_, cpus)| cpus)
        .sum()
}

pub fn node(i: usize) -> Value {
    let name = node_name(i);
    let (cards, cpus) = room(&name).unwrap_or_default();
    let mut has = json!({"cpu": cpus.to_string(), "memory": "64Gi", "pods": "110"});
    if cards > 0 {
        has["tautline.io/gpu-cards"] = cards.to_string().into();
    }
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "status": {"capacity": has, "allocatable": has},
    })
}
