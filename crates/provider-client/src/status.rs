//! The state of each provider, for people: its last call, and the breakers of its addresses.

use std::{
    borrow::Cow,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use dashmap::DashMap;
use serde::{Deserialize, Serialize};
/// The maximum number of providers with a last call, and of providers in a list.
pub(crate) const MAX_PROVIDERS: usize = 256;
/// The maximum number of a Service's addresses in a status.
pub(crate) const MAX_ADDRESSES: usize = 16;
/// The age from which a last call is removed to make room.
const FORGET_AFTER: Duration = Duration::from_secs(3600);

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
    pub outcome: Cow<'static, str>,
    /// The error, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

#[derive(Debug, Default)]
pub(crate) struct LastCalls(DashMap<(Arc<str>, Arc<str>), CallStatus>);

impl LastCalls {
    pub(crate) fn set(&self, rule: &Arc<str>, provider: &Arc<str>, call: CallStatus) {
        let key = (Arc::clone(rule), Arc::clone(provider));
        if let Some(mut last) = self.0.get_mut(&key) {
            *last = call;
            return;
        }
        if self.0.len() >= MAX_PROVIDERS {
            let oldest = unix_millis(SystemTime::now() - FORGET_AFTER);
            self.0.retain(|_, call| call.at_unix_millis > oldest);
        }
        if self.0.len() < MAX_PROVIDERS {
            self.0.insert(key, call);
        }
    }

    pub(crate) fn get(&self, rule: &Arc<str>, provider: Arc<str>) -> Option<CallStatus> {
        let found = self.0.get(&(Arc::clone(rule), provider));
        found.map(|call| call.clone())
    }
}

/// A time in milliseconds since 1970.
pub fn unix_millis(at: SystemTime) -> u64 {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// A time in microseconds.
pub fn micros(took: Duration) -> u64 {
    u64::try_from(took.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(age: Duration) -> CallStatus {
        CallStatus {
            at_unix_millis: unix_millis(SystemTime::now() - age),
            outcome: "OK".into(),
            ..CallStatus::default()
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
