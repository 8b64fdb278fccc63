//! The rules of an offer's policies and their providers, which are the same for all its bindings.

use std::{
    collections::hash_map::DefaultHasher,
    hash::{Hash, Hasher},
    sync::Arc,
};

use tautline_core::{
    Snapshot, TrustedNamespaces,
    cow_map::CowMap,
    index::Member,
    model::{Offer, Rule, Service, key},
    providers::{self, PROVIDER_PORT},
};

#[derive(Clone, Debug)]
pub(crate) struct Question {
    pub policies: Vec<PolicyQuestion>,
    /// The `namespace/name` of each provider, without duplicates.
    pub providers: Vec<Arc<str>>,
    /// A hash of the rules, their providers, the providers' addresses, the places of endpoints that
    /// the offer selects, and the states of the other clusters that it names.
    pub fingerprint: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct PolicyQuestion {
    pub policy: Arc<str>,
    /// The policy's rules and the Services of their providers; `None` if the policy does not exist.
    /// A rule without a Service has no provider.
    pub rules: Option<Vec<(Rule, Option<Arc<Service>>)>>,
}

impl Question {
    pub(crate) fn new(snapshot: &Snapshot, trusted: &TrustedNamespaces, offer: &Offer) -> Self {
        let (mut names, mut hash) = (Vec::new(), DefaultHasher::new());
        let mut with_provider = |rule: &Rule| {
            let namespace = &offer.namespace;
            let service = providers::choose_provider(snapshot, &rule.name, namespace, trusted);
            rule.hash(&mut hash);
            if let Some(service) = service {
                (&service.namespace, &service.name, service.tls_required).hash(&mut hash);
                let slices = snapshot.endpoint_slices(&service.namespace, &service.name);
                providers::addresses(service, slices, PROVIDER_PORT).hash(&mut hash);
                names.push(key(&service.namespace, &service.name).into());
            }
            (rule.clone(), service.cloned())
        };
        let policies = offer.policies.iter().map(|name| PolicyQuestion {
            policy: Arc::clone(name),
            rules: snapshot
                .policy(&offer.namespace, name)
                .map(|policy| policy.rules.iter().map(&mut with_provider).collect()),
        });
        let policies = policies.collect();
        for place in endpoint_places(snapshot, offer) {
            place.hash(&mut hash);
        }
        for target in &offer.remote_targets {
            let pods = snapshot.remote_pods(&target.cluster, &offer.namespace);
            pods.map(|pods| pods.state).hash(&mut hash);
        }
        names.sort_unstable();
        names.dedup();
        Self {
            policies,
            providers: names,
            fingerprint: hash.finish(),
        }
    }
}

fn endpoint_places(snapshot: &Snapshot, offer: &Offer) -> Vec<Arc<str>> {
    let entry = snapshot.offer(&offer.namespace, &offer.name);
    let members = entry
        .into_iter()
        .flat_map(|e| e.members.iter().flat_map(CowMap::values));
    let places = members.filter_map(|member| match member {
        Member::Endpoint(name) => Some(snapshot.endpoint_places(&offer.namespace, name)),
        _ => None,
    });
    places.flatten().collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use tautline_core::{
        Index,
        index::Object,
        model::{EndpointSlice, Policy},
        remote::{Fault, RemotePods, RemoteState, RemoteTarget, Scope},
        selector::Selector,
    };

    use super::*;

    fn rule(name: &str) -> Rule {
        Rule {
            name: name.into(),
            ..Rule::default()
        }
    }

    fn service(namespace: &str, name: &str, rules: &[&str]) -> Service {
        Service {
            namespace: namespace.into(),
            name: name.into(),
            rules: rules.iter().map(|r| (*r).into()).collect(),
            ..Service::default()
        }
    }

    /// The policies `a` (latency, jitter) and `b` (latency), and a provider of both rules.
    fn index() -> Index {
        let mut index = Index::default();
        for (name, rules) in [("a", &["latency", "jitter"][..]), ("b", &["latency"])] {
            index.apply(Object::Policy(Policy {
                namespace: "shop".into(),
                name: name.into(),
                rules: rules.iter().map(|r| rule(r)).collect(),
            }));
        }
        let net = service("tautline-system", "net", &["latency", "jitter"]);
        index.apply(Object::Service(net));
        index
    }

    fn question(index: &Index, policies: &[&str]) -> Question {
        let offer = Offer {
            namespace: "shop".into(),
            policies: policies.iter().map(|p| (*p).into()).collect(),
            ..Offer::default()
        };
        Question::new(&index.snapshot(), &TrustedNamespaces::default(), &offer)
    }

    #[test]
    fn question_names_each_provider_once() {
        let question = question(&index(), &["a", "b"]);
        assert_eq!(question.providers, ["tautline-system/net".into()]);
        let rules = |i: usize| question.policies[i].rules.as_ref().unwrap().len();
        assert_eq!((rules(0), rules(1)), (2, 1));
    }

    #[test]
    fn question_keeps_missing_policies() {
        let question = question(&index(), &["absent"]);
        assert!(question.policies[0].rules.is_none());
    }

    #[test]
    fn question_keeps_rules_without_a_provider() {
        let mut index = index();
        index.apply(Object::Service(service("tautline-system", "net", &[])));
        let question = question(&index, &["a"]);
        assert!(question.providers.is_empty());
        assert!(question.policies[0].rules.as_ref().unwrap()[0].1.is_none());
    }

    #[test]
    fn question_takes_untrusted_providers_for_their_own_namespace_alone() {
        let mut index = index();
        index.apply(Object::Service(service("tenant", "x", &["latency"])));
        assert_eq!(
            question(&index, &["b"]).providers,
            ["tautline-system/net".into()]
        );
        index.apply(Object::Service(service("shop", "own", &["latency"])));
        assert_eq!(question(&index, &["b"]).providers, ["shop/own".into()]);
    }

    #[test]
    fn fingerprint_changes_with_addresses_and_rules_and_nothing_else() {
        let mut index = index();
        let first = question(&index, &["b"]).fingerprint;
        index.apply(Object::Service(service("tautline-system", "other", &["x"])));
        assert_eq!(question(&index, &["b"]).fingerprint, first);
        index.apply(Object::EndpointSlice(EndpointSlice {
            namespace: "tautline-system".into(),
            name: "net-1".into(),
            service: "net".into(),
            ready: vec!["10.0.0.1".to_owned()],
            ..EndpointSlice::default()
        }));
        let second = question(&index, &["b"]).fingerprint;
        assert_ne!(second, first);
        index.apply(Object::Policy(Policy {
            namespace: "shop".into(),
            name: "b".into(),
            rules: vec![Rule {
                limit: "5ms".to_owned(),
                ..rule("latency")
            }],
        }));
        assert_ne!(question(&index, &["b"]).fingerprint, second);
    }

    #[test]
    fn fingerprint_changes_with_the_state_of_another_cluster_that_the_offer_names() {
        let mut index = index();
        let offer = |clusters: &[&str]| Offer {
            namespace: "shop".into(),
            remote_targets: clusters
                .iter()
                .map(|cluster| RemoteTarget {
                    name: "db".into(),
                    cluster: (*cluster).into(),
                    selector: Selector::default(),
                })
                .collect(),
            ..Offer::default()
        };
        let (near_east, local) = (offer(&["east"]), offer(&[]));
        let fingerprint = |index: &Index, offer: &Offer| {
            let trusted = TrustedNamespaces::default();
            Question::new(&index.snapshot(), &trusted, offer).fingerprint
        };
        let before = fingerprint(&index, &local);
        let mut seen = vec![fingerprint(&index, &near_east)];
        for state in [
            RemoteState::Current,
            RemoteState::LastKnown(Fault::Unreachable),
            RemoteState::Unavailable(Fault::Unreachable),
        ] {
            index.apply(Object::RemotePods(RemotePods {
                scope: Scope {
                    cluster: "east".into(),
                    namespace: "shop".into(),
                },
                state,
                pods: BTreeMap::new(),
            }));
            let now = fingerprint(&index, &near_east);
            assert!(!seen.contains(&now), "{state:?}");
            seen.push(now);
        }
        assert_eq!(fingerprint(&index, &local), before);
    }
}
