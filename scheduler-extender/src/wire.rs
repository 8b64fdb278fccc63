//! Requests as the scheduler sends them, borrowed from the body and read no
//! further than needed; answers, written once.
//!
//! Go decodes JSON keys case-insensitively, and so does this.

use std::{borrow::Cow, collections::BTreeMap, fmt, marker::PhantomData};

use serde::{
    Deserialize, Deserializer, Serialize,
    de::{IgnoredAny, MapAccess, SeqAccess, Visitor},
};
use serde_json::value::RawValue;
use tautline_core::{dns, nodes::NodeSet};

use crate::sent;

/// Characters of a malformed name that an error repeats.
const LONGEST_QUOTE: usize = 80;

/// A request that is not one; the text says what is wrong.
#[derive(Debug, thiserror::Error)]
pub enum WireError {
    #[error("the body is not the JSON of {what}: {error}")]
    Json {
        what: &'static str,
        error: serde_json::Error,
    },
    #[error("{what}: {field} is missing")]
    Missing {
        what: &'static str,
        field: &'static str,
    },
    #[error("{what}: {field} {text:?} is not the name of an object")]
    Name {
        what: &'static str,
        field: &'static str,
        text: String,
    },
    #[error("{what}: {count} nodes are more than the {most} that are taken; raise --max-nodes")]
    TooManyNodes {
        what: &'static str,
        count: usize,
        most: usize,
    },
    #[error(
        "{what}: the pod has {count} JSON values; Kubernetes' own limit on its size leaves room for fewer than {most}"
    )]
    PodTooLarge {
        what: &'static str,
        count: usize,
        most: usize,
    },
    #[error(
        "offer {0} selects this pod and does not count yet: the pods that it selects are being listed; ask again"
    )]
    Unsettled(String),
}

/// The nodes of a question, in the form in which they came.
#[derive(Debug)]
pub enum Nodes<'a> {
    /// `NodeNames`: `nodeCacheCapable: true`. The list as it came.
    Names(&'a str),
    /// `Nodes`: whole objects.
    Objects(&'a RawValue),
    /// Neither: no node.
    None,
}

/// `ExtenderArgs`: what filter and prioritize get.
#[derive(Debug)]
pub struct Args<'a> {
    pub pod: &'a RawValue,
    pub nodes: Nodes<'a>,
}

/// `ExtenderPreemptionArgs`.
#[derive(Debug)]
pub struct PreemptArgs<'a> {
    pub pod: &'a RawValue,
    /// Victims by node: the pods' UIDs, and how many budgets they break.
    pub victims: BTreeMap<String, Victims>,
}

/// The victims on one node, as both forms of the protocol give them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Victims {
    pub uids: Vec<String>,
    pub pdb_violations: i64,
}

/// `ExtenderBindingArgs`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BindArgs {
    pub pod: String,
    pub namespace: String,
    pub uid: String,
    pub node: String,
}

/// The fields of an object that the caller knows, by name in any case.
struct Fields<'a, const N: usize>([Option<&'a RawValue>; N]);

fn fields<'a, const N: usize>(
    what: &'static str,
    json: &'a str,
    names: [&'static str; N],
) -> Result<Fields<'a, N>, WireError> {
    struct Keys<'a, const N: usize>([&'static str; N], PhantomData<&'a ()>);
    impl<'de, const N: usize> Visitor<'de> for Keys<'de, N> {
        type Value = Fields<'de, N>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }
        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut values = [None; N];
            while let Some(Name(key)) = map.next_key()? {
                match self
                    .0
                    .iter()
                    .position(|name| name.eq_ignore_ascii_case(&key))
                {
                    Some(i) => values[i] = map.next_value::<Option<&'de RawValue>>()?,
                    None => _ = map.next_value::<IgnoredAny>()?,
                }
            }
            Ok(Fields(values))
        }
    }
    let mut deserializer = serde_json::Deserializer::from_str(json);
    let read = deserializer
        .deserialize_map(Keys(names, PhantomData))
        .and_then(|fields| deserializer.end().map(|()| fields));
    read.map_err(|error| WireError::Json { what, error })
}

