//! The defaults of workloads outside their pod templates (pkg/apis/apps/v1 and batch/v1,
//! defaults.go, and the fields that the API server's conversions add).

use serde_json::{Map, Value};

use super::{
    pod,
    rules::{
        FieldDefault::{All, Flag, Number, OptionalText, Other, Text},
        Fields, Rule, add, is_absent, text_of,
    },
};
use crate::request::Kind;

/// Returns the rules of a kind; an empty list for kinds without defaults.
pub(super) fn rules(kind: &Kind) -> &'static [Rule] {
    match (kind.group.as_str(), kind.kind.as_str()) {
        ("", "ReplicationController") => CONTROLLER,
        ("apps", "ReplicaSet") => REPLICA_SET,
        ("apps", "Deployment") => DEPLOYMENT,
        ("apps", "DaemonSet") => DAEMON_SET,
        ("apps", "StatefulSet") => STATEFUL_SET,
        ("batch", "Job") => JOB,
        ("batch", "CronJob") => CRON_JOB,
        _ => &[],
    }
}

// The metadata and the status are not pointers in Go, and so are never absent in the API server's
// objects.

const CONTROLLER: &[Rule] = &[
    ("spec/replicas", Number(1)),
    ("spec/template/metadata!", All(&[])),
    ("spec", Other(selector_of_template)),
    ("", Other(labels_of_template)),
    ("status!/replicas", Number(0)),
];

const REPLICA_SET: &[Rule] = &[
    ("spec/replicas", Number(1)),
    ("spec/template/metadata!", All(&[])),
    ("status!/replicas", Number(0)),
];

const DEPLOYMENT: &[Rule] = &[
    ("spec/replicas", Number(1)),
    ("spec/strategy!/type", Text("RollingUpdate")),
    (
        "spec/strategy/type=RollingUpdate/rollingUpdate!/maxUnavailable|maxSurge",
        OptionalText("25%"),
    ),
    ("spec/revisionHistoryLimit", Number(10)),
    ("spec/progressDeadlineSeconds", Number(600)),
    ("spec/template/metadata!", All(&[])),
    ("status!", All(&[])),
];

const DAEMON_SET: &[Rule] = &[
    // The API server converts a field that v1 does not have into this annotation.
    (
        "metadata/annotations!/deprecated.daemonset.template.generation",
        Text("0"),
    ),
    ("spec/updateStrategy!/type", Text("RollingUpdate")),
    (
        "spec/updateStrategy/type=RollingUpdate/rollingUpdate!",
        All(&[("maxUnavailable", Number(1)), ("maxSurge", Number(0))]),
    ),
    ("spec/revisionHistoryLimit", Number(10)),
    ("spec/template/metadata!", All(&[])),
    (
        "status!/currentNumberScheduled|desiredNumberScheduled|numberMisscheduled|numberReady",
        Number(0),
    ),
];

const STATEFUL_SET: &[Rule] = &[
    ("spec/podManagementPolicy", Text("OrderedReady")),
    ("spec/updateStrategy!", Other(update_strategy)),
    (
        "spec/updateStrategy/type=RollingUpdate/rollingUpdate/partition",
        Number(0),
    ),
    (
        "spec/persistentVolumeClaimRetentionPolicy!/whenDeleted|whenScaled",
        Text("Retain"),
    ),
    ("spec/replicas", Number(1)),
    ("spec/revisionHistoryLimit", Number(10)),
    ("spec/template/metadata!", All(&[])),
    ("spec/volumeClaimTemplates[]", All(CLAIM_TEMPLATE)),
    ("status!/replicas|availableReplicas", Number(0)),
];

const CLAIM_TEMPLATE: &[Rule] = &[
    ("apiVersion", Text("v1")),
    ("kind", Text("PersistentVolumeClaim")),
    ("metadata!", All(&[])),
    ("status!/phase", Text("Pending")),
    ("", All(pod::CLAIM)),
];

const JOB: &[Rule] = &[
    ("", Other(labels_of_template)),
    ("spec", Other(job)),
    ("spec/parallelism", Number(1)),
    ("spec/completionMode", OptionalText("NonIndexed")),
    ("spec/suspend|manualSelector", Flag(false)),
    ("spec", All(JOB_TEMPLATE)),
    ("status!", All(&[])),
];

const CRON_JOB: &[Rule] = &[
    ("spec/concurrencyPolicy", Text("Allow")),
    ("spec/suspend", Flag(false)),
    ("spec/successfulJobsHistoryLimit", Number(3)),
    ("spec/failedJobsHistoryLimit", Number(1)),
    ("spec/jobTemplate/metadata!", All(&[])),
    ("spec/jobTemplate/spec", All(JOB_TEMPLATE)),
    ("status!", All(&[])),
];

/// The defaults that the specs of Jobs and of the Jobs of CronJobs have.
const JOB_TEMPLATE: &[Rule] = &[
    (
        "podFailurePolicy/rules[]/onPodConditions[]/status",
        Text("True"),
    ),
    ("template/metadata!", All(&[])),
];

fn update_strategy(strategy: &mut Fields) {
    if text_of(strategy, "type").is_none_or(str::is_empty) {
        strategy.insert("type".to_owned(), "RollingUpdate".into());
        add(strategy, "rollingUpdate", || Map::new().into());
    }
}

fn job(job: &mut Fields) {
    if is_absent(job, "completions") && is_absent(job, "parallelism") {
        job.insert("completions".to_owned(), 1.into());
    }
    let each = !is_absent(job, "backoffLimitPerIndex");
    add(job, "backoffLimit", || {
        if each { i32::MAX } else { 6 }.into()
    });
    let failed = !is_absent(job, "podFailurePolicy");
    let replaced = if failed {
        "Failed"
    } else {
        "TerminatingOrFailed"
    };
    add(job, "podReplacementPolicy", || replaced.into());
}

/// Returns the labels of the pod template, if it has any.
fn template_labels(fields: &Fields) -> Option<Value> {
    let labels = fields.get("template")?.pointer("/metadata/labels")?;
    labels.is_object().then(|| labels.clone())
}

fn labels_of_template(object: &mut Fields) {
    let spec = object.get("spec").and_then(Value::as_object);
    let labels = spec.and_then(template_labels);
    let metadata = object.get_mut("metadata").and_then(Value::as_object_mut);
    if let (Some(labels), Some(metadata)) = (labels, metadata) {
        add(metadata, "labels", || labels);
    }
}

fn selector_of_template(spec: &mut Fields) {
    if let Some(labels) = template_labels(spec) {
        add(spec, "selector", || labels);
    }
}
