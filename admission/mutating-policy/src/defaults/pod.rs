//! The defaults of pod specs, in pods and in pod templates (pkg/apis/core/v1/defaults.go).

use serde_json::{Map, Value};

use super::{
    quantities,
    rules::{
        FieldDefault::{All, Flag, NotZero, Number, OptionalText, Other, Text},
        Fields, Rule, add, is_absent,
    },
};

/// The defaults that pods and pod templates have.
pub(super) const SPEC: &[Rule] = &[
    ("dnsPolicy", Text("ClusterFirst")),
    ("restartPolicy", Text("Always")),
    ("securityContext!", All(&[])),
    ("terminationGracePeriodSeconds", Number(30)),
    ("schedulerName", Text("default-scheduler")),
    ("volumes[]", All(VOLUME)),
    (
        "initContainers[]|containers[]|ephemeralContainers[]",
        All(CONTAINER),
    ),
    ("", Other(|spec| quantities(spec, "overhead"))),
    ("resources", Other(resources)),
];

/// The defaults that only pods have.
pub(super) const POD: &[Rule] = &[
    ("enableServiceLinks", Flag(true)),
    ("initContainers[]|containers[]/resources", Other(requests)),
    ("", Other(host_ports)),
];

const CONTAINER: &[Rule] = &[
    // The field is required, so Go writes its zero value.
    ("name", Text("")),
    (
        "",
        Other(|container| pull_policy(container, "image", "imagePullPolicy")),
    ),
    ("terminationMessagePath", Text("/dev/termination-log")),
    ("terminationMessagePolicy", Text("File")),
    ("ports[]/protocol", Text("TCP")),
    ("env[]/valueFrom/fieldRef/apiVersion", Text("v1")),
    ("env[]/valueFrom/fileKeyRef/optional", Flag(false)),
    ("resources!", Other(resources)),
    ("livenessProbe|readinessProbe|startupProbe", All(PROBE)),
    ("lifecycle/postStart|preStop", All(HTTP_GET)),
];

const PROBE: &[Rule] = &[
    ("timeoutSeconds|successThreshold", NotZero(1)),
    ("periodSeconds", NotZero(10)),
    ("failureThreshold", NotZero(3)),
    ("", All(HTTP_GET)),
    ("grpc/service", Text("")),
];

const HTTP_GET: &[Rule] = &[
    ("httpGet/path", Text("/")),
    ("httpGet/scheme", Text("HTTP")),
];

const VOLUME: &[Rule] = &[
    ("", Other(empty_dir)),
    (
        "image",
        Other(|image| pull_policy(image, "reference", "pullPolicy")),
    ),
    (
        "secret|configMap|downwardAPI|projected/defaultMode",
        Number(0o644),
    ),
    ("downwardAPI/items[]/fieldRef/apiVersion", Text("v1")),
    (
        "projected/sources[]/downwardAPI/items[]/fieldRef/apiVersion",
        Text("v1"),
    ),
    (
        "projected/sources[]/serviceAccountToken/expirationSeconds",
        Number(3600),
    ),
    // The metadata is not a pointer in Go and so is never absent.
    ("ephemeral/volumeClaimTemplate/metadata!", All(&[])),
    ("ephemeral/volumeClaimTemplate", All(CLAIM)),
    ("", All(DISK)),
];

/// The defaults of a PersistentVolumeClaim or of a claim template.
pub(super) const CLAIM: &[Rule] = &[
    ("spec/volumeMode", OptionalText("Filesystem")),
    ("spec/resources!", Other(resources)),
];

/// The defaults of the sources that volumes of pods and PersistentVolumes have.
pub(super) const DISK: &[Rule] = &[
    ("hostPath/type", Text("")),
    ("iscsi/iscsiInterface", Text("default")),
    ("rbd/pool", Text("rbd")),
    ("rbd/user", Text("admin")),
    ("rbd/keyring", Text("/etc/ceph/keyring")),
    ("azureDisk/cachingMode", OptionalText("ReadWrite")),
    ("azureDisk/fsType", OptionalText("ext4")),
    ("azureDisk/readOnly", Flag(false)),
    ("azureDisk/kind", OptionalText("Shared")),
    ("scaleIO/storageMode", Text("ThinProvisioned")),
    ("scaleIO/fsType", Text("xfs")),
];

fn resources(resources: &mut Fields) {
    quantities(resources, "limits");
    quantities(resources, "requests");
}

fn pull_policy(fields: &mut Fields, image: &str, policy: &str) {
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
fn empty_dir(volume: &mut Fields) {
    let source = |(name, value): (&String, &Value)| name != "name" && !value.is_null();
    if !volume.iter().any(source) {
        volume.insert("emptyDir".to_owned(), Map::new().into());
    }
}

/// Sets requests that are absent to the limits.
fn requests(resources: &mut Fields) {
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
fn host_ports(spec: &mut Fields) {
    if spec.get("hostNetwork") != Some(&true.into()) {
        return;
    }
    let host_port = |port: &mut Fields| {
        if is_absent(port, "hostPort") || port["hostPort"] == 0 {
            let of_container = port.get("containerPort").cloned();
            port.extend(of_container.map(|number| ("hostPort".to_owned(), number)));
        }
    };
    for list in ["initContainers", "containers"] {
        let containers = spec.get_mut(list).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten() {
            let ports = container.get_mut("ports").and_then(Value::as_array_mut);
            let ports = ports.into_iter().flatten();
            ports.filter_map(Value::as_object_mut).for_each(host_port);
        }
    }
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
