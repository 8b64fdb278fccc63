//! The requests of the checks.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Display,
};

use tautline_proto::{
    allocator::ReserveRequest,
    ruleprovider::{
        EndpointCostRequest, EvaluateRequest, InFlightPod, Peer as PeerMessage, PolicyRule, Target,
        Workload,
    },
};

use crate::{
    config::Config,
    objects::{Expectation, Peer, PlacedPod},
};

/// Nodes of the large question.
pub(crate) const MANY: usize = 10_000;
/// A text that few rules can read.
pub(crate) const UNREADABLE: &str = "conformance: not a value";

/// Makes requests for one run.
pub(crate) struct Questions {
    config: Config,
    /// Unique to the run.
    id: String,
    pub nodes: Vec<String>,
}

impl Questions {
    pub(crate) fn new(config: Config, id: String) -> Self {
        let made_up = || ["a", "b", "c"].map(|n| format!("conformance-{n}")).to_vec();
        let given: BTreeSet<&String> = config.nodes.iter().collect();
        let nodes = match given.is_empty() {
            true => made_up(),
            false => given.into_iter().cloned().collect(),
        };
        Self { config, id, nodes }
    }

    pub(crate) fn rule(&self) -> PolicyRule {
        PolicyRule {
            name: self.config.rule.clone(),
            request: self.config.request.clone(),
            limit: self.config.limit.clone(),
        }
    }

    /// As Tautline asks.
    pub(crate) fn plain(&self) -> EndpointCostRequest {
        let question = EndpointCostRequest {
            source: Some(self.config.pod.target()),
            rule: Some(self.rule()),
            eligible_nodes: self.nodes.clone(),
            workload: Some(self.workload("pod-0")),
            ..EndpointCostRequest::default()
        };
        with_peers(question, &self.peers())
    }

    pub(crate) fn without_peers(&self) -> EndpointCostRequest {
        with_peers(self.plain(), &[])
    }

    /// Fields below 16, as Turnbuckle sets them.
    pub(crate) fn turnbuckle(&self) -> EndpointCostRequest {
        let source = Target {
            kind: "Pod".into(),
            name: self.config.pod.name.clone(),
            ..Target::default()
        };
        EndpointCostRequest {
            source: Some(source),
            workload: None,
            peers: Vec::new(),
            ..self.plain()
        }
    }

    pub(crate) fn with_unknown_nodes(&self) -> EndpointCostRequest {
        let mut question = self.plain();
        let unknown = (0..3).map(|i| self.unique(format_args!("unknown-{i}")));
        question.eligible_nodes.extend(unknown);
        question
    }

    /// Peers that are not pods of known nodes.
    pub(crate) fn with_odd_peers(&self) -> EndpointCostRequest {
        let mut question = self.plain();
        let unknown = self.unique("unknown-peer");
        let service = Target {
            kind: "Service".into(),
            name: "conformance".into(),
            ..self.config.pod.target()
        };
        let peer = |target, node| PeerMessage {
            role: "odd".into(),
            target: Some(target),
            node,
        };
        question.peers.extend([
            peer(service, String::new()),
            peer(self.config.pod.target(), unknown.clone()),
        ]);
        question.peer_nodes.push(unknown);
        question.peer_nodes.sort();
        question
    }

    /// Names of the usual length in a cloud.
    pub(crate) fn many(&self) -> EndpointCostRequest {
        let name = |i: usize| {
            let (high, low) = (i / 256, i % 256);
            format!("ip-10-0-{high}-{low}.conformance-1.compute.internal")
        };
        EndpointCostRequest {
            eligible_nodes: (0..MANY).map(name).collect(),
            ..self.plain()
        }
    }

    /// Asks with a pod in flight to the first node.
    pub(crate) fn in_flight(&self) -> EndpointCostRequest {
        EndpointCostRequest {
            in_flight: vec![self.promised("in-flight", &self.nodes[0])],
            ..self.plain()
        }
    }

    /// Makes a pod that was promised a node.
    pub(crate) fn promised(&self, who: &str, node: &str) -> InFlightPod {
        InFlightPod {
            pod: Some(self.pod(who)),
            node: node.into(),
            workload: Some(self.workload(who)),
        }
    }

    pub(crate) fn reserve(&self, who: &str, node: &str, hold_millis: i64) -> ReserveRequest {
        let details = self.workload(who);
        ReserveRequest {
            workload: Some(self.pod(who)),
            uid: details.uid.clone(),
            node: node.into(),
            rule: Some(self.rule()),
            details: Some(details),
            hold_millis,
        }
    }

    /// The pod and its peers, on the first node unless they say where.
    pub(crate) fn placed(&self) -> EvaluateRequest {
        let mut pods = vec![Peer {
            target: "source".into(),
            pod: self.config.pod.clone(),
        }];
        pods.extend(self.peers());
        for peer in &mut pods {
            let node = peer.pod.node.get_or_insert_with(|| self.nodes[0].clone());
            debug_assert!(!node.is_empty());
        }
        evaluate(self.rule(), &pods)
    }

