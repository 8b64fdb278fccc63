//! Implements `tautline gpu explain`, which shows the cards of a pod, or why no node can host it.

mod report;

use std::{collections::BTreeMap, fmt::Write, process::ExitCode};

use anyhow::Result;
use tautline_api::convert;
use tautline_gpu_placement::policy::PolicyName as Policy;
use tautline_gpu_slice::{inspection::RequestSummary, report::format};

use self::report::{HeldCard, NodeReport, PodExplanation, RuleReport};
use super::source::SourceArgs;
use crate::{
    EXIT_NO,
    manifests::find_pod,
    output::{self, Output},
    pod_name::PodName,
    scope::NamespaceArgs,
    table::{field, section, table},
};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The pod, as NAMESPACE/NAME, or NAME with -n
    #[arg(value_parser = PodName::parse)]
    pod: PodName,
    #[command(flatten)]
    namespace: NamespaceArgs,
    /// How nodes and cards are compared: tautline, fgd, best-fit, packing or spread
    #[arg(long, default_value_t, value_name = "NAME")]
    policy: Policy,
    /// Maximum number of nodes to show
    #[arg(long, default_value_t = 20)]
    rows: usize,
    #[command(flatten)]
    source: SourceArgs,
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
}

pub(crate) async fn run(args: Args) -> Result<ExitCode> {
    let named = args.pod.namespace(args.namespace.named())?;
    let source = args.source.read(true, args.namespace.named()).await?;
    let namespace = named.unwrap_or(&source.namespace);
    // Only waiting pods have their placement constraints, so the pod is read as if it waited.
    let pod = match find_pod(&source.items, namespace, &args.pod.name) {
        Ok(pod) => convert::pod(&pod),
        Err(absent) => {
            note!("error: {absent}");
            return Ok(ExitCode::from(EXIT_NO));
        }
    };
    let explained = PodExplanation::new(source.snapshot, &pod, args.policy)?;
    output::print(args.output, &explained, |e| e.text(args.rows))?;
    let placed = explained.node.is_some() || explained.finished;
    Ok(if placed || !explained.usable_nodes.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(EXIT_NO)
    })
}

impl PodExplanation {
    fn text(&self, most_nodes: usize) -> String {
        let mut out = field("Pod", &format!("{}/{}", self.namespace, self.pod));
        out += &field("Node", &self.place());
        out += &field("Policy", self.policy);
        if !self.cards.is_empty() {
            out += &section(
                "Cards",
                &self.cards,
                &[
                    ("CARD", &HeldCard::title),
                    ("PRODUCT", &|card| card.product.clone()),
                    ("HOLDS", &|card| format::milli(card.milli)),
                    ("FREE", &|card| format::milli(card.free_milli)),
                    ("HEALTH", &|card| card.health.clone()),
                    ("SHARED WITH", &HeldCard::sharers),
                ],
            );
        }
        for missing in &self.missing_policies {
            let (offer, policy) = (&missing.offer, &missing.policy);
            out += &field(
                "Warning",
                &format!("offer {offer} names policy {policy}, which does not exist"),
            );
        }
        if !self.other_rules.is_empty() {
            let rules = self.other_rules.join(", ");
            let text =
                format!("{rules}: also apply when the pod is placed; see `tautline plan --pod`");
            out += &field("Other rules", &text);
        }
        for rule in &self.rules {
            out += "\n";
            out += &rule.text(most_nodes, !self.cards.is_empty());
        }
        if self.rules.len() > 1 {
            let usable = match self.usable_nodes.as_slice() {
                [] => "none".to_owned(),
                some => some.join(", "),
            };
            out += "\n";
            out += &field("Usable to all", &usable);
        }
        out
    }

    fn place(&self) -> String {
        match (&self.node, self.usable_nodes.as_slice()) {
            _ if self.finished => "none: the pod has finished, and holds nothing".into(),
            (Some(node), _) => node.clone(),
            (None, []) => "none: the pod waits, and no node can host it now".into(),
            (None, [only]) => format!("none: the pod waits; {only} could host it now"),
            (None, some) => {
                let all = some.len();
                let best = match self.rules.as_slice() {
                    [_] => format!(", {} best", some[0]),
                    _ => String::new(),
                };
                format!("none: the pod waits; {all} nodes could host it now{best}")
            }
        }
    }
}

