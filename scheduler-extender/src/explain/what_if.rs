//! Plans again from the costs of a record, for example with other weights.

use tautline_core::{
    nodes::NodeSet,
    planning::{CostDetail, Costs, Plan, RuleAnswer, RuleOutcome, RuleScale, code, rule_scales},
};

use super::record::{Record, RuleRecord};

/// The answers of a record's rules, in the form that planning takes. The positions are those of the
/// record's nodes.
#[derive(Debug)]
pub struct RecordedAnswers<'a> {
    record: &'a Record,
    outcomes: Vec<RuleOutcome>,
}

impl<'a> RecordedAnswers<'a> {
    /// The answers of a record with nodes.
    pub fn new(record: &'a Record) -> Self {
        let nodes: NodeSet = record.nodes.iter().map(|n| &*n.node).collect();
        let rules = record.rules.iter().enumerate();
        let outcomes = rules.map(|(i, rule)| outcome(record, &nodes, i, rule));
        Self {
            record,
            outcomes: outcomes.collect(),
        }
    }

    /// Makes the plan with other weights. With the same weights it is the record's plan, except
    /// that it leaves out the underlay.
    pub fn plan(&self, weight: impl Fn(&RuleRecord) -> u32) -> Plan {
        Plan::new(self.record.nodes.len(), &self.answers(weight))
    }

    /// The scale of the costs of each of the record's rules in the plan; `None` for a rule without
    /// costs.
    pub fn scales(&self) -> Vec<Option<RuleScale>> {
        rule_scales(self.record.nodes.len(), &self.answers(|rule| rule.weight))
    }

    fn answers(&self, weight: impl Fn(&RuleRecord) -> u32) -> Vec<RuleAnswer<'_>> {
        let rules = &self.record.rules;
        let answer = |(rule, outcome): (&'a RuleRecord, _)| RuleAnswer {
            offer: rules
                .iter()
                .position(|r| r.offer == rule.offer)
                .unwrap_or_default(),
            rule: &rule.rule,
            weight: weight(rule),
            prefer: rule.preference(),
            outcome,
        };
        rules.iter().zip(&self.outcomes).map(answer).collect()
    }
}

fn outcome(record: &Record, nodes: &NodeSet, i: usize, rule: &RuleRecord) -> RuleOutcome {
    if rule.outcome != "OK" {
        return RuleOutcome::Unavailable {
            code: code::FAILED,
            reject: rule.counted,
        };
    }
    let mut costs = Costs::new(record.nodes.len());
    costs.resolution = rule.resolution;
    costs.request_cost = rule.request_cost;
    for node in &record.nodes {
        if let Some((line, cost)) = node.costs.get(i).and_then(|c| Some((c, c.cost?))) {
            let detail = CostDetail {
                code: &line.code,
                freeable: line.freeable,
                tie_break: line.tie_break,
                ..CostDetail::default()
            };
            costs.add(nodes, &node.node, cost, detail);
        }
    }
    RuleOutcome::Costs(costs)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    /// Cost and tie-break of two rules for each node.
    fn record(lines: &[[(i64, i64); 2]], resolution: i64) -> Record {
        let rule = |name: &str, resolution: i64| {
            json!({"offer": "near", "rule": name, "request": "", "limit": "", "weight": 1,
                   "outcome": "OK", "counted": true, "tookMicros": 0,
                   "resolution": resolution})
        };
        let node = |(i, costs): (usize, &[(i64, i64); 2])| {
            let cost = |(cost, tie): &(i64, i64)| json!({"cost": cost, "tieBreak": tie});
            json!({"node": format!("n{i}"), "usable": true, "score": 0,
                   "costs": costs.iter().map(cost).collect::<Vec<_>>()})
        };
        let nodes: Vec<_> = lines.iter().enumerate().map(node).collect();
        serde_json::from_value(json!({"namespace": "shop", "pod": "web-0", "uid": "u",
            "atUnixMillis": 0, "tookMicros": 0, "usable": 0,
            "rules": [rule("latency", resolution), rule("gpu-slice", 0)], "nodes": nodes}))
        .unwrap()
    }

    #[test]
    fn plan_follows_the_weights() {
        let record = record(&[[(1, 0), (9, 0)], [(9, 0), (1, 0)], [(-1, 0), (0, 0)]], 0);
        let answers = RecordedAnswers::new(&record);
        let scores = |latency, gpu| {
            let weight = |r: &RuleRecord| if r.rule == "latency" { latency } else { gpu };
            let plan = answers.plan(weight);
            plan.verdicts.iter().map(|v| v.score()).collect::<Vec<_>>()
        };
        assert_eq!(scores(1, 1), [10, 10, 0]);
        assert_eq!(scores(3, 1), [10, 2, 0]);
        assert_eq!(scores(0, 1), [0, 10, 0]);
        let scales = answers.scales();
        let latency = scales[0].as_ref().unwrap();
        assert_eq!((latency.low, latency.high, latency.decides), (1, 9, true));
        assert_eq!(latency.scaled, [Some(0), Some(1 << 62), None]);
    }

    proptest! {
        /// The mean of the scaled costs orders nodes as the plan does.
        #[test]
        fn scales_explain_the_order(
            lines in prop::collection::vec(prop::array::uniform2((0..50_i64, 0..5_i64)), 1..12),
            resolution in 0..20_i64,
        ) {
            let record = record(&lines, resolution);
            let answers = RecordedAnswers::new(&record);
            let plan = answers.plan(|r| r.weight);
            let scales = answers.scales();
            let sum = |at: usize| scales.iter().flatten()
                .filter(|s| s.decides)
                .map(|s| u128::from(s.scaled[at].unwrap()))
                .sum::<u128>();
            for a in 0..lines.len() {
                for b in 0..lines.len() {
                    if sum(a) + 4 < sum(b) {
                        prop_assert!(plan.verdicts[a].rank() < plan.verdicts[b].rank());
                    }
                }
            }
        }
    }
}
