//! Manifests as people keep them in files: YAML (or JSON) with any number of
//! documents, lists included.

use k8s_openapi::api::{
    core::v1::{ConfigMap, Node, Pod, Service},
    discovery::v1::EndpointSlice,
};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::{ConstraintPolicy, ConstraintPolicyOffer, CostProvider, RuleProvider};

/// One object of a manifest file.
#[derive(Clone, Debug)]
#[allow(missing_docs)] // each is the kind that its name says
pub enum Item {
    Pod(Box<Pod>),
    Node(Box<Node>),
    Service(Box<Service>),
    EndpointSlice(Box<EndpointSlice>),
    ConfigMap(Box<ConfigMap>),
    Policy(Box<ConstraintPolicy>),
    Offer(Box<ConstraintPolicyOffer>),
    CostProvider(Box<CostProvider>),
    RuleProvider(Box<RuleProvider>),
    /// A kind that has no part in planning, as `Kind/name`.
    Other(String),
}

/// Why a manifest cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    /// Not YAML; the text names line and column.
    #[error("not valid YAML: {0}")]
    Yaml(String),
    /// A document that is no Kubernetes object.
    #[error("document {0}: apiVersion and kind are missing; a manifest begins with both")]
    NoKind(usize),
    /// An object whose fields do not fit its kind.
    #[error("{object}: {what}")]
    Object {
        /// `Kind namespace/name`.
        object: String,
        /// Which field, and why.
        what: String,
    },
}

/// Reads every object of a manifest text.
///
/// # Errors
/// The first document that is malformed.
pub fn parse(text: &str) -> Result<Vec<Item>, ManifestError> {
    let documents = documents(text)?.into_iter();
    documents.map(|(number, o)| item_of(number, o)).collect()
}

/// Every object of a manifest text as it is written, with the number of its
/// document from 1 on. It may have no kind.
///
/// # Errors
/// A text that is no YAML.
pub fn documents(text: &str) -> Result<Vec<(usize, Value)>, ManifestError> {
    // YAML 1.1 reads a node called `n` as false; kubectl does not.
    // Whole clusters come in one file, too.
    let options = serde_saphyr::options! {
        strict_booleans: true,
        budget: serde_saphyr::budget! {
            max_documents: 1_000_000,
            max_events: 100_000_000,
            max_nodes: 50_000_000,
            max_total_scalar_bytes: 1 << 30,
        },
    };
    let documents: Vec<Value> = serde_saphyr::from_multiple_with_options(text, options)
        .map_err(|e| ManifestError::Yaml(e.to_string()))?;
    let mut objects = Vec::new();
    for (i, mut document) in documents.into_iter().enumerate() {
        match document["kind"].as_str() {
            _ if document.is_null() => {}
            Some("List") => {
                if let Value::Array(items) = document["items"].take() {
                    objects.extend(items.into_iter().map(|item| (i + 1, item)));
                }
            }
            _ => objects.push((i + 1, document)),
        }
    }
    Ok(objects)
}

/// Reads bytes as manifests: for the fuzz target, and for the replay of its corpus.
#[doc(hidden)]
pub fn fuzz(data: &[u8]) {
    if let Ok(text) = std::str::from_utf8(data) {
        _ = parse(text);
    }
}

fn item_of(number: usize, value: Value) -> Result<Item, ManifestError> {
    let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
    let (version, kind) = (text(&value["apiVersion"]), text(&value["kind"]));
    if version.is_empty() || kind.is_empty() {
        return Err(ManifestError::NoKind(number));
    }
    let namespace = text(&value["metadata"]["namespace"]);
    let name = text(&value["metadata"]["name"]);
    let object = match namespace.as_str() {
        "" => format!("{kind} {name}"),
        ns => format!("{kind} {ns}/{name}"),
    };
    if name.is_empty() {
        let what = "metadata.name is missing".to_owned();
        return Err(ManifestError::Object {
            object: format!("{kind} in document {number}"),
            what,
        });
    }
    fn typed<T: DeserializeOwned>(object: String, value: Value) -> Result<Box<T>, ManifestError> {
        serde_json::from_value(value)
            .map(Box::new)
            .map_err(|e| ManifestError::Object {
                object,
                what: e.to_string(),
            })
    }
    Ok(match (version.as_str(), kind.as_str()) {
        ("v1", "Pod") => Item::Pod(typed(object, value)?),
        ("v1", "Node") => Item::Node(typed(object, value)?),
        ("v1", "Service") => Item::Service(typed(object, value)?),
        ("v1", "ConfigMap") => Item::ConfigMap(typed(object, value)?),
        ("discovery.k8s.io/v1", "EndpointSlice") => Item::EndpointSlice(typed(object, value)?),
        ("constraint.ciena.com/v1alpha1", "ConstraintPolicy") => {
            Item::Policy(typed(object, value)?)
        }
        ("constraint.ciena.com/v1alpha1", "ConstraintPolicyOffer") => {
            Item::Offer(typed(object, value)?)
        }
        ("constraint.ciena.com/v1", "CostProvider") => Item::CostProvider(typed(object, value)?),
        ("constraint.ciena.com/v1", "RuleProvider") => Item::RuleProvider(typed(object, value)?),
        _ => Item::Other(format!("{kind}/{name}")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_lists_and_other_kinds() {
        let items = parse(
            "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: []}\n---\n---\n\
             apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: Node\n  metadata: {name: n}\n\
             - apiVersion: apps/v1\n  kind: Deployment\n  metadata: {name: d}\n",
        )
        .unwrap();
        assert!(
            matches!(&items[..], [Item::Pod(_), Item::Node(_), Item::Other(d)] if d == "Deployment/d"),
            "{items:?}"
        );
    }

    #[test]
    fn errors_name_the_object_and_the_field() {
        let message = |text: &str| parse(text).unwrap_err().to_string();
        let offer = "apiVersion: constraint.ciena.com/v1alpha1\nkind: ConstraintPolicyOffer\n\
                     metadata: {name: o, namespace: shop}\nspec:\n  targets: [{kind: Podd}]\n";
        let e = message(offer);
        assert!(
            e.starts_with("ConstraintPolicyOffer shop/o: ") && e.contains("Podd"),
            "{e}"
        );
        assert!(
            message("a: [").starts_with("not valid YAML"),
            "{}",
            message("a: [")
        );
        assert!(message("a: 1").contains("document 1: apiVersion and kind are missing"));
    }

    #[test]
    fn the_corpus_of_the_fuzz_target_is_harmless() {
        let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/../fuzz/corpus/manifests");
        let mut replayed = 0;
        for entry in std::fs::read_dir(corpus).unwrap() {
            fuzz(&std::fs::read(entry.unwrap().path()).unwrap());
            replayed += 1;
        }
        assert!(replayed >= 5, "{corpus} has {replayed} files");
    }
}
