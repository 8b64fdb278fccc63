//! Reads kube-scheduler's requests, which borrow from the body and are parsed no further than
//! needed, and writes the responses. JSON keys are case-insensitive, as Go decodes them.

mod error;
mod fast_path;
mod json;
mod response;

use std::{borrow::Cow, collections::BTreeMap};

use serde::{Deserializer, Serialize};
use serde_json::value::RawValue;
use tautline_core::{dns, nodes::NodeSet};

pub use self::error::WireError;
use self::json::{Bounded, Fields, Name, NodeNames, fields, list};
pub(crate) use self::response::{
    HostPriority, error_result, filter_names, filter_objects, preemption_result,
};

/// The maximum number of characters of a malformed name that an error repeats.
const MAX_QUOTE_CHARS: usize = 80;

#[derive(Debug)]
pub enum Nodes<'a> {
    /// The raw JSON list of `NodeNames` (`nodeCacheCapable: true`).
    Names(&'a str),
    /// The raw JSON list of one or more names, without escapes, quotes and commas in the names.
    PlainNames(&'a str),
    /// The whole objects of `Nodes`.
    Objects(&'a RawValue),
    None,
}

/// The `ExtenderArgs` of filter and prioritize, or the arguments of what-if.
#[derive(Debug)]
pub struct Args<'a> {
    pub pod: &'a RawValue,
    pub nodes: Nodes<'a>,
}

/// The `ExtenderPreemptionArgs` of preempt.
#[derive(Debug)]
pub struct PreemptArgs<'a> {
    pub pod: &'a RawValue,
    pub victims: BTreeMap<String, Victims>,
}

/// The victims on one node: `MetaVictims`, also if the request has whole pods.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Victims {
    pub pods: Vec<Victim>,
    #[serde(rename = "numPDBViolations")]
    pub pdb_violations: i64,
}

impl Victims {
    /// The size of the pods' UIDs on the heap, in bytes.
    pub fn heap_bytes(&self) -> usize {
        let uids = self.pods.iter().map(|pod| pod.uid.capacity());
        self.pods.capacity() * size_of::<Victim>() + uids.sum::<usize>()
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Victim {
    pub uid: String,
}

/// The `ExtenderBindingArgs` of bind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BindArgs {
    pub pod: String,
    pub namespace: String,
    pub uid: String,
    pub node: String,
}

pub fn args<'a>(kind: &'static str, json: &'a str) -> Result<Args<'a>, WireError> {
    if let Some((pod, names)) = fast_path::args(json) {
        return Ok(Args {
            pod,
            nodes: Nodes::PlainNames(names),
        });
    }
    let Fields([pod, nodes, names]) = fields(kind, json, ["Pod", "Nodes", "NodeNames"])?;
    let nodes = match (names, nodes) {
        (Some(names), _) => Nodes::Names(names.get()),
        (None, Some(nodes)) => Nodes::Objects(nodes),
        (None, None) => Nodes::None,
    };
    Ok(Args {
        pod: pod.ok_or(WireError::Missing { kind, field: "Pod" })?,
        nodes,
    })
}

/// The arguments of what-if.
#[derive(Debug)]
pub struct WhatIfArgs<'a> {
    pub pod: &'a RawValue,
    pub nodes: Nodes<'a>,
    /// The number of pods to place together; `None` for one pod, without Kubernetes' own rules.
    pub count: Option<usize>,
}

/// Reads the arguments of what-if; without nodes all nodes are meant.
pub fn what_if_args<'a>(kind: &'static str, json: &'a str) -> Result<WhatIfArgs<'a>, WireError> {
    let Fields([pod, nodes, count]) = fields(kind, json, ["pod", "nodes", "count"])?;
    let count = count.map(|count| serde_json::from_str(count.get()));
    Ok(WhatIfArgs {
        pod: pod.ok_or(WireError::Missing { kind, field: "pod" })?,
        nodes: nodes.map_or(Nodes::None, |names| Nodes::Names(names.get())),
        count: count
            .transpose()
            .map_err(|error| WireError::Json { kind, error })?,
    })
}

/// Reads the arguments of preempt with either form of victims: at most `max` nodes, and `max`
/// victims of a node.
pub fn preempt_args(json: &str, max: usize) -> Result<PreemptArgs<'_>, WireError> {
    let kind = "ExtenderPreemptionArgs";
    let names = ["Pod", "NodeNameToVictims", "NodeNameToMetaVictims"];
    let Fields([pod, whole, meta]) = fields(kind, json, names)?;
    let pod = pod.ok_or(WireError::Missing { kind, field: "Pod" })?;
    let json_error = |error| WireError::Json { kind, error };
    let too_many = |count| WireError::TooManyNodes { kind, count, max };
    let by_node = match meta.or(whole) {
        Some(raw) => serde_json::Deserializer::from_str(raw.get())
            .deserialize_map(Bounded(max))
            .map_err(json_error)?,
        None => Vec::new(),
    };
    if by_node.len() > max {
        return Err(too_many(by_node.len()));
    }
    let mut victims = BTreeMap::new();
    for (node, raw) in by_node {
        let mut out = Victims::default();
        if let Some(raw) = raw {
            let Fields([pods, violations]) = fields(kind, raw.get(), ["Pods", "NumPDBViolations"])?;
            if let Some(violations) = violations {
                out.pdb_violations = serde_json::from_str(violations.get()).map_err(json_error)?;
            }
            let pods = match pods {
                Some(pods) => list(pods, max).map_err(json_error)?,
                None => Vec::new(),
            };
            if pods.len() > max {
                return Err(too_many(pods.len()));
            }
            for pod in pods {
                let uid = victim_uid(kind, pod.get())?;
                out.pods.push(Victim { uid });
            }
        }
        victims.insert(node.into_owned(), out);
    }
    Ok(PreemptArgs { pod, victims })
}

