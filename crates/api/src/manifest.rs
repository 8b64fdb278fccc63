//! Reads manifest files: YAML or JSON with any number of documents, including lists.

mod compose;
mod documents;
mod duplicates;
mod encoding;
mod fields;
mod generated_names;
mod kinds;
mod label_keys;
mod nulls;
mod path;
mod references;
mod scalar;
mod workload;

use std::fmt;

use k8s_openapi::api::{
    apps::v1::{DaemonSet, Deployment, ReplicaSet, StatefulSet},
    batch::v1::{CronJob, Job},
    core::v1::{
        ConfigMap, Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod,
        ReplicationController, Service,
    },
    discovery::v1::EndpointSlice,
    resource::v1::{DeviceClass, ResourceClaim, ResourceSlice},
    storage::v1::StorageClass,
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use tautline_core::{names::API_VERSION, text::shorten};

use crate::{ConstraintPolicy, ConstraintPolicyOffer, CostProvider, RuleProvider};

pub use documents::{Document, LineIndex, documents};
pub use duplicates::check_duplicates;
pub use encoding::{DecodeError, decode};
pub use generated_names::generate_names;
pub use path::FieldPath;
pub use references::check_references;
pub use workload::{MAX_TEMPLATE_PODS, Workload, add_template_pods};

/// One object of a manifest file.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "each variant has the kind of its name")]
pub enum Item {
    Pod(Box<Pod>),
    Node(Box<Node>),
    Namespace(Box<Namespace>),
    DeviceClass(Box<DeviceClass>),
    ResourceSlice(Box<ResourceSlice>),
    ResourceClaim(Box<ResourceClaim>),
    Service(Box<Service>),
    EndpointSlice(Box<EndpointSlice>),
    ConfigMap(Box<ConfigMap>),
    Policy(Box<ConstraintPolicy>),
    Offer(Box<ConstraintPolicyOffer>),
    CostProvider(Box<CostProvider>),
    RuleProvider(Box<RuleProvider>),
    Storage(StorageItem),
    /// A Deployment or another controller of pods; [`add_template_pods`] adds its pods.
    Workload(Box<Workload>),
    /// A kind without effect on planning, as `Kind/name`.
    Other(String),
}

/// An object that decides where volumes can be.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "each variant has the kind of its name")]
pub enum StorageItem {
    PersistentVolumeClaim(Box<PersistentVolumeClaim>),
    PersistentVolume(Box<PersistentVolume>),
    StorageClass(Box<StorageClass>),
}

/// The location of an object in its text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Location {
    /// The number of the object's YAML document, counted from 1 without empty documents.
    pub document: usize,
    /// The object's index in the items of a List; `None` outside of a List.
    pub index: Option<usize>,
}

/// An ignored part of an object that was probably meant to have an effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// `Kind namespace/name`.
    pub object: String,
    /// The field.
    pub field: FieldPath,
    /// The problem and its fix.
    pub message: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (object, field) = (shorten(&self.object), self.field.to_string());
        write!(
            f,
            "{object}: {}: {}",
            shorten(&field),
            shorten(&self.message)
        )
    }
}

/// The objects of a text, and their ignored parts.
#[derive(Clone, Debug, Default)]
pub struct Manifest {
    /// The objects, in the order of the text.
    pub objects: Vec<(Location, Item)>,
    /// The ignored parts, in the order of the text.
    pub findings: Vec<(Location, Finding)>,
}

/// An invalid manifest.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    /// The text is not YAML; the message names line and column.
    #[error("not valid YAML: {}", shorten(.0))]
    Yaml(String),
    /// A document is not a Kubernetes object.
    #[error("document {}: apiVersion and kind are missing; a manifest begins with both", .0.document)]
    NoKind(Location),
    /// The fields of an object do not fit its kind.
    #[error("{}: {}{}", shorten(object), prefix(field), shorten(what))]
    Object {
        /// The object's location.
        place: Location,
        /// `Kind namespace/name`.
        object: String,
        /// The field.
        field: FieldPath,
        /// The problem.
        what: String,
    },
}

impl ManifestError {
    /// Returns the location of the object; `None` if the text is not YAML.
    pub fn place(&self) -> Option<Location> {
        match self {
            Self::Yaml(_) => None,
            Self::NoKind(place) | Self::Object { place, .. } => Some(*place),
        }
    }

    /// Returns the path of the wrong field; the root if the error concerns the whole object.
    pub fn field(&self) -> FieldPath {
        match self {
            Self::Object { field, .. } => field.clone(),
            Self::Yaml(_) | Self::NoKind(_) => FieldPath::default(),
        }
    }
}

