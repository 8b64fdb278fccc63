//! Decodes an object by its kind: Tautline's own kinds strictly, foreign kinds as far as planning
//! needs them.

use k8s_openapi::api::{
    apps::v1::{DaemonSet, Deployment, ReplicaSet, StatefulSet},
    batch::v1::{CronJob, Job},
    core::v1::{Pod, ReplicationController},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use tautline_core::names::{API_VERSION, GROUP};

use super::{
    Document, FieldPath, Finding, Item, Location, ManifestError, StorageItem, Workload,
    WorkloadTable, fields, kinds, label_keys, nulls, object_name, workload,
};

/// Returns the item of an object.
pub(super) fn item(
    document: Document,
    table: &WorkloadTable,
    findings: &mut Vec<(Location, Finding)>,
) -> Result<Item, ManifestError> {
    let Document {
        place,
        value,
        duplicates,
        invalid,
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
        invalid,
        table,
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
        ("resource.k8s.io/v1", "ResourceClaimTemplate") => {
            Item::ResourceClaimTemplate(decoder.decode()?)
        }
        ("v1", "Service") => decoder.decode_ours(Item::Service)?,
        ("v1", "ConfigMap") => decoder.decode_ours(Item::ConfigMap)?,
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
        ("v1", "LimitRange")
        | ("node.k8s.io/v1", "RuntimeClass")
        | ("scheduling.k8s.io/v1", "PriorityClass") => Item::Admission(Box::new(decoder.value)),
        _ => match decoder.foreign_workload() {
            Some(workload) => Item::Workload(workload),
            None => {
                if let Some((field, what)) = kinds::check(&version, &kind) {
                    decoder.find(vec![(FieldPath::from_keys([field]), what)]);
                }
                Item::Other(format!("{kind}/{name}"))
            }
        },
    })
}

struct Decoder<'a> {
    place: Location,
    object: String,
    value: Value,
    duplicates: Vec<FieldPath>,
    invalid: Vec<fields::Wrong>,
    table: &'a WorkloadTable,
    findings: &'a mut Vec<(Location, Finding)>,
}

impl Decoder<'_> {
    fn decode<T: DeserializeOwned + Serialize>(&mut self) -> Result<Box<T>, ManifestError> {
        self.check_name()?;
        if let Some((field, what)) = self.invalid.first().cloned() {
            return Err(self.error(field, what));
        }
        let mut duplicates = std::mem::take(&mut self.duplicates).into_iter();
        let version = self.value["apiVersion"].as_str().unwrap_or_default();
        let is_own = version.starts_with(GROUP);
        if is_own && let Some(field) = duplicates.next() {
            return Err(self.error(field, "is there twice; remove one of them".to_owned()));
        }
        let what = "is there twice, and the last one counts; remove the others";
        self.find(duplicates.map(|path| (path, what.to_owned())).collect());
        // The schemas of Tautline's own kinds refuse nulls.
        nulls::replace(if is_own {
            &mut self.value["metadata"]
        } else {
            &mut self.value
        });
        let decoded: T = serde_path_to_error::deserialize(&self.value)
            .map_err(|e| self.error(FieldPath::of(e.path()), quoting(e.inner().to_string())))?;
        self.find(fields::unknown(&self.value, &decoded));
        Ok(Box::new(decoded))
    }

    /// Decodes a storage object. One that does not fit its kind is left out, as other foreign
    /// objects are.
    fn storage<T: DeserializeOwned>(
        &mut self,
        item: fn(Box<T>) -> StorageItem,
        kind: &str,
        name: &str,
    ) -> Item {
        nulls::replace(&mut self.value);
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

    /// Decodes a kind of which Tautline reads only the objects with one of its labels. An object
    /// without is left out, and its faults do not matter.
    fn decode_ours<T: DeserializeOwned + Serialize>(
        &mut self,
        item: fn(Box<T>) -> Item,
    ) -> Result<Item, ManifestError> {
        let labels = self.value["metadata"]["labels"].as_object();
        let mut keys = labels.into_iter().flat_map(|labels| labels.keys());
        let prefix = format!("{GROUP}/");
        if keys.any(|key| key.starts_with(&prefix)) {
            return Ok(item(self.decode()?));
        }
        let found = self.findings.len();
        let item = self.decode().map(item);
        self.findings.truncate(found);
        Ok(item.unwrap_or_else(|_| Item::Other(self.object.clone())))
    }

    /// Decodes a workload whose kind has the fields of `T`.
    fn workload<T: DeserializeOwned + Serialize>(&mut self) -> Result<Item, ManifestError> {
        self.decode::<T>()?;
        let mut wrong = Vec::new();
        match self.read_workload(&mut wrong) {
            Some(workload) if wrong.is_empty() => Ok(Item::Workload(workload)),
            _ => {
                let (field, what) = wrong.into_iter().next().unwrap_or_default();
                Err(self.error(field, what))
            }
        }
    }

    /// Reads a workload of a foreign kind; its faults are findings.
    fn foreign_workload(&mut self) -> Option<Box<Workload>> {
        let mut wrong = Vec::new();
        let workload = self.read_workload(&mut wrong)?;
        for (at, template) in workload.templates() {
            let unknown = fields::unknown(at.value(&self.value), template);
            wrong.extend(unknown.into_iter().map(|(f, what)| (at.join(&f), what)));
        }
        self.find(wrong);
        Some(workload)
    }

    fn read_workload(&mut self, wrong: &mut Vec<fields::Wrong>) -> Option<Box<Workload>> {
        let workload = Workload::read(self.table, &self.value, wrong)?;
        let mut quantities = Vec::new();
        for (at, template) in workload.templates() {
            let pod = Pod {
                spec: template.spec.clone(),
                ..Pod::default()
            };
            quantities.extend(fields::pod_quantities(&at.key("spec"), &pod));
        }
        self.find(quantities);
        Some(Box::new(workload))
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
