//! Calls to the provider of one rule: balanced, limited in time and size, retried once.

use std::{sync::Arc, time::Duration};

use http::uri::PathAndQuery;
use tautline_core::{
    Snapshot,
    model::{ProviderUnavailable, Service},
    planning::fnv1a_64,
    providers::{self, ExternalNames},
    trust::{AllocatorKeys, KeyPattern, TrustedNamespaces},
};
use tautline_proto::{
    allocator::allocator_client::AllocatorClient,
    ruleprovider::{EvaluateRequest, EvaluateResponse, rule_provider_client::RuleProviderClient},
};
use tautline_runtime::tls::ClientFiles;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Status};

use crate::{
    budget::Budgets,
    call::{CallOptions, EndpointChoice, Endpoints},
    codec::{CostCodec, RawAnswer, RawQuestion},
    error::CallError,
    metrics::Metrics,
    pool::{Connection, Pool},
    status::LastCalls,
    streams::Streams,
    traced::{self, TracedChannel},
};

/// The configuration of a [`ProviderClient`].
#[derive(Clone, Debug)]
pub struct ClientConfig {
    /// The deadline of one call, including a retry.
    pub deadline: Duration,
    /// The deadline of one call to an underlay controller.
    pub underlay_deadline: Duration,
    /// The maximum size of one answer, in bytes.
    pub max_answer_bytes: usize,
    /// The namespaces whose providers serve all namespaces.
    pub trusted: TrustedNamespaces,
    /// The allowed hosts of providers of type ExternalName.
    pub external_names: ExternalNames,
    /// The pod annotations that providers of other namespaces may read.
    pub shared_annotations: Vec<KeyPattern>,
    /// The annotations that allocators may write on pods.
    pub allocator_annotations: Vec<AllocatorKeys>,
    /// The maximum percentage of kube-scheduler's time for one namespace's untrusted providers;
    /// `None` for callers that kube-scheduler does not wait for.
    pub scheduler_share_percent: Option<u8>,
    /// The effect of a rule without a provider, for offers that do not set it. With `None` a rule
    /// with a limit rejects, and other rules are ignored.
    pub provider_unavailable: Option<ProviderUnavailable>,
    /// True if the client opens streams of costs to the providers of trusted namespaces, for pods
    /// that kube-scheduler waits for.
    pub streams: bool,
    /// The TLS files for providers that require TLS.
    pub tls: ClientFiles,
}

impl Default for ClientConfig {
    fn default() -> Self {
        Self {
            deadline: Duration::from_millis(500),
            underlay_deadline: Duration::from_secs(3),
            max_answer_bytes: 8 << 20,
            trusted: TrustedNamespaces::default(),
            external_names: ExternalNames::Off,
            shared_annotations: SHARED_ANNOTATIONS.map(KeyPattern::from).into(),
            allocator_annotations: ALLOCATOR_ANNOTATIONS.map(AllocatorKeys::from).into(),
            scheduler_share_percent: None,
            provider_unavailable: None,
            streams: false,
            tls: ClientFiles::default(),
        }
    }
}

impl ClientConfig {
    /// The configuration for a single tenant, which trusts every Service and allows every host.
    pub fn single_tenant() -> Self {
        Self {
            trusted: TrustedNamespaces::all(),
            external_names: ExternalNames::Any,
            allocator_annotations: vec!["*".into()],
            ..Self::default()
        }
    }
}

/// The default of [`ClientConfig::shared_annotations`]: the annotations of Tautline's groups, and
/// those that gpu-slice reads.
pub const SHARED_ANNOTATIONS: [&str; 4] = [
    "tautline.io/*",
    "constraint.ciena.com/*",
    "nvidia.com/*",
    "alibabacloud.com/gpu-*",
];
/// The default of [`ClientConfig::allocator_annotations`].
pub const ALLOCATOR_ANNOTATIONS: [&str; 1] = ["tautline.io/gpu-*"];

/// Finds and calls providers. Cheap to clone; clones share all state.
#[derive(Clone, Debug)]
pub struct ProviderClient(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    config: ClientConfig,
    pool: Pool,
    metrics: Metrics,
    last_calls: LastCalls,
    streams: Streams,
    budgets: Option<Budgets>,
    /// The budgets for waits for pods, not for providers.
    wait_budgets: Option<Budgets>,
}

impl ProviderClient {
    /// A client without open connections.
    ///
    /// # Errors
    /// A TLS file cannot be read.
    pub fn new(config: ClientConfig, metrics: Metrics) -> Result<Self, std::io::Error> {
        let pool = Pool::new(config.tls.clone(), metrics.open.clone())?;
        let budgets = || config.scheduler_share_percent.map(Budgets::new);
        let (budgets, wait_budgets) = (budgets(), budgets());
        Ok(Self(Arc::new(Inner {
            config,
            pool,
            metrics,
            last_calls: LastCalls::default(),
            streams: Streams::default(),
            budgets,
            wait_budgets,
        })))
    }

