//! Converts API objects to the model. Errors name the field and the fix, and callers add the
//! object.

use std::sync::Arc;

use k8s_openapi::{
    api::{
        core::v1 as corev1,
        discovery::v1::{Endpoint, EndpointSlice as ApiSlice},
        resource::v1::DeviceClass,
    },
    apimachinery::pkg::{
        api::resource::Quantity,
        apis::meta::v1::{LabelSelector, ObjectMeta},
    },
};
use tautline_core::{
    index::{Kind, Object},
    model::{self, EndpointSlice, Namespace, Node, Policy, Rule, Service, ServicePort, Taint},
    providers::{self, Address},
    quantity,
    selector::{Expression, Selector},
};

use crate::constraint::{self, ConstraintPolicy, ConstraintPolicyOffer};

pub use offer::{DEFAULT_PERIOD, offer};
pub use pod::{
    REQUEUE_ANNOTATION, UNDERLAY_ANNOTATION, UNDERLAY_FINALIZER, affinity_term, labels, owner_hash,
    pod, relevant_annotations,
};
pub use pod_claims::{PodClaims, pod_claims};
pub use pod_requests::{container_requests_of, requests};
pub use remote_pod::remote_pod;
pub use storage::{pod_volumes, storage_class, volume, volume_claim};

use pod::condition;

mod offer;
mod pod;
mod pod_affinity;
mod pod_claims;
mod pod_requests;
mod pod_rules;
mod remote_pod;
mod storage;

/// An invalid field.
#[derive(Debug, thiserror::Error)]
#[error("{field}: {message}")]
pub struct ConvertError {
    /// The field's path in the object.
    pub field: String,
    /// The problem and its fix.
    pub message: String,
}

fn bad(field: impl Into<String>, what: impl std::fmt::Display) -> ConvertError {
    ConvertError {
        field: field.into(),
        message: what.to_string(),
    }
}

/// A kind of the index.
pub trait Indexed {
    /// The kind's name in the index.
    const KIND: Kind;

    /// Converts the object.
    ///
    /// # Errors
    /// A field is invalid.
    fn object(&self) -> Result<Object, ConvertError>;
}

macro_rules! indexed {
    ($($api:ty => $kind:ident($convert:expr);)*) => { $(
        impl Indexed for $api {
            const KIND: Kind = Kind::$kind;

            fn object(&self) -> Result<Object, ConvertError> {
                let convert: fn(&Self) -> Result<_, ConvertError> = $convert;
                convert(self).map(Object::$kind)
            }
        }
    )* };
}

indexed! {
    corev1::Pod => Pod(|o| Ok(pod(o)));
    corev1::Node => Node(|o| Ok(node(o)));
    corev1::Namespace => Namespace(|o| Ok(namespace_labels(&o.metadata)));
    corev1::Service => Service(|o| Ok(service(o)));
    DeviceClass => DeviceClass(|o| Ok(device_class(o)));
    ApiSlice => EndpointSlice(|o| Ok(endpoint_slice(o)));
    ConstraintPolicy => Policy(policy);
    ConstraintPolicyOffer => Offer(offer);
}

/// Converts a node. A malformed quantity counts as 0.
pub fn node(node: &corev1::Node) -> Node {
    let spec = node.spec.clone().unwrap_or_default();
    let status = node.status.as_ref();
    let taint = |t: corev1::Taint| Taint {
        key: t.key,
        value: t.value.unwrap_or_default(),
        effect: t.effect,
    };
    Node {
        name: name(&node.metadata),
        uid: node.metadata.uid.as_deref().unwrap_or_default().into(),
        labels: labels(node.metadata.labels.as_ref()),
        annotations: labels(node.metadata.annotations.as_ref()),
        allocatable: status
            .and_then(|s| s.allocatable.as_ref().or(s.capacity.as_ref()))
            .into_iter()
            .flatten()
            .map(|(n, q)| (n.as_str(), whole_units(n, milli(q))))
            .collect(),
        taints: spec
            .taints
            .unwrap_or_default()
            .into_iter()
            .map(taint)
            .collect(),
        unschedulable: spec.unschedulable.unwrap_or_default(),
    }
}

