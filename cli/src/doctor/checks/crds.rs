//! Checks that the custom resource definitions are installed, and are those of this binary.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceDefinitionVersion,
};
use kube::ResourceExt;
use serde_json::Value;
use tautline_api::crds;

use crate::doctor::{
    cluster::State,
    finding::{Finding, counted, first_of, passed, problem, warning},
};

const APPLY: &str = "tautline crds | kubectl apply --server-side -f -";
/// The maximum number of fields that one finding names.
const MAX_FIELDS: usize = 5;

pub(super) fn check(state: &State<'_>, out: &mut Vec<Finding>) -> Option<Finding> {
    let installed = state.cluster.crds.as_ref()?;
    let all = crds::all();
    for ours in &all {
        let name = ours.name_any();
        let object = format!("CustomResourceDefinition {name}");
        let Some(theirs) = installed.iter().find(|c| c.name_any() == name) else {
            let text = "is not installed: the cluster does not know the kind";
            out.push(problem("CrdMissing", object, text, APPLY));
            continue;
        };
        let status = theirs.status.iter();
        let mut conditions = status.flat_map(|s| s.conditions.iter().flatten());
        let failed = conditions
            .find(|c| c.status == "False" && ["Established", "NamesAccepted"].contains(&&*c.type_));
        if let Some(failed) = failed {
            let why = failed.message.as_deref().unwrap_or_default();
            let text = format!("is not served: {why}");
            let fix = "remove the definition that has its names: kubectl get crds";
            out.push(problem("CrdNotServed", &object, text, fix));
        }
        let (older, newer) = (missing(ours, theirs), missing(theirs, ours));
        if !older.is_empty() {
            let fields = first_of(&older, MAX_FIELDS);
            let effect = "the API server drops such fields";
            let text = format!("is older than this tautline: {fields} missing; {effect}");
            out.push(problem("CrdOld", &object, text, APPLY));
        }
        if !newer.is_empty() {
            let fields = first_of(&newer, MAX_FIELDS);
            let text = format!("has fields that this tautline does not know: {fields}");
            let fix = "use a tautline of the version that runs in the cluster";
            out.push(warning("CrdNewer", object, text, fix));
        }
    }
    let object = counted(all.len(), "custom resource definition");
    let text = "installed, with the fields of this tautline";
    Some(passed("CrdsInstalled", object, text))
}

/// Returns the fields and values of `wanted` that `other` lacks.
fn missing(wanted: &CustomResourceDefinition, other: &CustomResourceDefinition) -> Vec<String> {
    let schema = |v: &CustomResourceDefinitionVersion| {
        serde_json::to_value(&v.schema).unwrap_or_default()["openAPIV3Schema"].take()
    };
    let mut all = Vec::new();
    for version in &wanted.spec.versions {
        let mut others = other.spec.versions.iter();
        match others.find(|v| v.name == version.name) {
            Some(same) => compare(&schema(version), &schema(same), "", &mut all),
            None => all.push(format!("version {}", version.name)),
        }
    }
    all
}

fn compare(wanted: &Value, other: &Value, path: &str, missing: &mut Vec<String>) {
    for (name, field) in wanted["properties"].as_object().into_iter().flatten() {
        let dot = if path.is_empty() { "" } else { "." };
        let path = format!("{path}{dot}{name}");
        match other["properties"].get(name) {
            Some(there) => compare(field, there, &path, missing),
            None => missing.push(path),
        }
    }
    let known = other["enum"].as_array();
    let values = wanted["enum"].as_array().into_iter().flatten();
    let unknown = values.filter(|value| known.is_some_and(|known| !known.contains(value)));
    missing.extend(unknown.map(|value| format!("{path}: {value}")));
    for (part, suffix) in [("items", "[]"), ("additionalProperties", ".*")] {
        if let (Some(wanted), Some(other)) = (wanted.get(part), other.get(part)) {
            compare(wanted, other, &format!("{path}{suffix}"), missing);
        }
    }
}
