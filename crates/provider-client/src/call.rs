//! One call: which address, by when, whether once more, and what its outcome says of
//! the provider.

use std::{sync::Arc, time::Duration};

use tautline_core::{
    Snapshot,
    model::Service,
    planning::fnv1a_64,
    providers::{self, Address, ExternalNames},
};
use tokio::time::Instant;
use tonic::{Code, Status, transport::Channel};

use crate::{
    CallError, ProviderClient, failure,
    pool::{CallGuard, Candidates, Connection, PoolError, Probe},
};

/// Which address is called first.
#[derive(Clone, Copy, Debug)]
pub(crate) enum EndpointChoice<'a> {
    /// Each in turn.
    RoundRobin,
    /// For calls of one number the same, as long as it can answer.
    Hash(u64),
    /// This one, if it is there still.
    Address(&'a Address),
}

/// How a call is made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallOptions<'a> {
    pub port: providers::PortPreference,
    pub deadline: Duration,
    /// It may be repeated, so it is when the connection fails.
    pub retry: bool,
    /// It may be repeated in the background to see whether the provider is back. Else
    /// the next call that somebody waits for has to find out.
    pub probe: bool,
    /// The provider may say UNAVAILABLE itself and be well: no leader yet, say.
    pub may_be_unavailable: bool,
    pub endpoint: EndpointChoice<'a>,
    /// When the deadline is over, if it does not begin with this call.
    pub until: Option<Instant>,
}

impl CallOptions<'_> {
    pub(crate) fn as_provider(deadline: Duration) -> Self {
        Self {
            port: providers::PROVIDER_PORT,
            deadline,
            retry: true,
            probe: true,
            may_be_unavailable: false,
            endpoint: EndpointChoice::RoundRobin,
            until: None,
        }
    }

    /// Whether a status says nothing against the provider: it answered, and refused this
    /// question, which others may not share. What the transport makes up has a cause; what
    /// came over the wire has none.
    fn is_well(self, status: &Status) -> bool {
        let answered = std::error::Error::source(status).is_none();
        match status.code() {
            Code::Unavailable => self.may_be_unavailable && answered,
            Code::DeadlineExceeded | Code::Cancelled => false,
            _ => answered,
        }
    }
}

/// Who is called, as of one moment.
#[derive(Clone, Debug)]
pub(crate) struct Endpoints {
    addresses: Vec<Address>,
    tls_name: Option<String>,
    /// Names may not lead to this machine or its link.
    remote_only: bool,
    trusted: bool,
    /// Why it must not be called at all.
    forbidden: Option<String>,
}

impl Endpoints {
    pub(crate) fn new(
        snapshot: &Snapshot,
        service: &Service,
        port: providers::PortPreference,
        external: ExternalNames,
        trusted: bool,
    ) -> Self {
        let slices = snapshot.endpoint_slices(&service.namespace, &service.name);
        let refused = service.external_name.as_ref().and_then(|host| {
            let what = match external {
                ExternalNames::Any => return None,
                ExternalNames::Off => {
                    "is of type ExternalName; give it endpoints, or start with \
                     --external-name-providers remote"
                }
                ExternalNames::Remote => {
                    let address = host.parse().ok();
                    address.filter(|a| providers::is_local(*a))?;
                    "leads to a local address; give it endpoints"
                }
            };
            Some(format!(
                "Service {}/{} {what}",
                service.namespace, service.name
            ))
        });
        Self {
            addresses: providers::addresses(service, slices, port),
            tls_name: service.tls_required.then(|| tls_name(service)),
            remote_only: service.external_name.is_some() && external != ExternalNames::Any,
            trusted,
            forbidden: refused,
        }
    }
}

impl ProviderClient {
    /// One call within the deadline. A failure of the connection is tried again
    /// once, elsewhere if there is an elsewhere, if it may be repeated.
    pub(crate) async fn call_until<T, F>(
        &self,
        options: CallOptions<'_>,
        snapshot: &Snapshot,
        service: &Service,
        attempt: impl Fn(Channel, Duration) -> F + Send + Sync + 'static,
    ) -> Result<T, CallError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Status>> + Send + 'static,
    {
        let endpoints = self.endpoints(snapshot, service, options.port);
        let answered = self.call_at(options, endpoints, attempt).await;
        answered.map(|(answer, _)| answer)
    }

