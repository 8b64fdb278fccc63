//! Finds objects that are in the manifests more than once.

use std::collections::HashSet;

use super::{Finding, Item, object_name, path::FieldPath};

/// Finds the objects that have the kind, namespace and name of an earlier object. `W` is the
/// location of an object. Ignores kinds that planning does not read.
pub fn check_duplicates<W: Copy>(objects: &[(W, Item)]) -> Vec<(W, Finding)> {
    let mut seen = HashSet::new();
    let again = objects.iter().filter(|(_, item)| {
        let identity = identity(item);
        identity.is_some_and(|identity| !seen.insert(identity))
    });
    let finding = |item: &Item| {
        let (kind, namespace, name) = identity(item)?;
        Some(Finding {
            object: object_name(kind, namespace, name),
            field: FieldPath::from_keys(["metadata", "name"]),
            message: "the same object is in the manifests before; remove one of them, or give it \
                      another name"
                .to_owned(),
        })
    };
    again
        .filter_map(|(place, item)| Some((*place, finding(item)?)))
        .collect()
}

/// Returns the kind, namespace and name of an object; `None` for kinds that planning does not read.
fn identity(item: &Item) -> Option<(&str, &str, &str)> {
    let (kind, metadata) = match item {
        Item::Pod(o) => ("Pod", &o.metadata),
        Item::Node(o) => return Some(("Node", "", o.metadata.name.as_deref()?)),
        Item::Namespace(o) => return Some(("Namespace", "", o.metadata.name.as_deref()?)),
        Item::DeviceClass(o) => return Some(("DeviceClass", "", o.metadata.name.as_deref()?)),
        Item::ResourceSlice(o) => return Some(("ResourceSlice", "", o.metadata.name.as_deref()?)),
        Item::ResourceClaim(o) => ("ResourceClaim", &o.metadata),
        Item::ResourceClaimTemplate(o) => ("ResourceClaimTemplate", &o.metadata),
        Item::Service(o) => ("Service", &o.metadata),
        Item::EndpointSlice(o) => ("EndpointSlice", &o.metadata),
        Item::ConfigMap(o) => ("ConfigMap", &o.metadata),
        Item::Policy(o) => ("ConstraintPolicy", &o.metadata),
        Item::Offer(o) => ("ConstraintPolicyOffer", &o.metadata),
        Item::CostProvider(o) => ("CostProvider", &o.metadata),
        Item::RuleProvider(o) => ("RuleProvider", &o.metadata),
        Item::Workload(o) => return Some((o.kind(), o.namespace(), o.name())),
        Item::Storage(_) | Item::Admission(_) | Item::Other(_) => return None,
    };
    let namespace = metadata.namespace.as_deref().unwrap_or("default");
    Some((kind, namespace, metadata.name.as_deref()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest;

    #[test]
    fn second_of_a_name_is_found() {
        let policy = |place: &str, limit: &str| {
            format!(
                "apiVersion: constraint.ciena.com/v1alpha1\nkind: ConstraintPolicy\n\
                 metadata: {{name: p{place}}}\n\
                 spec: {{rules: [{{name: latency, limit: {limit}}}]}}\n"
            )
        };
        let node = |kind: &str| format!("apiVersion: v1\nkind: {kind}\nmetadata: {{name: p}}\n");
        let texts = [
            policy("", "10ms"),
            policy(", namespace: shop", "10ms"),
            node("Node"),
            node("Service"),
            policy(", namespace: default", "20ms"),
            node("Node"),
        ];
        let items = manifest::parse(&texts.join("---\n")).unwrap();
        let items: Vec<(usize, Item)> = items.into_iter().enumerate().collect();
        let found = check_duplicates(&items);
        let found: Vec<_> = found
            .iter()
            .map(|(at, f)| (*at, f.object.as_str()))
            .collect();
        assert_eq!(found, [(4, "ConstraintPolicy default/p"), (5, "Node p")]);
    }
}
