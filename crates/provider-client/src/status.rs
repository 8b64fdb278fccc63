//! The state of each provider, for people: its last call, and the breakers of its addresses.

use std::{
    collections::BTreeSet,
    sync::Arc,
    time::{Duration, SystemTime},
};

use dashmap::DashMap;
use tautline_core::{
    Snapshot,
    model::Service,
    providers::{Address, PROVIDER_PORT},
};

use crate::{client::ProviderClient, hedge::time_until, pool::Endpoints, question::provider_name};

/// The maximum number of providers with a last call, and of providers in a list.
const MAX_PROVIDERS: usize = 256;
/// The age from which a last call is removed to make room.
const FORGET_AFTER: Duration = Duration::from_secs(3600);

/// The last call to a provider for one rule.
#[derive(Clone, Debug)]
pub struct LastCall {
    /// The end of the call.
    pub at: SystemTime,
    /// The duration of the call.
    pub took: Duration,
    /// The deadline of the call.
    pub deadline: Duration,
    /// The outcome: `OK`, or an error code.
    pub outcome: &'static str,
    /// The error, for people.
    pub error: Option<String>,
}

/// A rule, and a Service that is labelled as its provider.
#[derive(Clone, Debug, Default)]
pub struct ProviderState {
    /// The rule's name.
    pub rule: Arc<str>,
    /// The Service; `None` if no Service has the rule's label.
    pub service: Option<Arc<Service>>,
    /// True if the Service may serve all namespaces.
    pub trusted: bool,
    /// The ready addresses of the Service.
    pub addresses: Vec<AddressState>,
    /// The last call; `None` before the first one.
    pub last_call: Option<LastCall>,
}

/// An address and its circuit breaker.
#[derive(Clone, Debug)]
pub struct AddressState {
    /// The address.
    pub address: Address,
    /// The time until the next attempt at an address that has failed repeatedly; `None` for other
    /// addresses.
    pub retry_in: Option<Duration>,
}

#[derive(Debug, Default)]
pub(crate) struct LastCalls(DashMap<(Arc<str>, Arc<str>), LastCall>);

impl LastCalls {
    pub(crate) fn set(&self, rule: &Arc<str>, provider: &Arc<str>, call: LastCall) {
        let key = (Arc::clone(rule), Arc::clone(provider));
        if let Some(mut last) = self.0.get_mut(&key) {
            *last = call;
            return;
        }
        if self.0.len() >= MAX_PROVIDERS {
            let is_recent = |call: &LastCall| call.at.elapsed().is_ok_and(|age| age < FORGET_AFTER);
            self.0.retain(|_, call| is_recent(call));
        }
        if self.0.len() < MAX_PROVIDERS {
            self.0.insert(key, call);
        }
    }

    fn get(&self, rule: &Arc<str>, provider: Arc<str>) -> Option<LastCall> {
        let found = self.0.get(&(Arc::clone(rule), provider));
        found.map(|call| call.clone())
    }
}

impl ProviderClient {
    /// The Services of all rules of policies, sorted by rule and Service, and at most 256.
    pub fn provider_states(&self, snapshot: &Snapshot) -> Vec<ProviderState> {
        let rules = snapshot.policies().flat_map(|policy| &policy.rules);
        let rules: BTreeSet<Arc<str>> = rules.map(|rule| Arc::clone(&rule.name)).collect();
        let mut all = Vec::new();
        for rule in rules {
            let mut services: Vec<&Arc<Service>> = snapshot.providers(&rule).iter().collect();
            services.sort_by_key(|s| (&s.namespace, &s.name));
            if services.is_empty() {
                all.push(ProviderState {
                    rule: Arc::clone(&rule),
                    ..ProviderState::default()
                });
            }
            for service in services {
                all.push(self.provider_state(snapshot, &rule, service));
            }
            if all.len() >= MAX_PROVIDERS {
                break;
            }
        }
        all.truncate(MAX_PROVIDERS);
        all
    }

    fn provider_state(
        &self,
        snapshot: &Snapshot,
        rule: &Arc<str>,
        service: &Arc<Service>,
    ) -> ProviderState {
        let endpoints = Endpoints::new(self.config(), snapshot, service, PROVIDER_PORT);
        let open_until = |address: &Address| self.0.pool.known(address, &endpoints)?.open_until();
        let state = |address: &Address| AddressState {
            address: address.clone(),
            retry_in: open_until(address).map(time_until),
        };
        ProviderState {
            rule: Arc::clone(rule),
            service: Some(Arc::clone(service)),
            trusted: self.trusts(service),
            addresses: endpoints.addresses.iter().map(state).collect(),
            last_call: self.0.last_calls.get(rule, provider_name(service)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(age: Duration) -> LastCall {
        LastCall {
            at: SystemTime::now() - age,
            took: Duration::ZERO,
            deadline: Duration::ZERO,
            outcome: "OK",
            error: None,
        }
    }

    #[test]
    fn last_calls_are_bounded_and_forget_the_old() {
        let calls = LastCalls::default();
        let rule: Arc<str> = "latency".into();
        let set = |i: usize, age| calls.set(&rule, &format!("ns/p{i}").into(), call(age));
        (0..MAX_PROVIDERS).for_each(|i| set(i, Duration::ZERO));
        set(MAX_PROVIDERS, Duration::ZERO);
        assert_eq!(calls.0.len(), MAX_PROVIDERS, "recent ones stay");
        set(7, FORGET_AFTER * 2);
        set(MAX_PROVIDERS, Duration::ZERO);
        assert_eq!(calls.0.len(), MAX_PROVIDERS);
        assert!(calls.get(&rule, "ns/p7".into()).is_none());
        let added = format!("ns/p{MAX_PROVIDERS}");
        assert!(calls.get(&rule, added.as_str().into()).is_some());
    }
}
