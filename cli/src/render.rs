//! Renders the extender's decision about a pod as text: its rules, and the verdict and score of
//! each node.

use std::{collections::BTreeMap, fmt::Write};

use comfy_table::{CellAlignment, Table, presets};
use tautline_core::pending;
use tautline_scheduler_extender::explain::{
    AnswerRecord, CostRecord, NodeRecord, PodNow, Record, RuleRecord,
};

use crate::{
    gpu::bar::TerminalStyle,
    local::Placement,
    table::{cut, plain},
    watch::screen,
};

/// The escape codes of good and bad results.
const GREEN: u8 = 32;
const RED: u8 = 31;

/// The bounds and the colours of a decision's text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View {
    /// The maximum number of nodes.
    pub(crate) most_nodes: usize,
    /// The terminal's width, which cuts tables; `None` is unlimited.
    pub(crate) columns: Option<usize>,
    pub(crate) style: TerminalStyle,
}

impl View {
    /// Returns the view of standard output, as `gpu top` has it.
    pub(crate) fn of_stdout(most_nodes: usize) -> Self {
        Self {
            most_nodes,
            columns: screen::columns(),
            style: TerminalStyle::of_stdout(),
        }
    }

    /// Returns a view without colours and without a width.
    pub(crate) fn plain(most_nodes: usize) -> Self {
        Self {
            most_nodes,
            columns: None,
            style: TerminalStyle::default(),
        }
    }

    pub(crate) fn clip(self, line: &str) -> String {
        match self.columns {
            Some(columns) => cut(line, columns),
            None => line.to_owned(),
        }
    }
}

pub(crate) fn placement(p: &Placement, view: View) -> String {
    let mut out = String::new();
    let verdict = match &p.node {
        Some(node) => view.style.tint(GREEN, &format!("goes to {node}")),
        None => view.style.tint(RED, "stays pending"),
    };
    _ = writeln!(out, "pod {}/{} {verdict}", p.namespace, p.pod);
    if let Some(why) = why_pending(p) {
        _ = writeln!(out, "  {}", plain(&why));
    }
    if let Some(message) = &p.message {
        _ = writeln!(out, "  {}", plain(message));
    }
    if !p.not_considered.is_empty() {
        let fields = p.not_considered.join(", ");
        _ = writeln!(out, "  not considered: {}", plain(&fields));
    }
    match &p.round {
        None if !p.gates.is_empty() => {}
        None => out.push_str("  no offer governs it: Tautline does not affect it\n"),
        Some(round) => out.push_str(&record(round, Some(p), view)),
    }
    out
}

/// Returns the reason why a pod stays pending, as a sentence.
fn why_pending(p: &Placement) -> Option<String> {
    if p.node.is_some() || !p.gates.is_empty() {
        return None;
    }
    match &p.round {
        Some(round) if !round.nodes.is_empty() => round.why_pending.clone(),
        _ => {
            let reasons = p.misfits.iter().map(|misfit| misfit.reason.as_str());
            pending::by_kubernetes(p.misfits.len().max(1), reasons)
        }
    }
}

