//! The state of the extender, which is the JSON of `/status`.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use tautline_core::model;
use tautline_provider_client::status::{AddressState, LastCall, ProviderState};

use crate::{explain::mode_name, state::State};

/// The maximum number of a Service's addresses in the answer.
const MAX_ADDRESSES: usize = 16;

/// The state of one replica of the extender.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    /// The mode of the answer: `ties`, `decisive` or `shortlist`, as in `--answer`.
    pub answer: String,
    /// The namespaces whose providers serve all namespaces, as in `--provider-namespaces`.
    pub provider_namespaces: String,
    /// The deadline of a call to a provider in microseconds, as in `--provider-deadline`.
    pub provider_deadline_micros: u64,
    /// The last request of each verb, the newest first; empty before the first request.
    pub requests: Vec<LastRequest>,
    /// The Services of all rules of policies, sorted by rule and Service; at most 256.
    pub providers: Vec<ProviderStatus>,
}

/// The last request of a verb.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LastRequest {
    /// The verb: `filter`, `prioritize`, `preempt` or `bind`.
    pub verb: String,
    /// The end of the request, in seconds since 1970.
    pub at_unix_seconds: i64,
}

/// A rule, and a Service that is labelled as its provider.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProviderStatus {
    /// The rule's name.
    pub rule: String,
    /// The Service, as `namespace/name`; absent if no Service has the rule's label.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<String>,
    /// True if the Service may serve all namespaces.
    pub trusted: bool,
    /// The ready addresses of the Service, at most 16.
    pub addresses: Vec<AddressStatus>,
    /// The last call; absent before the first call of this replica.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_call: Option<CallStatus>,
}

/// An address and its circuit breaker.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AddressStatus {
    /// The host and port.
    pub address: String,
    /// True if the address has failed repeatedly and is not called.
    pub breaker_open: bool,
    /// The time until the next attempt, in microseconds; absent unless the breaker is open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_in_micros: Option<u64>,
}

/// The last call to a provider.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CallStatus {
    /// The end of the call, in milliseconds since 1970.
    pub at_unix_millis: u64,
    /// The duration of the call, in microseconds.
    pub took_micros: u64,
    /// The deadline of the call, in microseconds.
    pub deadline_micros: u64,
    /// The outcome: `OK`, or an error code.
    pub outcome: String,
    /// The error, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

pub(crate) fn status(state: &State) -> Status {
    let config = state.providers.config();
    let providers = state.providers.provider_states(&state.store.snapshot());
    Status {
        answer: mode_name(state.config.answer).to_owned(),
        provider_namespaces: config.trusted.to_string(),
        provider_deadline_micros: micros(config.deadline),
        requests: state.metrics.last_requests(),
        providers: providers.iter().map(provider).collect(),
    }
}

fn provider(state: &ProviderState) -> ProviderStatus {
    let address = |a: &AddressState| AddressStatus {
        address: a.address.to_string(),
        breaker_open: a.retry_in.is_some(),
        retry_in_micros: a.retry_in.map(micros),
    };
    let service = state.service.as_ref();
    ProviderStatus {
        rule: state.rule.to_string(),
        service: service.map(|s| model::key(&s.namespace, &s.name)),
        trusted: state.trusted,
        addresses: state
            .addresses
            .iter()
            .take(MAX_ADDRESSES)
            .map(address)
            .collect(),
        last_call: state.last_call.as_ref().map(call),
    }
}

fn call(call: &LastCall) -> CallStatus {
    CallStatus {
        at_unix_millis: unix_millis(call.at),
        took_micros: micros(call.took),
        deadline_micros: micros(call.deadline),
        outcome: call.outcome.to_owned(),
        error: call.error.clone(),
    }
}

pub(crate) fn unix_millis(at: SystemTime) -> u64 {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

pub(crate) fn micros(took: Duration) -> u64 {
    u64::try_from(took.as_micros()).unwrap_or(u64::MAX)
}