    /// The same, with who has answered.
    pub(crate) async fn call_at<T, F>(
        &self,
        options: CallOptions<'_>,
        endpoints: Endpoints,
        attempt: impl Fn(Channel, Duration) -> F + Send + Sync + 'static,
    ) -> Result<(T, Arc<Connection>), CallError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Status>> + Send + 'static,
    {
        let Endpoints {
            mut addresses,
            tls_name,
            remote_only,
            trusted,
            forbidden: refused,
        } = endpoints;
        if let Some(refused) = refused {
            return Err(CallError::NotAllowed(refused));
        }
        if addresses.is_empty() {
            return Err(CallError::NotReady);
        }
        let pool = self.pool();
        let first = match options.endpoint {
            EndpointChoice::RoundRobin => pool.next_index(),
            // Rendezvous hashing: an address that comes or goes moves only its share.
            EndpointChoice::Hash(number) => {
                let number = number.to_string();
                addresses.sort_by_cached_key(|a| fnv1a_64(&[&number, &a.to_string()]));
                0
            }
            EndpointChoice::Address(known) => {
                let there = addresses.iter().position(|a| a == known);
                there.unwrap_or_else(|| pool.next_index())
            }
        };
        let peers = Candidates {
            addresses: &addresses,
            first,
            tls_name: tls_name.as_deref(),
            remote_only,
            trusted,
            may_probe: !options.probe,
        };
        let deadline = options
            .until
            .unwrap_or_else(|| Instant::now() + options.deadline);
        // Links that are left alone from now on.
        let mut open = Vec::new();
        let mut before: Option<(Arc<Connection>, CallError)> = None;
        let outcome = loop {
            let skip = before.as_ref().map(|(link, _)| link);
            let guard = match (pool.admit_call(&peers, skip), before.take()) {
                (Ok(guard), earlier) => {
                    before = earlier;
                    guard
                }
                // No other address to ask: the first answer is the last.
                (Err(_), Some((_, error))) => break Err(error),
                (Err(PoolError::Unusable(what)), None) => break Err(CallError::Failed(what)),
                (Err(PoolError::BreakerOpen { links, why }), None) => {
                    open = links;
                    break Err(CallError::BreakerOpen(why));
                }
            };
            let left = deadline.saturating_duration_since(Instant::now());
            let channel = guard.connection.channel.clone();
            let result = match tokio::time::timeout_at(deadline, attempt(channel, left)).await {
                // The other side keeps the time too, and may be the first to say so.
                Ok(Err(status))
                    if is_timeout(&status) && Instant::now() + DEADLINE_SLACK >= deadline =>
                {
                    Err(None)
                }
                Ok(result) => result.map_err(Some),
                Err(_) => Err(None),
            };
            let broken = |status: &Option<Status>| status.as_ref().is_some_and(connection_failed);
            let once_more = before.is_none()
                && options.retry
                && result.as_ref().is_err_and(broken)
                && Instant::now() < deadline;
            let link = Arc::clone(&guard.connection);
            let (outcome, is_open) = conclude(options, guard, result);
            if is_open {
                open.push(Arc::clone(&link));
            }
            match outcome {
                Err(error) if once_more => before = Some((link, error)),
                outcome => break outcome.map(|answer| (answer, link)),
            }
        };
        if options.probe && !open.is_empty() {
            let probe: Probe = Arc::new(move |channel, left| {
                let attempt = attempt(channel, left);
                Box::pin(async move { attempt.await.map(|_| ()) })
            });
            for link in open {
                // The newest question: an older one may fail for a reason of its own.
                if link.set_probe(Arc::clone(&probe)) {
                    tokio::spawn(probe_until_closed(
                        options.may_be_unavailable,
                        self.config().deadline,
                        link,
                    ));
                }
            }
        }
        outcome
    }
}

/// Records the outcome of a call, and says whether its link is left alone now. An error
/// without a status is a deadline that is over.
fn conclude<T>(
    options: CallOptions<'_>,
    guard: CallGuard,
    result: Result<T, Option<Status>>,
) -> (Result<T, CallError>, bool) {
    let address = &guard.connection.address;
    let (well, outcome) = match result {
        Ok(answer) => (true, Ok(answer)),
        Err(None) => {
            let text = format!("no answer from {address} within {:?}", options.deadline);
            (false, Err(CallError::Timeout(text)))
        }
        Err(Some(status)) => {
            let text = failure::describe(address, &status);
            let error = match status.code() {
                Code::DeadlineExceeded => CallError::Timeout(text),
                Code::OutOfRange | Code::ResourceExhausted => CallError::BadAnswer(text),
                _ => CallError::Failed(text),
            };
            (options.is_well(&status), Err(error))
        }
    };
    let is_open = guard.record(well, outcome.as_ref().err());
    (outcome, is_open)
}

/// Repeats calls to an address that is left alone, in the background, until one is
/// answered or nobody asks for the address any more. So no pod waits for an address
/// that is known to fail, and the first after its recovery has its answer.
async fn probe_until_closed(not_now: bool, deadline: Duration, link: Arc<Connection>) {
    let options = CallOptions {
        may_be_unavailable: not_now,
        ..CallOptions::as_provider(deadline)
    };
    let weak = Arc::downgrade(&link);
    drop(link);
    while let Some(due) = weak.upgrade().and_then(|link| link.probe_due()) {
        tokio::time::sleep_until(due).await;
        let guard = weak.upgrade().and_then(|link| link.admit(true));
        let probe = guard.as_ref().and_then(|guard| guard.connection.probe());
        let (Some(guard), Some(probe)) = (guard, probe) else {
            // Another call is the probe.
            tokio::time::sleep(deadline).await;
            continue;
        };
        let channel = guard.connection.channel.clone();
        let answer = tokio::time::timeout(deadline, probe(channel, deadline)).await;
        let result = answer.map_err(|_| None).and_then(|r| r.map_err(Some));
        _ = conclude(options, guard, result);
    }
    weak.upgrade().inspect(|link| link.end_probing());
}

/// How close to the deadline a cancelled call counts as one that ran out of time.
const DEADLINE_SLACK: Duration = Duration::from_millis(20);

fn is_timeout(status: &Status) -> bool {
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
