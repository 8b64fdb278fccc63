//! Reads manifest files: YAML or JSON with any number of documents, including lists.

mod compose;
mod decode;
mod documents;
mod duplicates;
mod encoding;
mod fields;
mod generated_names;
mod groups;
mod kinds;
mod label_keys;
mod nulls;
mod path;
mod references;
mod scalar;
mod scope;
mod template_pods;
mod workload;

use std::fmt;

use k8s_openapi::api::{
    core::v1::{ConfigMap, Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod, Service},
    discovery::v1::EndpointSlice,
    resource::v1::{DeviceClass, ResourceClaim, ResourceClaimTemplate, ResourceSlice},
    storage::v1::StorageClass,
};
use serde_json::Value;
use tautline_core::text::shorten;

use crate::{ConstraintPolicy, ConstraintPolicyOffer, CostProvider, RuleProvider};

pub use documents::{Document, LineIndex, documents};
pub use duplicates::check_duplicates;
pub use encoding::decode;
pub use generated_names::generate_names;
pub use path::FieldPath;
pub use references::check_references;
pub use scope::{is_cluster_wide, set_namespace};
pub use template_pods::{MAX_TEMPLATE_PODS, add_template_pods};
pub use workload::{Workload, WorkloadTable, WorkloadTableError};

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
    ResourceClaimTemplate(Box<ResourceClaimTemplate>),
    Service(Box<Service>),
    EndpointSlice(Box<EndpointSlice>),
    ConfigMap(Box<ConfigMap>),
    Policy(Box<ConstraintPolicy>),
    Offer(Box<ConstraintPolicyOffer>),
    CostProvider(Box<CostProvider>),
    RuleProvider(Box<RuleProvider>),
    Storage(StorageItem),
    /// A RuntimeClass, LimitRange or PriorityClass, by which the API server completes new pods.
    Admission(Box<Value>),
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
    objects(documents(text)?, &WorkloadTable::default())
}

/// Reads the objects of documents, and finds the ignored parts. `workloads` has the kinds whose
/// objects make pods.
///
/// # Errors
/// A document is malformed; the error is of the first such document.
pub fn objects(
    documents: Vec<Document>,
    workloads: &WorkloadTable,
) -> Result<Manifest, ManifestError> {
    let mut manifest = Manifest::default();
    for document in documents {
        let place = document.place;
        let item = decode::item(document, workloads, &mut manifest.findings)?;
        manifest.objects.push((place, item));
    }
    Ok(manifest)
}

/// Returns whether a document is a Kubernetes object, or meant to be one. Files of other tools have
/// no such documents.
pub fn is_object(document: &Document) -> bool {
    let text = |field: &str| document.value[field].as_str().unwrap_or_default();
    kinds::is_meant(text("apiVersion"), text("kind"))
}

/// Returns the ignored parts of an object; empty if the object does not fit its kind.
pub fn findings(document: Document) -> Vec<(Location, Finding)> {
    let mut findings = Vec::new();
    match decode::item(document, &WorkloadTable::default(), &mut findings) {
        Ok(_) => findings,
        Err(_) => Vec::new(),
    }
}

/// Parses bytes as manifests. For the fuzz target and the replay of its corpus.
#[doc(hidden)]
pub fn fuzz(data: &[u8]) {
    let text = decode(data.to_vec());
    let lines = LineIndex::new(&text);
    for (place, finding) in read(&text).unwrap_or_default().findings {
        _ = (lines.line(place, &finding.field), finding.to_string());
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

#[cfg(test)]
mod tests;
