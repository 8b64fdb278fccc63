//! The configuration of a run.

use std::{collections::BTreeMap, time::Duration};

use crate::{
    check::Check,
    objects::{Expectation, Peer, PlacedPod},
};

/// PEM files for TLS.
#[derive(Clone)]
pub struct Tls {
    /// The CA of the provider's certificate.
    pub ca: Vec<u8>,
    /// The client's certificate and key, if the provider requires one.
    pub identity: Option<(Vec<u8>, Vec<u8>)>,
    /// The name in the provider's certificate; `None`: the host of the address.
    pub name: Option<String>,
}

/// What the suite must know of a provider, and its deadlines.
#[derive(Clone)]
pub struct Config {
    /// HOST:PORT.
    pub address: String,
    /// `None`: clear text.
    pub tls: Option<Tls>,
    /// Name of the rule.
    pub rule: String,
    /// A request that the rule accepts.
    pub request: String,
    /// A limit that the rule accepts; empty: none.
    pub limit: String,
    /// A request that the rule must refuse; `None`: a text that is probably one.
    pub bad_request: Option<String>,
    /// A limit that the rule must refuse; `None`: not tried.
    pub bad_limit: Option<String>,
    /// Nodes that the provider knows; empty: made-up names.
    pub nodes: Vec<String>,
    /// The pod that is placed.
    pub pod: PlacedPod,
    /// Its peers; empty: a made-up pod on the first node.
    pub peers: Vec<Peer>,
    /// The pod's labels.
    pub labels: BTreeMap<String, String>,
    /// The pod's annotations.
    pub annotations: BTreeMap<String, String>,
    /// The pod's resource requests, such as `nvidia.com/gpu`: `1`.
    pub resources: BTreeMap<String, String>,
    /// Placed pods with the state that Evaluate must return.
    pub expectations: Vec<Expectation>,
    /// Reserves on the nodes, confirms and releases. A confirmed reservation lasts until the
    /// provider sees that its pod does not exist.
    pub reserve: bool,
    /// Deadline of EndpointCost that is judged; the extender's is 500 ms.
    pub deadline: Duration,
    /// Deadline of Evaluate that is judged; the controller's is 2 s.
    pub evaluate_deadline: Duration,
    /// Deadline of calls whose duration is not judged.
    pub patience: Duration,
    /// Longest time until a provider that has just started answers.
    pub start_within: Duration,
    /// Deadline of the run.
    pub timeout: Duration,
    /// Runs only the checks with this text in `GROUP/NAME`.
    pub filter: Option<String>,
}

impl Config {
    /// The defaults for a rule of a provider.
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
            pod: PlacedPod {
                namespace: "conformance".into(),
                name: "pod-0".into(),
                node: None,
            },
            peers: Vec::new(),
            labels: BTreeMap::new(),
            annotations: BTreeMap::new(),
            resources: BTreeMap::new(),
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

    /// Longest time until the address has answered anything.
    pub(crate) fn connect_within(&self) -> Duration {
        let least = Duration::from_secs(1);
        self.patience.min(self.timeout.max(least))
    }

    pub(crate) fn selects(&self, check: &Check) -> bool {
        let name = format!("{}/{}", check.group, check.name);
        self.filter.as_ref().is_none_or(|part| name.contains(part))
    }
}