/// Reads the UID of a victim: a meta victim has a `UID`, a whole pod has `metadata.uid`.
fn victim_uid(kind: &'static str, json: &str) -> Result<String, WireError> {
    let Fields([uid, metadata]) = fields(kind, json, ["UID", "metadata"])?;
    let uid = match (uid, metadata) {
        (Some(uid), _) => Some(uid),
        (None, Some(metadata)) => {
            let Fields([uid]) = fields(kind, metadata.get(), ["uid"])?;
            uid
        }
        (None, None) => None,
    };
    let uid = uid.ok_or(WireError::Missing {
        kind,
        field: "UID of a victim",
    })?;
    serde_json::from_str(uid.get()).map_err(|error| WireError::Json { kind, error })
}

pub fn bind_args(json: &str) -> Result<BindArgs, WireError> {
    let kind = "ExtenderBindingArgs";
    let names = ["PodName", "PodNamespace", "PodUID", "Node"];
    let Fields(values) = fields(kind, json, names)?;
    let mut texts: [String; 4] = Default::default();
    for ((text, value), field) in texts.iter_mut().zip(values).zip(names) {
        let raw = value.ok_or(WireError::Missing { kind, field })?;
        *text = serde_json::from_str(raw.get()).map_err(|error| WireError::Json { kind, error })?;
    }
    let [pod, namespace, uid, node] = texts;
    // The names become parts of URLs.
    let names = [
        ("PodName", &pod, dns::is_subdomain(&pod)),
        ("PodNamespace", &namespace, dns::is_label(&namespace)),
        ("Node", &node, dns::is_subdomain(&node)),
    ];
    if let Some((field, text, _)) = names.into_iter().find(|(.., is_name)| !is_name) {
        let text = text.chars().take(MAX_QUOTE_CHARS).collect();
        return Err(WireError::Name { kind, field, text });
    }
    Ok(BindArgs {
        pod,
        namespace,
        uid,
        node,
    })
}

impl Nodes<'_> {
    /// Reads at most `max` names, without duplicates.
    pub fn names(&self, kind: &'static str, max: usize) -> Result<NodeSet, WireError> {
        let json = |error| WireError::Json { kind, error };
        let set = match self {
            Nodes::None => NodeSet::default(),
            Nodes::PlainNames(text) => {
                let names = &text[2..text.len() - 2];
                NodeSet::of_plain_list(names, max).map_err(|count| WireError::TooManyNodes {
                    kind,
                    count,
                    max,
                })?
            }
            Nodes::Names(text) => {
                // Most names take 16 bytes or more with their quotes and comma.
                let seed = NodeSet::with_capacity((text.len() / 16).min(max), text.len());
                let mut deserializer = serde_json::Deserializer::from_str(text);
                deserializer
                    .deserialize_seq(NodeNames { set: seed, max })
                    .map_err(json)?
            }
            Nodes::Objects(raw) => {
                let items = items(kind, raw, max)?;
                let mut set = NodeSet::with_capacity(items.len(), 0);
                for item in &items {
                    set.insert(&node_name(kind, item)?);
                }
                set
            }
        };
        if set.len() > max {
            return Err(WireError::TooManyNodes {
                kind,
                count: set.len(),
                max,
            });
        }
        Ok(set)
    }
}

/// Reads the raw `items` of a NodeList, at most `max`.
pub fn items<'a>(
    kind: &'static str,
    nodes: &'a RawValue,
    max: usize,
) -> Result<Vec<&'a RawValue>, WireError> {
    let Fields([items]) = fields(kind, nodes.get(), ["items"])?;
    let items = match items {
        None => Vec::new(),
        Some(raw) => list(raw, max).map_err(|error| WireError::Json { kind, error })?,
    };
    if items.len() > max {
        let count = items.len();
        return Err(WireError::TooManyNodes { kind, count, max });
    }
    Ok(items)
}

pub fn node_name<'a>(kind: &'static str, node: &'a RawValue) -> Result<Cow<'a, str>, WireError> {
    let Fields([metadata]) = fields(kind, node.get(), ["metadata"])?;
    let missing = WireError::Missing {
        kind,
        field: "metadata.name of a node",
    };
    let Some(metadata) = metadata else {
        return Err(missing);
    };
    let Fields([name]) = fields(kind, metadata.get(), ["name"])?;
    let Some(name) = name else {
        return Err(missing);
    };
    serde_json::from_str::<Name<'_>>(name.get())
        .map(|n| n.0)
        .map_err(|error| WireError::Json { kind, error })
}

#[cfg(test)]
mod tests;
