//! Compares the expected place of a pod with the real one.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use tautline_api::manifest::FieldPath;

use crate::local::Placement;

/// The expectation of a case: every field that is given must hold.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Expect {
    /// The node where the pod goes.
    node: Option<String>,
    /// All usable nodes, in any order.
    nodes: Option<BTreeSet<String>>,
    /// True if no node is usable.
    pending: Option<bool>,
    /// True if an offer governs the pod.
    governed: Option<bool>,
    /// The reasons of nodes that are not usable, by node.
    #[serde(default)]
    reasons: BTreeMap<String, String>,
    /// The number of nodes, by reason.
    #[serde(default)]
    counts: BTreeMap<String, usize>,
    /// The scores of usable nodes, 0 to 10, by node.
    #[serde(default)]
    scores: BTreeMap<String, Score>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "i64")]
struct Score(u8);

impl TryFrom<i64> for Score {
    type Error = &'static str;

    fn try_from(value: i64) -> Result<Self, Self::Error> {
        match u8::try_from(value) {
            Ok(score @ 0..=10) => Ok(Self(score)),
            _ => Err("a score is 0 to 10"),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Verdict<'a> {
    /// The score, if an offer governs the pod.
    Usable(Option<u8>),
    Refused(&'a str),
}

impl Verdict<'_> {
    fn text(&self) -> String {
        match self {
            Self::Usable(_) => "usable".to_owned(),
            Self::Refused(reason) => (*reason).to_owned(),
        }
    }
}

impl Expect {
    /// Returns the fault of the expectation: a contradiction, or no field at all.
    pub fn fault(&self) -> Option<&'static str> {
        let fields = self.reasons.len() + self.counts.len() + self.scores.len();
        let flags = self.pending.is_some() || self.governed.is_some();
        match (&self.node, &self.nodes) {
            (Some(_), _) if self.pending == Some(true) => {
                Some("node and pending exclude each other; remove one of them")
            }
            (Some(node), Some(nodes)) if !nodes.contains(node) => {
                Some("nodes are all usable nodes, and lack node; add it, or correct one of them")
            }
            (None, None) if fields == 0 && !flags => {
                Some("is empty; write node, nodes, pending, governed, reasons, counts or scores")
            }
            _ => None,
        }
    }

    /// Returns the fields that name nodes, and the nodes.
    pub fn named_nodes(&self) -> impl Iterator<Item = (&'static str, &String)> {
        let node = self.node.iter().map(|node| ("node", node));
        let nodes = self.nodes.iter().flatten().map(|node| ("nodes", node));
        let reasons = self.reasons.keys().map(|node| ("reasons", node));
        let scores = self.scores.keys().map(|node| ("scores", node));
        node.chain(nodes).chain(reasons).chain(scores)
    }

    /// Returns the fields with a reason of a rule, and the rules.
    pub fn named_rules(&self) -> impl Iterator<Item = (FieldPath, &str)> {
        let at = |field, key: &str| FieldPath::from_keys([field, key]);
        let reasons = self
            .reasons
            .iter()
            .map(move |(node, reason)| (at("reasons", node), reason));
        let counts = self
            .counts
            .keys()
            .map(move |reason| (at("counts", reason), reason));
        // Kubernetes' own reasons name resources, as in `insufficient nvidia.com/gpu`.
        let all = reasons.chain(counts).filter(|(_, r)| !r.contains(' '));
        all.filter_map(|(at, reason)| Some((at, reason.split_once('/')?.0)))
    }

    /// Returns the fields that do not hold, each with the expected and the actual value.
    pub fn compare(&self, placement: &Placement) -> Vec<String> {
        let verdicts = verdicts(placement);
        let place = || match (&placement.node, &placement.message) {
            (Some(node), _) => node.clone(),
            (None, Some(message)) => format!("none; {message}"),
            (None, None) => "none".to_owned(),
        };
        let mut wrong = Vec::new();
        let mut compare = |field: String, expected: String, got: String| {
            if expected != got {
                let text = format!("expected {field}: {expected}\n     got {field}: {got}");
                wrong.push(text);
            }
        };
        if let Some(node) = &self.node
            && placement.node.as_ref() != Some(node)
        {
            let why = match verdicts.get(node.as_str()) {
                Some(Verdict::Usable(Some(score))) => format!(" ({node} has the score {score})"),
                Some(Verdict::Refused(reason)) => format!(" ({node} is refused: {reason})"),
                _ => String::new(),
            };
            compare("node".into(), node.clone(), place() + &why);
        }
        if let Some(pending) = self.pending
            && pending == placement.node.is_some()
        {
            let got = match &placement.node {
                Some(node) => format!("false; it goes to {node}"),
                None => "true; ".to_owned() + placement.message.as_deref().unwrap_or_default(),
            };
            compare("pending".into(), pending.to_string(), got);
        }
        if let Some(governed) = self.governed {
            let got = placement.round.is_some();
            compare("governed".into(), governed.to_string(), got.to_string());
        }
        if let Some(nodes) = &self.nodes {
            let usable = verdicts
                .iter()
                .filter(|(_, v)| matches!(v, Verdict::Usable(_)));
            let list = |names: Vec<&str>| match names.as_slice() {
                [] => "none".to_owned(),
                names => names.join(", "),
            };
            let got = list(usable.map(|(node, _)| *node).collect());
            let expected = list(nodes.iter().map(String::as_str).collect());
            compare("nodes".into(), expected, got);
        }
        let absent = || "not in the cluster".to_owned();
        for (node, reason) in &self.reasons {
            let got = verdicts
                .get(node.as_str())
                .map_or_else(absent, Verdict::text);
            compare(format!("reason of {node}"), reason.clone(), got);
        }
        for (reason, count) in &self.counts {
            let with = |v: &&Verdict<'_>| matches!(v, Verdict::Refused(r) if r == reason);
            let got = verdicts.values().filter(with).count();
            let field = format!("nodes with {reason}");
            compare(field, count.to_string(), got.to_string());
        }
        for (node, Score(score)) in &self.scores {
            let got = match verdicts.get(node.as_str()) {
                Some(Verdict::Usable(Some(score))) => score.to_string(),
                Some(Verdict::Usable(None)) => "none; no offer governs the pod".to_owned(),
                Some(Verdict::Refused(reason)) => format!("none; it is refused: {reason}"),
                None => absent(),
            };
            compare(format!("score of {node}"), score.to_string(), got);
        }
        wrong
    }
}

/// Returns the verdict on each node, by the rules or by Kubernetes itself.
fn verdicts(placement: &Placement) -> BTreeMap<&str, Verdict<'_>> {
    let excluded = placement.misfits.iter();
    let mut all: BTreeMap<&str, Verdict<'_>> = excluded
        .map(|m| (m.node.as_str(), Verdict::Refused(&m.reason)))
        .collect();
    for node in placement.round.iter().flat_map(|round| &round.nodes) {
        let verdict = match &node.reason {
            Some(reason) if !node.usable => Verdict::Refused(reason),
            _ => Verdict::Usable(Some(node.score)),
        };
        all.insert(&node.node, verdict);
    }
    let ungoverned = placement
        .returned
        .iter()
        .filter(|_| placement.round.is_none());
    all.extend(ungoverned.map(|node| (node.as_str(), Verdict::Usable(None))));
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::local::UnschedulableNode;
    use serde_json::json;

