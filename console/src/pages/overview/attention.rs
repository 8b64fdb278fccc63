//! The list of what needs attention: violations, waiting pods, providers, cards and agents.

use std::sync::Arc;

use anyhow::{Context, Result};
use k8s_openapi::jiff::Timestamp;
use maud::{Markup, html};
use serde::Serialize;
use tautline_agent_link::SilentAgents;
use tautline_api::{ConstraintPolicyBinding, constraint::Compliance, display::age};
use tautline_core::{Snapshot, model::Pod, node_filter::NodeFilter, pending};
use tautline_gpu_slice::report::format::count;
use tautline_scheduler_extender::explain::Summary;

use super::{Overview, counts::Part, providers};
use crate::{
    draw::{badge, clean, joined, state},
    figures,
    inspections::Inspected,
    links,
    pages::{
        bindings::{Row, row},
        decisions::{Sentences, causes},
    },
};

/// The maximum number of lines of each kind.
const MAX_BINDINGS: usize = 8;
const MAX_PODS: usize = 6;
const MAX_PROVIDERS: usize = 8;
const MAX_NODES: usize = 8;
/// The maximum number of nodes that are named because their agents are silent.
const MAX_SILENT: usize = 5;
const MAX_SENTENCE_CHARS: usize = 400;

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Attention {
    /// The bindings that are not within their limits, the greatest excess first.
    violations: Vec<Row>,
    violations_total: usize,
    /// The pods without a node, those that a rule rejected and the oldest first.
    waiting: Vec<WaitingPod>,
    /// The number of pods without a node and without scheduling gates.
    waiting_total: usize,
    /// The nodes with cards that are lost by a fault.
    lost_cards: Vec<LostCards>,
    lost_cards_total: usize,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct WaitingPod {
    namespace: String,
    pod: String,
    created: Option<Timestamp>,
    why: String,
}

#[derive(Debug, Serialize)]
struct LostCards {
    node: String,
    cards: usize,
}

impl Attention {
    pub async fn new(
        snapshot: &Arc<Snapshot>,
        bindings: &[Arc<ConstraintPolicyBinding>],
        rounds: &[Summary],
        inspected: Option<&Inspected>,
        now: Timestamp,
    ) -> Result<Self> {
        let is_bad =
            |b: &ConstraintPolicyBinding| b.compliance().rank() <= Compliance::Violation.rank();
        let mut bad: Vec<_> = bindings.iter().filter(|b| is_bad(b)).collect();
        let violations_total = bad.len();
        bad.sort_by_cached_key(|b| figures::worst_first(b));
        let pods = snapshot
            .pods()
            .filter(|p| p.waits_for_node() && !is_gated(p));
        let mut pods: Vec<Arc<Pod>> = pods.cloned().collect();
        let waiting_total = pods.len();
        pods.sort_by_key(|p| (causes(p).0.is_empty(), p.created_unix));
        pods.truncate(MAX_PODS);
        let sentences = Sentences::new(rounds);
        let snapshot = Arc::clone(snapshot);
        let waiting = tokio::task::spawn_blocking(move || {
            let waiting = |pod: &Arc<Pod>| WaitingPod::new(pod, &sentences, &snapshot);
            pods.iter().map(waiting).collect()
        });
        let lost: Vec<LostCards> = inspected.map(lost_cards).unwrap_or_default();
        Ok(Self {
            violations: bad
                .into_iter()
                .take(MAX_BINDINGS)
                .map(|b| row(b, now))
                .collect(),
            violations_total,
            waiting: waiting
                .await
                .context("Kubernetes' rules could not be checked")?,
            waiting_total,
            lost_cards_total: lost.iter().map(|lost| lost.cards).sum(),
            lost_cards: lost.into_iter().take(MAX_NODES).collect(),
        })
    }
}

fn is_gated(pod: &Pod) -> bool {
    matches!(causes(pod), ([], true))
}

fn lost_cards(inspected: &Inspected) -> Vec<LostCards> {
    let nodes = inspected.inspection.nodes();
    let nodes = nodes.iter().zip(&inspected.figures);
    let lost = nodes.filter(|(_, figures)| figures.faults > 0);
    let lost = lost.map(|(node, figures)| LostCards {
        node: node.name.to_string(),
        cards: figures.faults,
    });
    lost.collect()
}

impl WaitingPod {
    fn new(pod: &Pod, sentences: &Sentences, snapshot: &Snapshot) -> Self {
        let by_kubernetes = || {
            let filter = NodeFilter::new(snapshot, pod);
            let reasons = snapshot
                .nodes()
                .map(|node| Some(filter.reason(node)?.to_string()));
            let reasons: Vec<String> = reasons.collect::<Option<_>>()?;
            pending::by_kubernetes(reasons.len(), reasons.iter().map(String::as_str))
        };
        let by_name = || match causes(pod).0 {
            [] => "kube-scheduler has not tried it, or has a reason that is not checked here."
                .to_owned(),
            rules => format!(
                "Refused by {}; its last round is not known.",
                rules.join(", ")
            ),
        };
        let why = sentences.of(pod).or_else(by_kubernetes);
        Self {
            namespace: pod.namespace.to_string(),
            pod: pod.name.to_string(),
            created: (pod.created_unix > 0)
                .then(|| Timestamp::from_second(pod.created_unix).ok())
                .flatten(),
            why: clean(&why.unwrap_or_else(by_name), MAX_SENTENCE_CHARS),
        }
    }
}

/// Renders the list, or a line that says that nothing needs attention.
pub(super) fn render(view: &Overview, now: Timestamp) -> Markup {
    let attention = &view.attention;
    let faulty = match &view.extender {
        Part::Known(extender) => extender.providers.iter().filter(|p| p.is_faulty()).count(),
        Part::Failed { .. } => 0,
    };
    let silent = view.silent_agents();
    let silent_gpu = view.silent_gpu_agents.iter().find(|list| list.total > 0);
    let is_calm = attention.violations_total + attention.waiting_total + attention.lost_cards_total
        == 0
        && faulty == 0
        && silent == 0
        && silent_gpu.is_none();
    html! {
        h2 #attention { "Needs attention" }
        @if is_calm && view.missing.is_empty() {
            p { (state("good", "nothing")) " No binding is in violation, no pod waits, all cards are healthy." }
        }
        ol .attention {
            @for violation in &attention.violations { (violation_line(violation)) }
            (more(attention.violations_total, attention.violations.len(), "bindings", "/bindings"))
            @if let Part::Known(extender) = &view.extender {
                @for provider in extender.providers.iter().filter(|p| p.is_faulty()).take(MAX_PROVIDERS) {
                    li { (providers::badge(provider)) span { a href="#providers" { "Provider of " (clean(&provider.rule, 60)) } } }
                }
            }
            @for pod in &attention.waiting { (waiting_line(pod, now)) }
            (more(attention.waiting_total, attention.waiting.len(), "pods without a node", "/decisions?view=waiting"))
            @for lost in &attention.lost_cards {
                li {
                    (state("bad", "lost cards"))
                    span { a href=(links::gpus(&lost.node)) { (clean(&lost.node, 130)) } ": " (lost.cards) " unhealthy" }
                }
            }
            @if silent > 0 {
                li {
                    (state("near", "silent agents"))
                    span {
                        a href="/latency" { (silent) " of " (view.nodes) " nodes" } " have no latency agent, so their delays are predicted or unknown"
                        @if let Some(list) = &view.silent_latency_agents { (silent_nodes(list, links::latency, now)) }
                    }
                }
            }
            @if let Some(list) = silent_gpu {
                li {
                    (state("near", "silent agents"))
                    span {
                        a href="/gpu#nodes" { "GPU agents of " (count(list.total, "node")) } " do not report, so the use of their cards is unknown"
                        (silent_nodes(list, links::gpus, now))
                    }
                }
            }
        }
    }
}

/// Renders the first nodes with the time for which their agents are silent, where it is known.
fn silent_nodes(list: &SilentAgents, link: fn(&str) -> String, now: Timestamp) -> Markup {
    let shown = &list.nodes[..list.nodes.len().min(MAX_SILENT)];
    let silence = |seconds: u64| {
        let then = now.as_second().saturating_sub_unsigned(seconds);
        age::since(Timestamp::from_second(then).unwrap_or_default(), now)
    };
    html! {
        ": " (joined(shown.iter().map(|agent| html! {
            a href=(link(&agent.node)) { (clean(&agent.node, 130)) }
            @match agent.silent_seconds {
                Some(seconds) => { " for " (silence(seconds)) }
                None => { " (last report not known)" }
            }
        })))
        @if list.total > shown.len() { " and " (list.total - shown.len()) " more" }
    }
}

fn more(total: usize, shown: usize, what: &str, link: &str) -> Markup {
    html! {
        @if total > shown { li { span {} a href=(link) { (total - shown) " more " (what) } } }
    }
}

fn violation_line(violation: &Row) -> Markup {
    html! {
        li {
            (badge(violation.compliance.name()))
            span {
                a href=(links::binding(&violation.namespace, &violation.name)) { (violation.namespace) "/" wbr; (violation.name) }
                " " (violation.reason) " "
                @if let Some(measured) = &violation.measured { (measured.bar()) }
            }
        }
    }
}

fn waiting_line(pod: &WaitingPod, now: Timestamp) -> Markup {
    html! {
        li {
            (state("near", "waits"))
            span {
                a href=(links::pod(&pod.namespace, &pod.pod)) {
                    (clean(&pod.namespace, 130)) "/" wbr; (clean(&pod.pod, 130))
                }
                @if let Some(created) = pod.created {
                    ", for " time datetime=(age::second(created)) title=(age::second(created)) { (age::since(created, now)) }
                }
                ": " (pod.why)
            }
        }
    }
}
