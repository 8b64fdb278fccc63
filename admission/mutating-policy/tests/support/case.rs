//! Cases that our engine and a real API server replay alike: what policies make
//! of one object. The files of `cases/` say each as briefly as it can be said;
//! here it becomes manifests.

use std::path::Path;

use serde::Deserialize;
use serde_json::{Value, json};

/// One case as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    /// Its name, and that of its namespace and all its objects.
    pub name: String,
    /// Labels of the namespace.
    #[serde(default)]
    labels: Value,
    /// The policies; by default of pods that are created, and run once.
    policies: Vec<Written>,
    /// Objects that are there before, in the case's namespace unless they say.
    #[serde(default)]
    pub params: Vec<Value>,
    /// The object; a small pod if absent, what is changed in it if it has no kind.
    #[serde(default)]
    object: Value,
    /// The object before: an update then.
    #[serde(default)]
    pub old: Option<Value>,
    /// What comes of it.
    pub expect: Expect,
    /// The code with which the API server refuses what we leave to the failurePolicy.
    #[serde(default)]
    pub api_server: Option<u16>,
    /// Why a real API server is not asked.
    #[serde(default)]
    pub ours_only: Option<String>,
}

/// A policy as it is written: `spec` and the specs of its bindings.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    #[serde(default)]
    name: Option<String>,
    spec: Value,
    #[serde(default)]
    bindings: Option<Vec<Value>>,
}

/// What comes of a case.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(rename_all = "camelCase")]
pub enum Expect {
    /// The object as it came.
    Unchanged,
    /// The object with these operations applied (RFC 6902).
    Patch(Value),
    /// A refusal: its code and part of its text.
    Refused(u16, String),
    /// A policy is not even taken; part of the text.
    Invalid(String),
}

/// The API group that the manifests are written for.
pub enum Group {
    /// `tautline.io/v1alpha1`
    Ours,
    /// `admissionregistration.k8s.io/v1`
    Theirs,
}

impl Case {
    /// All cases, by file and in the order of the files' contents.
    pub fn all(dir: &Path) -> Vec<Self> {
        let mut files: Vec<_> = std::fs::read_dir(dir)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .collect();
        files.sort();
        let read = |path: &std::path::PathBuf| -> Vec<Self> {
            let text = std::fs::read_to_string(path).unwrap();
            let options = serde_saphyr::options! { strict_booleans: true };
            serde_saphyr::from_str_with_options(&text, options)
                .unwrap_or_else(|e| panic!("{}: {e}", path.display()))
        };
        files.iter().flat_map(read).collect()
    }

    /// The Namespace.
    pub fn namespace(&self) -> Value {
        let mut namespace = json!({"apiVersion": "v1", "kind": "Namespace",
            "metadata": {"name": self.name, "labels": {"kubernetes.io/metadata.name": self.name}}});
        merge(&mut namespace["metadata"]["labels"], &self.labels);
        namespace
    }

    /// The object of the request.
    pub fn object(&self) -> Value {
        let mut object = if self.object.get("kind").is_some() {
            self.object.clone()
        } else {
            let mut pod = json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "demo", "labels": {"app": "web"}},
            "spec": {
                "automountServiceAccountToken": false,
                "containers": [
                    {"name": "main", "image": "example.com/app:1",
                     "env": [{"name": "A", "value": "1"}],
                     "ports": [{"containerPort": 80}]},
                    {"name": "side", "image": "example.com/side:1"},
                ],
            }});
            merge(&mut pod, &self.object);
            pod
        };
        self.place(&mut object);
        object
    }

    /// The object before, if it is an update.
    pub fn old(&self) -> Option<Value> {
        let mut old = self.old.clone()?;
        self.place(&mut old);
        Some(old)
    }

    /// The parameters.
    pub fn params(&self) -> Vec<Value> {
        let mut params = self.params.clone();
        params.iter_mut().for_each(|param| self.place(param));
        params
    }

    fn place(&self, object: &mut Value) {
        let kind = object["kind"].as_str().unwrap_or_default();
        if !["Namespace", "PriorityClass"].contains(&kind) {
            let namespace = &mut object["metadata"]["namespace"];
            if namespace.is_null() {
                *namespace = self.name.as_str().into();
            }
        }
    }

    /// Policies and bindings, those only for the case's own namespace.
    pub fn manifests(&self, group: &Group) -> Vec<Value> {
        let (version, policy, binding) = match group {
            Group::Ours => (
                "tautline.io/v1alpha1",
                "MutationPolicy",
                "MutationPolicyBinding",
            ),
            Group::Theirs => (
                "admissionregistration.k8s.io/v1",
                "MutatingAdmissionPolicy",
                "MutatingAdmissionPolicyBinding",
            ),
        };
        let mut all = Vec::new();
        for (i, written) in self.policies.iter().enumerate() {
            let short = written.name.clone().unwrap_or_else(|| format!("p{i}"));
            let name = format!("{}-{short}", self.name);
            all.push(json!({"apiVersion": version, "kind": policy,
                "metadata": {"name": name}, "spec": spec(&written.spec)}));
            let one = vec![json!({})];
            let bindings = written.bindings.as_ref().unwrap_or(&one);
            for (j, given) in bindings.iter().enumerate() {
                let mut spec = json!({"policyName": name, "matchResources": {"namespaceSelector":
                    {"matchLabels": {"kubernetes.io/metadata.name": self.name}}}});
                merge(&mut spec, given);
                let name = format!("{name}-{j}");
                all.push(json!({"apiVersion": version, "kind": binding,
                    "metadata": {"name": name}, "spec": spec}));
            }
        }
        all
    }
}

/// A policy's spec: short forms written out, defaults of these cases set.
/// `apply` and `patch` stand for one mutation each, in that order.
fn spec(given: &Value) -> Value {
    let mut spec = json!({
        "reinvocationPolicy": "Never",
        "matchConstraints": {"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"],
            "operations": ["CREATE"], "resources": ["pods"]}]},
    });
    merge(&mut spec, given);
    let fields = spec.as_object_mut().unwrap();
    for (short, patch, field) in [
        ("apply", "ApplyConfiguration", "applyConfiguration"),
        ("patch", "JSONPatch", "jsonPatch"),
    ] {
        let Some(expressions) = fields.remove(short) else {
            continue;
        };
        let expressions = match expressions {
            Value::Array(many) => many,
            one => vec![one],
        };
        let mutations = fields.entry("mutations").or_insert_with(|| json!([]));
        for expression in expressions {
            let mutation = json!({"patchType": patch, field: {"expression": expression}});
            mutations.as_array_mut().unwrap().push(mutation);
        }
    }
    spec.as_object_mut().unwrap().retain(|_, v| !v.is_null());
    spec
}

/// Puts what is given over what is there: maps by key, all else as a whole.
fn merge(into: &mut Value, given: &Value) {
    match (into, given) {
        (_, Value::Null) => {}
        (Value::Object(into), Value::Object(given)) => {
            for (name, value) in given {
                let place = into.entry(name).or_insert(Value::Null);
                if value.is_null() {
                    *place = Value::Null;
                } else {
                    merge(place, value);
                }
            }
        }
        (into, given) => *into = given.clone(),
    }
}