    fn placement(node: Option<&str>) -> Placement {
        let line = |node: &str, usable: bool, score: u8, reason: Option<&str>| {
            let mut line = json!({"node": node, "usable": usable, "score": score, "costs": []});
            line["reason"] = reason.into();
            line
        };
        let round = json!({
            "namespace": "shop", "pod": "web-0", "uid": "u", "atUnixMillis": 0, "tookMicros": 0,
            "usable": 2, "rules": [],
            "nodes": [line("a", true, 10, None), line("b", true, 4, None),
                      line("c", false, 0, Some("latency/OverLimit")),
                      line("d", false, 0, Some("latency/OverLimit"))],
        });
        Placement {
            namespace: "shop".into(),
            pod: "web-0".into(),
            node: node.map(str::to_owned),
            message: node.is_none().then(|| "0/5 nodes are available".into()),
            misfits: vec![UnschedulableNode {
                node: "e".into(),
                reason: "insufficient cpu".into(),
            }],
            returned: vec!["a".into()],
            gates: Vec::new(),
            not_considered: Vec::new(),
            round: Some(serde_json::from_value(round).unwrap()),
        }
    }

    fn compare(expect: serde_json::Value, node: Option<&str>) -> String {
        let expect: Expect = serde_json::from_value(expect).unwrap();
        assert_eq!(expect.fault(), None);
        let wrong = expect.compare(&placement(node)).into_iter();
        wrong.map(|text| text + "\n").collect()
    }

