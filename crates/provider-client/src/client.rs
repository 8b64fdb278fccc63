//! The state of the calls to providers, and the choice of a rule's provider.

use std::{collections::BTreeSet, sync::Arc};

use tautline_core::{
    Snapshot,
    index::FlightEvent,
    model::{Pod, Service},
    planning::fnv1a_64,
    providers::{self, Address, PROVIDER_PORT},
};
use tautline_proto::ruleprovider::{EvaluateRequest, EvaluateResponse};
use tokio_util::sync::CancellationToken;

use crate::{
    budget::Budgets,
    call::CallOptions,
    config::ClientConfig,
    error::CallError,
    hedge::time_until,
    metrics::Metrics,
    pool::{Endpoints, Pool},
    question::provider_name,
    status::{AddressStatus, LastCalls, MAX_ADDRESSES, MAX_PROVIDERS, ProviderStatus, micros},
    streams::Streams,
};

const EVALUATE: &str = "/ruleprovider.RuleProvider/Evaluate";

/// Finds and calls providers. Cheap to clone; clones share all state.
#[derive(Clone, Debug)]
pub struct ProviderClient(pub(crate) Arc<Inner>);

#[derive(Debug)]
pub(crate) struct Inner {
    pub config: Arc<ClientConfig>,
    pub pool: Arc<Pool>,
    pub metrics: Metrics,
    pub last_calls: LastCalls,
    pub streams: Arc<Streams>,
    /// The budgets for waits for providers.
    pub budgets: Option<Budgets>,
    /// The budgets for waits for pods.
    pub wait_budgets: Option<Budgets>,
}

impl ProviderClient {
    /// A client without open connections.
    ///
    /// # Errors
    /// A TLS file cannot be read.
    pub fn new(config: ClientConfig, metrics: Metrics) -> Result<Self, std::io::Error> {
        let pool = Arc::new(Pool::new(config.tls.clone(), metrics.open.clone())?);
        let config = Arc::new(config);
        let streams = Streams::new(Arc::clone(&config), Arc::clone(&pool), metrics.clone());
        let budgets = || config.scheduler_share_percent.map(Budgets::new);
        let (budgets, wait_budgets) = (budgets(), budgets());
        Ok(Self(Arc::new(Inner {
            config,
            pool,
            metrics,
            last_calls: LastCalls::default(),
            streams: Arc::new(streams),
            budgets,
            wait_budgets,
        })))
    }

    /// Reloads the TLS files after changes, until `stop`.
    pub async fn watch_tls_files(self, stop: CancellationToken) {
        self.0.pool.watch_tls_files(stop).await;
    }

    /// The configuration of the client.
    pub fn config(&self) -> &ClientConfig {
        &self.0.config
    }

    /// The provider of `rule` for an offer in `namespace`.
    pub fn provider<'a>(
        &self,
        snapshot: &'a Snapshot,
        rule: &str,
        namespace: &str,
    ) -> Option<&'a Arc<Service>> {
        providers::choose_provider(snapshot, rule, namespace, &self.0.config.trusted)
    }

    /// The provider of `rule` for an offer in `namespace`, if it [is an allocator](Self::is_allocator).
    pub fn allocator<'a>(
        &self,
        snapshot: &'a Snapshot,
        rule: &str,
        namespace: &str,
    ) -> Option<&'a Arc<Service>> {
        let service = self.provider(snapshot, rule, namespace)?;
        self.is_allocator(service).then_some(service)
    }

    /// Returns whether a Service may serve all namespaces.
    pub fn trusts(&self, service: &Service) -> bool {
        self.0.config.trusted.contains(&service.namespace)
    }

    /// Returns whether the Service is an allocator in a trusted namespace, which may write
    /// annotations on pods.
    pub fn is_allocator(&self, service: &Service) -> bool {
        service.allocator && self.trusts(service)
    }

    pub(crate) fn hide_details(&self, service: &Service, error: CallError) -> CallError {
        if self.0.config.shows_details || self.trusts(service) {
            error
        } else {
            error.without_details(service.external_name.is_some())
        }
    }

    /// Calls Evaluate. The same objects and rule go to the same replica, which may store
    /// observations.
    ///
    /// # Errors
    /// The provider gave no answer.
    pub async fn evaluate(
        &self,
        snapshot: &Snapshot,
        service: &Service,
        message: EvaluateRequest,
    ) -> Result<EvaluateResponse, CallError> {
        let options = CallOptions {
            replica: Some(replica_hash(&message)),
            ..CallOptions::new(EVALUATE, self.0.config.deadline)
        };
        let answered = self.call(options, snapshot, service, &message).await;
        answered.map_err(|failure| self.hide_details(service, failure.error))
    }

    /// Tells providers about the events of pods in flight. `take` returns the events since the last
    /// call.
    pub fn follow_flights(&self, snapshot: &Snapshot, take: impl FnOnce() -> Vec<FlightEvent>) {
        let message = |service: &Service, pod: &Pod| self.in_flight_pod(service, pod);
        self.0.streams.follow_flights(snapshot, take, message);
    }

    /// The Services of all rules of policies, sorted by rule and Service, and at most 256.
    pub fn provider_statuses(&self, snapshot: &Snapshot) -> Vec<ProviderStatus> {
        let rules = snapshot.policies().flat_map(|policy| &policy.rules);
        let rules: BTreeSet<Arc<str>> = rules.map(|rule| Arc::clone(&rule.name)).collect();
        let mut all = Vec::new();
        for rule in rules {
            let mut services: Vec<&Arc<Service>> = snapshot.providers(&rule).iter().collect();
            services.sort_by_key(|s| (&s.namespace, &s.name));
            if services.is_empty() {
                all.push(ProviderStatus {
                    rule: rule.to_string(),
                    ..ProviderStatus::default()
                });
            }
            for service in services {
                all.push(self.provider_status(snapshot, &rule, service));
            }
            if all.len() >= MAX_PROVIDERS {
                break;
            }
        }
        all.truncate(MAX_PROVIDERS);
        all
    }

    fn provider_status(
        &self,
        snapshot: &Snapshot,
        rule: &Arc<str>,
        service: &Arc<Service>,
    ) -> ProviderStatus {
        let endpoints = Endpoints::new(self.config(), snapshot, service, PROVIDER_PORT);
        let status = |address: &Address| {
            let known = self.0.pool.known(address, &endpoints);
            let retry_in = known.and_then(|known| known.open_until()).map(time_until);
            AddressStatus {
                address: address.to_string(),
                breaker_open: retry_in.is_some(),
                retry_in_micros: retry_in.map(micros),
            }
        };
        let addresses = endpoints.addresses.iter().take(MAX_ADDRESSES);
        let name = provider_name(service);
        ProviderStatus {
            rule: rule.to_string(),
            service: Some(name.to_string()),
            trusted: self.trusts(service),
            addresses: addresses.map(status).collect(),
            last_call: self.0.last_calls.get(rule, name),
        }
    }
}

/// The number that chooses the replica for the rule and targets of a request.
fn replica_hash(message: &EvaluateRequest) -> u64 {
    let rule = message
        .rule
        .iter()
        .flat_map(|r| [&r.name, &r.request, &r.limit]);
    let targets = message
        .targets
        .iter()
        .flat_map(|(role, t)| [role, &t.namespace, &t.kind, &t.name]);
    let parts: Vec<&str> = rule.chain(targets).map(String::as_str).collect();
    fnv1a_64(&parts)
}