/// Renders a record: its rules, then a line for each node, the best first.
pub(crate) fn record(r: &Record, placed: Option<&Placement>, view: View) -> String {
    let most_nodes = view.most_nodes;
    let mut out = String::new();
    if placed.is_none() {
        let usable = format!("{} of {} nodes usable", r.usable, r.nodes.len());
        _ = writeln!(
            out,
            "pod {}/{}: {usable}, planned in {}",
            r.namespace,
            r.pod,
            micros(r.took_micros)
        );
        if let Some(why) = &r.why_pending {
            _ = writeln!(out, "  {}", plain(why));
        }
        if let Some(answer) = answer(&r.answer, r.usable) {
            _ = writeln!(out, "  {answer}");
        }
        if let Some(now) = &r.pod_now {
            _ = writeln!(out, "  {}", current_place(now));
        }
    }
    for rule in &r.rules {
        let mut line = format!("  rule {} of offer {}", rule.rule, rule.offer);
        for (name, value) in [("request", &rule.request), ("limit", &rule.limit)] {
            if !value.is_empty() {
                _ = write!(line, ", {name} {}", plain(value));
            }
        }
        if let Some(prefer) = &rule.prefer {
            _ = write!(line, ", prefer {}", plain(prefer));
            if rule.prefers_in_vain() {
                line.push_str(" (no effect: the provider does not say which nodes are within it)");
            }
        }
        match &rule.provider {
            Some(provider) => {
                _ = write!(line, "; provider {provider}");
                if let Some(age) = rule.age_micros {
                    _ = write!(line, ", costs {} old", micros(age));
                }
            }
            // A group's own record has an outcome and no provider.
            None if rule.outcome == "OK" => {}
            None => line.push_str("; no provider"),
        }
        if rule.outcome != "OK" {
            let counts = if rule.counted {
                "so no node is usable"
            } else {
                "so the rule is ignored"
            };
            _ = write!(line, ": {}, {counts}", rule.outcome);
            if let Some(error) = &rule.error {
                _ = write!(line, " ({})", plain(error));
            }
        }
        _ = writeln!(out, "{line}");
    }
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    let rules = r.rules.iter().map(|rule| rule.rule.to_uppercase());
    table.set_header(
        ["  NODE", "VERDICT", "SCORE"]
            .map(str::to_owned)
            .into_iter()
            .chain(rules),
    );
    let chosen = match (placed, &r.pod_now) {
        (Some(placed), _) => placed.node.as_deref().map(|node| (node, "chosen")),
        (None, Some(PodNow::Bound { node })) => Some((node.as_str(), "bound")),
        (None, _) => None,
    };
    // The pod's own node is always shown.
    let is_chosen = |node: &&NodeRecord| chosen.is_some_and(|(chosen, _)| *chosen == node.node);
    let shown = r.nodes.iter().take(most_nodes);
    let rest = r.nodes.get(most_nodes..).unwrap_or_default();
    for node in shown.chain(rest.iter().filter(is_chosen)) {
        table.add_row(row(node, &r.rules, chosen));
    }
    if let Some(score) = table.column_mut(2) {
        score.set_cell_alignment(CellAlignment::Right);
    }
    for line in table.lines() {
        let line = view.clip(line.trim_end());
        let is_chosen = line.trim_start().starts_with("> ");
        let colour = if is_chosen { GREEN } else { 0 };
        _ = writeln!(out, "{}", view.style.tint(colour, &line));
    }
    let hidden = rest.iter().filter(|n| !is_chosen(n)).count();
    if hidden > 0 {
        _ = writeln!(out, "  ... and {hidden} more nodes; -o json shows all");
    }
    let mut kept_out = BTreeMap::<&str, usize>::new();
    for misfit in placed.iter().flat_map(|p| &p.misfits) {
        *kept_out.entry(&misfit.reason).or_default() += 1;
    }
    for (reason, count) in kept_out {
        _ = writeln!(out, "  {count} excluded by Kubernetes itself: {reason}");
    }
    out
}

/// Returns filter's answer in words; `None` if there is no answer, or no node is usable.
fn answer(answer: &AnswerRecord, usable: usize) -> Option<String> {
    let AnswerRecord { mode, nodes, tied } = answer;
    let text = match (nodes.as_slice(), mode.as_str()) {
        ([], _) => return None,
        ([one], _) if *tied == 1 => format!("answer ({mode}): {one}, the best node"),
        ([one], _) => format!("answer ({mode}): {one}, one of {tied} nodes that tie for best"),
        (_, "ties") if nodes.len() == *tied => {
            format!("answer (ties): {tied} nodes that tie for best; kube-scheduler chooses")
        }
        (_, "ties") => format!(
            "answer (ties): {} of {tied} nodes that tie for best; kube-scheduler chooses",
            nodes.len()
        ),
        _ => format!(
            "answer ({mode}): the best {} of {usable} usable nodes; kube-scheduler adds its scores",
            nodes.len()
        ),
    };
    Some(plain(&text))
}

fn current_place(now: &PodNow) -> String {
    match now {
        PodNow::Bound { node } => format!("now bound to {node}"),
        PodNow::NotBound => "now not bound".to_owned(),
        PodNow::Deleted => "now deleted".to_owned(),
        PodNow::Replaced => "now deleted; a newer pod has its name".to_owned(),
        PodNow::Unknown { error } => plain(&format!("its current node is unknown: {error}")),
    }
}

fn row(node: &NodeRecord, rules: &[RuleRecord], chosen: Option<(&str, &str)>) -> Vec<String> {
    let word = chosen.filter(|(chosen, _)| *chosen == node.node);
    let mark = if word.is_some() { "> " } else { "  " };
    let verdict = match (&node.reason, word) {
        (Some(reason), _) => plain(reason),
        (None, Some((_, word))) => word.to_owned(),
        (None, None) => "usable".into(),
    };
    let score = if node.usable {
        node.score.to_string()
    } else {
        "-".into()
    };
    let mut cells = vec![format!("{mark}{}", node.node), verdict, score];
    let costs = node.costs.iter().enumerate();
    cells.extend(costs.map(|(i, line)| cost(line, rules.get(i))));
    cells
}

/// Renders the cost of a rule on a node, in the provider's words if there are some.
pub(crate) fn cost(line: &CostRecord, rule: Option<&RuleRecord>) -> String {
    let text = match (line.cost, line.detail.as_str()) {
        (None, _) => "-".into(),
        (Some(cost), "") if cost < 0 => "no".into(),
        (Some(cost), "") => cost.to_string(),
        (Some(_), detail) => plain(detail),
    };
    if rule.is_some_and(|rule| rule.is_within_request(line)) {
        text + ", within the request"
    } else {
        text
    }
}

fn micros(micros: u64) -> String {
    tautline_core::duration::format(std::time::Duration::from_micros(micros))
}
