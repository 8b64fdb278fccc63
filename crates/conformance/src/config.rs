//! The configuration of a run.

use std::time::Duration;

use tautline_proto::ruleprovider::Workload;
use tonic::transport::ClientTlsConfig;

use crate::{
    checks::Check,
    objects::{Expectation, Peer, PlacedPod},
};

/// The settings of a run: the provider, its test data and the deadlines.
#[derive(Clone)]
pub struct Config {
    /// The provider's address, HOST:PORT.
    pub address: String,
    /// The settings of TLS; `None` for clear text.
    pub tls: Option<ClientTlsConfig>,
    /// The name of the rule.
    pub rule: String,
    /// A request that the rule accepts.
    pub request: String,
    /// A limit that the rule accepts; empty for no limit.
    pub limit: String,
    /// A request that the rule must refuse; `None` for a text that it probably cannot read.
    pub bad_request: Option<String>,
    /// A limit that the rule must refuse; `None` if there is no limit to try.
    pub bad_limit: Option<String>,
    /// The nodes that the provider knows; empty for made-up names.
    pub nodes: Vec<String>,
    /// The pod to place.
    pub pod: PlacedPod,
    /// The pod's peers; empty for a made-up pod on the first node.
    pub peers: Vec<Peer>,
    /// The pod's labels, annotations and resource requests. The run sets the UID.
    pub workload: Workload,
    /// Placed pods, with the state that Evaluate must return for them.
    pub expectations: Vec<Expectation>,
    /// True if the run may reserve on the nodes, confirm and release. A confirmed reservation lasts
    /// until the provider sees that its pod does not exist.
    pub reserve: bool,
    /// The deadline within which EndpointCost must answer; the extender's is 500 ms.
    pub deadline: Duration,
    /// The deadline within which Evaluate must answer; the controller's is 2 s.
    pub evaluate_deadline: Duration,
    /// The deadline of calls whose duration is not judged.
    pub patience: Duration,
    /// The longest time until a provider that has just started answers.
    pub start_within: Duration,
    /// The deadline of the run.
    pub timeout: Duration,
    /// A text in `GROUP/NAME` of the checks to run; `None` for all checks.
    pub filter: Option<String>,
}

impl Config {
    /// Returns the default settings for a rule of a provider.
    pub fn new(address: impl Into<String>, rule: impl Into<String>) -> Self {
        Self {
            address: address.into(),
            tls: None,
            rule: rule.into(),
            request: String::new(),
            limit: String::new(),
            bad_request: None,
            bad_limit: None,
            nodes: Vec::new(),
            pod: PlacedPod::new("conformance", "pod-0", None),
            peers: Vec::new(),
            workload: Workload::default(),
            expectations: Vec::new(),
            reserve: false,
            deadline: Duration::from_millis(500),
            evaluate_deadline: Duration::from_secs(2),
            patience: Duration::from_secs(10),
            start_within: Duration::from_secs(15),
            timeout: Duration::from_secs(120),
            filter: None,
        }
    }

    /// Returns the longest time until the address gives any answer.
    pub(crate) fn connect_within(&self) -> Duration {
        self.patience.min(self.timeout.max(Duration::from_secs(1)))
    }

    pub(crate) fn selects(&self, check: &Check) -> bool {
        let name = format!("{}/{}", check.group, check.name);
        self.filter.as_ref().is_none_or(|part| name.contains(part))
    }
}
