//! The configuration of a run: pods, peers and expected evaluations are texts that people write.

use std::{fmt, str::FromStr, time::Duration};

use tautline_proto::ruleprovider::{Target, Workload, evaluate_response::ComplianceState};
use tonic::transport::ClientTlsConfig;

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
}

/// The error of a text that is no pod, peer or expectation.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct TextError(String);

/// A pod and its node, written as `NAMESPACE/POD@NODE`, or `NAMESPACE/POD` without a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlacedPod {
    /// The pod's namespace.
    pub namespace: String,
    /// The pod's name.
    pub name: String,
    /// The pod's node; `None` if the pod is not placed.
    pub node: Option<String>,
}

/// A pod of a target, written as `TARGET=NAMESPACE/POD@NODE`. The target's name is `peer` by
/// default.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The target's name in the offer.
    pub target: String,
    /// The pod.
    pub pod: PlacedPod,
}

/// An expected evaluation, written as
/// `STATE TARGET=NAMESPACE/POD@NODE ... [request=TEXT] [limit=TEXT]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expectation {
    /// The state that Evaluate must return.
    pub state: ComplianceState,
    /// The pods of the binding.
    pub targets: Vec<Peer>,
    /// The text in place of the rule's request.
    pub request: Option<String>,
    /// The text in place of the rule's limit.
    pub limit: Option<String>,
}

impl PlacedPod {
    pub(crate) fn new(namespace: &str, name: &str, node: Option<&str>) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
            node: node.map(Into::into),
        }
    }

    pub(crate) fn target(&self) -> Target {
        Target {
            namespace: self.namespace.clone(),
            api_version: "v1".into(),
            kind: "Pod".into(),
            name: self.name.clone(),
            ..Target::default()
        }
    }
}

impl FromStr for PlacedPod {
    type Err = TextError;

    fn from_str(text: &str) -> Result<Self, TextError> {
        let (pod, node) = match text.split_once('@') {
            Some((pod, node)) => (pod, Some(node)),
            None => (text, None),
        };
        let (namespace, name) = pod.split_once('/').unwrap_or_default();
        if namespace.is_empty() || name.is_empty() || name.contains('/') || node == Some("") {
            return Err(TextError(format!(
                "{text:?}: write NAMESPACE/POD@NODE, as in shop/db-0@node-1"
            )));
        }
        Ok(Self::new(namespace, name, node))
    }
}

impl Peer {
    pub(crate) fn new(target: &str, pod: PlacedPod) -> Self {
        let target = target.into();
        Self { target, pod }
    }
}

impl FromStr for Peer {
    type Err = TextError;

    fn from_str(text: &str) -> Result<Self, TextError> {
        let (target, pod) = text.split_once('=').unwrap_or(("peer", text));
        if target.is_empty() {
            return Err(TextError(format!(
                "{text:?}: the target's name is empty; write it before ="
            )));
        }
        Ok(Self::new(target, pod.parse()?))
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { target, pod } = self;
        write!(f, "{target}={}/{}", pod.namespace, pod.name)?;
        pod.node.iter().try_for_each(|node| write!(f, "@{node}"))
    }
}

impl FromStr for Expectation {
    type Err = TextError;

    fn from_str(text: &str) -> Result<Self, TextError> {
        let mut words = text.split_whitespace();
        let state = words.next().unwrap_or_default();
        let Some(state) = ComplianceState::from_str_name(state) else {
            return Err(TextError(format!(
                "{state:?} is not a state; write one of Pending, Compliant, Limit, Violation and \
                 Error, then the targets: 'Violation source=shop/web-0@far limit=20ms'"
            )));
        };
        let mut expectation = Self {
            state,
            targets: Vec::new(),
            request: None,
            limit: None,
        };
        for word in words {
            match word.split_once('=') {
                Some(("request", text)) => expectation.request = Some(text.into()),
                Some(("limit", text)) => expectation.limit = Some(text.into()),
                _ => {
                    let peer: Peer = word.parse()?;
                    if expectation.targets.iter().any(|t| t.target == peer.target) {
                        return Err(TextError(format!(
                            "two pods of target {:?}; a binding has one for each: write \
                             source=shop/web-0@far peer=shop/db-0@near",
                            peer.target
                        )));
                    }
                    expectation.targets.push(peer);
                }
            }
        }
        if expectation.targets.is_empty() {
            return Err(TextError(format!(
                "no pod after {}; write one, as in source=shop/web-0@far",
                state.as_str_name()
            )));
        }
        Ok(expectation)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn expectation_has_state_targets_and_rule() {
        let read: Expectation = "Violation source=shop/web-0@far shop/db-0 limit=20ms"
            .parse()
            .unwrap();
        assert_eq!(read.state, ComplianceState::Violation);
        let targets: Vec<_> = read.targets.iter().map(|t| t.target.as_str()).collect();
        assert_eq!(targets, ["source", "peer"]);
        assert_eq!(read.targets[0].pod.node.as_deref(), Some("far"));
        assert_eq!(read.targets[1].pod.node, None);
        assert_eq!((read.request, read.limit.as_deref()), (None, Some("20ms")));
    }

    #[test]
    fn errors_name_the_form() {
        let errors = [
            "",
            "Fine",
            "Violation web-0",
            "Violation a/b@",
            "Error /b",
            "Violation",
            "Violation limit=1",
            "Violation a/b@n a/c@n",
            "Violation =a/b@n",
        ]
        .map(|text| text.parse::<Expectation>().unwrap_err().to_string());
        insta::assert_snapshot!(errors.join("\n"), @r#"
        "" is not a state; write one of Pending, Compliant, Limit, Violation and Error, then the targets: 'Violation source=shop/web-0@far limit=20ms'
        "Fine" is not a state; write one of Pending, Compliant, Limit, Violation and Error, then the targets: 'Violation source=shop/web-0@far limit=20ms'
        "web-0": write NAMESPACE/POD@NODE, as in shop/db-0@node-1
        "a/b@": write NAMESPACE/POD@NODE, as in shop/db-0@node-1
        "/b": write NAMESPACE/POD@NODE, as in shop/db-0@node-1
        no pod after Violation; write one, as in source=shop/web-0@far
        no pod after Violation; write one, as in source=shop/web-0@far
        two pods of target "peer"; a binding has one for each: write source=shop/web-0@far peer=shop/db-0@near
        "=a/b@n": the target's name is empty; write it before =
        "#);
    }

    proptest! {
        #[test]
        fn any_text_is_an_expectation_or_an_error(text in "(Error |Limit )?.{0,30}") {
            let _ = text.parse::<Expectation>();
        }
    }
}
