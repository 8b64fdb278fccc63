//! The custom resource definitions are installed, and those of this binary.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::ResourceExt;
use serde_json::Value;
use tautline_api::crds;

use super::or_ok;
use crate::doctor::{
    cluster::State,
    finding::{Finding, counted, first_of},
};

const APPLY: &str = "tautline crds | kubectl apply --server-side -f -";
/// Fields that one finding names.
const MAX_FIELDS: usize = 5;

pub(super) fn check(state: &State<'_>) -> Vec<Finding> {
    let Some(installed) = &state.cluster.crds else {
        return Vec::new();
    };
    let ours = crds::all();
    let count = ours.len();
    let findings = ours.iter().flat_map(|ours| {
        let name = ours.name_any();
        let object = format!("CustomResourceDefinition {name}");
        match installed.iter().find(|c| c.name_any() == name) {
            Some(theirs) => compare(&object, ours, theirs),
            None => {
                let text = "is not installed: the cluster does not know the kind";
                vec![Finding::problem("CrdMissing", object, text, APPLY)]
            }
        }
    });
    let passed = Finding::ok(
        "CrdsInstalled",
        counted(count, "custom resource definition"),
        "installed, with the fields of this tautline",
    );
    or_ok(findings.collect(), passed)
}

fn compare(
    object: &str,
    ours: &CustomResourceDefinition,
    theirs: &CustomResourceDefinition,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    let conditions = theirs.status.as_ref().and_then(|s| s.conditions.as_ref());
    let failed = conditions
        .into_iter()
        .flatten()
        .find(|c| ["Established", "NamesAccepted"].contains(&&*c.type_) && c.status == "False");
    if let Some(condition) = failed {
        let why = condition.message.as_deref().unwrap_or_default();
        findings.push(Finding::problem(
            "CrdNotServed",
            object,
            format!("is not served: {why}"),
            "remove the definition that has its names: kubectl get crds",
        ));
    }
    let older = missing(ours, theirs);
    if !older.is_empty() {
        let text = format!(
            "is older than this tautline: {} missing; the API server drops such fields",
            first_of(&older, MAX_FIELDS)
        );
        findings.push(Finding::problem("CrdOld", object, text, APPLY));
    }
    let newer = missing(theirs, ours);
    if !newer.is_empty() {
        findings.push(Finding::warning(
            "CrdNewer",
            object,
            format!(
                "has fields that this tautline does not know: {}",
                first_of(&newer, MAX_FIELDS)
            ),
            "use a tautline of the version that runs in the cluster",
        ));
    }
    findings
}

/// The fields and values of `wanted` that the other lacks.
fn missing(wanted: &CustomResourceDefinition, other: &CustomResourceDefinition) -> Vec<String> {
    let mut all = Vec::new();
    for version in &wanted.spec.versions {
        let same = other.spec.versions.iter().find(|v| v.name == version.name);
        let Some(same) = same else {
            all.push(format!("version {}", version.name));
            continue;
        };
        let schema = |v: &Option<_>| serde_json::to_value(v).unwrap_or_default();
        let (wanted, other) = (schema(&version.schema), schema(&same.schema));
        let root = "openAPIV3Schema";
        compare_schemas(&wanted[root], &other[root], "", &mut all);
    }
    all
}

fn compare_schemas(wanted: &Value, other: &Value, path: &str, missing: &mut Vec<String>) {
    for (name, field) in wanted["properties"].as_object().into_iter().flatten() {
        let path = if path.is_empty() {
            name.clone()
        } else {
            format!("{path}.{name}")
        };
        match other["properties"].get(name) {
            Some(there) => compare_schemas(field, there, &path, missing),
            None => missing.push(path),
        }
    }
    for value in wanted["enum"].as_array().into_iter().flatten() {
        let known = other["enum"].as_array();
        if known.is_some_and(|known| !known.contains(value)) {
            missing.push(format!("{path}: {value}"));
        }
    }
    for (part, suffix) in [("items", "[]"), ("additionalProperties", ".*")] {
        if let (Some(wanted), Some(other)) = (wanted.get(part), other.get(part)) {
            compare_schemas(wanted, other, &format!("{path}{suffix}"), missing);
        }
    }
}
