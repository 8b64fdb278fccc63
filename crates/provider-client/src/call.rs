//! One call to a provider: its address, deadline and retry, and its effect on the circuit breaker.

use std::{fmt::Display, sync::Arc, time::Duration};

use tautline_core::{
    Snapshot,
    model::Service,
    planning::fnv1a_64,
    providers::{self, Address, ExternalNames},
};
use tautline_traces::{Span, TraceHeaders};
use tokio::time::Instant;
use tonic::{Code, Status};

use crate::{
    CallError, ProviderClient, failure, hedge,
    pool::{CallGuard, Candidates, Connection, Pool, PoolError, Probe},
    traced::{self, TracedChannel},
};

#[derive(Clone, Copy, Debug)]
pub(crate) enum EndpointChoice {
    /// The next address in turn.
    RoundRobin,
    /// One address per value, as long as it answers.
    Hash(u64),
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct CallOptions {
    /// The method, as `SERVICE/METHOD`.
    pub rpc: &'static str,
    pub port: providers::PortPreference,
    pub deadline: Duration,
    /// True if the call is idempotent, so that it may be retried.
    pub retry: bool,
    /// True if the call may be repeated in the background as a probe. Otherwise the next real call
    /// is the probe.
    pub probe: bool,
    /// True if a healthy provider may return UNAVAILABLE, for example without a leader.
    pub may_be_unavailable: bool,
    pub endpoint: EndpointChoice,
    /// The absolute deadline, if its time started before this call.
    pub until: Option<Instant>,
}

impl CallOptions {
    pub(crate) fn as_provider(rpc: &'static str, deadline: Duration) -> Self {
        Self {
            rpc,
            port: providers::PROVIDER_PORT,
            deadline,
            retry: true,
            probe: true,
            may_be_unavailable: false,
            endpoint: EndpointChoice::RoundRobin,
            until: None,
        }
    }

