//! Calls to one rule's provider: found by label, balanced over its addresses,
//! bounded in time and size, retried once if it cannot have been answered.

use std::{sync::Arc, time::Duration};

use http::uri::PathAndQuery;
use tautline_core::{
    Snapshot,
    model::{ProviderUnavailable, Service},
    planning::{code, fnv1a_64},
    providers::{self, ExternalNames},
    trust::{AllocatorKeys, KeyPattern, TrustedNamespaces},
};
use tautline_proto::{
    allocator::allocator_client::AllocatorClient,
    endpoint_cost::MalformedMessage,
    ruleprovider::{EvaluateRequest, EvaluateResponse, rule_provider_client::RuleProviderClient},
};
use tautline_runtime::tls::ClientFiles;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Status, transport::Channel};

use crate::{
    budget::Budgets,
    cache::Cache,
    call::{CallOptions, EndpointChoice, Endpoints},
    codec::{CostCodec, RawAnswer, RawQuestion},
    metrics::Metrics,
    pool::{Connection, Pool},
};

/// How providers are found and called.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    /// The most that one call may take, a retry included.
    pub deadline: Duration,
    /// The most that one call to an underlay controller may take.
    pub underlay_deadline: Duration,
    /// The most that one answer may be, in bytes.
    pub max_answer_bytes: usize,
    /// Namespaces whose providers count for all others.
    pub trusted: TrustedNamespaces,
    /// Where providers of type ExternalName may be.
    pub external_names: ExternalNames,
    /// Annotations of a pod that providers of other namespaces are told.
    pub shared_annotations: Vec<KeyPattern>,
    /// Annotations that allocators may write on pods.
    pub allocator_annotations: Vec<AllocatorKeys>,
    /// The percentage of kube-scheduler's time that may pass waiting for the untrusted
    /// providers of one namespace; `None`: for callers that keep no scheduler waiting.
    pub scheduler_share_percent: Option<u8>,
    /// For offers that do not say what a rule without a provider means.
    pub provider_unavailable: ProviderUnavailable,
    /// For providers that require TLS.
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
            provider_unavailable: ProviderUnavailable::Ignore,
            tls: ClientFiles::default(),
        }
    }
}

impl ClientConfig {
    /// For one machine with one tenant: every Service counts, wherever it leads.
    pub fn single_tenant() -> Self {
        Self {
            trusted: TrustedNamespaces::all(),
            external_names: ExternalNames::Any,
            allocator_annotations: vec!["*".into()],
            ..Self::default()
        }
    }
}

/// The default of [`Config::shared_annotations`]: Tautline's own groups, and what the
/// built-in provider gpu-slice reads.
pub const SHARED_ANNOTATIONS: [&str; 4] = [
    "tautline.io/*",
    "constraint.ciena.com/*",
    "nvidia.com/*",
    "alibabacloud.com/gpu-*",
];
/// The default of [`Config::allocator_annotations`].
pub const ALLOCATOR_ANNOTATIONS: [&str; 1] = ["tautline.io/gpu-*"];

/// Why a call gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    #[error("no ready address")]
    NotReady,
    #[error("not called: {0}")]
    BreakerOpen(String),
    /// Its namespace has used up its share of the scheduler's time.
    #[error(
        "not called: the providers of namespace {0} have taken more than their share of \
         kube-scheduler's time; see --untrusted-share"
    )]
    OverBudget(Arc<str>),
    #[error("not called: {0}")]
    NotAllowed(String),
    /// No answer in time; the text says from where.
    #[error("{0}")]
    Timeout(String),
    #[error("{0}")]
    BadAnswer(String),
    #[error("{0}")]
    Failed(String),
}

impl From<MalformedMessage> for CallError {
    fn from(error: MalformedMessage) -> Self {
        Self::BadAnswer(format!("malformed answer: {error}"))
    }
}

impl CallError {
    /// The same for those who may not know what is behind an address: an address that
    /// a tenant chose is asked from Tautline's place in the network.
    pub(crate) fn without_details(self, external: bool) -> Self {
        let hidden = |what: &str| format!("{what}; the log has the cause, at the level debug");
        match self {
            Self::Timeout(_) | Self::BadAnswer(_) | Self::Failed(_) if external => {
                Self::Failed(hidden("the provider gave no usable answer"))
            }
            Self::Timeout(_) => Self::Timeout(hidden("no answer in time")),
            Self::BadAnswer(_) => Self::BadAnswer(hidden("the answer was malformed")),
            Self::Failed(_) => Self::Failed(hidden("the call failed")),
            Self::BreakerOpen(_) => Self::BreakerOpen(hidden("it failed too often just now")),
            other => other,
        }
    }

    /// The stable code of this error.
    pub fn code(&self) -> &'static str {
        match self {
            Self::NotReady => code::NO_ADDRESS,
            Self::BreakerOpen(_) => code::BREAKER_OPEN,
            Self::OverBudget(_) => code::OVER_BUDGET,
            Self::NotAllowed(_) => code::NOT_ALLOWED,
            Self::Timeout(_) => code::TIMEOUT,
            Self::BadAnswer(_) => code::BAD_ANSWER,
            Self::Failed(_) => code::FAILED,
        }
    }
}

