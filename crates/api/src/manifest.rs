//! Manifest files: YAML or JSON with any number of documents, including lists.

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
    core::v1::{ConfigMap, Namespace, Node, Pod, ReplicationController, Service},
    discovery::v1::EndpointSlice,
    resource::v1::{DeviceClass, ResourceClaim, ResourceSlice},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use tautline_core::{names::API_VERSION, text::shorten};

use crate::{ConstraintPolicy, ConstraintPolicyOffer, CostProvider, RuleProvider};

pub use documents::{Document, documents};
pub use duplicates::check_duplicates;
pub use encoding::decode;
pub use generated_names::generate_names;
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
    /// Not YAML; the text names line and column.
    #[error("not valid YAML: {}", shorten(.0))]
    Yaml(String),
    /// A document that is not a Kubernetes object.
    #[error("document {}: apiVersion and kind are missing; a manifest begins with both", .0.document)]
    NoKind(Location),
    /// An object whose fields do not fit its kind.
    #[error("{}: {}{}", shorten(object), prefix(field), shorten(what))]
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
    objects(documents(text)?)
}

/// Reads the objects of documents, and finds the ignored parts.
///
/// # Errors
/// The first document that is malformed.
pub fn objects(documents: Vec<Document>) -> Result<Manifest, ManifestError> {
    let mut manifest = Manifest::default();
    for document in documents {
        let place = document.place;
        let item = item_of(document, &mut manifest.findings)?;
        manifest.objects.push((place, item));
    }
    Ok(manifest)
}

/// The ignored parts of an object; empty if it does not fit its kind.
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

/// Adds the fix for `yes`, `010` and the like in place of a text.
fn quoting(message: String) -> String {
    let scalar = ["boolean", "integer", "floating point"];
    let is_text = message.ends_with("expected a string")
        && scalar
            .iter()
            .any(|s| message.starts_with(&format!("invalid type: {s}")));
    match is_text {
        true => message + "; write it in quotes",
        false => message,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn read_accepts_documents_lists_and_other_kinds() {
        let items = parse(
            "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: []}\n---\n---\n\
             apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: Node\n  metadata: {name: 'n'}\n\
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
        let unquoted = "apiVersion: v1\nkind: Pod\nmetadata: {name: yes}\n";
        let e = message(unquoted);
        assert_eq!(
            e,
            "Pod in document 1: metadata.name: is not a text; write it in quotes"
        );
        let e = message(&unquoted.replace("name: yes", "name: a, labels: {b: 010}"));
        assert!(
            e.starts_with(
                "Pod a: metadata.labels.b: invalid type: integer `8`, expected a string; write"
            ),
            "{e}"
        );
        let e = message(&unquoted.replace(
            "name: yes",
            &format!("name: a, labels: x{}", "1".repeat(2_000_000)),
        ));
        assert!(e.len() < 1000, "{} bytes", e.len());
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
    fn foreign_objects_are_read_as_far_as_needed() {
        let text = "apiVersion: v1\nkind: Secret\nmetadata: {generateName: s-}\ndata: {a: x}\ndata: {b: y}\n---\n\
                    \u{feff}apiVersion: example.com/v1\nkind: Thing\nspec: [0755, .5, !x y]\n---\n\
                    apiVersion: batch/v1\nkind: Job\nmetadata: {generateName: j-}\n\
                    spec: {template: {metadata: {labels: {a: b}}}}\n";
        let mut manifest = read(text).unwrap();
        assert_eq!(manifest.findings, []);
        generate_names(&mut manifest.objects);
        let pods = add_template_pods(manifest.objects);
        let names: Vec<String> = pods
            .iter()
            .map(|(_, item)| match item {
                Item::Other(name) => name.clone(),
                Item::Workload(job) => job.to_string(),
                Item::Pod(pod) => pod.metadata.name.clone().unwrap_or_default(),
                other => format!("{other:?}"),
            })
            .collect();
        assert_eq!(names, ["Secret/s-*", "Thing/", "Job j-00001", "j-00001-0"]);
    }

    #[test]
    fn typed_lists_and_json_values_are_read() {
        let pod = |name: &str| format!("{{\"metadata\": {{\"name\": \"{name}\"}}}}");
        let list = |kind: &str, version: &str, items: &str| {
            format!("{{\"kind\": \"{kind}\", \"apiVersion\": \"{version}\", \"items\": [{items}]}}")
        };
        let policies = list(
            "ConstraintPolicyList",
            API_VERSION,
            "{\"metadata\": {\"name\": \"p\"}, \"spec\": {\"rules\": []}}",
        );
        let text = list("PodList", "v1", &format!("{}, {}", pod("a"), pod("b")))
            + &policies
            + &list("NodeList", "v1", "");
        let items = parse(&text).unwrap();
        assert!(
            matches!(&items[..], [Item::Pod(_), Item::Pod(_), Item::Policy(_)]),
            "{items:?}"
        );
        // It is no list of objects, but an object.
        let own = "apiVersion: example.com/v1\nkind: AllowList\nmetadata: {name: a}\n";
        assert!(matches!(&parse(own).unwrap()[..], [Item::Other(name)] if name == "AllowList/a"));
    }

    #[test]
    fn of_equal_keys_the_last_one_counts_with_a_finding() {
        let found = found(
            "apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: Pod\n  metadata: {name: a}\n\
             \x20 spec:\n    nodeName: one\n    containers: []\n    nodeName: two\n",
        );
        let what = "is there twice, and the last one counts; remove the others";
        assert_eq!(found, [format!("10: Pod a: spec.nodeName: {what}")]);
    }

    #[test]
    fn aliases_and_merge_keys_are_bounded() {
        let many = "*a, ".repeat(500);
        let text =
            format!("a: &a {{b: 1}}\nmany: [{many}]\nc: {{<<: *a, b: 2, d: 3}}\n<<: {{e: 4}}\n");
        let value = &documents(&text).unwrap()[0];
        assert_eq!(value.value["many"].as_array().unwrap().len(), 500);
        assert_eq!(value.value["c"], serde_json::json!({"b": 2, "d": 3}));
        assert_eq!((&value.value["e"], value.duplicates.len()), (&4.into(), 0));

        let bomb: String = (1..30)
            .map(|i| format!("a{i}: &a{i} [{}]\n", format!("*a{}, ", i - 1).repeat(9)))
            .collect();
        let bomb = format!("a0: &a0 {}\n{bomb}", "x".repeat(100));
        let deep: String = (1..2000)
            .map(|i| format!("a{i}: &a{i} [*a{}]\n", i - 1))
            .collect();
        for (text, part) in [
            (bomb, "its aliases copy more than"),
            (format!("a0: &a0 x\n{deep}"), "it is deeper than"),
            (
                "a: &a [*a]\n".to_owned(),
                "inside of the node that its anchor names",
            ),
            ("<<: 1\n".to_owned(), "the value of << is not a mapping"),
        ] {
            let error = documents(&text).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn findings_have_unknown_fields() {
        let found = found(
            "apiVersion: v1\nkind: Pod\nmetadata: {name: a, namespace: shop, lables: {a: b}}\n\
             spec:\n  containers:\n  - name: main\n    resources:\n      requets: {cpu: 1}\n\
             \x20     requests: {cpu: 2 cores, memory: -1Gi, nvidia.com/gpu: 1}\n      limits: {}\n\
             \x20 nodeName: null\n---\n\
             apiVersion: v1\nkind: Node\nmetadata: {name: 'n'}\nstatus:\n  allocatable:\n\
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
