//! One call to a provider: its deadline and second attempt, and its effect on the circuit breaker.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use bytes::Bytes;
use prost::Message;
use tautline_core::{
    Snapshot,
    model::Service,
    planning::fnv1a_64,
    providers::{PROVIDER_PORT, PortPreference},
};
use tautline_proto::endpoint_cost::MalformedMessage;
use tautline_traces::{KeyValue, Span, TraceHeaders};
use tokio::time::{Instant, sleep, sleep_until, timeout_at};
use tonic::{Code, Status};

use crate::{
    CallError, ProviderClient,
    codec::{RawCall, RawMessage},
    connection::{CallGuard, Connection},
    error::is_answer,
    hedge::{self, Answers, time_until},
    pool::Endpoints,
    question::provider_name,
};

/// The time before the deadline in which a cancelled call counts as timed out.
const DEADLINE_SLACK: Duration = Duration::from_millis(20);

#[derive(Clone, Copy, Debug)]
pub(crate) struct CallOptions {
    /// The method, as `/SERVICE/METHOD`.
    pub rpc: &'static str,
    pub port: PortPreference,
    pub deadline: Duration,
    /// The end of the deadline, which may have begun before this call.
    pub until: Instant,
    /// True if the call is idempotent, so that it may be retried.
    pub retry: bool,
    /// True if the call may be repeated in the background as a probe. Otherwise the next real call
    /// is the probe.
    pub probe: bool,
    /// True if a healthy provider may return UNAVAILABLE, for example without a leader.
    pub may_be_unavailable: bool,
    /// The number that chooses the address, as long as this one answers; `None` for the next
    /// address in turn.
    pub replica: Option<u64>,
}

impl CallOptions {
    /// The options of an idempotent call to a rule provider that changes nothing.
    pub(crate) fn new(rpc: &'static str, deadline: Duration) -> Self {
        Self {
            rpc,
            port: PROVIDER_PORT,
            deadline,
            until: Instant::now() + deadline,
            retry: true,
            probe: true,
            may_be_unavailable: false,
            replica: None,
        }
    }

    /// Returns whether the provider is well and only rejected this request.
    fn is_well(self, status: &Status) -> bool {
        match status.code() {
            Code::Unavailable => self.may_be_unavailable && is_answer(status),
            Code::DeadlineExceeded | Code::Cancelled => false,
            _ => is_answer(status),
        }
    }

    /// Records the result of an attempt; `None` is no answer in time.
    fn conclude(
        self,
        guard: CallGuard,
        answer: Option<Result<Bytes, Status>>,
    ) -> Result<(Bytes, Arc<Connection>), Failure> {
        let connection = Arc::clone(&guard.connection);
        // The provider knows the deadline too, and may report it first.
        let is_late = |status: &Status| {
            matches!(status.code(), Code::Cancelled | Code::DeadlineExceeded)
                && Instant::now() + DEADLINE_SLACK >= self.until
        };
        let (error, status) = match answer {
            Some(Ok(answer)) => {
                guard.record(None);
                return Ok((answer, connection));
            }
            Some(Err(status)) if !is_late(&status) => {
                (CallError::new(&connection.address, &status), Some(status))
            }
            _ => {
                let (address, deadline) = (&connection.address, self.deadline);
                let text = format!("no answer from {address} within {deadline:?}");
                (CallError::Timeout(text), None)
            }
        };
        let is_well = status.as_ref().is_some_and(|s| self.is_well(s));
        guard.record((!is_well).then_some(&error));
        Err(Failure {
            error,
            status,
            attempts: 1,
        })
    }
}

/// A failed call.
#[derive(Debug)]
pub(crate) struct Failure {
    pub error: CallError,
    /// The status with which the last attempt ended; `None` without an answer in time.
    pub status: Option<Status>,
    /// The number of attempts; 0 if no address was called.
    pub attempts: u8,
}

impl Failure {
    fn without_status(error: CallError, attempts: u8) -> Self {
        Self {
            error,
            status: None,
            attempts,
        }
    }
}

impl From<Failure> for CallError {
    fn from(failure: Failure) -> Self {
        failure.error
    }
}

impl ProviderClient {
    /// Makes the call of [`Self::call_raw`], and decodes the answer.
    pub(crate) async fn call<A: Message + Default>(
        &self,
        options: CallOptions,
        snapshot: &Snapshot,
        service: &Service,
        message: &impl Message,
    ) -> Result<A, Failure> {
        let message = [message.encode_to_vec().into(), Bytes::new()];
        let answer = self.call_raw(options, snapshot, (service, ""), message);
        A::decode(answer.await?).map_err(|error| {
            let error = MalformedMessage::from(error);
            Failure::without_status(error.into(), 1)
        })
    }

