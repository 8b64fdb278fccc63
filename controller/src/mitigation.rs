//! Builds the request for a mitigation, and chooses the underlay controller that receives it.

use std::sync::Arc;

use tautline_api::convert::UNDERLAY_ANNOTATION;
use tautline_core::{
    Snapshot, TrustedNamespaces, constraints,
    model::{Offer, Pod, Service},
    providers,
};
use tautline_provider_client::MitigationRequest;

use crate::binding_spec::BindingSpec;

#[derive(Clone, Debug, Default)]
pub(crate) struct Mitigation {
    /// The pod that will hold a new allocation: the first pod of the binding.
    pub holder: Option<Arc<Pod>>,
    /// The request, with the ids of the allocations that the binding's pods hold already, if they
    /// have the same underlay controller as the holder.
    pub request: MitigationRequest,
}

impl Mitigation {
    pub(crate) fn new(snapshot: &Snapshot, offer: &Offer, binding: &BindingSpec) -> Self {
        let (mut holder, mut ids) = (None, Vec::new());
        // The target `source` comes first, as in ciena/turnbuckle; the others follow by name.
        let mut targets: Vec<_> = binding.targets.iter().collect();
        targets.sort_by_key(|(name, _)| (&***name != "source", &***name));
        let mut nodes = Vec::new();
        for (_, reference) in targets {
            if reference.kind != "Pod" {
                nodes.push(reference.name.clone());
                continue;
            }
            let Some(pod) = snapshot.pod_of(reference) else {
                continue;
            };
            let node = pod.node.as_deref().unwrap_or_default().to_owned();
            // The first pod's node comes before endpoints, which are its peers.
            let at = holder.as_ref().map_or(0, |_| nodes.len());
            nodes.insert(at, node);
            let holder = holder.get_or_insert_with(|| Arc::clone(pod));
            if allocator(holder) == allocator(pod) {
                ids.extend(pod.underlay.iter().map(ToString::to_string));
            }
        }
        let mut nodes = nodes.into_iter();
        let request = MitigationRequest {
            ids,
            node: nodes.next().unwrap_or_default(),
            peer_node: nodes.next().unwrap_or_default(),
            rules: constraints::offer_rules(snapshot, offer).0,
        };
        Self { holder, request }
    }
}

/// Returns the underlay controller that made the holder's allocations, as no other one knows them,
/// or else the underlay controller for the offer's namespace.
pub(crate) fn underlay_for<'a>(
    snapshot: &'a Snapshot,
    trusted: &TrustedNamespaces,
    offer: &Offer,
    mitigation: &Mitigation,
) -> Option<&'a Arc<Service>> {
    let holder = mitigation.holder.as_ref();
    let holder = holder.filter(|pod| !pod.underlay.is_empty());
    let named = holder.and_then(|pod| allocator(pod));
    named_or_chosen(snapshot, trusted, &offer.namespace, named)
}

/// Returns the underlay controller `named` (`namespace/name`) if it is trusted, or without a name
/// the underlay controller for `namespace`.
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

/// Returns the `namespace/name` of the underlay controller that made the pod's allocations.
pub(crate) fn allocator(pod: &Pod) -> Option<&str> {
    pod.annotations.get(UNDERLAY_ANNOTATION)
}

#[cfg(test)]
mod tests {
    use tautline_core::{Index, Reference, index::Object};

    use super::*;

    fn pod(name: &str, node: &str, ids: &[&str], by: &str) -> Pod {
        Pod {
            namespace: "shop".into(),
            name: name.into(),
            node: Some(node.into()),
            underlay: ids.iter().map(|id| (*id).into()).collect(),
            annotations: (!by.is_empty())
                .then_some((UNDERLAY_ANNOTATION, by))
                .into_iter()
                .collect(),
            ..Pod::default()
        }
    }

    fn request(pods: Vec<Pod>, targets: &[(&str, Reference)]) -> Mitigation {
        let mut index = Index::default();
        for pod in pods {
            index.apply(Object::Pod(pod));
        }
        let targets = targets.iter().map(|(t, r)| ((*t).into(), r.clone()));
        let binding = BindingSpec {
            namespace: "shop".into(),
            targets: targets.collect(),
            ..BindingSpec::default()
        };
        Mitigation::new(&index.snapshot(), &Offer::default(), &binding)
    }

    fn nodes(mitigation: &Mitigation) -> (&str, &str) {
        (&mitigation.request.node, &mitigation.request.peer_node)
    }

    #[test]
    fn mitigation_request_names_the_source_first() {
        let pods = vec![pod("a", "n1", &[], ""), pod("b", "n2", &[], "")];
        let a = ("destination", Reference::pod("shop", "a"));
        let request = request(pods, &[a, ("source", Reference::pod("shop", "b"))]);
        assert_eq!(nodes(&request), ("n2", "n1"));
        assert_eq!(&*request.holder.unwrap().name, "b");
    }

