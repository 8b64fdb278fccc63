//! The state of the extender, which is the JSON of `/status`.

use serde::{Deserialize, Serialize};
pub use tautline_provider_client::status::{AddressStatus, CallStatus, ProviderStatus};

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
