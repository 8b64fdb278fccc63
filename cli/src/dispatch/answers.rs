//! Turns a worker cluster's answers of `/what-if` into one answer about a workload, and compares
//! clusters.

use std::{cmp::Reverse, collections::BTreeMap};

use tautline_core::planning::{CostDetail, Costs, Plan, RuleAnswer, RuleOutcome};
use tautline_scheduler_extender::{
    WhatIf,
    explain::{CostRecord, NodeRecord, RuleRecord},
};

/// The answers of the clusters, by their names.
pub(super) type Answers = BTreeMap<String, Answer>;

/// The answer of one cluster about a workload.
#[derive(Clone, Debug)]
pub(super) enum Answer {
    /// The cluster has no offer that governs any of the pods.
    Ungoverned,
    /// The pods of every pod set have a place there: each rule with its cost on the worst node of the
    /// plan, or on the best node if there is no plan.
    Fits(Vec<(RuleRecord, CostRecord)>),
    /// The limits admit nodes there, but the pods have no room together now.
    Full(String),
    /// The rules admit no node there, for this reason.
    Refused(String),
    /// The cluster's view is unknown: the code of the cause.
    Unknown(&'static str),
}

impl Answer {
    /// Returns the reason why the workload is not nominated for the cluster; `None` if it fits. It has
    /// no addresses and no errors of connections, since users of the workload's namespace read it.
    pub(super) fn reason(&self) -> Option<&str> {
        match self {
            Self::Fits(_) => None,
            Self::Ungoverned => Some("NoOffer"),
            Self::Full(reason) | Self::Refused(reason) => Some(reason),
            Self::Unknown(code) => Some(code),
        }
    }
}

/// Returns the answer about a workload from those about its pod sets.
pub(super) fn answer(sets: Vec<WhatIf>) -> Answer {
    let mut governed = sets
        .into_iter()
        .enumerate()
        .filter(|(_, set)| set.governed)
        .peekable();
    if governed.peek().is_none() {
        return Answer::Ungoverned;
    }
    let (mut costs, mut full) = (Vec::new(), None);
    for (i, set) in governed {
        if !set.nodes.iter().any(|node| node.usable) {
            return Answer::Refused(why_unusable(&set.nodes));
        }
        // The best nodes come first. Of a joint plan the worst node counts.
        let best = match &set.group {
            Some(group) if group.placed < group.pods => {
                // Its reason may name nodes, which users of the manager cluster need not know.
                let (placed, pods) = (group.placed, group.pods);
                full = Some(format!("group/NoRoom, {placed} of {pods} pods"));
                continue;
            }
            Some(group) => {
                let is_planned = |node: &NodeRecord| group.nodes.contains(&node.node);
                set.nodes.iter().rposition(is_planned)
            }
            None => None,
        };
        let best = best.unwrap_or_default();
        let lines = set.nodes.into_iter().nth(best).map(|node| node.costs);
        let lines = set.rules.into_iter().zip(lines.unwrap_or_default());
        costs.extend(lines.map(|(mut rule, line)| {
            // The same rule of two pod sets is two rules.
            rule.offer = format!("{i}/{}", rule.offer);
            (rule, line)
        }));
    }
    match full {
        Some(reason) => Answer::Full(reason),
        None => Answer::Fits(costs),
    }
}

/// Returns the most frequent reason, of equal ones the first by name.
fn why_unusable(nodes: &[NodeRecord]) -> String {
    let mut counts = BTreeMap::<&str, usize>::new();
    for reason in nodes.iter().filter_map(|node| node.reason.as_deref()) {
        *counts.entry(reason).or_default() += 1;
    }
    let counts = counts.into_iter();
    match counts.max_by_key(|(name, count)| (*count, Reverse(*name))) {
        Some((reason, count)) => format!("{reason} on {count} of {} nodes", nodes.len()),
        None => "no nodes".to_owned(),
    }
}

/// Returns the clusters where the workload fits, the best first. Clusters are compared as the nodes of
/// one pod are: by the weighted mean of their costs, those within a rule's request alike. A cluster
/// that lacks a cost which another has comes last.
pub(super) fn best_first(answers: &Answers) -> Vec<String> {
    let fits = answers.iter().filter_map(|(name, answer)| match answer {
        Answer::Fits(costs) => Some((name, costs)),
        _ => None,
    });
    let fits: Vec<_> = fits.collect();
    let mut tables = BTreeMap::new();
    for (at, (_, costs)) in fits.iter().enumerate() {
        for (rule, line) in costs.iter() {
            let name = (&*rule.offer, &*rule.rule);
            let (_, table) = tables.entry(name).or_insert_with(|| {
                let mut table = Costs::new(fits.len());
                (table.resolution, table.request_cost) = (rule.resolution, rule.request_cost);
                (rule, table)
            });
            if let Some(cost) = line.cost {
                let tie_break = line.tie_break;
                table.put(
                    at,
                    cost,
                    CostDetail {
                        tie_break,
                        ..CostDetail::default()
                    },
                );
            }
        }
    }
    // A rule without any cost, such as one that is ignored for want of a provider, decides nothing.
    let tables = tables.into_iter();
    let tables = tables.filter(|(_, (_, table))| (0..fits.len()).any(|at| table.get(at).is_some()));
    let costs: Vec<_> = tables
        .map(|(name, (rule, table))| (name, rule, RuleOutcome::Costs(table)))
        .collect();
    let mut offers: Vec<&str> = costs.iter().map(|((offer, _), ..)| *offer).collect();
    offers.dedup();
    let rules = costs
        .iter()
        .map(|((offer, name), rule, outcome)| RuleAnswer {
            offer: offers.iter().position(|of| of == offer).unwrap_or_default(),
            rule: name,
            weight: rule.weight,
            prefer: rule.preference(),
            outcome,
        });
    let plan = Plan::new(fits.len(), &rules.collect::<Vec<_>>());
    let mut ranked: Vec<usize> = (0..fits.len()).collect();
    // The sort is stable, so equal clusters keep the order of their names.
    ranked.sort_by_key(|at| plan.verdicts[*at].rank());
    ranked.into_iter().map(|at| fits[at].0.clone()).collect()
}

#[cfg(test)]
pub(super) mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// The answer about a pod set with a rule `latency`, and nodes of these costs; below 0 a node is
    /// unusable.
    pub(crate) fn what_if(costs: &[i64]) -> Value {
        let nodes = costs.iter().enumerate().map(|(i, cost)| {
            let usable = *cost >= 0;
            let mut node = json!({"node": format!("n{i}"), "usable": usable, "score": 0,
                                  "costs": [{"cost": cost}]});
            if !usable {
                node["reason"] = "latency/OverLimit".into();
            }
            node
        });
        let rule = json!({"offer": "near", "rule": "latency", "request": "10us", "limit": "1ms",
                          "weight": 1, "outcome": "OK", "counted": true, "tookMicros": 9,
                          "requestCost": 10});
        json!({"governed": true, "rules": [rule], "nodes": nodes.collect::<Vec<_>>()})
    }

