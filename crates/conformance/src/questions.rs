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

use crate::config::{Config, Peer, PlacedPod};

pub(crate) type Question = EndpointCostRequest;
/// A form of request, after its description in findings.
pub(crate) type Form<R = Question> = (&'static str, fn(&Questions) -> R);

pub(crate) const PLAIN: Form = ("a plain question", Questions::plain);
pub(crate) const NO_PEERS: Form = ("a question without peers", Questions::without_peers);
pub(crate) const ODD_PEERS: Form = (
    "a question with a Service and a pod on an unknown node as peers",
    Questions::with_odd_peers,
);
pub(crate) const TURNBUCKLE: Form = (
    "a question with Turnbuckle's fields alone",
    Questions::turnbuckle,
);
pub(crate) const UNKNOWN_NODES: Form = (
    "a question with three unknown nodes",
    Questions::with_unknown_nodes,
);
pub(crate) const LARGE: Form = ("a question with 10000 nodes", Questions::large);
pub(crate) const IN_FLIGHT: Form = ("a question with a pod in flight", Questions::in_flight);

const LARGE_QUESTION_NODES: usize = 10_000;
/// A text that few rules can read.
pub(crate) const UNREADABLE: &str = "conformance: not a value";

/// Makes the requests of one run.
#[derive(Clone)]
pub(crate) struct Questions {
    config: Config,
    /// A text that is unique to the run.
    id: String,
    pub nodes: Vec<String>,
}

impl Questions {
    pub(crate) fn new(config: Config, id: String) -> Self {
        let mut nodes = config.nodes.clone();
        if nodes.is_empty() {
            nodes = ["a", "b", "c"].map(|n| format!("conformance-{n}")).into();
        }
        nodes.sort();
        nodes.dedup();
        Self { config, id, nodes }
    }

    /// Returns the requests with another request or limit of the rule.
    pub(crate) fn with_rule(&self, request: Option<&str>, limit: Option<&str>) -> Self {
        let mut changed = self.clone();
        changed.config.request = request.unwrap_or(&self.config.request).into();
        changed.config.limit = limit.unwrap_or(&self.config.limit).into();
        changed
    }

    fn rule(&self) -> PolicyRule {
        PolicyRule {
            name: self.config.rule.clone(),
            request: self.config.request.clone(),
            limit: self.config.limit.clone(),
        }
    }

    /// Returns a question as Tautline asks it.
    pub(crate) fn plain(&self) -> Question {
        let peers = self.peers().into_iter().filter_map(|peer| {
            Some(PeerMessage {
                target: Some(peer.pod.target()),
                role: peer.target,
                // A pod is a peer only once it is placed.
                node: peer.pod.node?,
            })
        });
        let peers: Vec<_> = peers.collect();
        let peer_nodes: BTreeSet<String> = peers.iter().map(|peer| peer.node.clone()).collect();
        EndpointCostRequest {
            source: Some(self.config.pod.target()),
            rule: Some(self.rule()),
            eligible_nodes: self.nodes.clone(),
            peer_nodes: peer_nodes.into_iter().collect(),
            peers,
            workload: Some(self.workload("pod-0")),
            ..EndpointCostRequest::default()
        }
    }

    pub(crate) fn without_peers(&self) -> Question {
        let mut question = self.plain();
        question.peers.clear();
        question.peer_nodes.clear();
        question
    }

    /// Returns a question with only the fields of numbers below 16, as Turnbuckle sets them.
    fn turnbuckle(&self) -> Question {
        EndpointCostRequest {
            source: Some(Target {
                kind: "Pod".into(),
                name: self.config.pod.name.clone(),
                ..Target::default()
            }),
            workload: None,
            peers: Vec::new(),
            ..self.plain()
        }
    }

    fn with_unknown_nodes(&self) -> Question {
        let mut question = self.plain();
        let unknown = (0..3).map(|i| self.unique(format!("unknown-{i}")));
        question.eligible_nodes.extend(unknown);
        question
    }

    /// Returns a question that also has peers that are not pods, or not on known nodes.
    fn with_odd_peers(&self) -> Question {
        let (mut question, unknown) = (self.plain(), self.unique("unknown-peer"));
        let pod = self.config.pod.target();
        let service = Target {
            kind: "Service".into(),
            name: "conformance".into(),
            ..pod.clone()
        };
        for (target, node) in [(service, ""), (pod, &unknown)] {
            question.peers.push(PeerMessage {
                role: "odd".into(),
                target: Some(target),
                node: node.into(),
            });
        }
        question.peer_nodes.push(unknown);
        question.peer_nodes.sort();
        question
    }

    /// Returns the large question. Its node names have the usual length in a cloud.
    fn large(&self) -> Question {
        let name = |i: usize| {
            let (high, low) = (i / 256, i % 256);
            format!("ip-10-0-{high}-{low}.conformance-1.compute.internal")
        };
        let mut question = self.plain();
        question.eligible_nodes = (0..LARGE_QUESTION_NODES).map(name).collect();
        question
    }

    fn in_flight(&self) -> Question {
        let mut question = self.plain();
        question.in_flight = vec![self.promised("in-flight", &self.nodes[0])];
        question
    }

    pub(crate) fn promised(&self, who: &str, node: &str) -> InFlightPod {
        InFlightPod {
            pod: Some(self.pod(who)),
            node: node.into(),
            workload: Some(self.workload(who)),
        }
    }

    pub(crate) fn reserve(&self, who: &str, node: &str, hold_millis: i64) -> ReserveRequest {
        ReserveRequest {
            workload: Some(self.pod(who)),
            uid: self.unique(who),
            node: node.into(),
            rule: Some(self.rule()),
            details: Some(self.workload(who)),
            hold_millis,
        }
    }

    /// Returns the request to evaluate the pod and its peers. Pods without a node are on the first
    /// node.
    pub(crate) fn placed(&self) -> EvaluateRequest {
        let mut pods = self.peers();
        pods.insert(0, Peer::new("source", self.config.pod.clone()));
        for peer in &mut pods {
            peer.pod.node.get_or_insert_with(|| self.nodes[0].clone());
        }
        self.evaluate(&pods)
    }

    /// Returns the request to evaluate pods and nodes that exist in no cluster.
    pub(crate) fn of_unknown_pods(&self) -> EvaluateRequest {
        let pods = ["source", "peer"].map(|target| {
            let node = self.unique(format!("unknown-{target}"));
            let pod = PlacedPod::new("conformance", &self.unique(target), Some(&node));
            Peer::new(target, pod)
        });
        self.evaluate(&pods)
    }

    /// Returns the request to evaluate pods without a node. The pods are unknown, because a
    /// provider may have seen known pods on a node.
    pub(crate) fn of_unplaced_pods(&self) -> EvaluateRequest {
        let mut request = self.of_unknown_pods();
        request.target_nodes.values_mut().for_each(String::clear);
        request
    }

    pub(crate) fn evaluate(&self, pods: &[Peer]) -> EvaluateRequest {
        let (mut targets, mut target_nodes) = (BTreeMap::new(), BTreeMap::new());
        for Peer { target, pod } in pods {
            targets.insert(target.clone(), pod.target());
            target_nodes.insert(target.clone(), pod.node.clone().unwrap_or_default());
        }
        EvaluateRequest {
            targets,
            rule: Some(self.rule()),
            target_nodes,
            ..EvaluateRequest::default()
        }
    }

    /// Returns a name that no other object has.
    pub(crate) fn unique(&self, what: impl Display) -> String {
        format!("conformance-{what}-{}", self.id)
    }

    fn pod(&self, who: &str) -> Target {
        PlacedPod::new(&self.config.pod.namespace, &self.unique(who), None).target()
    }

    fn peers(&self) -> Vec<Peer> {
        if !self.config.peers.is_empty() {
            return self.config.peers.clone();
        }
        let pod = PlacedPod::new("conformance", "peer-0", Some(&self.nodes[0]));
        vec![Peer::new("peer", pod)]
    }

    fn workload(&self, who: &str) -> Workload {
        Workload {
            uid: self.unique(who),
            ..self.config.workload.clone()
        }
    }
}

/// Turns a question of one pod into a question for all equal pods, as streams ask it.
pub(crate) fn for_all_pods(mut question: Question) -> Question {
    let (source, workload) = (&mut question.source, &mut question.workload);
    source.iter_mut().for_each(|source| source.name.clear());
    workload.iter_mut().for_each(|pod| pod.uid.clear());
    question
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
        let large = questions(&[]).large().eligible_nodes;
        let unique: BTreeSet<_> = large.iter().collect();
        let description = format!("a question with {} nodes", unique.len());
        assert_eq!(description, LARGE.0);
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
