//! Converts API objects to the model. Errors name the field and the fix, and callers add the
//! object.

use std::{sync::Arc, time::Duration};

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
    duration,
    group::MAX_MEMBERS,
    index::{Kind, Object},
    model::{
        self, EndpointSlice, GroupRule, Namespace, Node, Offer, Policy, Rule, Service, ServicePort,
        Taint, Target, TargetKind,
    },
    providers::{self, Address},
    quantity, reference,
    selector::{Expression, Selector},
    text,
};

use crate::constraint::{self, ConstraintPolicy, ConstraintPolicyOffer, OfferTarget};

pub use pod::{
    REQUEUE_ANNOTATION, UNDERLAY_ANNOTATION, UNDERLAY_FINALIZER, affinity_term, labels, owner_hash,
    pod, relevant_annotations,
};
pub use pod_claims::{PodClaims, pod_claims};
pub use pod_requests::{container_requests_of, requests};
pub use storage::{pod_volumes, storage_class, volume, volume_claim};

use pod::condition;

mod pod;
mod pod_affinity;
mod pod_claims;
mod pod_requests;
mod pod_rules;
mod storage;

/// The default period of an offer.
pub const DEFAULT_PERIOD: Duration = Duration::from_secs(60);

const MAX_NAME_CHARS: usize = 253;

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

/// Converts an offer.
///
/// # Errors
/// A duration, selector or API version is malformed, two targets have one name, or `spec.evict`
/// names no target or one that is not a pod.
pub fn offer(offer: &ConstraintPolicyOffer) -> Result<Offer, ConvertError> {
    let spec = &offer.spec;
    let duration = |field: &str, text: &Option<String>, default| match text {
        None => Ok(default),
        Some(text) => duration::parse(text).map_err(|e| bad(format!("spec.{field}"), e)),
    };
    let mut targets: Vec<Target> = Vec::new();
    for (i, t) in spec.targets.iter().enumerate() {
        let field = format!("spec.targets[{i}]");
        let name: Arc<str> = t.role().into();
        if targets.iter().any(|other| other.name == name) {
            let what = format!("{name:?} is taken; give every target a name of its own");
            return Err(bad(format!("{field}.name"), what));
        }
        let api_version = t.api_version.clone().unwrap_or_default();
        if !api_version.is_empty() {
            let wrong = |e| bad(format!("{field}.apiVersion"), e);
            reference::check_api_version(&api_version).map_err(wrong)?;
        }
        targets.push(Target {
            name,
            kind: t.kind,
            api_version,
            // Without a selector, Turnbuckle selects every object of the kind.
            selector: match &t.label_selector {
                Some(s) => selector(&format!("{field}.labelSelector"), s)?,
                None => Selector::default(),
            },
        });
    }
    check_evict(spec)?;
    let group = group(spec, &mut targets)?;
    Ok(Offer {
        namespace: namespace(&offer.metadata),
        name: name(&offer.metadata),
        uid: offer.metadata.uid.as_deref().unwrap_or_default().into(),
        generation: offer.metadata.generation.unwrap_or_default(),
        created_unix: created_unix(&offer.metadata),
        terminating: offer.metadata.deletion_timestamp.is_some(),
        targets,
        policies: spec.policies.iter().map(|p| policy_name(p)).collect(),
        period: duration("period", &spec.period, DEFAULT_PERIOD)?,
        grace: duration("grace", &spec.grace, Duration::ZERO)?,
        violation_policy: spec.violation_policy.unwrap_or_default(),
        evict: spec
            .evictable_targets()
            .into_iter()
            .map(Into::into)
            .collect(),
        evict_groups: spec.evict_groups.unwrap_or_default(),
        group,
        provider_unavailable: spec.provider_unavailable,
    })
}

/// Reads the rule of groups, and gives the target with `peers: group` the selector of the target
/// whose pods form groups.
fn group(
    spec: &constraint::ConstraintPolicyOfferSpec,
    targets: &mut [Target],
) -> Result<Option<GroupRule>, ConvertError> {
    let mut with_peers = (0..).zip(&spec.targets).filter(|(_, t)| t.peers.is_some());
    let (peers, second) = (with_peers.next(), with_peers.next());
    if let Some((i, _)) = second {
        let what = "is the second target with peers; one has all pods of the group";
        return Err(bad(format!("spec.targets[{i}].peers"), what));
    }
    let Some(rule) = &spec.group else {
        return match peers {
            None => Ok(None),
            Some((i, _)) => {
                let what = "is group, and the offer has no group; add spec.group";
                Err(bad(format!("spec.targets[{i}].peers"), what))
            }
        };
    };
    let mut pods = spec.targets.iter();
    let Some(of) = pods.position(|t| t.kind == TargetKind::Pod && t.peers.is_none()) else {
        let what = "needs a target of kind Pod with a selector, whose pods form groups";
        return Err(bad("spec.group", what));
    };
    if let Some((i, target)) = peers {
        let what = match (target.kind, &target.label_selector) {
            (TargetKind::Pod, None) => None,
            (TargetKind::Pod, Some(_)) => Some(
                "is group, so the target selects the pods of the group; leave out labelSelector",
            ),
            (..) => Some("is group, which are pods; use kind: Pod"),
        };
        if let Some(what) = what {
            return Err(bad(format!("spec.targets[{i}].peers"), what));
        }
        targets[i].selector = targets[of].selector.clone();
    }
    if let Some(minimum @ (0 | 1)) = rule.minimum {
        let what =
            format!("is {minimum}: one pod needs no group; write 2 or more, or leave out group");
        return Err(bad("spec.group.minimum", what));
    }
    if let Some(minimum) = rule.minimum.filter(|n| *n as usize > MAX_MEMBERS) {
        let what = format!("is {minimum}; at most {MAX_MEMBERS} pods are placed together");
        return Err(bad("spec.group.minimum", what));
    }
    Ok(Some(GroupRule {
        by: rule.by.as_deref().map(Into::into),
        minimum: rule.minimum,
        of,
        peers: peers.map(|(i, _)| i),
    }))
}

