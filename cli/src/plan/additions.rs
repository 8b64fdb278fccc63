//! Completes manifests that a team has: the nodes of a cluster from a file, and the Services of the
//! chart's providers.

use std::{collections::BTreeSet, path::PathBuf};

use anyhow::Result;
use k8s_openapi::{
    api::core::v1::{Service, ServicePort, ServiceSpec},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use tautline_api::{convert, manifest::Item};
use tautline_core::{
    providers::{ALLOCATOR_ANNOTATION, RULE_LABEL_PREFIXES},
    trust::{OWN_NAMESPACE, TrustedNamespaces},
};
use tautline_runtime::{
    input_files::InputFiles,
    manifest_files::{Manifests, ReadOptions},
};

use super::Args;
use crate::{local::Placement, manifests};

/// The chart's providers: the name of the Service, and its rules.
const CHART_PROVIDERS: [(&str, &[&str]); 2] = [
    ("tautline-latency", &["latency", "jitter", "bandwidth"]),
    ("tautline-gpu-slice", &["gpu-slice"]),
];

/// Adds what a cluster gives to the plan: nodes, their bound pods, namespaces, devices, and the
/// Services, RuntimeClasses, LimitRanges and PriorityClasses that the manifests do not have.
pub(super) fn add_nodes(manifests: &mut Manifests, files: &[PathBuf]) -> Result<()> {
    if files.is_empty() {
        return Ok(());
    }
    let read = manifests::read(files, &mut InputFiles::default(), &ReadOptions::default())?;
    let known: BTreeSet<_> = manifests.items.iter().filter_map(identity).collect();
    let is_new = |item: &Item| identity(item).is_some_and(|id| !known.contains(&id));
    let new: Vec<Item> = read.items.into_iter().filter(is_new).collect();
    manifests.items.extend(new);
    manifests::admission::admit(&mut manifests.items);
    Ok(())
}

/// Returns the kind, namespace and name of an object that `--nodes` adds.
fn identity(item: &Item) -> Option<(&'static str, String, String)> {
    if let Item::Admission(object) = item {
        let kinds = ["RuntimeClass", "LimitRange", "PriorityClass"];
        let kind = kinds.into_iter().find(|kind| object["kind"] == *kind)?;
        let text = |field: &str| object["metadata"][field].as_str().map(str::to_owned);
        let namespace = text("namespace").unwrap_or_default();
        return Some((kind, namespace, text("name")?));
    }
    let (kind, meta) = match item {
        Item::Node(o) => ("Node", &o.metadata),
        Item::Namespace(o) => ("Namespace", &o.metadata),
        Item::Service(o) => ("Service", &o.metadata),
        Item::EndpointSlice(o) => ("EndpointSlice", &o.metadata),
        Item::DeviceClass(o) => ("DeviceClass", &o.metadata),
        Item::ResourceSlice(o) => ("ResourceSlice", &o.metadata),
        Item::Pod(o) if o.spec.as_ref().is_some_and(|s| s.node_name.is_some()) => {
            ("Pod", &o.metadata)
        }
        _ => return None,
    };
    let namespace = match kind {
        "Service" | "EndpointSlice" | "Pod" => meta.namespace.as_deref().unwrap_or("default"),
        _ => "",
    };
    Some((kind, namespace.to_owned(), meta.name.clone()?))
}

/// Adds the Services of the chart's providers, without rules that a trusted Service provides.
pub(super) fn add_providers(items: &mut Vec<Item>, trusted: &TrustedNamespaces) {
    let services = items.iter().filter_map(|item| match item {
        Item::Service(service) => Some(convert::service(service)),
        _ => None,
    });
    let trusted = services.filter(|service| trusted.contains(&service.namespace));
    let provided: BTreeSet<Box<str>> = trusted.flat_map(|service| service.rules).collect();
    for (name, rules) in CHART_PROVIDERS {
        let missing: Vec<&str> = rules
            .iter()
            .copied()
            .filter(|rule| !provided.contains(*rule))
            .collect();
        if missing.is_empty() {
            continue;
        }
        let added = service(name, &missing);
        // Two objects of one name would be one, with the rules of the last.
        let existing = items.iter_mut().find_map(|item| match item {
            Item::Service(other) if is_same(&other.metadata, &added.metadata) => Some(other),
            _ => None,
        });
        match existing {
            Some(service) => {
                let labels = service.metadata.labels.get_or_insert_default();
                labels.extend(added.metadata.labels.unwrap_or_default());
            }
            None => items.push(Item::Service(Box::new(added))),
        }
    }
}

fn is_same(one: &ObjectMeta, other: &ObjectMeta) -> bool {
    (&one.namespace, &one.name) == (&other.namespace, &other.name)
}

fn service(name: &str, rules: &[&str]) -> Service {
    let enabled = |key: String| (key, "enabled".to_owned());
    let labels = rules
        .iter()
        .map(|rule| enabled(format!("{}{rule}", RULE_LABEL_PREFIXES[0])));
    // As in the chart, cards are reserved.
    let allocator = rules.contains(&"gpu-slice");
    let annotations = allocator.then(|| enabled(ALLOCATOR_ANNOTATION.to_owned()));
    Service {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            namespace: Some(OWN_NAMESPACE.to_owned()),
            labels: Some(labels.collect()),
            annotations: annotations.map(|one| [one].into()),
            ..ObjectMeta::default()
        },
        spec: Some(ServiceSpec {
            ports: Some(vec![ServicePort {
                name: Some("ruleprovider".to_owned()),
                port: 5309,
                ..ServicePort::default()
            }]),
            ..ServiceSpec::default()
        }),
        ..Service::default()
    }
}