/// A string that is borrowed where JSON has no escapes in it.
#[derive(Deserialize)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

/// Reads `ExtenderArgs`.
///
/// # Errors
/// Not JSON, not an object, or no pod.
pub fn args<'a>(what: &'static str, json: &'a str) -> Result<Args<'a>, WireError> {
    if let Some(args) = sent::args(json) {
        return Ok(args);
    }
    let Fields([pod, nodes, names]) = fields(what, json, ["Pod", "Nodes", "NodeNames"])?;
    let nodes = match (names, nodes) {
        (Some(names), _) => Nodes::Names(names.get()),
        (None, Some(nodes)) => Nodes::Objects(nodes),
        (None, None) => Nodes::None,
    };
    Ok(Args {
        pod: pod.ok_or(WireError::Missing { what, field: "Pod" })?,
        nodes,
    })
}

/// Reads `ExtenderPreemptionArgs`, in either form.
///
/// # Errors
/// Not JSON, not an object, no pod, or more than `most` nodes or victims of a node.
pub fn preempt_args(json: &str, most: usize) -> Result<PreemptArgs<'_>, WireError> {
    let what = "ExtenderPreemptionArgs";
    let names = ["Pod", "NodeNameToVictims", "NodeNameToMetaVictims"];
    let Fields([pod, whole, meta]) = fields(what, json, names)?;
    let pod = pod.ok_or(WireError::Missing { what, field: "Pod" })?;
    let json_error = |error| WireError::Json { what, error };
    let too_many = |count| WireError::TooManyNodes { what, count, most };
    let by_node = match meta.or(whole) {
        Some(raw) => serde_json::Deserializer::from_str(raw.get())
            .deserialize_map(AtMost(most))
            .map_err(json_error)?,
        None => Vec::new(),
    };
    if by_node.len() > most {
        return Err(too_many(by_node.len()));
    }
    let mut victims = BTreeMap::new();
    for (node, raw) in by_node {
        let mut out = Victims::default();
        if let Some(raw) = raw {
            let Fields([pods, violations]) = fields(what, raw.get(), ["Pods", "NumPDBViolations"])?;
            if let Some(violations) = violations {
                out.pdb_violations = serde_json::from_str(violations.get()).map_err(json_error)?;
            }
            let pods = match pods {
                Some(pods) => list(pods, most).map_err(json_error)?,
                None => Vec::new(),
            };
            if pods.len() > most {
                return Err(too_many(pods.len()));
            }
            for pod in pods {
                out.uids.push(victim_uid(what, pod.get())?);
            }
        }
        victims.insert(node.into_owned(), out);
    }
    Ok(PreemptArgs { pod, victims })
}

/// A meta victim has a `UID`; a whole pod has `metadata.uid`.
fn victim_uid(what: &'static str, json: &str) -> Result<String, WireError> {
    let Fields([uid, metadata]) = fields(what, json, ["UID", "metadata"])?;
    let uid = match (uid, metadata) {
        (Some(uid), _) => Some(uid),
        (None, Some(metadata)) => {
            let Fields([uid]) = fields(what, metadata.get(), ["uid"])?;
            uid
        }
        (None, None) => None,
    };
    let uid = uid.ok_or(WireError::Missing {
        what,
        field: "UID of a victim",
    })?;
    serde_json::from_str(uid.get()).map_err(|error| WireError::Json { what, error })
}

