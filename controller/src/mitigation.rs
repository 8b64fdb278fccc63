//! Mitigations: the underlay controller of a violation, and the question for it.

use std::sync::Arc;

use tautline_api::convert::UNDERLAY_ANNOTATION;
use tautline_core::{
    Snapshot, TrustedNamespaces, constraints,
    model::{Offer, Pod, Rule, Service},
    providers,
};

use crate::binding_spec::BindingSpec;

/// A mitigation to ask for.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct MitigationRequest {
    /// The pod that is to hold a new allocation.
    pub holder: Option<Arc<Pod>>,
    /// Allocations that the pods hold already.
    pub ids: Vec<String>,
    pub node: String,
    pub peer_node: String,
    pub rules: Vec<Rule>,
}

impl MitigationRequest {
    pub(crate) fn new(snapshot: &Snapshot, offer: &Offer, binding: &BindingSpec) -> Self {
        let mut request = Self {
            rules: constraints::rules(snapshot, offer).0,
            ..Self::default()
        };
        // The source first, as in ciena/turnbuckle, then by name.
        let mut targets: Vec<_> = binding.targets.iter().collect();
        targets.sort_by_key(|(name, _)| (&***name != "source", &***name));
        let mut nodes = Vec::new();
        for (_, reference) in targets {
            if reference.kind != "Pod" {
                nodes.push(reference.name.clone());
                continue;
            }
            let Some(pod) = snapshot.pod(&reference.namespace, &reference.name) else {
                continue;
            };
            let node = pod.node.as_deref().unwrap_or_default().to_owned();
            // The first pod comes before endpoints: they are its peers.
            let at = if request.holder.is_none() {
                0
            } else {
                nodes.len()
            };
            nodes.insert(at, node);
            let holder = request.holder.get_or_insert_with(|| Arc::clone(pod));
            if allocator(holder) == allocator(pod) {
                let ids = pod.underlay.iter().map(ToString::to_string);
                request.ids.extend(ids);
            }
        }
        let mut nodes = nodes.into_iter();
        request.node = nodes.next().unwrap_or_default();
        request.peer_node = nodes.next().unwrap_or_default();
        request
    }
}

/// The underlay controller for a violation. The one that holds the pod's allocations,
/// if there is one: another does not know them.
pub(crate) fn underlay_for<'a>(
    snapshot: &'a Snapshot,
    trusted: &TrustedNamespaces,
    offer: &Offer,
    request: &MitigationRequest,
) -> Option<&'a Arc<Service>> {
    let holds = request.holder.as_ref().filter(|p| !p.underlay.is_empty());
    named_or_chosen(
        snapshot,
        trusted,
        &offer.namespace,
        holds.and_then(|p| allocator(p)),
    )
}

/// The underlay controller `named`, `namespace/name`, or the one for `namespace`.
pub(crate) fn named_or_chosen<'a>(
    snapshot: &'a Snapshot,
    trusted: &TrustedNamespaces,
    namespace: &str,
    named: Option<&str>,
) -> Option<&'a Arc<Service>> {
    let Some(named) = named else {
        return providers::choose_underlay(snapshot, namespace, trusted);
    };
    let (service_namespace, name) = named.split_once('/')?;
    let service = snapshot.service(service_namespace, name)?;
    let usable = service.underlay && providers::is_trusted_for(service, namespace, trusted);
    usable.then_some(service)
}

/// The underlay controller that allocated for a pod.
pub(crate) fn allocator(pod: &Pod) -> Option<&str> {
    pod.annotations.get(UNDERLAY_ANNOTATION)
}