/// Finds and calls providers. Cheap to clone; clones share channels.
#[derive(Clone, Debug)]
pub struct ProviderClient(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    config: ClientConfig,
    pool: Pool,
    metrics: Metrics,
    cache: Cache,
    budgets: Option<Budgets>,
}

impl ProviderClient {
    /// # Errors
    /// A TLS file that cannot be read.
    pub fn new(config: ClientConfig, metrics: Metrics) -> Result<Self, std::io::Error> {
        let pool = Pool::new(config.tls.clone(), metrics.open.clone())?;
        let budgets = config.scheduler_share_percent.map(Budgets::new);
        Ok(Self(Arc::new(Inner {
            config,
            pool,
            metrics,
            cache: Cache::default(),
            budgets,
        })))
    }

    /// Follows the TLS files until told to stop.
    pub async fn watch_tls_files(self, stop: CancellationToken) {
        self.0.pool.watch_tls_files(stop).await;
    }

    pub(crate) fn metrics(&self) -> &Metrics {
        &self.0.metrics
    }

    pub(crate) fn pool(&self) -> &Pool {
        &self.0.pool
    }

    pub(crate) fn budgets(&self) -> Option<&Budgets> {
        self.0.budgets.as_ref()
    }

    pub(crate) fn cache(&self) -> &Cache {
        &self.0.cache
    }

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

    /// Another Service that ties with the provider of `rule`, if any.
    pub fn ambiguous_provider<'a>(
        &self,
        snapshot: &'a Snapshot,
        rule: &str,
        namespace: &str,
    ) -> Option<&'a Arc<Service>> {
        providers::ambiguous_provider(snapshot, rule, namespace, &self.0.config.trusted)
    }

    /// Whether a Service counts for all namespaces.
    pub fn trusts(&self, service: &Service) -> bool {
        self.0.config.trusted.contains(&service.namespace)
    }

    /// Whether the provider's Service is one that may reserve. What an allocator says is
    /// written on pods with our rights, so its namespace must be trusted.
    pub fn is_allocator(&self, service: &Service) -> bool {
        service.allocator && self.trusts(service)
    }

    /// Who is called for a Service, as of this snapshot.
    pub(crate) fn endpoints(
        &self,
        snapshot: &Snapshot,
        service: &Service,
        port: providers::PortPreference,
    ) -> Endpoints {
        let (external, trusted) = (self.0.config.external_names, self.trusts(service));
        Endpoints::new(snapshot, service, port, external, trusted)
    }

    /// What is said of a failure where tenants read it.
    pub(crate) fn hide_details(&self, service: &Service, error: CallError) -> CallError {
        match self.trusts(service) {
            true => error,
            false => error.without_details(service.external_name.is_some()),
        }
    }

    pub(crate) async fn endpoint_cost(
        &self,
        endpoints: Endpoints,
        question: RawQuestion,
        first: EndpointChoice<'_>,
        (limit, until): (Duration, Instant),
    ) -> Result<(RawAnswer, Arc<Connection>), CallError> {
        let max = self.0.config.max_answer_bytes;
        let options = CallOptions {
            endpoint: first,
            until: Some(until),
            ..CallOptions::as_provider(limit)
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

    /// Asks a provider whether placed objects keep to a rule. The same objects and
    /// rule are asked of the same replica: it may judge by what it has seen of them.
    ///
    /// # Errors
    /// What kept the provider from answering.
    pub async fn evaluate(
        &self,
        snapshot: &Snapshot,
        service: &Service,
        ask: EvaluateRequest,
    ) -> Result<EvaluateResponse, CallError> {
        let options = CallOptions {
            endpoint: EndpointChoice::Hash(replica_hash(&ask)),
            ..CallOptions::as_provider(self.0.config.deadline)
        };
        let answered = self.call_until(options, snapshot, service, move |channel, left| {
            let mut request = Request::new(ask.clone());
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
        call: impl Fn(AllocatorClient<Channel>) -> F + Send + Sync + 'static,
    ) -> Result<T, CallError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Status>> + Send + 'static,
    {
        let options = CallOptions {
            may_be_unavailable: true,
            // Reserving once more to see whether it works would reserve.
            probe: false,
            ..CallOptions::as_provider(self.0.config.deadline)
        };
        self.call_until(options, snapshot, service, move |channel, _| {
            call(AllocatorClient::new(channel))
        })
        .await
    }
}

/// The same for the same objects and rule.
fn replica_hash(ask: &EvaluateRequest) -> u64 {
    let rule = ask.rule.iter();
    let rule = rule.flat_map(|r| [&r.name, &r.request, &r.limit]);
    let targets = ask.targets.iter();
    let targets = targets.flat_map(|(role, t)| [role, &t.namespace, &t.kind, &t.name]);
    let parts: Vec<&str> = rule.chain(targets).map(String::as_str).collect();
    fnv1a_64(&parts)
}
