//! The configuration and the state of the calls to providers, and the choice of a rule's provider.

use std::{sync::Arc, time::Duration};

use tautline_core::{
    Snapshot,
    model::{ProviderUnavailable, Service},
    planning::fnv1a_64,
    providers::{self, ExternalNames},
    trust::{AllocatorKeys, KeyPattern, TrustedNamespaces},
};
use tautline_proto::ruleprovider::{EvaluateRequest, EvaluateResponse};
use tautline_runtime::tls::ClientFiles;
use tokio_util::sync::CancellationToken;

use crate::{
    budget::Budgets, call::CallOptions, error::CallError, metrics::Metrics, pool::Pool,
    status::LastCalls, streams::Streams,
};

const EVALUATE: &str = "/ruleprovider.RuleProvider/Evaluate";

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
pub struct ProviderClient(pub(crate) Arc<Inner>);

#[derive(Debug)]
pub(crate) struct Inner {
    pub config: ClientConfig,
    pub pool: Pool,
    pub metrics: Metrics,
    pub last_calls: LastCalls,
    pub streams: Streams,
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
        if self.trusts(service) {
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
