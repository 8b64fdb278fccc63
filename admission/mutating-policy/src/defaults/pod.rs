//! The defaults of pod specs, in pods and in pod templates (pkg/apis/core/v1/defaults.go).

use serde_json::{Map, Value};

use super::{
    quantities,
    rules::{Rule, add, is_absent},
};

/// The defaults that pods and pod templates have.
pub(super) const SPEC: &[Rule] = &[
    Rule::Text("dnsPolicy", "ClusterFirst"),
    Rule::Text("restartPolicy", "Always"),
    Rule::Always("securityContext", &[]),
    Rule::Number("terminationGracePeriodSeconds", 30),
    Rule::Text("schedulerName", "default-scheduler"),
    Rule::Each("volumes", VOLUME),
    Rule::Each("initContainers", CONTAINER),
    Rule::Each("containers", CONTAINER),
    Rule::Each("ephemeralContainers", CONTAINER),
    Rule::Other(|spec| quantities(spec, "overhead")),
    Rule::In("resources", RESOURCES),
];

/// The defaults that only pods have.
pub(super) const POD: &[Rule] = &[
    Rule::Flag("enableServiceLinks", true),
    Rule::Each("initContainers", &[Rule::In("resources", REQUESTS)]),
    Rule::Each("containers", &[Rule::In("resources", REQUESTS)]),
    Rule::Other(host_ports),
];

const REQUESTS: &[Rule] = &[Rule::Other(requests)];

pub(super) const RESOURCES: &[Rule] = &[
    Rule::Other(|resources| quantities(resources, "limits")),
    Rule::Other(|resources| quantities(resources, "requests")),
];

const CONTAINER: &[Rule] = &[
    // The field is required, so Go writes its zero value.
    Rule::Text("name", ""),
    Rule::Other(|container| pull_policy(container, "image", "imagePullPolicy")),
    Rule::Text("terminationMessagePath", "/dev/termination-log"),
    Rule::Text("terminationMessagePolicy", "File"),
    Rule::Each("ports", &[Rule::Text("protocol", "TCP")]),
    Rule::Each("env", &[Rule::In("valueFrom", VALUE_FROM)]),
    Rule::Always("resources", RESOURCES),
    Rule::In("livenessProbe", PROBE),
    Rule::In("readinessProbe", PROBE),
    Rule::In("startupProbe", PROBE),
    Rule::In("lifecycle", LIFECYCLE),
];

const VALUE_FROM: &[Rule] = &[
    FIELD_REF,
    Rule::In("fileKeyRef", &[Rule::Flag("optional", false)]),
];

const FIELD_REF: Rule = Rule::In("fieldRef", &[Rule::Text("apiVersion", "v1")]);

const PROBE: &[Rule] = &[
    Rule::NotZero("timeoutSeconds", 1),
    Rule::NotZero("periodSeconds", 10),
    Rule::NotZero("successThreshold", 1),
    Rule::NotZero("failureThreshold", 3),
    HTTP_GET,
    Rule::In("grpc", &[Rule::Text("service", "")]),
];

const HTTP_GET: Rule = Rule::In(
    "httpGet",
    &[Rule::Text("path", "/"), Rule::Text("scheme", "HTTP")],
);

const LIFECYCLE: &[Rule] = &[
    Rule::In("postStart", &[HTTP_GET]),
    Rule::In("preStop", &[HTTP_GET]),
];

const MODE: Rule = Rule::Number("defaultMode", 0o644);
const ITEMS: Rule = Rule::Each("items", &[FIELD_REF]);

const VOLUME: &[Rule] = &[
    Rule::Other(empty_dir),
    Rule::In(
        "image",
        &[Rule::Other(|image| {
            pull_policy(image, "reference", "pullPolicy")
        })],
    ),
    HOST_PATH,
    Rule::In("secret", &[MODE]),
    Rule::In("configMap", &[MODE]),
    Rule::In("downwardAPI", &[MODE, ITEMS]),
    Rule::In("projected", &[MODE, Rule::Each("sources", SOURCE)]),
    Rule::In(
        "ephemeral",
        &[Rule::In("volumeClaimTemplate", &[METADATA, CLAIM])],
    ),
    ISCSI,
    RBD,
    AZURE_DISK,
    SCALE_IO,
];

const SOURCE: &[Rule] = &[
    Rule::In("downwardAPI", &[ITEMS]),
    Rule::In(
        "serviceAccountToken",
        &[Rule::Number("expirationSeconds", 3600)],
    ),
];