impl HeldCard {
    fn title(&self) -> String {
        let guess = if self.card_is_guessed { "~" } else { "" };
        format!("{guess}{}", self.card)
    }

    fn sharers(&self) -> String {
        let with = self.shared_with.iter();
        let with = with.map(|s| format!("{} {}", s.pod, format::milli(s.milli)));
        with.collect::<Vec<_>>().join(", ")
    }
}

impl RuleReport {
    fn text(&self, most_nodes: usize, holds: bool) -> String {
        let mut out = field("Rule", &self.title());
        if let Some(error) = &self.error {
            return out + &field("Error", error);
        }
        if let Some(summary) = &self.need {
            out += &field("Need", &need(summary, holds));
        }
        if let Some(state) = &self.state {
            out += &field("State", &format!("{}: {}", state.compliance, state.reason));
        }
        out += &field("Nodes", &self.counts());
        out += &marked(&self.nodes[..self.nodes.len().min(most_nodes)]);
        let hidden = self.nodes.len().saturating_sub(most_nodes);
        if hidden > 0 {
            _ = writeln!(
                out,
                "  ... and {}; -o json shows all",
                format::count(hidden, "more node")
            );
        }
        out
    }

    fn title(&self) -> String {
        let (Some(offer), Some(policy)) = (&self.offer, &self.policy) else {
            return "no rule governs the pod; its own requests count".into();
        };
        let mut text = format!("gpu-slice of policy {policy}, offer {offer}");
        for (name, value) in [("request", &self.request), ("limit", &self.limit)] {
            if !value.is_empty() {
                _ = write!(text, ", {name} {value}");
            }
        }
        text
    }

    /// Returns the counts of nodes, such as "3 of 7 usable, 4 GpuBusy".
    fn counts(&self) -> String {
        let usable = self.nodes.iter().filter(|n| n.usable).count();
        let mut codes: BTreeMap<&str, usize> = BTreeMap::new();
        for code in self
            .nodes
            .iter()
            .filter(|n| !n.usable)
            .filter_map(|n| n.code)
        {
            *codes.entry(code).or_default() += 1;
        }
        let mut text = format!("{usable} of {} usable", self.nodes.len());
        for (code, count) in codes {
            _ = write!(text, ", {count} {code}");
        }
        text
    }
}

/// Describes the GPUs that a pod requests; `holds` is true if it has cards.
fn need(need: &RequestSummary, holds: bool) -> String {
    let mut text = match &need.gpu {
        Some(gpu) => gpu.clone(),
        // The cards were allocated under a rule that no longer governs the pod, or not by
        // Tautline.
        None if holds => "no GPU is requested, but the pod has cards".into(),
        None => "no GPU".into(),
    };
    if !need.models.is_empty() {
        _ = write!(text, " of {}", need.models.join(" or "));
    }
    if need.cpu_milli > 0 {
        _ = write!(text, ", {} CPU", format::cores(need.cpu_milli));
    }
    if need.memory_bytes > 0 {
        _ = write!(text, ", {} memory", format::bytes(need.memory_bytes));
    }
    if let Some(least) = &need.minimum {
        _ = write!(text, "; {least} is enough when the node degrades");
    }
    text
}

/// Writes a line for each node, with a mark before the pod's own node.
fn marked(nodes: &[NodeReport]) -> String {
    let cards = |node: &NodeReport| {
        let is_guess = node.cards_are_guessed && !node.cards.is_empty();
        let guess = if is_guess { "~" } else { "" };
        format!("{guess}{}", node.cards.join(","))
    };
    let cost = |node: &NodeReport| node.policy_cost.map(|c| c.to_string());
    let text = table(
        nodes,
        &[
            ("NODE", &|node| node.node.clone()),
            ("VERDICT", &|node| node.code.unwrap_or("usable").to_owned()),
            ("COST", &|node| cost(node).unwrap_or_default()),
            ("CARD", &cards),
            ("DETAIL", &|node| node.detail.clone()),
        ],
    );
    let marks = nodes.iter().map(|n| if n.own { " >" } else { "  " });
    let mut out = String::new();
    for (line, mark) in text.lines().zip(["  "].into_iter().chain(marks)) {
        _ = writeln!(out, "{mark} {line}");
    }
    out
}

#[cfg(test)]
mod tests;