/// Reads every object of a manifest text.
///
/// # Errors
/// A document is malformed; the error is of the first such document.
pub fn parse(text: &str) -> Result<Vec<Item>, ManifestError> {
    let objects = read(text)?.objects.into_iter();
    Ok(objects.map(|(_, item)| item).collect())
}

/// Reads every object of a manifest text, and finds the ignored parts.
///
/// # Errors
/// A document is malformed; the error is of the first such document.
pub fn read(text: &str) -> Result<Manifest, ManifestError> {
    objects(documents(text)?)
}

/// Reads the objects of documents, and finds the ignored parts.
///
/// # Errors
/// A document is malformed; the error is of the first such document.
pub fn objects(documents: Vec<Document>) -> Result<Manifest, ManifestError> {
    let mut manifest = Manifest::default();
    for document in documents {
        let place = document.place;
        let item = item_of(document, &mut manifest.findings)?;
        manifest.objects.push((place, item));
    }
    Ok(manifest)
}

/// Returns the ignored parts of an object; empty if the object does not fit its kind.
pub fn findings(document: Document) -> Vec<(Location, Finding)> {
    let mut findings = Vec::new();
    match item_of(document, &mut findings) {
        Ok(_) => findings,
        Err(_) => Vec::new(),
    }
}

/// Parses bytes as manifests. For the fuzz target and the replay of its corpus.
#[doc(hidden)]
pub fn fuzz(data: &[u8]) {
    if let Ok(text) = decode(data.to_vec()) {
        let lines = LineIndex::new(&text);
        for (place, finding) in read(&text).unwrap_or_default().findings {
            _ = (lines.line(place, &finding.field), finding.to_string());
        }
    }
}

fn prefix(field: &FieldPath) -> String {
    match field.to_string() {
        root if root.is_empty() => root,
        field => format!("{}: ", shorten(&field)),
    }
}

fn object_name(kind: &str, namespace: &str, name: &str) -> String {
    match namespace {
        "" => format!("{kind} {name}"),
        namespace => format!("{kind} {namespace}/{name}"),
    }
}

fn item_of(
    document: Document,
    findings: &mut Vec<(Location, Finding)>,
) -> Result<Item, ManifestError> {
    let Document {
        place,
        value,
        duplicates,
    } = document;
    let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
    let (version, kind) = (text(&value["apiVersion"]), text(&value["kind"]));
    if version.is_empty() || kind.is_empty() {
        return Err(ManifestError::NoKind(place));
    }
    let namespace = text(&value["metadata"]["namespace"]);
    let metadata = &value["metadata"];
    let name = match (text(&metadata["name"]), &metadata["generateName"]) {
        (none, Value::String(prefix)) if none.is_empty() => format!("{prefix}*"),
        (name, _) => name,
    };
    let object = match name.as_str() {
        "" => format!("{kind} in document {}", place.document),
        name => object_name(&kind, &namespace, name),
    };
    let mut decoder = Decoder {
        place,
        object,
        value,
        duplicates,
        findings,
    };
    Ok(match (version.as_str(), kind.as_str()) {
        ("v1", "Pod") => {
            let mut pod = decoder.decode()?;
            if workload::is_hook(&decoder.value) {
                return Ok(Item::Other(format!("{kind}/{name}")));
            }
            decoder.find(fields::pod_quantities(
                &FieldPath::from_keys(["spec"]),
                &pod,
            ));
            label_keys::merge(&mut pod);
            Item::Pod(pod)
        }
        ("v1", "Node") => {
            let node = decoder.decode()?;
            decoder.find(fields::node_quantities(&node));
            Item::Node(node)
        }
        ("v1", "Namespace") => Item::Namespace(decoder.decode()?),
        ("resource.k8s.io/v1", "DeviceClass") => Item::DeviceClass(decoder.decode()?),
        ("resource.k8s.io/v1", "ResourceSlice") => Item::ResourceSlice(decoder.decode()?),
        ("resource.k8s.io/v1", "ResourceClaim") => Item::ResourceClaim(decoder.decode()?),
        ("v1", "Service") => Item::Service(decoder.decode()?),
        ("v1", "ConfigMap") => Item::ConfigMap(decoder.decode()?),
        ("discovery.k8s.io/v1", "EndpointSlice") => Item::EndpointSlice(decoder.decode()?),
        (API_VERSION, "ConstraintPolicy") => Item::Policy(decoder.decode()?),
        (API_VERSION, "ConstraintPolicyOffer") => Item::Offer(decoder.decode()?),
        ("constraint.ciena.com/v1", "CostProvider") => Item::CostProvider(decoder.decode()?),
        ("constraint.ciena.com/v1", "RuleProvider") => Item::RuleProvider(decoder.decode()?),
        ("apps/v1", "Deployment") => decoder.workload::<Deployment>()?,
        ("apps/v1", "StatefulSet") => decoder.workload::<StatefulSet>()?,
        ("apps/v1", "DaemonSet") => decoder.workload::<DaemonSet>()?,
        ("apps/v1", "ReplicaSet") => decoder.workload::<ReplicaSet>()?,
        ("batch/v1", "Job") => decoder.workload::<Job>()?,
        ("batch/v1", "CronJob") => decoder.workload::<CronJob>()?,
        ("v1", "ReplicationController") => decoder.workload::<ReplicationController>()?,
        ("v1", "PersistentVolumeClaim") => {
            decoder.storage(StorageItem::PersistentVolumeClaim, &kind, &name)
        }
        ("v1", "PersistentVolume") => decoder.storage(StorageItem::PersistentVolume, &kind, &name),
        ("storage.k8s.io/v1", "StorageClass") => {
            decoder.storage(StorageItem::StorageClass, &kind, &name)
        }
        _ => {
            if let Some((field, what)) = kinds::check(&version, &kind) {
                decoder.find(vec![(FieldPath::from_keys([field]), what)]);
            }
            Item::Other(format!("{kind}/{name}"))
        }
    })
}