    #[test]
    fn what_holds_is_no_mismatch() {
        let all = json!({
            "node": "a", "nodes": ["b", "a"], "pending": false, "governed": true,
            "reasons": {"c": "latency/OverLimit", "e": "insufficient cpu"},
            "counts": {"latency/OverLimit": 2, "insufficient cpu": 1, "latency/NoData": 0},
            "scores": {"a": 10, "b": 4},
        });
        assert_eq!(compare(all, Some("a")), "");
        assert_eq!(compare(json!({"pending": true}), None), "");
    }

    #[test]
    fn mismatches_have_expected_and_got() {
        let wrong = json!({
            "node": "c", "nodes": ["c", "a"], "pending": false, "governed": false,
            "reasons": {"a": "latency/NoData", "z": "latency/NoData"},
            "counts": {"latency/OverLimit": 1}, "scores": {"b": 5, "e": 1},
        });
        insta::assert_snapshot!(compare(wrong.clone(), Some("a")), @r#"
        expected node: c
             got node: a (c is refused: latency/OverLimit)
        expected governed: false
             got governed: true
        expected nodes: a, c
             got nodes: a, b
        expected reason of a: latency/NoData
             got reason of a: usable
        expected reason of z: latency/NoData
             got reason of z: not in the cluster
        expected nodes with latency/OverLimit: 1
             got nodes with latency/OverLimit: 2
        expected score of b: 5
             got score of b: 4
        expected score of e: 1
             got score of e: none; it is refused: insufficient cpu
        "#);
        insta::assert_snapshot!(compare(wrong, None), @r#"
        expected node: c
             got node: none; 0/5 nodes are available (c is refused: latency/OverLimit)
        expected pending: false
             got pending: true; 0/5 nodes are available
        expected governed: false
             got governed: true
        expected nodes: a, c
             got nodes: a, b
        expected reason of a: latency/NoData
             got reason of a: usable
        expected reason of z: latency/NoData
             got reason of z: not in the cluster
        expected nodes with latency/OverLimit: 1
             got nodes with latency/OverLimit: 2
        expected score of b: 5
             got score of b: 4
        expected score of e: 1
             got score of e: none; it is refused: insufficient cpu
        "#);
        insta::assert_snapshot!(compare(json!({"node": "b"}), Some("a")), @r#"
        expected node: b
             got node: a (b has the score 4)
        "#);
        insta::assert_snapshot!(compare(json!({"pending": true}), Some("a")), @r#"
        expected pending: true
             got pending: false; it goes to a
        "#);
    }

    #[test]
    fn ungoverned_pods_have_no_scores() {
        let mut place = placement(Some("a"));
        place.round = None;
        place.returned = vec!["a".into(), "b".into()];
        let of = |expect| {
            serde_json::from_value::<Expect>(expect)
                .unwrap()
                .compare(&place)
        };
        assert_eq!(of(json!({"governed": false, "nodes": ["a", "b"]})), [""; 0]);
        let [wrong] = &of(json!({"scores": {"a": 10}}))[..] else {
            panic!("one mismatch");
        };
        let got = wrong.lines().last().map(str::trim);
        assert_eq!(got, Some("got score of a: none; no offer governs the pod"));
    }
}