/// Reads `ExtenderBindingArgs`.
///
/// # Errors
/// Not JSON, or a field is missing.
pub fn bind_args(json: &str) -> Result<BindArgs, WireError> {
    let what = "ExtenderBindingArgs";
    let names = ["PodName", "PodNamespace", "PodUID", "Node"];
    let Fields(values) = fields(what, json, names)?;
    let mut texts: [String; 4] = Default::default();
    for ((text, value), field) in texts.iter_mut().zip(values).zip(names) {
        let raw = value.ok_or(WireError::Missing { what, field })?;
        *text = serde_json::from_str(raw.get()).map_err(|error| WireError::Json { what, error })?;
    }
    let [pod, namespace, uid, node] = texts;
    // They become parts of URLs.
    let names = [
        ("PodName", &pod, dns::is_subdomain(&pod)),
        ("PodNamespace", &namespace, dns::is_label(&namespace)),
        ("Node", &node, dns::is_subdomain(&node)),
    ];
    if let Some((field, text, _)) = names.into_iter().find(|(.., is_name)| !is_name) {
        let text = text.chars().take(LONGEST_QUOTE).collect();
        return Err(WireError::Name { what, field, text });
    }
    Ok(BindArgs {
        pod,
        namespace,
        uid,
        node,
    })
}

impl Nodes<'_> {
    /// The names, as a set.
    ///
    /// # Errors
    /// Not a list of names or nodes, or more than `most`.
    pub fn names(&self, what: &'static str, most: usize) -> Result<NodeSet, WireError> {
        let json = |error| WireError::Json { what, error };
        let set = match self {
            Nodes::None => NodeSet::default(),
            Nodes::Names(text) => {
                // A name with its quotes and comma is hardly under 16 bytes.
                let seed = NodeSet::with_capacity((text.len() / 16).min(most), text.len());
                let mut deserializer = serde_json::Deserializer::from_str(text);
                deserializer
                    .deserialize_seq(Names { set: seed, most })
                    .map_err(json)?
            }
            Nodes::Objects(raw) => {
                let items = items(what, raw, most)?;
                let mut set = NodeSet::with_capacity(items.len(), 0);
                for item in &items {
                    set.insert(&node_name(what, item)?);
                }
                set
            }
        };
        if set.len() > most {
            return Err(WireError::TooManyNodes {
                what,
                count: set.len(),
                most,
            });
        }
        Ok(set)
    }
}

struct Names {
    set: NodeSet,
    most: usize,
}

impl<'de> Visitor<'de> for Names {
    type Value = NodeSet;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of node names")
    }
    fn visit_seq<A: SeqAccess<'de>>(mut self, mut seq: A) -> Result<NodeSet, A::Error> {
        while let Some(Name(name)) = seq.next_element()? {
            self.set.insert(&name);
            if self.set.len() > self.most {
                // One too many says it; the rest is not worth the memory.
                while seq.next_element::<IgnoredAny>()?.is_some() {}
                break;
            }
        }
        Ok(self.set)
    }
}

/// Lists and objects of raw values, of which no more than one too many is taken: the text
/// of a value may be shorter than the memory for it.
struct AtMost(usize);

impl<'de> Visitor<'de> for AtMost {
    type Value = Vec<(Cow<'de, str>, Option<&'de RawValue>)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list or an object")
    }
    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Vec::new())
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        let mut values = Vec::new();
        while let Some(value) = seq.next_element()? {
            values.push((Cow::Borrowed(""), Some(value)));
            if values.len() > self.0 {
                while seq.next_element::<IgnoredAny>()?.is_some() {}
                break;
            }
        }
        Ok(values)
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut values = Vec::new();
        while let Some((Name(key), value)) = map.next_entry()? {
            values.push((key, value));
            if values.len() > self.0 {
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                break;
            }
        }
        Ok(values)
    }
}

fn list(raw: &RawValue, most: usize) -> Result<Vec<&RawValue>, serde_json::Error> {
    let values = serde_json::Deserializer::from_str(raw.get()).deserialize_seq(AtMost(most))?;
    Ok(values.into_iter().filter_map(|(_, value)| value).collect())
}