    pub(crate) fn of(sets: &[Value]) -> Answer {
        let sets = sets.iter().cloned();
        answer(
            sets.map(|set| serde_json::from_value(set).unwrap())
                .collect(),
        )
    }

    fn ungoverned() -> Value {
        let mut none = what_if(&[]);
        none["governed"] = false.into();
        none
    }

    #[test]
    fn answer_names_the_reason_of_a_refusal() {
        let text = |set: Value| of(&[ungoverned(), set]).reason().map(str::to_owned);
        assert_eq!(text(what_if(&[5, -1])), None);
        assert_eq!(
            text(what_if(&[-1, -1])).unwrap(),
            "latency/OverLimit on 2 of 2 nodes"
        );
        assert_eq!(text(what_if(&[])).unwrap(), "no nodes");
        let mut group = what_if(&[5]);
        group["group"] = json!({"placed": 2, "pods": 4, "why": "n7 is full"});
        assert_eq!(text(group).unwrap(), "group/NoRoom, 2 of 4 pods");
        assert!(matches!(of(&[ungoverned()]), Answer::Ungoverned));
    }

    fn order(clusters: &[(&str, &[Value])]) -> Vec<String> {
        let clusters = clusters.iter();
        let answers = clusters.map(|(name, sets)| ((*name).to_owned(), of(sets)));
        best_first(&answers.collect())
    }

    #[test]
    fn best_first_compares_clusters_as_nodes() {
        let set = |cost| what_if(&[cost]);
        assert_eq!(order(&[("a", &[set(90)]), ("b", &[set(30)])]), ["b", "a"]);
        // All within the request are as good.
        assert_eq!(order(&[("a", &[set(9)]), ("b", &[set(3)])]), ["a", "b"]);
        // Two pod sets count alike.
        let (a, b) = ([set(90), set(20)], [set(30), set(900)]);
        let c = [set(40), set(30)];
        assert_eq!(order(&[("a", &a), ("b", &b), ("c", &c)])[0], "c");
        // The worst node of a plan counts, here n1.
        let mut planned = what_if(&[20, 90, 100]);
        planned["group"] = json!({"placed": 2, "pods": 2, "nodes": ["n0", "n1"]});
        assert_eq!(
            order(&[("a", &[planned.clone()]), ("b", &[set(80)])]),
            ["b", "a"]
        );
        assert_eq!(order(&[("a", &[planned]), ("b", &[set(95)])]), ["a", "b"]);
        // A cluster without a cost that the other has comes last.
        let mut without = set(1);
        without["nodes"][0]["costs"][0] = json!({});
        assert_eq!(order(&[("a", &[without]), ("b", &[set(900)])]), ["b", "a"]);
        assert!(order(&[]).is_empty());
    }
}