/// Checks that the targets of `spec.evict` are pods of the offer.
fn check_evict(spec: &constraint::ConstraintPolicyOfferSpec) -> Result<(), ConvertError> {
    let Some(names) = &spec.evict else {
        return Ok(());
    };
    if names.is_empty() {
        let what = "is empty; name a target, or leave it out";
        return Err(bad("spec.evict", what));
    }
    for (i, name) in names.iter().enumerate() {
        let target = spec.targets.iter().find(|t| t.role() == name);
        let what = match target.map(|t| t.kind) {
            Some(TargetKind::Pod) => continue,
            Some(kind) => format!("target {name:?} is a {kind:?}; only pods are evicted"),
            None => {
                let all: Vec<&str> = spec.targets.iter().map(OfferTarget::role).collect();
                format!("{name:?} is no target; the targets are {}", all.join(", "))
            }
        };
        return Err(bad(format!("spec.evict[{i}]"), what));
    }
    Ok(())
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

/// Sanitizes a policy's name, because reasons and events show it even if there is no such policy.
fn policy_name(name: &str) -> Arc<str> {
    text::sanitize(name, MAX_NAME_CHARS).into()
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

    #[test]
    fn offer_rejects_api_versions_unsafe_in_urls() {
        let convert = |api_version: &str| {
            let json = serde_json::json!({
                "apiVersion": "constraint.ciena.com/v1alpha1", "kind": "ConstraintPolicyOffer",
                "metadata": {"name": "o", "namespace": "shop"},
                "spec": {"targets": [{"kind": "Pod"}, {"name": "c", "kind": "Cluster", "apiVersion": api_version}]},
            });
            offer(&serde_json::from_value(json).unwrap())
        };
        for good in ["", "v1", "fleet.example.com/v1"] {
            assert_eq!(convert(good).unwrap().targets[1].api_version, good);
        }
        let error = convert("v1/namespaces/kube-system")
            .unwrap_err()
            .to_string();
        let expected = "spec.targets[1].apiVersion: \"v1/namespaces/kube-system\" is no API version; \
                        write VERSION or GROUP/VERSION";
        assert!(error.starts_with(expected), "{error}");
        assert!(convert("../api/v1").is_err());
    }

    fn offer_of(spec: serde_json::Value) -> Result<Offer, String> {
        let json = serde_json::json!({
            "apiVersion": "constraint.ciena.com/v1alpha1", "kind": "ConstraintPolicyOffer",
            "metadata": {"name": "o", "namespace": "shop"}, "spec": spec,
        });
        offer(&serde_json::from_value(json).unwrap()).map_err(|e| e.to_string())
    }

    #[test]
    fn offer_evicts_pods_of_its_first_pod_target_unless_it_names_others() {
        let evicts = |evict: serde_json::Value| {
            let mut spec = serde_json::json!({"targets": [
                {"name": "site", "kind": "Cluster", "apiVersion": "fleet.example.com/v1"},
                {"name": "client", "kind": "Pod"}, {"kind": "Pod"}]});
            spec["evict"] = evict;
            offer_of(spec).map(|offer| offer.evict)
        };
        assert_eq!(evicts(serde_json::Value::Null).unwrap(), ["client".into()]);
        let both = serde_json::json!(["default", "client"]);
        assert_eq!(evicts(both).unwrap(), ["default".into(), "client".into()]);
        for (evict, text) in [
            (
                serde_json::json!([]),
                "spec.evict: is empty; name a target, or leave it out",
            ),
            (
                serde_json::json!(["client", "server"]),
                "spec.evict[1]: \"server\" is no target; the targets are site, client, default",
            ),
            (
                serde_json::json!(["site"]),
                "spec.evict[0]: target \"site\" is a Cluster; only pods are evicted",
            ),
        ] {
            assert_eq!(evicts(evict).unwrap_err(), text);
        }
    }

    #[test]
    fn offer_evicts_groups_only_if_it_says_so() {
        let groups = |spec| offer_of(spec).unwrap().evict_groups;
        let targets = serde_json::json!([{"kind": "Pod"}]);
        assert!(!groups(serde_json::json!({"targets": targets})));
        assert!(groups(
            serde_json::json!({"targets": targets, "evictGroups": true})
        ));
    }

    #[test]
    fn convert_sanitizes_policy_names() {
        assert_eq!(&*policy_name("near"), "near");
        assert_eq!(&*policy_name("near\u{1b}[2J\nx"), "near\u{fffd}[2J x");
    }
}
