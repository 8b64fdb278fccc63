//! The defaults of workloads outside their pod templates (pkg/apis/apps/v1 and batch/v1,
//! defaults.go, and the fields that the API server's conversions add).

use serde_json::{Map, Value};

use super::{
    pod,
    rules::{Rule, add, is_absent, text_of},
};
use crate::request::Kind;

/// Returns the rules of a kind; an empty list for kinds without defaults.
pub(super) fn rules(kind: &Kind) -> &'static [Rule] {
    match (kind.group.as_str(), kind.kind.as_str()) {
        ("", "ReplicationController") => CONTROLLER,
        ("apps", "ReplicaSet") => &[Rule::In("spec", &[REPLICAS, TEMPLATE]), SCALED],
        ("apps", "Deployment") => DEPLOYMENT,
        ("apps", "DaemonSet") => DAEMON_SET,
        ("apps", "StatefulSet") => STATEFUL_SET,
        ("batch", "Job") => &[
            Rule::Other(labels_of_template),
            Rule::In("spec", JOB),
            STATUS,
        ],
        ("batch", "CronJob") => CRON_JOB,
        _ => &[],
    }
}

const REPLICAS: Rule = Rule::Number("replicas", 1);
const TEMPLATE: Rule = Rule::In("template", &[pod::METADATA]);
/// The status, which is not a pointer in Go and so is never absent in the API server's objects.
const STATUS: Rule = Rule::Always("status", &[]);
/// The status of a kind with replicas.
const SCALED: Rule = Rule::Always("status", &[Rule::Number("replicas", 0)]);
const HISTORY: Rule = Rule::Number("revisionHistoryLimit", 10);

const CONTROLLER: &[Rule] = &[
    Rule::In(
        "spec",
        &[REPLICAS, TEMPLATE, Rule::Other(selector_of_template)],
    ),
    Rule::Other(labels_of_template),
    SCALED,
];

const CLAIM_TEMPLATE: &[Rule] = &[
    Rule::Text("apiVersion", "v1"),
    Rule::Text("kind", "PersistentVolumeClaim"),
    pod::METADATA,
    Rule::Always("status", &[Rule::Text("phase", "Pending")]),
    pod::CLAIM,
];

const DEPLOYMENT: &[Rule] = &[
    Rule::In(
        "spec",
        &[
            REPLICAS,
            Rule::Always(
                "strategy",
                &[
                    Rule::Text("type", "RollingUpdate"),
                    Rule::If(
                        "type",
                        "RollingUpdate",
                        &[Rule::Always("rollingUpdate", QUARTERS)],
                    ),
                ],
            ),
            HISTORY,
            Rule::Number("progressDeadlineSeconds", 600),
            TEMPLATE,
        ],
    ),
    STATUS,
];

const QUARTERS: &[Rule] = &[
    Rule::Text("maxUnavailable", "25%"),
    Rule::Text("maxSurge", "25%"),
];

const DAEMON_SET: &[Rule] = &[
    // The API server converts a field that v1 does not have into this annotation.
    Rule::In(
        "metadata",
        &[Rule::Always(
            "annotations",
            &[Rule::Text("deprecated.daemonset.template.generation", "0")],
        )],
    ),
    Rule::In(
        "spec",
        &[
            Rule::Always(
                "updateStrategy",
                &[
                    Rule::Text("type", "RollingUpdate"),
                    Rule::If(
                        "type",
                        "RollingUpdate",
                        &[Rule::Always("rollingUpdate", ONE)],
                    ),
                ],
            ),
            HISTORY,
            TEMPLATE,
        ],
    ),
    Rule::Always(
        "status",
        &[
            Rule::Number("currentNumberScheduled", 0),
            Rule::Number("desiredNumberScheduled", 0),
            Rule::Number("numberMisscheduled", 0),
            Rule::Number("numberReady", 0),
        ],
    ),
];

const ONE: &[Rule] = &[
    Rule::Number("maxUnavailable", 1),
    Rule::Number("maxSurge", 0),
];

const STATEFUL_SET: &[Rule] = &[
    Rule::In(
        "spec",
        &[
            Rule::Text("podManagementPolicy", "OrderedReady"),
            Rule::Always("updateStrategy", UPDATE),
            Rule::Always(
                "persistentVolumeClaimRetentionPolicy",
                &[
                    Rule::Text("whenDeleted", "Retain"),
                    Rule::Text("whenScaled", "Retain"),
                ],
            ),
            REPLICAS,
            HISTORY,
            TEMPLATE,
            Rule::Each("volumeClaimTemplates", CLAIM_TEMPLATE),
        ],
    ),
    Rule::Always(
        "status",
        &[
            Rule::Number("replicas", 0),
            Rule::Number("availableReplicas", 0),
        ],
    ),
];

const UPDATE: &[Rule] = &[
    Rule::Other(|strategy| {
        if text_of(strategy, "type").is_none_or(str::is_empty) {
            strategy.insert("type".to_owned(), "RollingUpdate".into());
            add(strategy, "rollingUpdate", || Map::new().into());
        }
    }),
    Rule::If(
        "type",
        "RollingUpdate",
        &[Rule::In("rollingUpdate", &[Rule::Number("partition", 0)])],
    ),
];

const JOB: &[Rule] = &[
    Rule::Other(|job| {
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
    }),
    Rule::Number("parallelism", 1),
    Rule::Text("completionMode", "NonIndexed"),
    Rule::Flag("suspend", false),
    Rule::Flag("manualSelector", false),
    FAILURE_POLICY,
    TEMPLATE,
];

const FAILURE_POLICY: Rule = Rule::In(
    "podFailurePolicy",
    &[Rule::Each(
        "rules",
        &[Rule::Each(
            "onPodConditions",
            &[Rule::Text("status", "True")],
        )],
    )],
);

const CRON_JOB: &[Rule] = &[
    Rule::In(
        "spec",
        &[
            Rule::Text("concurrencyPolicy", "Allow"),
            Rule::Flag("suspend", false),
            Rule::Number("successfulJobsHistoryLimit", 3),
            Rule::Number("failedJobsHistoryLimit", 1),
            Rule::In(
                "jobTemplate",
                &[pod::METADATA, Rule::In("spec", &[FAILURE_POLICY, TEMPLATE])],
            ),
        ],
    ),
    STATUS,
];

/// Returns the labels of the pod template, if it has any.
fn template_labels(fields: &Map<String, Value>) -> Option<Value> {
    let labels = fields.get("template")?.pointer("/metadata/labels")?;
    labels.is_object().then(|| labels.clone())
}

fn labels_of_template(object: &mut Map<String, Value>) {
    let spec = object.get("spec").and_then(Value::as_object);
    let labels = spec.and_then(template_labels);
    let metadata = object.get_mut("metadata").and_then(Value::as_object_mut);
    if let (Some(labels), Some(metadata)) = (labels, metadata) {
        add(metadata, "labels", || labels);
    }
}

fn selector_of_template(spec: &mut Map<String, Value>) {
    if let Some(labels) = template_labels(spec) {
        add(spec, "selector", || labels);
    }
}