    /// Reloads the TLS files after changes, until `stop`.
    pub async fn watch_tls_files(self, stop: CancellationToken) {
        self.0.pool.watch_tls_files(stop).await;
    }

    pub(crate) fn metrics(&self) -> &Metrics {
        &self.0.metrics
    }

    pub(crate) fn last_calls(&self) -> &LastCalls {
        &self.0.last_calls
    }

    pub(crate) fn pool(&self) -> &Pool {
        &self.0.pool
    }

    pub(crate) fn budgets(&self) -> Option<&Budgets> {
        self.0.budgets.as_ref()
    }

    pub(crate) fn streams(&self) -> &Streams {
        &self.0.streams
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

    /// Another Service that loses to the provider of `rule` by age or name only.
    pub fn ambiguous_provider<'a>(
        &self,
        snapshot: &'a Snapshot,
        rule: &str,
        namespace: &str,
    ) -> Option<&'a Arc<Service>> {
        providers::ambiguous_provider(snapshot, rule, namespace, &self.0.config.trusted)
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

    /// The longest time that kube-scheduler may wait for pods of a namespace; `None` if it is not
    /// limited. It does not use the share for the namespace's providers, since a wait must not
    /// switch them off.
    pub fn longest_wait(&self, namespace: &str) -> Option<Duration> {
        let budgets = self.wait_budgets(namespace)?;
        let is_used_up = budgets.is_used_up(namespace, Instant::now());
        Some(if is_used_up {
            Duration::ZERO
        } else {
            budgets.longest_wait()
        })
    }

    /// Charges a namespace for a wait for its pods.
    pub fn charge_wait(&self, namespace: &str, waited: Duration) {
        if let Some(budgets) = self.wait_budgets(namespace) {
            budgets.charge(namespace, Instant::now(), waited);
        }
    }

    fn wait_budgets(&self, namespace: &str) -> Option<&Budgets> {
        let budgets = self.0.wait_budgets.as_ref();
        budgets.filter(|_| !self.0.config.trusted.contains(namespace))
    }

    pub(crate) fn endpoints(
        &self,
        snapshot: &Snapshot,
        service: &Service,
        port: providers::PortPreference,
    ) -> Endpoints {
        let (external, trusted) = (self.0.config.external_names, self.trusts(service));
        Endpoints::new(snapshot, service, port, external, trusted)
    }

    pub(crate) fn hide_details(&self, service: &Service, error: CallError) -> CallError {
        if self.trusts(service) {
            error
        } else {
            error.without_details(service.external_name.is_some())
        }
    }

    pub(crate) async fn endpoint_cost(
        &self,
        endpoints: Endpoints,
        question: RawQuestion,
        (limit, until): (Duration, Instant),
    ) -> Result<(RawAnswer, Arc<Connection>), CallError> {
        let max = self.0.config.max_answer_bytes;
        let options = CallOptions {
            until: Some(until),
            ..CallOptions::as_provider(traced::ENDPOINT_COST, limit)
        };
        self.call_at(options, endpoints, move |channel, left| {
            let question = question.clone();
            async move {
                let mut client = tonic::client::Grpc::new(channel).max_decoding_message_size(max);
                let ready = client.ready().await;
                ready.map_err(|e| Status::from_error(Box::new(e)))?;
                let path = PathAndQuery::from_static("/ruleprovider.RuleProvider/EndpointCost");
                let mut request = Request::new(question);
                request.set_timeout(left);
                Ok(client.unary(request, path, CostCodec).await?.into_inner())
            }
        })
        .await
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
            endpoint: EndpointChoice::Hash(replica_hash(&message)),
            ..CallOptions::as_provider(traced::EVALUATE, self.0.config.deadline)
        };
        let answered = self.call_until(options, snapshot, service, move |channel, left| {
            let mut request = Request::new(message.clone());
            request.set_timeout(left);
            async move {
                Ok(RuleProviderClient::new(channel)
                    .evaluate(request)
                    .await?
                    .into_inner())
            }
        });
        let answered = answered.await;
        answered.map_err(|error| self.hide_details(service, error))
    }

    pub(crate) async fn call_allocator<T, F>(
        &self,
        snapshot: &Snapshot,
        service: &Service,
        rpc: &'static str,
        call: impl Fn(AllocatorClient<TracedChannel>) -> F + Send + Sync + 'static,
    ) -> Result<T, CallError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Status>> + Send + 'static,
    {
        let options = CallOptions {
            may_be_unavailable: true,
            // A probe that repeats Reserve would reserve.
            probe: false,
            ..CallOptions::as_provider(rpc, self.0.config.deadline)
        };
        self.call_until(options, snapshot, service, move |channel, _| {
            call(AllocatorClient::new(channel))
        })
        .await
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