    /// Returns whether the provider is well and only rejected this request. A status of the
    /// transport has a source; a status from the wire has no source.
    fn is_well(self, status: &Status) -> bool {
        let answered = std::error::Error::source(status).is_none();
        match status.code() {
            Code::Unavailable => self.may_be_unavailable && answered,
            Code::DeadlineExceeded | Code::Cancelled => false,
            _ => answered,
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Endpoints {
    addresses: Vec<Address>,
    tls_name: Option<String>,
    remote_only: bool,
    trusted: bool,
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
        let forbidden = service.external_name.as_ref().and_then(|host| {
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
            forbidden,
        }
    }

    /// Admits a call at one of the addresses, a different one for each `turn`. The call is no
    /// probe.
    pub(crate) fn admit(&self, pool: &Pool, turn: usize) -> Result<CallGuard, CallError> {
        if let Some(reason) = &self.forbidden {
            return Err(CallError::NotAllowed(reason.clone()));
        }
        if self.addresses.is_empty() {
            return Err(CallError::NotReady);
        }
        let candidates = Candidates {
            first: turn,
            ..self.candidates()
        };
        let admitted = pool.admit_call(&candidates, None);
        admitted.map_err(|error| CallError::Failed(error.to_string()))
    }

    pub(crate) fn are_several(&self) -> bool {
        self.addresses.len() > 1
    }

    /// Returns whether a connection to `address`, made with `before`, may still be used.
    pub(crate) fn allow(&self, address: &Address, before: &Self) -> bool {
        self.addresses.contains(address)
            && self.forbidden.is_none()
            && (&self.tls_name, self.remote_only) == (&before.tls_name, before.remote_only)
    }

    fn candidates(&self) -> Candidates<'_> {
        Candidates {
            addresses: &self.addresses,
            first: 0,
            tls_name: self.tls_name.as_deref(),
            remote_only: self.remote_only,
            trusted: self.trusted,
            may_probe: false,
        }
    }

    /// Each address, with the end of its pause if its breaker is open.
    pub(crate) fn breakers(&self, pool: &Pool) -> Vec<(Address, Option<Instant>)> {
        let candidates = self.candidates();
        let state = |address: &Address| (address.clone(), pool.open_until(address, &candidates));
        self.addresses.iter().map(state).collect()
    }
}

impl ProviderClient {
    /// Calls a provider. It retries an idempotent call once if the connection fails, at another
    /// address if possible. While the first address is silent, it calls another one too: a node
    /// without power does not even refuse a connection.
    pub(crate) async fn call_until<T, F>(
        &self,
        options: CallOptions,
        snapshot: &Snapshot,
        service: &Service,
        attempt: impl Fn(TracedChannel, Duration) -> F + Send + Sync + 'static,
    ) -> Result<T, CallError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Status>> + Send + 'static,
    {
        let endpoints = self.endpoints(snapshot, service, options.port);
        let span = Span::of_call(options.rpc);
        let answered = span.scope(self.call_at(options, endpoints, attempt)).await;
        traced::record(&span, options.rpc, (service, ""), &answered);
        answered.map(|(answer, _)| answer)
    }

    /// Makes the call of [`Self::call_until`] at these endpoints; also returns the connection that
    /// answered.
    pub(crate) async fn call_at<T, F>(
        &self,
        options: CallOptions,
        endpoints: Endpoints,
        attempt: impl Fn(TracedChannel, Duration) -> F + Send + Sync + 'static,
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
            forbidden,
        } = endpoints;
        if let Some(reason) = forbidden {
            return Err(CallError::NotAllowed(reason));
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
        };
        let candidates = Candidates {
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
        let headers = TraceHeaders::current();
        let mut open = Vec::new();
        let mut before: Option<(Arc<Connection>, CallError)> = None;
        let outcome = loop {
            let skip = before.as_ref().map(|(connection, _)| connection);
            let guard = match (pool.admit_call(&candidates, skip), before.take()) {
                (Ok(guard), earlier) => {
                    before = earlier;
                    guard
                }
                // There is no other address, so the first error is final.
                (Err(_), Some((_, error))) => break Err(error),
                (Err(PoolError::Unusable(what)), None) => break Err(CallError::Failed(what)),
                (Err(PoolError::BreakerOpen { connections, why }), None) => {
                    open = connections;
                    break Err(CallError::BreakerOpen(why));
                }
            };
            let start = |connection: &Connection| {
                let channel = TracedChannel::new(connection.channel.clone(), headers.clone());
                attempt(channel, hedge::time_until(deadline))
            };
            let second = || {
                let may = options.retry && before.is_none() && addresses.len() > 1;
                let skip = Some(&guard.connection);
                let other = may.then(|| pool.admit_call(&candidates, skip))?.ok()?;
                self.metrics().second_call();
                let call = start(&other.connection);
                Some((other, call))
            };
            let answers = hedge::call(start(&guard.connection), second, deadline).await;
            let first = (guard, in_time(answers.first, deadline));
            let (guard, result) = match answers.second {
                None => first,
                Some((other, answer)) => {
                    // A call that the other call's answer cut short says nothing about its address.
                    let is_over = answer.is_some() || first.1.is_err();
                    let second = (other, in_time(answer, deadline));
                    let (winner, loser, is_over) = if second.1.is_ok() {
                        (second, first, true)
                    } else {
                        (first, second, is_over)
                    };
                    let (guard, result) = loser;
                    let connection = Arc::clone(&guard.connection);
                    if is_over && conclude(options, guard, result).1 {
                        open.push(connection);
                    }
                    winner
                }
            };
            let broken = |status: &Option<Status>| status.as_ref().is_some_and(connection_failed);
            let once_more = before.is_none()
                && options.retry
                && result.as_ref().is_err_and(broken)
                && Instant::now() < deadline;
            let connection = Arc::clone(&guard.connection);
            let (outcome, is_open) = conclude(options, guard, result);
            if is_open {
                open.push(Arc::clone(&connection));
            }
            match outcome {
                Err(error) if once_more => before = Some((connection, error)),
                outcome => break outcome.map(|answer| (answer, connection)),
            }
        };
        if options.probe && !open.is_empty() {
            let probe: Probe = Arc::new(move |channel, left| {
                let attempt = attempt(TracedChannel::new(channel, None), left);
                Box::pin(async move { attempt.await.map(|_| ()) })
            });
            for connection in open {
                // The probe repeats the newest request: an older one may fail for other reasons.
                if connection.set_probe(Arc::clone(&probe)) {
                    tokio::spawn(probe_until_closed(
                        options.may_be_unavailable,
                        self.config().deadline,
                        connection,
                    ));
                }
            }
        }
        outcome
    }
}

/// The error of a call that ended with this status, which `from` answered.
pub(crate) fn call_error(from: &impl Display, status: &Status) -> CallError {
    let text = failure::describe(from, status);
    match status.code() {
        Code::DeadlineExceeded => CallError::Timeout(text),
        Code::OutOfRange | Code::ResourceExhausted => CallError::BadAnswer(text),
        _ => CallError::Failed(text),
    }
}

/// Records the result of a call, and returns whether the breaker is open now. An error without a
/// status is an expired deadline.
fn conclude<T>(
    options: CallOptions,
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
        Err(Some(status)) => (options.is_well(&status), Err(call_error(address, &status))),
    };
    let is_open = guard.record(well, outcome.as_ref().err());
    (outcome, is_open)
}

/// Probes in the background until the address answers or is unused: no pod waits for it meanwhile,
/// and the first one after its recovery gets an answer.
async fn probe_until_closed(not_now: bool, deadline: Duration, connection: Arc<Connection>) {
    let options = CallOptions {
        may_be_unavailable: not_now,
        ..CallOptions::as_provider("", deadline)
    };
    let weak = Arc::downgrade(&connection);
    drop(connection);
    while let Some(due) = weak.upgrade().and_then(|connection| connection.probe_due()) {
        tokio::time::sleep_until(due).await;
        let guard = weak.upgrade().and_then(|connection| connection.admit(true));
        let probe = guard.as_ref().and_then(|guard| guard.connection.probe());
        let (Some(guard), Some(probe)) = (guard, probe) else {
            tokio::time::sleep(deadline).await;
            continue;
        };
        let channel = guard.connection.channel.clone();
        let answer = tokio::time::timeout(deadline, probe(channel, deadline)).await;
        let result = answer.map_err(|_| None).and_then(|r| r.map_err(Some));
        _ = conclude(options, guard, result);
    }
    weak.upgrade()
        .inspect(|connection| connection.end_probing());
}

/// The time before the deadline in which a cancelled call counts as timed out.
const DEADLINE_SLACK: Duration = Duration::from_millis(20);

/// Returns the answer; the error is `None` if there was no answer in time.
fn in_time<T>(answer: Option<Result<T, Status>>, deadline: Instant) -> Result<T, Option<Status>> {
    match answer {
        // The provider knows the deadline too, and may report it first.
        Some(Err(status)) if is_timeout(&status) && Instant::now() + DEADLINE_SLACK >= deadline => {
            Err(None)
        }
        Some(answer) => answer.map_err(Some),
        None => Err(None),
    }
}

fn is_timeout(status: &Status) -> bool {
    matches!(status.code(), Code::Cancelled | Code::DeadlineExceeded)
}

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
