//! The question of an evaluation: the rules of an offer's policies and their
//! providers. All bindings of an offer share it.

use std::{
    collections::hash_map::DefaultHasher,
    hash::{Hash, Hasher},
    sync::Arc,
};

use tautline_core::{
    Snapshot, TrustedNamespaces,
    model::{Offer, Rule, Service, key},
    providers::{self, PROVIDER_PORT},
};

#[derive(Clone, Debug)]
pub(crate) struct Question {
    pub policies: Vec<PolicyQuestion>,
    /// `namespace/name` of each provider, once.
    pub providers: Vec<Arc<str>>,
    pub fingerprint: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct PolicyQuestion {
    pub policy: Arc<str>,
    /// `None`: the policy does not exist. A rule without a Service has no provider.
    pub rules: Option<Vec<(Rule, Option<Arc<Service>>)>>,
}

impl Question {
    pub(crate) fn new(snapshot: &Snapshot, trusted: &TrustedNamespaces, offer: &Offer) -> Self {
        let mut providers = Vec::new();
        let policies = offer
            .policies
            .iter()
            .map(|name| PolicyQuestion {
                policy: Arc::clone(name),
                rules: snapshot.policy(&offer.namespace, name).map(|policy| {
                    let with_provider = |rule: &Rule| {
                        let service = provider(snapshot, trusted, offer, rule);
                        let name = service.map(|s| key(&s.namespace, &s.name).into());
                        providers.extend(name);
                        (rule.clone(), service.cloned())
                    };
                    policy.rules.iter().map(with_provider).collect()
                }),
            })
            .collect();
        providers.sort_unstable();
        providers.dedup();
        Self {
            policies,
            providers,
            fingerprint: fingerprint(snapshot, trusted, offer),
        }
    }
}

/// A hash of the offer's rules, their providers, and the providers' addresses. Cheaper
/// than a question: it is compared for every offer when any EndpointSlice changes.
pub(crate) fn fingerprint(snapshot: &Snapshot, trusted: &TrustedNamespaces, offer: &Offer) -> u64 {
    let mut hash = DefaultHasher::new();
    for name in &offer.policies {
        let Some(policy) = snapshot.policy(&offer.namespace, name) else {
            continue;
        };
        for rule in &policy.rules {
            rule.hash(&mut hash);
            if let Some(service) = provider(snapshot, trusted, offer, rule) {
                (&service.namespace, &service.name, service.tls_required).hash(&mut hash);
                let slices = snapshot.slices_of(&service.namespace, &service.name);
                providers::addresses(service, slices, PROVIDER_PORT).hash(&mut hash);
            }
        }
    }
    hash.finish()
}

fn provider<'a>(
    snapshot: &'a Snapshot,
    trusted: &TrustedNamespaces,
    offer: &Offer,
    rule: &Rule,
) -> Option<&'a Arc<Service>> {
    providers::choose_provider(snapshot, &rule.name, &offer.namespace, trusted)
}
