//! Sums up the pods that are placed together: the nodes of each group, and the greatest cost of a
//! member or the reason why there is no room.

use std::collections::BTreeMap;

use tautline_scheduler_extender::explain::{CostRecord, GROUP_RULE, Record, RuleRecord};

use crate::{
    local::Placement,
    render::View,
    table::{grid, titled},
};

/// Returns a table of the groups; `None` if no pod is a member of one.
pub(super) fn text(placements: &[Placement], view: View) -> Option<String> {
    let mut groups = BTreeMap::<_, Vec<&Placement>>::new();
    for placement in placements {
        if let Some(rule) = placement.round.as_ref().and_then(own_rule) {
            let key = (&rule.request, &placement.namespace, &rule.offer);
            groups.entry(key).or_default().push(placement);
        }
    }
    let rows = groups.iter().map(|((name, namespace, offer), members)| {
        let placed = members.iter().filter(|m| m.node.is_some()).count();
        vec![
            (*name).clone(),
            format!("{namespace}/{offer}"),
            format!("{placed} of {}", members.len()),
            nodes(members),
            if placed < members.len() {
                refusal(members)
            } else {
                greatest_costs(members)
            },
        ]
    });
    let rows: Vec<_> = rows.collect();
    if rows.is_empty() {
        return None;
    }
    let table = grid(
        &[
            "GROUP",
            "OFFER",
            "PLACED",
            "NODES",
            "GREATEST COST, OR REASON",
        ],
        rows,
    );
    let table = titled("Groups", &table);
    Some(table.lines().map(|line| view.clip(line) + "\n").collect())
}

/// The record of the decision on the pod's group.
fn own_rule(record: &Record) -> Option<&RuleRecord> {
    record.rules.first().filter(|rule| rule.rule == GROUP_RULE)
}

/// The nodes with their numbers of members: `n1: 2, n2`.
fn nodes(members: &[&Placement]) -> String {
    let mut counts = BTreeMap::<&str, usize>::new();
    for node in members.iter().filter_map(|m| m.node.as_deref()) {
        *counts.entry(node).or_default() += 1;
    }
    let texts = counts.into_iter().map(|(node, count)| match count {
        1 => node.to_owned(),
        count => format!("{node}: {count}"),
    });
    texts.collect::<Vec<_>>().join(", ")
}

fn refusal(members: &[&Placement]) -> String {
    let rounds = members.iter().filter(|m| m.node.is_none());
    let mut costs = rounds.flat_map(|m| m.round.iter().flat_map(|r| &r.nodes));
    let text = costs.find_map(|node| node.costs.first().filter(|c| !c.detail.is_empty()));
    text.map_or_else(String::new, |cost| cost.detail.clone())
}

/// The greatest cost of each rule among the members on their nodes.
fn greatest_costs(members: &[&Placement]) -> String {
    let mut greatest = BTreeMap::<&str, (&CostRecord, &str)>::new();
    for (record, node) in members
        .iter()
        .filter_map(|m| m.round.as_ref().zip(m.node.as_ref()))
    {
        let Some(place) = record.nodes.iter().find(|n| n.node == *node) else {
            continue;
        };
        let costs = record.rules.iter().zip(&place.costs).skip(1);
        for (rule, cost) in costs.filter(|(_, cost)| !cost.detail.is_empty()) {
            let known = greatest.entry(&rule.rule).or_insert((cost, &record.pod));
            if known.0.cost < cost.cost {
                *known = (cost, &record.pod);
            }
        }
    }
    let texts = greatest
        .into_iter()
        .map(|(rule, (cost, pod))| format!("{rule}: {pod}, {}", cost.detail));
    texts.collect::<Vec<_>>().join("; ")
}
