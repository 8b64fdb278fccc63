//! Calls to one rule's provider: found by label, balanced over its addresses,
//! bounded in time and size, retried once if it cannot have been answered.

use std::{sync::Arc, time::Duration};

use http::uri::PathAndQuery;
use tautline_core::{
    Snapshot,
    model::{ProviderUnavailable, Service},
    planning::{code, fnv1a_64},
    providers::{self, Address},
};
use tautline_proto::{
    allocator::allocator_client::AllocatorClient,
    endpoint_cost::Malformed,
    ruleprovider::{EvaluateRequest, EvaluateResponse, rule_provider_client::RuleProviderClient},
};
use tautline_runtime::tls::ClientFiles;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tonic::{Code, Request, Status, transport::Channel};

use crate::{
    cache::Cache,
    codec::{CostCodec, RawAnswer, RawQuestion},
    metrics::Metrics,
    pool::{Link, Permit, Pool, PoolError},
};

/// How providers are called.
#[derive(Clone, Debug)]
pub struct Config {
    /// The most that one call may take, a retry included.
    pub deadline: Duration,
    /// The most that one call to an underlay controller may take.
    pub underlay_deadline: Duration,
    /// The most that one answer may be, in bytes.
    pub max_answer_bytes: usize,
    /// Namespaces that providers are taken from; empty: all.
    pub namespaces: Vec<String>,
    /// For offers that do not say what a rule without a provider means.
    pub unavailable: ProviderUnavailable,
    /// For providers that require TLS.
    pub tls: ClientFiles,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            deadline: Duration::from_millis(500),
            underlay_deadline: Duration::from_secs(3),
            max_answer_bytes: 8 << 20,
            namespaces: Vec::new(),
            unavailable: ProviderUnavailable::Ignore,
            tls: ClientFiles::default(),
        }
    }
}

/// Why a call gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    #[error("no ready address")]
    NotReady,
    #[error("not called: {0}")]
    BreakerOpen(String),
    #[error("no answer within {0:?}")]
    Timeout(Duration),
    #[error("{0}")]
    BadAnswer(String),
    #[error("{0}")]
    Failed(String),
}

impl From<Malformed> for CallError {
    fn from(error: Malformed) -> Self {
        Self::BadAnswer(format!("malformed answer: {error}"))
    }
}

impl CallError {
    /// The stable code of this error.
    pub fn code(&self) -> &'static str {
        match self {
            Self::NotReady => code::NO_ADDRESS,
            Self::BreakerOpen(_) => code::BREAKER,
            Self::Timeout(_) => code::TIMEOUT,
            Self::BadAnswer(_) => code::BAD_ANSWER,
            Self::Failed(_) => code::FAILED,
        }
    }
}

/// Which address is called first.
#[derive(Clone, Copy, Debug)]
pub(crate) enum First<'a> {
    /// Each in turn.
    Turn,
    /// For calls of one number the same, as long as it can answer.
    Number(u64),
    /// This one, if it is there still.
    Address(&'a Address),
}

/// How a call goes about it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Way<'a> {
    pub port: providers::PortRule,
    pub deadline: Duration,
    /// It may be repeated, so it is when the connection fails.
    pub again: bool,
    /// The provider may say UNAVAILABLE itself and be well: no leader yet, say.
    pub not_now: bool,
    pub first: First<'a>,
    /// When the deadline is over, if it does not begin with this call.
    pub until: Option<Instant>,
}

impl Way<'_> {
    fn as_provider(deadline: Duration) -> Self {
        Self {
            port: providers::PROVIDER_PORT,
            deadline,
            again: true,
            not_now: false,
            first: First::Turn,
            until: None,
        }
    }

    /// Whether it says nothing against the provider. What the transport makes up
    /// has a cause; what came over the wire has none.
    fn is_well(self, status: &Status) -> bool {
        let said = std::error::Error::source(status).is_none();
        self.not_now && said && status.code() == Code::Unavailable
    }
}

/// Who is called, as of one moment.
#[derive(Clone, Debug)]
pub(crate) struct Callee {
    addresses: Vec<Address>,
    tls_name: Option<String>,
}

impl Callee {
    pub(crate) fn new(snapshot: &Snapshot, service: &Service, port: providers::PortRule) -> Self {
        let slices = snapshot.slices_of(&service.namespace, &service.name);
        Self {
            addresses: providers::addresses(service, slices, port),
            tls_name: service.tls_required.then(|| tls_name(service)),
        }
    }

    pub(crate) fn provider(snapshot: &Snapshot, service: &Service) -> Self {
        Self::new(snapshot, service, providers::PROVIDER_PORT)
    }
}

/// Finds and calls providers. Cheap to clone; clones share channels.
#[derive(Clone, Debug)]
pub struct Discovery(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    config: Config,
    pool: Pool,
    metrics: Metrics,
    cache: Cache,
}