    /// Of pods that no cluster has, on nodes that none has.
    pub(crate) fn of_unknown_pods(&self) -> EvaluateRequest {
        let pod = |target: &str| Peer {
            target: target.into(),
            pod: PlacedPod {
                namespace: "conformance".into(),
                name: self.unique(target),
                node: Some(self.unique(format_args!("unknown-{target}"))),
            },
        };
        evaluate(self.rule(), &[pod("source"), pod("peer")])
    }

    pub(crate) fn expected(&self, expectation: &Expectation) -> EvaluateRequest {
        let mut rule = self.rule();
        let Expectation { request, limit, .. } = expectation;
        if let Some(request) = request {
            rule.request.clone_from(request);
        }
        if let Some(limit) = limit {
            rule.limit.clone_from(limit);
        }
        evaluate(rule, &expectation.targets)
    }

    /// A name that nothing else has.
    pub(crate) fn unique(&self, what: impl Display) -> String {
        format!("conformance-{what}-{}", self.id)
    }

    fn pod(&self, who: &str) -> Target {
        let pod = PlacedPod {
            namespace: self.config.pod.namespace.clone(),
            name: self.unique(who),
            node: None,
        };
        pod.target()
    }

    fn peers(&self) -> Vec<Peer> {
        if !self.config.peers.is_empty() {
            return self.config.peers.clone();
        }
        let pod = PlacedPod {
            namespace: "conformance".into(),
            name: "peer-0".into(),
            node: Some(self.nodes[0].clone()),
        };
        vec![Peer {
            target: "peer".into(),
            pod,
        }]
    }

    fn workload(&self, who: &str) -> Workload {
        Workload {
            labels: self.config.labels.clone(),
            annotations: self.config.annotations.clone(),
            requests: self.config.resources.clone(),
            uid: self.unique(who),
            resource_claims: Vec::new(),
            containers: Vec::new(),
        }
    }
}

/// Makes a question one for all pods of a kind, as streams ask it.
pub(crate) fn for_all_pods(mut question: EndpointCostRequest) -> EndpointCostRequest {
    if let Some(source) = &mut question.source {
        source.name.clear();
    }
    if let Some(workload) = &mut question.workload {
        workload.uid.clear();
    }
    question
}

fn with_peers(question: EndpointCostRequest, peers: &[Peer]) -> EndpointCostRequest {
    // A pod is a peer only once it is placed.
    let placed = peers
        .iter()
        .filter_map(|peer| Some((peer, peer.pod.node.as_ref()?)));
    let nodes: BTreeSet<&String> = placed.clone().map(|(_, node)| node).collect();
    EndpointCostRequest {
        peer_nodes: nodes.into_iter().cloned().collect(),
        peers: placed
            .map(|(peer, node)| PeerMessage {
                role: peer.target.clone(),
                target: Some(peer.pod.target()),
                node: node.clone(),
            })
            .collect(),
        ..question
    }
}

fn evaluate(rule: PolicyRule, pods: &[Peer]) -> EvaluateRequest {
    let target = |peer: &Peer| (peer.target.clone(), peer.pod.target());
    let node = |peer: &Peer| {
        let node = peer.pod.node.clone().unwrap_or_default();
        (peer.target.clone(), node)
    };
    let targets: BTreeMap<_, _> = pods.iter().map(target).collect();
    EvaluateRequest {
        targets,
        rule: Some(rule),
        target_nodes: pods.iter().map(node).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn questions(nodes: &[&str]) -> Questions {
        let config = Config {
            nodes: nodes.iter().map(|n| (*n).to_owned()).collect(),
            peers: vec![
                "db=shop/db-0@b".parse().unwrap(),
                "db2=shop/db-1".parse().unwrap(),
            ],
            ..Config::new("a:1", "r")
        };
        Questions::new(config, "1".into())
    }

    #[test]
    fn nodes_are_unique_and_never_empty() {
        assert_eq!(questions(&["b", "a", "b"]).nodes, ["a", "b"]);
        assert_eq!(questions(&[]).nodes.len(), 3);
        let many = questions(&[]).many().eligible_nodes;
        let unique: BTreeSet<_> = many.iter().collect();
        assert_eq!(unique.len(), MANY);
    }

    #[test]
    fn only_placed_pods_are_peers() {
        let plain = questions(&["a"]).plain();
        assert_eq!((plain.peers.len(), plain.peer_nodes), (1, vec!["b".into()]));
        let old = questions(&["a"]).turnbuckle();
        assert_eq!((old.peers.len(), old.peer_nodes.len()), (0, 1));
        let evaluated = questions(&["a"]).placed();
        assert_eq!(evaluated.target_nodes["db2"], "a");
        assert_eq!(evaluated.targets.len(), 3);
    }
}