/// Converts a namespace, with the label that the API server gives each namespace.
pub fn namespace_labels(metadata: &ObjectMeta) -> Namespace {
    let name = name(metadata);
    let own = [("kubernetes.io/metadata.name", &*name)];
    let others = metadata
        .labels
        .iter()
        .flatten()
        .filter(|(k, _)| *k != own[0].0)
        .map(|(k, v)| (k.as_str(), v.as_str()));
    Namespace {
        labels: others.chain(own).collect(),
        name,
    }
}

/// Converts a DeviceClass.
pub fn device_class(class: &DeviceClass) -> model::DeviceClass {
    let resource = class.spec.extended_resource_name.as_deref();
    model::DeviceClass {
        name: name(&class.metadata),
        extended_resource: resource.map(Into::into),
    }
}

/// Converts a Service.
pub fn service(service: &corev1::Service) -> Service {
    let meta = &service.metadata;
    let spec = service.spec.clone().unwrap_or_default();
    let annotation = |key: &str| meta.annotations.as_ref().and_then(|a| a.get(key));
    let external = spec.type_.as_deref() == Some("ExternalName");
    Service {
        namespace: namespace(meta),
        name: name(meta),
        created_unix: created_unix(meta),
        rules: providers::provided_rules(
            meta.labels
                .iter()
                .flatten()
                .map(|(k, v)| (k.as_str(), v.as_str())),
        ),
        priority: annotation(providers::PRIORITY_ANNOTATION)
            .and_then(|p| p.parse().ok())
            .unwrap_or(0),
        tls_required: annotation(providers::TLS_ANNOTATION).is_some_and(|v| v == "required"),
        allocator: annotation(providers::ALLOCATOR_ANNOTATION)
            .is_some_and(|v| v == providers::ENABLED),
        underlay: meta
            .labels
            .as_ref()
            .is_some_and(|l| l.contains_key(providers::UNDERLAY_LABEL)),
        external_name: spec.external_name.filter(|_| external),
        external_labels: labels(meta.labels.as_ref().filter(|_| external)),
        has_selector: spec.selector.is_some_and(|s| !s.is_empty()),
        ports: spec
            .ports
            .unwrap_or_default()
            .into_iter()
            .filter_map(|p| service_port(p.name, p.port))
            .collect(),
    }
}

fn outside_place(host: &str, port: u16) -> Arc<str> {
    let host = host.trim_end_matches('.').to_owned();
    Address { host, port }.to_string().into()
}

fn service_port(name: Option<String>, port: i32) -> Option<ServicePort> {
    Some(ServicePort {
        name: name.unwrap_or_default(),
        port: u16::try_from(port).ok()?,
    })
}

/// Converts an EndpointSlice. An endpoint without a `ready` condition is ready, as the API defines.
/// FQDNs are left out of the ready addresses, because they could resolve to any host.
pub fn endpoint_slice(slice: &ApiSlice) -> EndpointSlice {
    let is_ready = |e: &&Endpoint| e.conditions.as_ref().and_then(|c| c.ready).unwrap_or(true);
    let ready = || slice.endpoints.iter().flatten().filter(is_ready);
    let is_fqdn = slice.address_type == "FQDN";
    let ports = slice.ports.iter().flatten();
    let mut tcp = ports.filter(|p| p.protocol.as_deref().unwrap_or("TCP") == "TCP");
    let port = tcp.find_map(|p| u16::try_from(p.port?).ok());
    let places = |e: &Endpoint| match (&e.node_name, port) {
        (Some(node), _) => vec![node.as_str().into()],
        (None, Some(port)) => e.addresses.iter().map(|h| outside_place(h, port)).collect(),
        (None, None) => Vec::new(),
    };
    let mut places: Vec<Arc<str>> = ready().flat_map(places).collect();
    places.sort_unstable();
    places.dedup();
    let slice_labels = slice.metadata.labels.as_ref();
    EndpointSlice {
        namespace: namespace(&slice.metadata),
        name: name(&slice.metadata),
        service: slice_labels
            .and_then(|l| l.get("kubernetes.io/service-name"))
            .map_or_else(|| "".into(), |s| s.as_str().into()),
        labels: labels(slice_labels),
        ports: slice
            .ports
            .iter()
            .flatten()
            .filter_map(|p| service_port(p.name.clone(), p.port?))
            .collect(),
        ready: ready()
            .filter(|_| !is_fqdn)
            .flat_map(|e| e.addresses.clone())
            .collect(),
        places,
    }
}

