use std::{
    collections::BTreeSet,
    net::{Ipv6Addr, SocketAddr},
    str::FromStr,
    time::Duration,
};

use tautline_core::{
    binding_quota::BindingLimits,
    names::{CONTROLLER, EXEMPT_NAMESPACES},
};
use tautline_provider_client::ClientConfig;
use tautline_runtime::lease;
use tautline_traces::Traces;

/// The Lease by which replicas elect their leader. An extender reads it, too.
pub const LEASE: &str = CONTROLLER;

/// The configuration of the controller.
#[derive(Clone, Debug)]
pub struct Config {
    /// Address of /livez, /readyz and /metrics.
    pub admin: SocketAddr,
    /// The election of the leader.
    pub lease: lease::LeaseConfig,
    /// The maximum numbers of bindings; tuples beyond them are counted and get no binding.
    pub limits: BindingLimits,
    /// Evaluations at one provider at once.
    pub provider_concurrency: usize,
    /// The least time between two evaluations of a binding, whatever its offer says.
    pub shortest_period: Duration,
    /// The time between two evictions of one offer; shorter while more than three of its pods are
    /// in violation.
    pub eviction_cool_down: Duration,
    /// Annotations of pods that are not evicted, besides those of other tools.
    pub protecting_annotations: Vec<AnnotationMatch>,
    /// Namespaces whose pods are never evicted.
    pub exempt_namespaces: BTreeSet<String>,
    /// Report evictions and mitigations instead of carrying them out.
    pub dry_run: bool,
    /// Requeue rejected pods.
    pub requeue_pods: bool,
    /// Write the gate's resource into the capacity of nodes.
    pub advertise_gate: bool,
    /// Write a Report of OpenReports for each offer.
    pub open_reports: bool,
    /// Calls of rule providers.
    pub provider_client: ClientConfig,
    /// Where spans of evaluations go.
    pub traces: Traces,
}

impl Config {
    /// The defaults, for the Lease in `namespace` and this replica's `identity`.
    pub fn new(namespace: &str, identity: String) -> Self {
        Self {
            admin: (Ipv6Addr::UNSPECIFIED, 9090).into(),
            lease: lease::LeaseConfig::new(namespace, LEASE, identity),
            limits: BindingLimits::default(),
            provider_concurrency: 64,
            shortest_period: Duration::from_millis(500),
            eviction_cool_down: Duration::from_secs(120),
            protecting_annotations: Vec::new(),
            exempt_namespaces: EXEMPT_NAMESPACES.map(str::to_owned).into(),
            dry_run: false,
            requeue_pods: true,
            advertise_gate: false,
            open_reports: false,
            provider_client: ClientConfig {
                // No scheduling cycle waits for an evaluation.
                deadline: Duration::from_secs(2),
                ..ClientConfig::default()
            },
            traces: Traces::default(),
        }
    }
}

/// An annotation by its key, with any value or with one.
#[derive(Clone, Debug, PartialEq)]
pub struct AnnotationMatch {
    key: String,
    value: Option<String>,
}

impl AnnotationMatch {
    pub(crate) fn matches(&self, key: &str, value: &str) -> bool {
        self.key == key && self.value.as_deref().is_none_or(|v| v == value)
    }
}

impl FromStr for AnnotationMatch {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (key, value) = match text.split_once('=') {
            Some((key, value)) => (key, Some(value.to_owned())),
            None => (text, None),
        };
        if key.is_empty() || key.contains(char::is_whitespace) {
            return Err(format!(
                "{text:?} names no annotation; write KEY or KEY=VALUE"
            ));
        }
        Ok(Self {
            key: key.to_owned(),
            value,
        })
    }
}