/// The `items` of a NodeList, as they came.
///
/// # Errors
/// No list, or more than `most`.
pub fn items<'a>(
    what: &'static str,
    nodes: &'a RawValue,
    most: usize,
) -> Result<Vec<&'a RawValue>, WireError> {
    let Fields([items]) = fields(what, nodes.get(), ["items"])?;
    let items = match items {
        None => Vec::new(),
        Some(raw) => list(raw, most).map_err(|error| WireError::Json { what, error })?,
    };
    if items.len() > most {
        let count = items.len();
        return Err(WireError::TooManyNodes { what, count, most });
    }
    Ok(items)
}

/// The name of a node object.
pub fn node_name<'a>(what: &'static str, node: &'a RawValue) -> Result<Cow<'a, str>, WireError> {
    let Fields([metadata]) = fields(what, node.get(), ["metadata"])?;
    let missing = WireError::Missing {
        what,
        field: "metadata.name of a node",
    };
    let Some(metadata) = metadata else {
        return Err(missing);
    };
    let Fields([name]) = fields(what, metadata.get(), ["name"])?;
    let Some(name) = name else {
        return Err(missing);
    };
    serde_json::from_str::<Name<'_>>(name.get())
        .map(|n| n.0)
        .map_err(|error| WireError::Json { what, error })
}

/// `HostPriority`.
#[derive(Serialize)]
pub struct HostPriority<'a> {
    pub host: &'a str,
    pub score: u8,
}

/// `ExtenderFilterResult` as names.
pub fn filter_names<'a>(
    names: impl Iterator<Item = &'a str>,
    failed: &[(&'a str, &'a str)],
    unresolvable: &[(&'a str, &'a str)],
) -> Vec<u8> {
    let mut out = br#"{"nodenames":["#.to_vec();
    for (i, name) in names.enumerate() {
        if i > 0 {
            out.push(b',');
        }
        write_text(&mut out, name);
    }
    out.push(b']');
    write_failed(&mut out, failed, unresolvable);
    out
}

/// `ExtenderFilterResult` as node objects, each as it came.
pub fn filter_objects<'a>(
    nodes: impl Iterator<Item = &'a RawValue>,
    failed: &[(&'a str, &'a str)],
    unresolvable: &[(&'a str, &'a str)],
) -> Vec<u8> {
    let mut out = br#"{"nodes":{"metadata":{},"items":["#.to_vec();
    for (i, node) in nodes.enumerate() {
        if i > 0 {
            out.push(b',');
        }
        out.extend_from_slice(node.get().as_bytes());
    }
    out.extend_from_slice(b"]}");
    write_failed(&mut out, failed, unresolvable);
    out
}

fn write_failed(out: &mut Vec<u8>, failed: &[(&str, &str)], unresolvable: &[(&str, &str)]) {
    for (key, nodes) in [
        ("failedNodes", failed),
        ("failedAndUnresolvableNodes", unresolvable),
    ] {
        if nodes.is_empty() {
            continue;
        }
        out.extend_from_slice(b",\"");
        out.extend_from_slice(key.as_bytes());
        out.extend_from_slice(b"\":{");
        for (i, (node, reason)) in nodes.iter().enumerate() {
            if i > 0 {
                out.push(b',');
            }
            write_text(out, node);
            out.push(b':');
            write_text(out, reason);
        }
        out.push(b'}');
    }
    out.push(b'}');
}

fn write_text(out: &mut Vec<u8>, text: &str) {
    // Writing a string into memory cannot fail.
    _ = serde_json::to_writer(out, text);
}

/// `ExtenderFilterResult` and `ExtenderBindingResult` with an error.
pub fn error_result(error: &str) -> Vec<u8> {
    serde_json::json!({ "error": error })
        .to_string()
        .into_bytes()
}

#[cfg(test)]
#[path = "wire_tests.rs"]
mod tests;