impl Discovery {
    /// # Errors
    /// A TLS file that cannot be read.
    pub fn new(config: Config, metrics: Metrics) -> Result<Self, std::io::Error> {
        let pool = Pool::new(config.tls.clone(), metrics.open.clone())?;
        Ok(Self(Arc::new(Inner {
            config,
            pool,
            metrics,
            cache: Cache::default(),
        })))
    }

    /// Follows the TLS files until told to stop.
    pub async fn follow_tls(self, stop: CancellationToken) {
        self.0.pool.follow_tls(stop).await;
    }

    pub(crate) fn metrics(&self) -> &Metrics {
        &self.0.metrics
    }

    pub(crate) fn cache(&self) -> &Cache {
        &self.0.cache
    }

    pub fn config(&self) -> &Config {
        &self.0.config
    }

    /// The provider of `rule` for an offer in `namespace`.
    pub fn provider<'a>(
        &self,
        snapshot: &'a Snapshot,
        rule: &str,
        namespace: &str,
    ) -> Option<&'a Arc<Service>> {
        providers::choose(snapshot, rule, namespace, &self.0.config.namespaces)
    }

    /// Another Service that ties with the provider of `rule`, if any.
    pub fn rival<'a>(
        &self,
        snapshot: &'a Snapshot,
        rule: &str,
        namespace: &str,
    ) -> Option<&'a Arc<Service>> {
        providers::rival(snapshot, rule, namespace, &self.0.config.namespaces)
    }

    pub(crate) async fn endpoint_cost(
        &self,
        callee: Callee,
        question: RawQuestion,
        first: First<'_>,
        until: Instant,
    ) -> Result<(RawAnswer, Arc<Link>), CallError> {
        let max = self.0.config.max_answer_bytes;
        let way = Way {
            first,
            until: Some(until),
            ..Way::as_provider(self.0.config.deadline)
        };
        self.call_at(way, callee, |channel, left| {
            let question = question.clone();
            async move {
                let mut client = tonic::client::Grpc::new(channel).max_decoding_message_size(max);
                client
                    .ready()
                    .await
                    .map_err(|e| Status::unavailable(e.to_string()))?;
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
        let way = Way {
            first: First::Number(number_of(&ask)),
            ..Way::as_provider(self.0.config.deadline)
        };
        self.call_by(way, snapshot, service, |channel, left| {
            let mut request = Request::new(ask.clone());
            request.set_timeout(left);
            async move {
                Ok(RuleProviderClient::new(channel)
                    .evaluate(request)
                    .await?
                    .into_inner())
            }
        })
        .await
    }

    pub(crate) async fn allocator<T, F: Future<Output = Result<T, Status>>>(
        &self,
        snapshot: &Snapshot,
        service: &Service,
        call: impl Fn(AllocatorClient<Channel>) -> F,
    ) -> Result<T, CallError> {
        let way = Way {
            not_now: true,
            ..Way::as_provider(self.0.config.deadline)
        };
        self.call_by(way, snapshot, service, |channel, _| {
            call(AllocatorClient::new(channel))
        })
        .await
    }

    /// One call within the deadline. A failure of the connection is tried again
    /// once, elsewhere if there is an elsewhere, if it may be repeated.
    pub(crate) async fn call_by<T, F: Future<Output = Result<T, Status>>>(
        &self,
        way: Way<'_>,
        snapshot: &Snapshot,
        service: &Service,
        attempt: impl Fn(Channel, Duration) -> F,
    ) -> Result<T, CallError> {
        let callee = Callee::new(snapshot, service, way.port);
        let answered = self.call_at(way, callee, attempt).await;
        answered.map(|(answer, _)| answer)
    }

    /// The same, with who has answered.
    async fn call_at<T, F: Future<Output = Result<T, Status>>>(
        &self,
        way: Way<'_>,
        callee: Callee,
        attempt: impl Fn(Channel, Duration) -> F,
    ) -> Result<(T, Arc<Link>), CallError> {
        let Callee {
            mut addresses,
            tls_name,
        } = callee;
        if addresses.is_empty() {
            return Err(CallError::NotReady);
        }
        let first = match way.first {
            First::Turn => self.0.pool.turn(),
            // Rendezvous hashing: an address that comes or goes moves only its share.
            First::Number(number) => {
                let number = number.to_string();
                addresses.sort_by_cached_key(|a| fnv1a_64(&[&number, &a.to_string()]));
                0
            }
            First::Address(known) => {
                let there = addresses.iter().position(|a| a == known);
                there.unwrap_or_else(|| self.0.pool.turn())
            }
        };
        let limit = way.deadline;
        let deadline = way.until.unwrap_or_else(|| Instant::now() + limit);
        let mut failed: Option<(Permit, Status)> = None;
        loop {
            let skip = failed.as_ref().map(|(permit, _)| &permit.link);
            let permit = match (
                self.pick(&addresses, first, tls_name.as_deref(), skip),
                failed.take(),
            ) {
                (Ok(permit), first) => {
                    failed = first;
                    permit
                }
                // Nobody else to ask: the first word is the last.
                (Err(_), Some((first, status))) => return Err(self.failed(way, first, &status)),
                (Err(error), None) => return Err(error),
            };
            let left = deadline.saturating_duration_since(Instant::now());
            let channel = permit.link.channel.clone();
            let result = match tokio::time::timeout_at(deadline, attempt(channel, left)).await {
                // The other side keeps the time too, and may be the first to say so.
                Ok(Err(status)) if gave_up(&status) && Instant::now() + CLOSE >= deadline => {
                    return self.timed_out(permit, limit);
                }
                result => result,
            };
            if let Some((first, status)) = failed.take() {
                first.record(way.is_well(&status));
                // The second word counts: what fails now has failed.
                return match result {
                    Err(_) => self.timed_out(permit, limit),
                    Ok(Ok(answer)) => self.answered(permit, answer),
                    Ok(Err(status)) => Err(self.failed(way, permit, &status)),
                };
            }
            match result {
                Err(_) => return self.timed_out(permit, limit),
                Ok(Ok(answer)) => return self.answered(permit, answer),
                Ok(Err(status))
                    if way.again && connection_failed(&status) && Instant::now() < deadline =>
                {
                    failed = Some((permit, status));
                }
                Ok(Err(status)) => return Err(self.failed(way, permit, &status)),
            }
        }
    }

    fn pick(
        &self,
        addresses: &[Address],
        first: usize,
        tls_name: Option<&str>,
        skip: Option<&Arc<Link>>,
    ) -> Result<Permit, CallError> {
        self.0
            .pool
            .pick(addresses, first, tls_name, skip)
            .map_err(|e| match e {
                PoolError::BreakerOpen => CallError::BreakerOpen(e.to_string()),
                PoolError::Unusable(what) => CallError::Failed(what),
            })
    }

    fn answered<T>(&self, permit: Permit, answer: T) -> Result<(T, Arc<Link>), CallError> {
        let link = Arc::clone(&permit.link);
        permit.record(true);
        Ok((answer, link))
    }

    fn timed_out<T>(&self, permit: Permit, limit: Duration) -> Result<T, CallError> {
        permit.record(false);
        Err(CallError::Timeout(limit))
    }

    fn failed(&self, way: Way<'_>, permit: Permit, status: &Status) -> CallError {
        let text = format!("{:?}: {}", status.code(), status.message());
        match status.code() {
            Code::DeadlineExceeded => {
                permit.record(false);
                CallError::Timeout(way.deadline)
            }
            _ if way.is_well(status) => {
                permit.record(true);
                CallError::Failed(text)
            }
            // The provider is well and refuses this question.
            Code::InvalidArgument
            | Code::FailedPrecondition
            | Code::NotFound
            | Code::Unimplemented
            | Code::PermissionDenied
            | Code::Unauthenticated => {
                permit.record(true);
                CallError::Failed(text)
            }
            Code::OutOfRange | Code::ResourceExhausted => {
                permit.record(false);
                CallError::BadAnswer(text)
            }
            _ => {
                permit.record(false);
                CallError::Failed(text)
            }
        }
    }
}

/// The same for the same objects and rule.
fn number_of(ask: &EvaluateRequest) -> u64 {
    let rule = ask.rule.iter();
    let rule = rule.flat_map(|r| [&r.name, &r.request, &r.limit]);
    let targets = ask.targets.iter();
    let targets = targets.flat_map(|(role, t)| [role, &t.namespace, &t.kind, &t.name]);
    let parts: Vec<&str> = rule.chain(targets).map(String::as_str).collect();
    fnv1a_64(&parts)
}

/// How close to the deadline a cancelled call counts as one that ran out of time.
const CLOSE: Duration = Duration::from_millis(20);

fn gave_up(status: &Status) -> bool {
    matches!(status.code(), Code::Cancelled | Code::DeadlineExceeded)
}

/// What a broken connection looks like in gRPC, as opposed to a refusal.
fn connection_failed(status: &Status) -> bool {
    matches!(
        status.code(),
        Code::Unavailable | Code::Unknown | Code::Internal | Code::Cancelled
    )
}

fn tls_name(service: &Service) -> String {
    match &service.external_name {
        Some(host) => host.trim_end_matches('.').to_owned(),
        None => format!("{}.{}.svc", service.name, service.namespace),
    }
}