const MAX_WEIGHT: u32 = 1000;

/// Converts a policy.
///
/// # Errors
/// A weight is negative or too large.
pub fn policy(policy: &ConstraintPolicy) -> Result<Policy, ConvertError> {
    let rule = |(i, r): (usize, &constraint::PolicyRule)| {
        let weight = u32::try_from(r.weight.unwrap_or(1))
            .ok()
            .filter(|w| *w <= MAX_WEIGHT)
            .ok_or_else(|| bad(format!("spec.rules[{i}].weight"), "must be 0 to 1000"))?;
        Ok(Rule {
            name: r.name.as_str().into(),
            request: r.request.0.clone(),
            limit: r.limit.0.clone(),
            weight,
            prefer: r.prefer,
        })
    };
    Ok(Policy {
        namespace: namespace(&policy.metadata),
        name: name(&policy.metadata),
        rules: policy
            .spec
            .rules
            .iter()
            .enumerate()
            .map(rule)
            .collect::<Result<_, _>>()?,
    })
}

fn selector(field: &str, selector: &LabelSelector) -> Result<Selector, ConvertError> {
    let expressions = selector.match_expressions.iter().flatten().enumerate();
    Ok(Selector {
        match_labels: selector
            .match_labels
            .clone()
            .unwrap_or_default()
            .into_iter()
            .collect(),
        match_expressions: expressions
            .map(|(i, e)| {
                Expression::new(&e.key, &e.operator, e.values.clone().unwrap_or_default())
                    .map_err(|e| bad(format!("{field}.matchExpressions[{i}]"), e))
            })
            .collect::<Result<_, _>>()?,
    })
}

fn milli(quantity: &Quantity) -> i64 {
    quantity::parse_milli(&quantity.0).unwrap_or(0)
}

/// Rounds an amount in thousandths as kube-scheduler does: it counts CPU in thousandths, and other
/// resources in whole units, rounded up.
fn whole_units(resource: &str, milli: i64) -> i64 {
    match resource {
        "cpu" => milli,
        _ => milli.saturating_add(999) / 1000 * 1000,
    }
}

fn created_unix(meta: &ObjectMeta) -> i64 {
    let created = meta.creation_timestamp.as_ref();
    created.map_or(0, |t| t.0.as_second())
}

fn name(meta: &ObjectMeta) -> Arc<str> {
    meta.name.as_deref().unwrap_or_default().into()
}

fn namespace(meta: &ObjectMeta) -> Arc<str> {
    meta.namespace.as_deref().unwrap_or("default").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_nodes_and_addresses_outside() {
        let places = |address_type: &str, protocol: &str| {
            let json = serde_json::json!({
                "metadata": {"name": "s", "namespace": "shop"},
                "addressType": address_type,
                "ports": [{"port": 53, "protocol": "UDP"}, {"port": 5432, "protocol": protocol}],
                "endpoints": [
                    {"addresses": ["10.0.0.1"], "nodeName": "n2"},
                    {"addresses": ["10.0.0.2"], "nodeName": "n2"},
                    {"addresses": ["fd00::7"]},
                    {"addresses": ["db.example.com."]},
                    {"addresses": ["10.0.0.3"], "nodeName": "n3", "conditions": {"ready": false}},
                ],
            });
            endpoint_slice(&serde_json::from_value(json).unwrap()).places
        };
        let all = ["[fd00::7]:5432", "db.example.com:5432", "n2"];
        assert_eq!(
            places("FQDN", "TCP")
                .iter()
                .map(|p| &**p)
                .collect::<Vec<_>>(),
            all
        );
        assert_eq!(places("IPv6", "UDP"), ["n2".into()]);
    }

    #[test]
    fn endpoint_slice_ignores_names() {
        let of = |address_type: &str| {
            let json = serde_json::json!({
                "metadata": {"name": "s", "namespace": "shop",
                             "labels": {"kubernetes.io/service-name": "p"}},
                "addressType": address_type,
                "endpoints": [{"addresses": ["10.0.0.1"]},
                              {"addresses": ["10.0.0.2"], "conditions": {"ready": false}}],
                "ports": [{"port": 5309}],
            });
            endpoint_slice(&serde_json::from_value(json).unwrap()).ready
        };
        assert_eq!(of("IPv4"), ["10.0.0.1"]);
        assert!(of("FQDN").is_empty());
    }
}