/// The defaults of the spec of a PersistentVolumeClaim or of a claim template.
pub(super) const CLAIM: Rule = Rule::In(
    "spec",
    &[
        Rule::Text("volumeMode", "Filesystem"),
        Rule::Always("resources", RESOURCES),
    ],
);

/// The metadata, which is not a pointer in Go and so is never absent.
pub(super) const METADATA: Rule = Rule::Always("metadata", &[]);

pub(super) const HOST_PATH: Rule = Rule::In("hostPath", &[Rule::Text("type", "")]);
pub(super) const ISCSI: Rule = Rule::In("iscsi", &[Rule::Text("iscsiInterface", "default")]);
pub(super) const RBD: Rule = Rule::In(
    "rbd",
    &[
        Rule::Text("pool", "rbd"),
        Rule::Text("user", "admin"),
        Rule::Text("keyring", "/etc/ceph/keyring"),
    ],
);
pub(super) const AZURE_DISK: Rule = Rule::In(
    "azureDisk",
    &[
        Rule::OptionalText("cachingMode", "ReadWrite"),
        Rule::OptionalText("fsType", "ext4"),
        Rule::Flag("readOnly", false),
        Rule::OptionalText("kind", "Shared"),
    ],
);
pub(super) const SCALE_IO: Rule = Rule::In(
    "scaleIO",
    &[
        Rule::Text("storageMode", "ThinProvisioned"),
        Rule::Text("fsType", "xfs"),
    ],
);

fn pull_policy(fields: &mut Map<String, Value>, image: &str, policy: &str) {
    let given = fields.get(policy).and_then(Value::as_str);
    if given.is_some_and(|given| !given.is_empty()) {
        return;
    }
    let image = fields.get(image).and_then(Value::as_str);
    let pull = if latest(image.unwrap_or_default()) {
        "Always"
    } else {
        "IfNotPresent"
    };
    fields.insert(policy.to_owned(), pull.into());
}

/// Returns whether an image has the tag `latest`, or neither tag nor digest. An absent image has
/// no tag.
fn latest(image: &str) -> bool {
    let (name, digest) = image.split_once('@').unwrap_or((image, ""));
    let name = name.rsplit('/').next().unwrap_or_default();
    match name.split_once(':') {
        Some((_, tag)) => tag == "latest",
        None => digest.is_empty() && !name.is_empty(),
    }
}

/// Makes a volume without a source an empty directory.
fn empty_dir(volume: &mut Map<String, Value>) {
    let source = |(name, value): (&String, &Value)| name != "name" && !value.is_null();
    if !volume.iter().any(source) {
        volume.insert("emptyDir".to_owned(), Map::new().into());
    }
}

/// Sets requests that are absent to the limits.
fn requests(resources: &mut Map<String, Value>) {
    let Some(limits) = resources.get("limits").and_then(Value::as_object) else {
        return;
    };
    let requests = resources.get("requests").and_then(Value::as_object);
    let requested = |name: &String| requests.is_some_and(|r| r.contains_key(name));
    let limits = limits.iter().filter(|(name, _)| !requested(name));
    let limits: Vec<_> = limits.map(|(n, l)| (n.clone(), l.clone())).collect();
    if limits.is_empty() {
        return;
    }
    add(resources, "requests", || Map::new().into());
    if let Some(requests) = resources.get_mut("requests").and_then(Value::as_object_mut) {
        requests.extend(limits);
    }
}

/// Sets the host ports of a pod that uses the node's network to its container ports.
fn host_ports(spec: &mut Map<String, Value>) {
    if spec.get("hostNetwork") != Some(&true.into()) {
        return;
    }
    const PORT: &[Rule] = &[Rule::Other(|port| {
        if is_absent(port, "hostPort") || port.get("hostPort") == Some(&Value::from(0)) {
            let of_container = port.get("containerPort").cloned();
            port.extend(of_container.map(|number| ("hostPort".to_owned(), number)));
        }
    })];
    const PORTS: &[Rule] = &[Rule::Each("ports", PORT)];
    super::rules::apply(
        &[
            Rule::Each("initContainers", PORTS),
            Rule::Each("containers", PORTS),
        ],
        spec,
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latest_images_are_always_pulled() {
        for (image, expected) in [
            ("busybox", true),
            ("registry:5000/busybox", true),
            ("registry:5000/busybox:1", false),
            ("busybox@sha256:00", false),
            ("busybox:latest", true),
            ("", false),
        ] {
            assert_eq!(latest(image), expected, "{image}");
        }
    }
}