    /// Calls a provider. It retries an idempotent call once if the connection fails, at another
    /// address if possible. While the first address is silent, it calls another one too: a node
    /// without power does not even refuse a connection. The name of the rule may be empty.
    pub(crate) async fn call_raw(
        &self,
        options: CallOptions,
        snapshot: &Snapshot,
        (service, rule): (&Service, &str),
        message: RawMessage,
    ) -> Result<Bytes, Failure> {
        let endpoints = Endpoints::new(self.config(), snapshot, service, options.port);
        let rpc = options.rpc.trim_start_matches('/');
        let span = Span::of_call(rpc);
        let answered = span.scope(self.call_at(options, endpoints, message)).await;
        span.record(|| {
            let (name, method) = rpc.split_once('/').unwrap_or((rpc, ""));
            let mut attributes = vec![
                KeyValue::new("rpc.system", "grpc"),
                KeyValue::new("rpc.service", name),
                KeyValue::new("rpc.method", method),
                KeyValue::new("tautline.provider", provider_name(service)),
            ];
            if !rule.is_empty() {
                attributes.push(KeyValue::new("tautline.rule", rule.to_owned()));
            }
            attributes.push(match &answered {
                Ok((_, by)) => KeyValue::new("network.peer.address", by.address.to_string()),
                Err(failure) => KeyValue::new("error.type", failure.error.code()),
            });
            attributes
        });
        if let Err(failure) = &answered {
            span.fail(|| failure.error.to_string());
        }
        answered.map(|(answer, _)| answer)
    }

    /// Makes the call, and returns the answer with the connection that gave it.
    async fn call_at(
        &self,
        options: CallOptions,
        mut endpoints: Endpoints,
        message: RawMessage,
    ) -> Result<(Bytes, Arc<Connection>), Failure> {
        let pool = &self.0.pool;
        let turn = match options.replica {
            None => pool.next_turn(),
            // Rendezvous hashing: an address that comes or goes moves only its share.
            Some(number) => {
                let number = number.to_string();
                let addresses = &mut endpoints.addresses;
                addresses.sort_by_cached_key(|a| fnv1a_64(&[&number, &a.to_string()]));
                0
            }
        };
        let call = RawCall {
            rpc: options.rpc,
            message,
            max_answer_bytes: self.config().max_answer_bytes,
        };
        let headers = TraceHeaders::current();
        let admit = |skip| pool.admit(&endpoints, turn, !options.probe, skip);
        let start = |on: &Connection| {
            let left = time_until(options.until);
            call.send(on.channel.clone(), left, headers.as_ref())
        };
        let guard = admit(None).map_err(|error| {
            self.probe_open(options, &endpoints, &call);
            Failure::without_status(error, 0)
        })?;
        let second = |failure: Option<&Status>| {
            let may = failure.map_or(endpoints.addresses.len() > 1, connection_failed);
            if !may || !options.retry {
                return None;
            }
            let other = admit(Some(&guard.connection)).ok()?;
            if failure.is_none() {
                self.0.metrics.second_calls.inc();
            }
            let call = start(&other.connection);
            Some((other, call))
        };
        let Answers { first, second } =
            hedge::call(start(&guard.connection), second, options.until).await;
        let mut outcome = options.conclude(guard, first);
        let is_sound = outcome.is_ok() && second.is_none();
        // A second attempt that the first one's answer cut short says nothing about its address.
        if let Some((other, answer)) = second
            && (answer.is_some() || outcome.is_err())
        {
            let second = options.conclude(other, answer);
            let of_both = |failure| Failure {
                attempts: 2,
                ..failure
            };
            outcome = outcome.or(second).map_err(of_both);
        }
        if !is_sound {
            self.probe_open(options, &endpoints, &call);
        }
        outcome
    }

    /// Starts to probe the addresses with open breakers by this call: an older one may fail for
    /// other reasons.
    fn probe_open(&self, options: CallOptions, endpoints: &Endpoints, call: &RawCall) {
        let addresses = endpoints.addresses.iter().filter(|_| options.probe);
        let known = addresses.filter_map(|address| self.0.pool.known(address, endpoints));
        for connection in known.filter(|connection| connection.open_until().is_some()) {
            if connection.set_probe(call.clone()) {
                let deadline = self.config().deadline;
                tokio::spawn(probe_until_closed(Arc::downgrade(&connection), deadline));
            }
        }
    }
}

/// Probes in the background until the address answers or is unused: no pod waits for it meanwhile,
/// and the first one after its recovery gets an answer.
async fn probe_until_closed(connection: Weak<Connection>, deadline: Duration) {
    while let Some(due) = connection.upgrade().and_then(|known| known.probe_due()) {
        sleep_until(due).await;
        let admitted = connection.upgrade().and_then(|known| known.admit_probe());
        let Some((guard, call)) = admitted else {
            sleep(deadline).await;
            continue;
        };
        let options = CallOptions::new(call.rpc, deadline);
        let answer = call.send(guard.connection.channel.clone(), deadline, None);
        let answer = timeout_at(options.until, answer).await;
        _ = options.conclude(guard, answer.ok());
    }
}

fn connection_failed(status: &Status) -> bool {
    matches!(
        status.code(),
        Code::Unavailable | Code::Unknown | Code::Internal | Code::Cancelled
    )
}