struct Decoder<'a> {
    place: Location,
    object: String,
    value: Value,
    duplicates: Vec<FieldPath>,
    findings: &'a mut Vec<(Location, Finding)>,
}

impl Decoder<'_> {
    fn decode<T: DeserializeOwned + Serialize>(&mut self) -> Result<Box<T>, ManifestError> {
        self.check_name()?;
        let what = "is there twice, and the last one counts; remove the others";
        let duplicates = std::mem::take(&mut self.duplicates).into_iter();
        self.find(duplicates.map(|path| (path, what.to_owned())).collect());
        nulls::replace(&mut self.value);
        let decoded: T = serde_path_to_error::deserialize(&self.value)
            .map_err(|e| self.error(FieldPath::of(e.path()), quoting(e.inner().to_string())))?;
        self.find(fields::unknown(&self.value, &decoded));
        Ok(Box::new(decoded))
    }

    /// Decodes a storage object. One that does not fit its kind is left out, as other foreign
    /// objects are.
    fn storage<T: DeserializeOwned>(
        &self,
        item: fn(Box<T>) -> StorageItem,
        kind: &str,
        name: &str,
    ) -> Item {
        match T::deserialize(&self.value) {
            Ok(object) => Item::Storage(item(Box::new(object))),
            Err(_) => Item::Other(format!("{kind}/{name}")),
        }
    }

    fn check_name(&self) -> Result<(), ManifestError> {
        let metadata = &self.value["metadata"];
        let has = |field: &str| {
            metadata[field]
                .as_str()
                .is_some_and(|text| !text.is_empty())
        };
        if has("name") || has("generateName") {
            return Ok(());
        }
        let what = match &metadata["name"] {
            Value::Null | Value::String(_) => "is missing; give the object a name",
            _ => "is not a text; write it in quotes",
        };
        let field = FieldPath::from_keys(["metadata", "name"]);
        Err(self.error(field, what.to_owned()))
    }

    fn error(&self, field: FieldPath, what: String) -> ManifestError {
        ManifestError::Object {
            place: self.place,
            object: self.object.clone(),
            field,
            what,
        }
    }

    /// Decodes a workload whose kind has the fields of `T`.
    fn workload<T: DeserializeOwned + Serialize>(&mut self) -> Result<Item, ManifestError> {
        self.decode::<T>()?;
        let workload = Workload::new(&self.value);
        let (at, pod) = (workload.template_path(), workload.pod(0));
        self.find(fields::pod_quantities(&at.key("spec"), &pod));
        Ok(Item::Workload(Box::new(workload)))
    }

    fn find(&mut self, wrong: Vec<fields::Wrong>) {
        for (field, what) in wrong {
            let object = self.object.clone();
            let finding = Finding {
                object,
                field,
                message: what,
            };
            self.findings.push((self.place, finding));
        }
    }
}

/// Adds the fix to the message about a value such as `yes` or `010` in place of a text.
fn quoting(message: String) -> String {
    let scalar = ["boolean", "integer", "floating point"];
    let is_text = message.ends_with("expected a string")
        && scalar
            .iter()
            .any(|s| message.starts_with(&format!("invalid type: {s}")));
    if is_text {
        message + "; write it in quotes"
    } else {
        message
    }
}

#[cfg(test)]
mod tests;
