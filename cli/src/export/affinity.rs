//! Implements `tautline export affinity`, which names the groups of nodes that can meet the limits of
//! an offer, so that autoscalers add nodes there.

use std::{cmp::Reverse, collections::BTreeMap, process::ExitCode};

use anyhow::Result;
use serde_json::{Value, json};
use tautline_api::manifest::Item;
use tautline_scheduler_extender::{
    WhatIf,
    explain::{NodeRecord, RuleRecord},
};

use super::{source::SourceArgs, subject};
use crate::{
    exit_code,
    output::{self, Output},
    render,
    scope::object,
    table::{grid, plain},
};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The offer
    #[arg(value_name = "NAMESPACE/OFFER", value_parser = object)]
    offer: (String, String),
    /// The label of nodes whose values the affinity names
    #[arg(
        long,
        value_name = "LABEL_KEY",
        default_value = "topology.kubernetes.io/zone"
    )]
    by: String,
    /// Table: every value, and why not; YAML and JSON: the affinity, for a pod template
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
    #[command(flatten)]
    source: SourceArgs,
}

pub(crate) async fn run(args: Args) -> Result<ExitCode> {
    let (namespace, name) = &args.offer;
    let items = args.source.items(namespace, name).await?;
    let Some(offer) = subject::offer(&items, namespace, name)? else {
        note!("error: there is no offer {namespace}/{name}");
        return Ok(exit_code(false));
    };
    let subject = subject::subject(&items, &offer)?;
    let answer = args.source.ask(&items, &offer, &subject).await?;
    if let Some(error) = without_answer(&answer) {
        note!(
            "error: offer {namespace}/{name}, {}: {}",
            subject.name,
            plain(&error)
        );
        return Ok(exit_code(false));
    }
    let groups = Groups::new(&items, &args.by, &answer);
    let is_positive = !groups.values().is_empty();
    if is_positive || args.output == Output::Table {
        output::print(args.output, &groups.affinity(&args.by), |_| {
            let head = format!("offer {namespace}/{name}, asked for {}\n", subject.name);
            head + &groups.table()
        })?;
    }
    if !is_positive {
        note!(
            "error: no value of {} can meet the limits of offer {namespace}/{name}: {}",
            args.by,
            plain(&groups.why_none())
        );
    }
    Ok(exit_code(is_positive))
}

/// Returns the reason why the answer does not say where the limits can be met.
fn without_answer(answer: &WhatIf) -> Option<String> {
    if !answer.governed {
        return Some(
            "the extender does not govern it: pods of the namespace may be exempt \
             (--exempt-namespaces), or the offer is too new; try again"
                .to_owned(),
        );
    }
    let failed = answer.rules.iter().find(|rule| rule.outcome != "OK")?;
    let provider = match &failed.provider {
        Some(provider) => format!("provider {provider}"),
        None => "no provider".to_owned(),
    };
    let (rule, outcome) = (&failed.rule, &failed.outcome);
    let error = failed.error.as_deref().unwrap_or_default();
    Some(format!(
        "rule {rule} has no answer ({provider}): {outcome}: {error}"
    ))
}

/// The nodes with one value of the label.
#[derive(Default)]
struct Group {
    nodes: usize,
    within: usize,
    /// The costs of the best usable node.
    best: Option<String>,
    reasons: BTreeMap<String, usize>,
}

/// The nodes by the value of a label. Those without the label are last.
struct Groups(BTreeMap<(bool, String), Group>);

impl Groups {
    fn new(items: &[Item], by: &str, answer: &WhatIf) -> Self {
        let nodes = items.iter().filter_map(|item| match item {
            Item::Node(node) => Some(&node.metadata),
            _ => None,
        });
        let values: BTreeMap<&str, Option<&String>> = nodes
            .filter_map(|meta| {
                let value = meta.labels.as_ref().and_then(|labels| labels.get(by));
                Some((meta.name.as_deref()?, value))
            })
            .collect();
        let mut groups = BTreeMap::<_, Group>::new();
        // The best nodes come first.
        for node in &answer.nodes {
            // A node that has come or gone meanwhile is left out.
            let Some(value) = values.get(&*node.node) else {
                continue;
            };
            let key = (value.is_none(), value.cloned().unwrap_or_default());
            let group = groups.entry(key).or_default();
            group.nodes += 1;
            if node.usable && group.best.is_none() {
                group.best = Some(costs(node, &answer.rules));
            }
            if has_place(node) {
                group.within += 1;
            } else if let Some(reason) = &node.reason {
                *group.reasons.entry(reason.clone()).or_default() += 1;
            }
        }
        Self(groups)
    }

    /// Returns the values with a node that can meet the limits.
    fn values(&self) -> Vec<&str> {
        let groups = self.0.iter().filter(|(_, group)| group.within > 0);
        let named = groups.filter(|((is_unlabelled, _), _)| !is_unlabelled);
        named.map(|((_, value), _)| value.as_str()).collect()
    }

    fn affinity(&self, by: &str) -> Value {
        let expression = json!({"key": by, "operator": "In", "values": self.values()});
        json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [expression]}]}}}})
    }

    /// Returns the reason why there are no values.
    fn why_none(&self) -> String {
        if self.0.values().any(|group| group.within > 0) {
            return "the nodes that can have no such label; name another one with --by".to_owned();
        }
        let mut reasons = BTreeMap::new();
        for (reason, count) in self.0.values().flat_map(|group| &group.reasons) {
            *reasons.entry(reason.clone()).or_default() += count;
        }
        let nodes: usize = self.0.values().map(|group| group.nodes).sum();
        match most(&reasons) {
            Some((reason, count)) => format!("{reason} refuses {count} of {nodes} nodes"),
            None => "there are no nodes".to_owned(),
        }
    }

    fn table(&self) -> String {
        let row = |((is_unlabelled, value), group): (&(bool, String), &Group)| {
            vec![
                match is_unlabelled {
                    true => "(none)".to_owned(),
                    false => value.clone(),
                },
                group.nodes.to_string(),
                group.within.to_string(),
                group.best.clone().unwrap_or_default(),
                most(&group.reasons).map_or_else(String::new, |(reason, _)| reason.clone()),
            ]
        };
        let header = ["VALUE", "NODES", "WITHIN", "BEST", "WHY NOT"];
        grid(&header, self.0.iter().map(row))
    }
}

/// Returns the most frequent reason with its number, of equal ones the first by name.
fn most(reasons: &BTreeMap<String, usize>) -> Option<(&String, &usize)> {
    let reasons = reasons.iter();
    reasons.max_by_key(|(reason, count)| (**count, Reverse(*reason)))
}

/// Returns whether the pod could run on a node like this one: it is usable, or would be without some
/// of its pods.
fn has_place(node: &NodeRecord) -> bool {
    let mut costs = node.costs.iter();
    node.usable || costs.all(|line| line.freeable || line.cost.is_some_and(|cost| cost >= 0))
}

fn costs(node: &NodeRecord, rules: &[RuleRecord]) -> String {
    let costs = node.costs.iter().zip(rules);
    let costs = costs.map(|(line, rule)| render::cost(line, Some(rule)));
    costs.collect::<Vec<_>>().join("; ")
}
