//! The defaults of objects other than pods (pkg/apis/core/v1/defaults.go).

use serde_json::{Map, Value};

use super::{
    pod, quantities,
    rules::{Rule, add, apply, text_of},
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
            Rule::In("spec", &[Rule::Other(service)]),
            Rule::Always("status", &[Rule::Always("loadBalancer", &[])]),
        ],
        ("", "PersistentVolumeClaim") => CLAIM,
        ("", "PersistentVolume") => VOLUME,
        ("", "Secret") => &[Rule::Text("type", "Opaque")],
        ("", "Namespace") => NAMESPACE,
        _ => workloads::rules(kind),
    }
}

const CLAIM: &[Rule] = &[
    Rule::Always("status", &[Rule::Text("phase", "Pending")]),
    pod::CLAIM,
];

const VOLUME: &[Rule] = &[
    Rule::Always("status", &[Rule::Text("phase", "Pending")]),
    Rule::In(
        "spec",
        &[
            Rule::Text("persistentVolumeReclaimPolicy", "Retain"),
            Rule::Text("volumeMode", "Filesystem"),
            Rule::Other(|volume| quantities(volume, "capacity")),
            pod::HOST_PATH,
            pod::ISCSI,
            pod::RBD,
            pod::AZURE_DISK,
            pod::SCALE_IO,
        ],
    ),
];

const NAMESPACE: &[Rule] = &[
    Rule::Always("spec", &[]),
    Rule::Always("status", &[Rule::Text("phase", "Active")]),
    Rule::In("metadata", &[Rule::Other(name_label)]),
];

fn name_label(metadata: &mut Map<String, Value>) {
    let Some(name) = metadata.get("name").cloned() else {
        return;
    };
    add(metadata, "labels", || Map::new().into());
    if let Some(labels) = metadata.get_mut("labels").and_then(Value::as_object_mut) {
        labels.insert("kubernetes.io/metadata.name".to_owned(), name);
    }
}

fn service(spec: &mut Map<String, Value>) {
    const PORT: &[Rule] = &[
        Rule::Text("protocol", "TCP"),
        Rule::Other(|port| {
            let target = port.get("targetPort");
            if target.is_none_or(|t| t.is_null() || *t == 0 || *t == "") {
                let own = port.get("port").cloned();
                port.extend(own.map(|number| ("targetPort".to_owned(), number)));
            }
        }),
    ];
    const OF_ALL: &[Rule] = &[
        Rule::Text("sessionAffinity", "None"),
        Rule::If(
            "sessionAffinity",
            "ClientIP",
            &[Rule::Always(
                "sessionAffinityConfig",
                &[Rule::Always(
                    "clientIP",
                    &[Rule::Number("timeoutSeconds", 10800)],
                )],
            )],
        ),
        Rule::Text("type", "ClusterIP"),
        Rule::Each("ports", PORT),
        Rule::If(
            "type",
            "LoadBalancer",
            &[Rule::Flag("allocateLoadBalancerNodePorts", true)],
        ),
    ];
    apply(OF_ALL, spec);
    let kind = text_of(spec, "type").unwrap_or_default().to_owned();
    let outside = spec.get("externalIPs").and_then(Value::as_array);
    let outside = outside.is_some_and(|ips| !ips.is_empty()) && kind == "ClusterIP";
    if outside || ["NodePort", "LoadBalancer"].contains(&kind.as_str()) {
        apply(&[Rule::Text("externalTrafficPolicy", "Cluster")], spec);
    }
    if kind != "ExternalName" {
        apply(&[Rule::Text("internalTrafficPolicy", "Cluster")], spec);
    }
}
