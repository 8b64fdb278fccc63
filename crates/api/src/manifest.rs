//! Manifest files: YAML or JSON with any number of documents, including lists.

mod duplicates;
mod fields;
mod kinds;
mod label_keys;
mod path;
mod references;
mod workload;

use std::fmt;

use k8s_openapi::api::{
    apps::v1::{DaemonSet, Deployment, ReplicaSet, StatefulSet},
    batch::v1::{CronJob, Job},
    core::v1::{ConfigMap, Namespace, Node, Pod, ReplicationController, Service},
    discovery::v1::EndpointSlice,
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use tautline_core::names::API_VERSION;

use crate::{ConstraintPolicy, ConstraintPolicyOffer, CostProvider, RuleProvider};

pub use duplicates::check_duplicates;
pub use path::{FieldPath, LineIndex};
pub use references::check_references;
pub use workload::{MAX_TEMPLATE_PODS, Workload, add_template_pods};

/// One object of a manifest file.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "each variant has the kind of its name")]
pub enum Item {
    Pod(Box<Pod>),
    Node(Box<Node>),
    Namespace(Box<Namespace>),
    Service(Box<Service>),
    EndpointSlice(Box<EndpointSlice>),
    ConfigMap(Box<ConfigMap>),
    Policy(Box<ConstraintPolicy>),
    Offer(Box<ConstraintPolicyOffer>),
    CostProvider(Box<CostProvider>),
    RuleProvider(Box<RuleProvider>),
    /// A Deployment or another controller of pods; [`add_template_pods`] adds its pods.
    Workload(Box<Workload>),
    /// A kind without effect on planning, as `Kind/name`.
    Other(String),
}

/// The location of an object in its text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Location {
    /// Its YAML document, from 1 on, without empty ones.
    pub document: usize,
    /// Its index in the items of a List.
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
        write!(f, "{}: {}: {}", self.object, self.field, self.message)
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
    /// Not YAML; the text names line and column.
    #[error("not valid YAML: {0}")]
    Yaml(String),
    /// A document that is not a Kubernetes object.
    #[error("document {}: apiVersion and kind are missing; a manifest begins with both", .0.document)]
    NoKind(Location),
    /// An object whose fields do not fit its kind.
    #[error("{object}: {}{what}", prefix(field))]
    Object {
        /// Its location.
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
    /// The location of the object, unless the text is not YAML.
    pub fn place(&self) -> Option<Location> {
        match self {
            Self::Yaml(_) => None,
            Self::NoKind(place) | Self::Object { place, .. } => Some(*place),
        }
    }

    /// The field at fault; of the whole object without one.
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
/// The first document that is malformed.
pub fn parse(text: &str) -> Result<Vec<Item>, ManifestError> {
    let objects = read(text)?.objects.into_iter();
    Ok(objects.map(|(_, item)| item).collect())
}

/// Reads every object of a manifest text, and finds the ignored parts.
///
/// # Errors
/// The first document that is malformed.
pub fn read(text: &str) -> Result<Manifest, ManifestError> {
    let mut manifest = Manifest::default();
    for (place, value) in documents(text)? {
        let item = item_of(place, value, &mut manifest.findings)?;
        manifest.objects.push((place, item));
    }
    Ok(manifest)
}

/// The ignored parts of an object; empty if it does not fit its kind.
pub fn findings(place: Location, value: Value) -> Vec<(Location, Finding)> {
    let mut findings = Vec::new();
    match item_of(place, value, &mut findings) {
        Ok(_) => findings,
        Err(_) => Vec::new(),
    }
}

// Strict booleans, as in kubectl: YAML 1.1 reads `n` as false. A file may hold a whole cluster.
/// Advice for callers of the library, in its error about a key that is there twice.
const OPTION: &str = ", set DuplicateKeyPolicy in Options if acceptable";

fn options() -> serde_saphyr::Options {
    serde_saphyr::options! {
        strict_booleans: true,
        budget: serde_saphyr::budget! {
            max_documents: 1_000_000,
            max_events: 100_000_000,
            max_nodes: 50_000_000,
            max_total_scalar_bytes: 1 << 30,
        },
    }
}

/// Every object of a manifest text, unchecked, with its location.
///
/// # Errors
/// The text is not YAML.
pub fn documents(text: &str) -> Result<Vec<(Location, Value)>, ManifestError> {
    let documents: Vec<Value> = serde_saphyr::from_multiple_with_options(text, options())
        .map_err(|e| ManifestError::Yaml(e.to_string().replace(OPTION, "; remove one")))?;
    let mut objects = Vec::new();
    for (i, mut value) in documents.into_iter().enumerate() {
        let document = i + 1;
        match value["kind"].as_str() {
            _ if value.is_null() => {}
            Some("List") => {
                if let Value::Array(items) = value["items"].take() {
                    objects.extend(items.into_iter().enumerate().map(|(i, item)| {
                        let index = Some(i);
                        (Location { document, index }, item)
                    }));
                }
            }
            _ => {
                let index = None;
                objects.push((Location { document, index }, value));
            }
        }
    }
    Ok(objects)
}

/// Parses bytes as manifests. For the fuzz target and the replay of its corpus.
#[doc(hidden)]
pub fn fuzz(data: &[u8]) {
    if let Ok(text) = std::str::from_utf8(data) {
        let lines = LineIndex::new(text);
        for (place, finding) in read(text).unwrap_or_default().findings {
            _ = (lines.line(place, &finding.field), finding.to_string());
        }
    }
}

fn prefix(field: &FieldPath) -> String {
    match field.to_string() {
        root if root.is_empty() => root,
        field => field + ": ",
    }
}

fn object_name(kind: &str, namespace: &str, name: &str) -> String {
    match namespace {
        "" => format!("{kind} {name}"),
        namespace => format!("{kind} {namespace}/{name}"),
    }
}

fn item_of(
    place: Location,
    value: Value,
    findings: &mut Vec<(Location, Finding)>,
) -> Result<Item, ManifestError> {
    let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
    let (version, kind) = (text(&value["apiVersion"]), text(&value["kind"]));
    if version.is_empty() || kind.is_empty() {
        return Err(ManifestError::NoKind(place));
    }
    let namespace = text(&value["metadata"]["namespace"]);
    let name = text(&value["metadata"]["name"]);
    let object = object_name(&kind, &namespace, &name);
    if name.is_empty() {
        let object = format!("{kind} in document {}", place.document);
        return Err(ManifestError::Object {
            place,
            object,
            field: FieldPath::from_keys(["metadata", "name"]),
            what: "is missing; give the object a name".to_owned(),
        });
    }
    let mut decoder = Decoder {
        place,
        object,
        value,
        findings,
    };
    Ok(match (version.as_str(), kind.as_str()) {
        ("v1", "Pod") => {
            let mut pod = decoder.decode()?;
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
    findings: &'a mut Vec<(Location, Finding)>,
}

impl Decoder<'_> {
    fn decode<T: DeserializeOwned + Serialize>(&mut self) -> Result<Box<T>, ManifestError> {
        let decoded: T =
            serde_path_to_error::deserialize(&self.value).map_err(|e| ManifestError::Object {
                place: self.place,
                object: self.object.clone(),
                field: FieldPath::of(e.path()),
                what: e.inner().to_string(),
            })?;
        self.find(fields::unknown(&self.value, &decoded));
        Ok(Box::new(decoded))
    }

    /// Its fields are those of `T`.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn read_accepts_documents_lists_and_other_kinds() {
        let items = parse(
            "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: []}\n---\n---\n\
             apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: Node\n  metadata: {name: n}\n\
             - apiVersion: apps/v1\n  kind: Deployment\n  metadata: {name: d}\n",
        )
        .unwrap();
        assert!(
            matches!(&items[..], [Item::Pod(_), Item::Node(_), Item::Workload(d)] if d.to_string() == "Deployment d"),
            "{items:?}"
        );
    }

    #[test]
    fn read_errors_have_object_and_field() {
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
        let twice = message("a: 1\na: 2");
        let mend = "duplicate mapping key: a; remove one";
        assert!(
            twice.contains(mend) && !twice.contains("Options"),
            "{twice}"
        );
        assert!(message("a: 1").contains("document 1: apiVersion and kind are missing"));
    }

    fn found(text: &str) -> Vec<String> {
        let manifest = read(text).unwrap();
        let references = check_references(&manifest.objects);
        let lines = LineIndex::new(text);
        let all = manifest.findings.into_iter().chain(references);
        all.map(|(place, finding)| {
            let line = lines.line(place, &finding.field).unwrap();
            format!("{line}: {finding}")
        })
        .collect()
    }

    #[test]
    fn findings_have_unknown_fields() {
        let found = found(
            "apiVersion: v1\nkind: Pod\nmetadata: {name: a, namespace: shop, lables: {a: b}}\n\
             spec:\n  containers:\n  - name: main\n    resources:\n      requets: {cpu: 1}\n\
             \x20     requests: {cpu: 2 cores, memory: -1Gi, nvidia.com/gpu: 1}\n      limits: {}\n\
             \x20 nodeName: null\n---\n\
             apiVersion: v1\nkind: Node\nmetadata: {name: n}\nstatus:\n  allocatable:\n\
             \x20   cpu: 8\n    example.com/x: lots\n---\n\
             apiVersion: v1\nkind: Podd\nmetadata: {name: b}\n---\n\
             apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d}\nspec:\n\
             \x20 replica: 2\n  template:\n    spec:\n      containers:\n      - name: main\n\
             \x20       resources: {limits: {cpu: lots}}\n",
        );
        let unknown = "unknown field, so it is ignored; correct or remove it";
        assert_eq!(
            found[0],
            format!("3: Pod shop/a: metadata.lables: {unknown}")
        );
        assert_eq!(
            found[1],
            format!("8: Pod shop/a: spec.containers[0].resources.requets: {unknown}")
        );
        for (at, part) in [
            (
                2,
                "9: Pod shop/a: spec.containers[0].resources.requests.cpu: counts as 0: ",
            ),
            (
                3,
                "9: Pod shop/a: spec.containers[0].resources.requests.memory: counts as 0: ",
            ),
            (
                4,
                "19: Node n: status.allocatable[\"example.com/x\"]: counts as 0: ",
            ),
            (5, "22: Podd b: kind: \"Podd\" is not a kind"),
            (6, "29: Deployment d: spec.replica: unknown field"),
            (
                7,
                "34: Deployment d: spec.template.spec.containers[0].resources.limits.cpu: counts as 0: ",
            ),
        ] {
            assert!(found[at].starts_with(part), "{found:#?}");
        }
        assert_eq!(found.len(), 8, "{found:#?}");
    }

    #[test]
    fn check_references_finds_rules_that_do_not_count() {
        let object = |kind: &str, name: &str, spec: &str| {
            format!(
                "apiVersion: constraint.ciena.com/v1alpha1\nkind: {kind}\n\
                 metadata: {{name: {name}, namespace: shop}}\nspec: {spec}\n"
            )
        };
        let policy = |name: &str, spec: &str| object("ConstraintPolicy", name, spec);
        let texts = [
            policy("none", "{rules: []}"),
            policy(
                "twice",
                "{rules: [{name: latency, request: 5ms}, {name: latency, limit: 20ms}]}",
            ),
            policy("other", "{rules: [{name: latency}, {name: jitter}]}"),
            object(
                "ConstraintPolicyOffer",
                "o",
                "{policies: [other, twice], targets: [{kind: Cluster, labelSelector: {}}]}",
            ),
        ];
        let found = found(&texts.join("---\n"));
        let starts = [
            "4: ConstraintPolicy shop/none: spec.rules: no rule",
            "9: ConstraintPolicy shop/twice: spec.rules[1].name: latency is a rule of this policy",
            "19: ConstraintPolicyOffer shop/o: spec.policies[1]: its rule latency is also one of \
             policy other",
        ];
        assert_eq!(found.len(), starts.len(), "{found:#?}");
        for (found, start) in found.iter().zip(starts) {
            assert!(found.starts_with(start), "{found}");
        }
    }

    #[test]
    fn check_references_finds_ineffective_offers_and_workloads() {
        let offer = "apiVersion: constraint.ciena.com/v1alpha1\nkind: ConstraintPolicyOffer\n\
                     metadata: {name: o, namespace: shop}\nspec:\n";
        let found_of = |spec: &str, rest: &str| found(&format!("{offer}{spec}---\n{rest}"));
        let policy = "apiVersion: constraint.ciena.com/v1alpha1\nkind: ConstraintPolicy\n\
                      metadata: {name: p, namespace: shop}\nspec: {rules: [{name: latency}]}\n";
        let deployment = "apiVersion: apps/v1\nkind: Deployment\n\
                          metadata: {name: web, namespace: shop}\nspec:\n  template:\n    \
                          metadata: {labels: {app: web}}\n";
        let pod = "apiVersion: v1\nkind: Pod\n\
                   metadata: {name: web-0, namespace: shop, labels: {app: web, a: b}}\n\
                   spec: {containers: []}\n";
        let good = "  policies: [p]\n  targets:\n  - kind: Pod\n    \
                    labelSelector: {matchLabels: {app: web}}\n";
        assert_eq!(found_of(good, &format!("{policy}---\n{pod}")), [""; 0]);
        // The Deployment's pods would be selected.
        assert_eq!(
            found_of(good, &format!("{policy}---\n{deployment}")),
            [""; 0]
        );

        let daemon_set = deployment.replace("Deployment", "DaemonSet");
        let found = found_of(good, &format!("{policy}---\n{daemon_set}"));
        assert_eq!(found.len(), 1, "{found:#?}");
        assert!(
            found[0].starts_with("19: DaemonSet shop/web: spec.template: a DaemonSet has a pod on"),
            "{found:#?}"
        );
        let all = format!("{policy}---\n{daemon_set}---\n{pod}");
        assert_eq!(found_of(good, &all), [""; 0]);
        // No offer selects it.
        let other = daemon_set.replace("app: web", "app: log");
        assert_eq!(
            found_of(good, &format!("{policy}---\n{pod}---\n{other}")),
            [""; 0]
        );

        let found = found_of(good, &pod.replace("shop", "other"));
        assert!(
            found[0].contains("5: ") && found[0].contains("no ConstraintPolicy shop/p"),
            "{found:#?}"
        );
        assert!(
            found[1].starts_with("8: ") && found[1].contains("selects no Pod of namespace shop"),
            "{found:#?}"
        );
        let found = found_of("  policies: []\n  targets: [{kind: Cluster}]\n", pod);
        assert!(
            found[0].starts_with("5: ") && found[0].contains("no policy"),
            "{found:#?}"
        );
        assert!(
            found[1].starts_with("6: ") && found[1].contains("[0].labelSelector: no labelSelector"),
            "{found:#?}"
        );
        let found = found_of("  policies: [p]\n  targets: []\n", policy);
        assert!(found[0].contains("spec.targets: no target"), "{found:#?}");
    }

    #[test]
    fn the_corpus_of_the_fuzz_target_is_harmless() {
        let corpus = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../tests/fuzz/corpus/manifests"
        );
        let mut replayed = 0;
        for entry in std::fs::read_dir(corpus).unwrap() {
            fuzz(&std::fs::read(entry.unwrap().path()).unwrap());
            replayed += 1;
        }
        assert!(replayed >= 5, "{corpus} has {replayed} files");
    }
}
