//! Defines the configuration of the controller, with its default values.

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

/// The name of the Lease by which replicas elect their leader. The extender reads this Lease, too.
pub const LEASE: &str = CONTROLLER;

/// The configuration of the controller.
#[derive(Clone, Debug)]
pub struct Config {
    /// The address of the admin port, with `/livez`, `/readyz` and `/metrics`.
    pub admin: SocketAddr,
    /// The settings of the leader election.
    pub lease: lease::LeaseConfig,
    /// The maximum numbers of bindings; tuples beyond them are counted and get no binding.
    pub limits: BindingLimits,
    /// The maximum number of concurrent evaluations at one provider.
    pub provider_concurrency: usize,
    /// The shortest period of a binding's evaluations, even if its offer asks for a shorter one.
    pub shortest_period: Duration,
    /// The time between two evictions for one offer. It is shorter while more than three of the
    /// offer's pods are in violation.
    pub eviction_cool_down: Duration,
    /// The annotations that protect pods from eviction, in addition to those that other tools
    /// define.
    pub protecting_annotations: Vec<AnnotationMatch>,
    /// The namespaces whose pods are never evicted.
    pub exempt_namespaces: BTreeSet<String>,
    /// True if evictions and mitigations are only reported, not carried out.
    pub dry_run: bool,
    /// The namespace of the Secrets with the kubeconfigs of other clusters; `None`: no other cluster
    /// is read.
    pub cluster_secrets: Option<String>,
    /// True if the controller adds the gate's resource to the capacity of nodes.
    pub advertise_gate: bool,
    /// True if the controller writes a Report of OpenReports for each offer.
    pub open_reports: bool,
    /// The settings for calls to rule providers.
    pub provider_client: ClientConfig,
    /// The destination of the spans of evaluations.
    pub traces: Traces,
}

impl Config {
    /// Returns the default configuration, with the Lease in `namespace` and this replica's
    /// `identity`.
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
            cluster_secrets: None,
            advertise_gate: false,
            open_reports: false,
            provider_client: ClientConfig {
                // Longer than the default, as no scheduling cycle waits for an evaluation.
                deadline: Duration::from_secs(2),
                ..ClientConfig::default()
            },
            traces: Traces::default(),
        }
    }
}

/// A match of annotations by key, and by value if one is given.
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

/// The error of a text that names no annotation.
#[derive(Debug, thiserror::Error)]
#[error("{0:?} names no annotation; write KEY or KEY=VALUE")]
pub struct AnnotationError(String);

impl FromStr for AnnotationMatch {
    type Err = AnnotationError;

    fn from_str(text: &str) -> Result<Self, AnnotationError> {
        let (key, value) = match text.split_once('=') {
            Some((key, value)) => (key, Some(value.to_owned())),
            None => (text, None),
        };
        if key.is_empty() || key.contains(char::is_whitespace) {
            return Err(AnnotationError(text.to_owned()));
        }
        Ok(Self {
            key: key.to_owned(),
            value,
        })
    }
}
