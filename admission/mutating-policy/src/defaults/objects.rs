//! The defaults of objects other than pods (pkg/apis/core/v1/defaults.go).

use serde_json::{Map, Value};

use super::{
    pod, quantities,
    rules::{
        FieldDefault::{All, Flag, Number, OptionalText, Other, Text},
        Fields, Rule, Rules, add, text_of,
    },
    workloads,
};
use crate::request::Kind;

/// Returns the rules of a kind; an empty list for kinds without defaults.
pub(super) fn rules(kind: &Kind) -> &'static [Rule] {
    if kind.version != "v1" {
        return &[];
    }
    match (kind.group.as_str(), kind.kind.as_str()) {
        ("", "Service") => &[
            ("spec", Other(service)),
            ("status!/loadBalancer!", All(&[])),
        ],
        ("", "PersistentVolumeClaim") => {
            &[("status!/phase", Text("Pending")), ("", All(pod::CLAIM))]
        }
        ("", "PersistentVolume") => &[
            ("status!/phase", Text("Pending")),
            ("spec/persistentVolumeReclaimPolicy", Text("Retain")),
            ("spec/volumeMode", OptionalText("Filesystem")),
            ("spec", Other(|volume| quantities(volume, "capacity"))),
            ("spec", All(pod::DISK)),
        ],
        ("", "Secret") => &[("type", Text("Opaque"))],
        ("", "Namespace") => &[
            ("spec!", All(&[])),
            ("status!/phase", Text("Active")),
            ("metadata", Other(name_label)),
        ],
        _ => workloads::rules(kind),
    }
}

fn name_label(metadata: &mut Fields) {
    let Some(name) = metadata.get("name").cloned() else {
        return;
    };
    add(metadata, "labels", || Map::new().into());
    if let Some(labels) = metadata.get_mut("labels").and_then(Value::as_object_mut) {
        labels.insert("kubernetes.io/metadata.name".to_owned(), name);
    }
}

fn service(spec: &mut Fields) {
    const OF_ALL: &[Rule] = &[
        ("sessionAffinity", Text("None")),
        (
            "sessionAffinity=ClientIP/sessionAffinityConfig!/clientIP!/timeoutSeconds",
            Number(10800),
        ),
        ("type", Text("ClusterIP")),
        ("ports[]/protocol", Text("TCP")),
        ("ports[]", Other(target_port)),
        (
            "type=LoadBalancer/allocateLoadBalancerNodePorts",
            Flag(true),
        ),
    ];
    Rules::new(OF_ALL).apply(spec);
    let kind = text_of(spec, "type").unwrap_or_default().to_owned();
    let outside = spec.get("externalIPs").and_then(Value::as_array);
    let outside = outside.is_some_and(|ips| !ips.is_empty()) && kind == "ClusterIP";
    if outside || ["NodePort", "LoadBalancer"].contains(&kind.as_str()) {
        Rules::new(&[("externalTrafficPolicy", Text("Cluster"))]).apply(spec);
    }
    if kind != "ExternalName" {
        Rules::new(&[("internalTrafficPolicy", OptionalText("Cluster"))]).apply(spec);
    }
}

fn target_port(port: &mut Fields) {
    let target = port.get("targetPort");
    if target.is_none_or(|t| t.is_null() || *t == 0 || *t == "") {
        let own = port.get("port").cloned();
        port.extend(own.map(|number| ("targetPort".to_owned(), number)));
    }
}