/// Says once what the input lacks, and how to add it.
pub(super) fn hint(args: &Args, node_count: usize, placements: &[Placement]) {
    let pods = placements.len();
    if node_count == 0 && pods > 0 && args.manifests.is_given() {
        note!(
            "the manifests have no nodes, so no pod can be placed ({pods} pending); save those of a \
             cluster with `kubectl get nodes,services -A -o yaml >nodes.yaml`, and add --nodes \
             nodes.yaml"
        );
    } else if node_count == 0 && pods > 0 {
        note!("the cluster has no nodes, so no pod can be placed ({pods} pending)");
    }
    let rules = placements.iter().flat_map(|p| p.round.iter());
    let mut rules = rules.flat_map(|round| &round.rules);
    let chart = |rule: &str| CHART_PROVIDERS.iter().any(|(_, of)| of.contains(&rule));
    if rules.any(|rule| rule.outcome == "NoProvider" && chart(&rule.rule)) {
        note!(
            "--assume-providers plans as if the chart's providers of latency and gpu-slice were \
             installed"
        );
    }
}

#[cfg(test)]
mod tests {
    use tautline_api::manifest;

    use super::*;

    /// The Services after providers were added.
    fn completed(text: &str) -> Vec<String> {
        let mut items = manifest::parse(text).unwrap();
        add_providers(&mut items, &TrustedNamespaces::default());
        let services = items.iter().filter_map(|item| match item {
            Item::Service(service) => Some(convert::service(service)),
            _ => None,
        });
        let named = services.map(|s| format!("{}: {}", s.name, s.rules.join(",")));
        named.collect()
    }

    #[test]
    fn providers_are_added_for_rules_that_have_none() {
        let gpu = "tautline-gpu-slice: gpu-slice";
        assert_eq!(
            completed("{apiVersion: v1, kind: Namespace, metadata: {name: shop}}"),
            ["tautline-latency: bandwidth,jitter,latency", gpu]
        );
        let service = |namespace: &str, name: &str| {
            completed(&format!(
                "{{apiVersion: v1, kind: Service, metadata: {{name: {name}, namespace: {namespace}, \
                 labels: {{constraint.ciena.com/constraint-latency: enabled}}}}}}"
            ))
        };
        let own = "own: latency";
        assert_eq!(
            service("tautline-system", "own"),
            [own, "tautline-latency: bandwidth,jitter", gpu]
        );
        assert_eq!(
            service("tautline-system", "tautline-latency"),
            ["tautline-latency: bandwidth,jitter,latency", gpu],
            "the manifests' own Service keeps its rule"
        );
        assert_eq!(
            service("shop", "own").len(),
            3,
            "a tenant's own serves only the tenant"
        );
    }
}