    #[test]
    fn mitigation_request_leaves_out_pods_of_other_clusters() {
        let pods = vec![pod("a", "n1", &["1"], ""), pod("b", "n2", &[], "")];
        let in_east = "east:shop:v1:Pod:a".parse().unwrap();
        let b = ("destination", Reference::pod("shop", "b"));
        let request = request(pods, &[("source", in_east), b]);
        assert_eq!(nodes(&request), ("n2", ""));
        assert_eq!(&*request.holder.unwrap().name, "b");
        assert!(request.request.ids.is_empty());
    }

    #[test]
    fn mitigation_request_orders_other_targets_by_name() {
        let pods = vec![pod("a", "n1", &[], ""), pod("b", "n2", &[], "")];
        let b = ("y", Reference::pod("shop", "b"));
        let request = request(pods, &[b, ("x", Reference::pod("shop", "a"))]);
        assert_eq!(nodes(&request), ("n1", "n2"));
    }

    #[test]
    fn mitigation_request_takes_an_endpoint_as_the_peer() {
        let endpoint = Reference {
            kind: "Endpoints".to_owned(),
            name: "db".to_owned(),
            ..Reference::default()
        };
        let web = ("web", Reference::pod("shop", "a"));
        let request = request(vec![pod("a", "n1", &[], "")], &[("db", endpoint), web]);
        assert_eq!(nodes(&request), ("n1", "db"));
    }

    #[test]
    fn mitigation_request_skips_pods_that_are_gone() {
        let request = request(vec![], &[("a", Reference::pod("shop", "gone"))]);
        assert_eq!(nodes(&request), ("", ""));
        assert!(request.holder.is_none() && request.request.ids.is_empty());
    }

    #[test]
    fn mitigation_request_lists_allocations_of_the_holders_underlay_alone() {
        let pods = vec![
            pod("a", "n1", &["p1"], "net/path"),
            pod("b", "n2", &["p2"], "net/path"),
            pod("c", "n3", &["p3"], "net/other"),
        ];
        let all = ["a", "b", "c"].map(|p| (p, Reference::pod("shop", p)));
        assert_eq!(request(pods, &all).request.ids, ["p1", "p2"]);
    }

    fn chosen(named: Option<&str>, services: &[(&str, &str, bool)]) -> Option<String> {
        let mut index = Index::default();
        for (namespace, name, underlay) in services {
            index.apply(Object::Service(Service {
                namespace: (*namespace).into(),
                name: (*name).into(),
                underlay: *underlay,
                ..Service::default()
            }));
        }
        let trusted = TrustedNamespaces::default();
        let snapshot = index.snapshot();
        let service = named_or_chosen(&snapshot, &trusted, "shop", named);
        service.map(|s| s.name.to_string())
    }

    const PATH: (&str, &str, bool) = ("tautline-system", "path", true);

    #[test]
    fn underlay_is_the_one_that_allocated() {
        let services = [PATH, ("shop", "own", true)];
        assert_eq!(chosen(None, &services).as_deref(), Some("own"));
        let named = chosen(Some("tautline-system/path"), &services);
        assert_eq!(named.as_deref(), Some("path"));
    }

    #[test]
    fn underlay_that_lost_its_label_or_is_gone_is_none() {
        let named = Some("tautline-system/path");
        assert_eq!(chosen(named, &[]), None);
        assert_eq!(chosen(named, &[("tautline-system", "path", false)]), None);
    }

    #[test]
    fn underlay_of_an_untrusted_namespace_is_none() {
        let services = [("tenant", "path", true)];
        assert_eq!(chosen(None, &services), None);
        assert_eq!(chosen(Some("tenant/path"), &services), None);
    }

    #[test]
    fn underlay_named_without_a_namespace_is_none() {
        assert_eq!(chosen(Some("path"), &[PATH]), None);
    }

    #[test]
    fn underlay_is_chosen_for_a_holder_without_allocations() {
        let mut index = Index::default();
        index.apply(Object::Service(Service {
            namespace: "tautline-system".into(),
            name: "path".into(),
            underlay: true,
            ..Service::default()
        }));
        let (snapshot, trusted) = (index.snapshot(), TrustedNamespaces::default());
        let find = |ids: &[&str]| {
            let request = Mitigation {
                holder: Some(Arc::new(pod("a", "n1", ids, "net/gone"))),
                ..Mitigation::default()
            };
            let offer = Offer {
                namespace: "shop".into(),
                ..Offer::default()
            };
            underlay_for(&snapshot, &trusted, &offer, &request).is_some()
        };
        assert!(find(&[]), "the annotation alone binds to no underlay");
        assert!(!find(&["p1"]), "another does not know p1");
    }
}
