//! `tautline gpu explain`

mod nodes;
mod text;

use std::{collections::BTreeMap, process::ExitCode, sync::Arc};

use anyhow::{Result, bail};
use k8s_openapi::api::core::v1::Pod as ApiPod;
use serde::Serialize;
use tautline_api::convert;
use tautline_core::{
    Snapshot,
    model::{Pod, key},
};
use tautline_gpu::policy::Name as Policy;
use tautline_gpu_slice::{
    Config, View,
    view::{Question, Wanted},
};
use tautline_sdk::{EvaluateQuestion, Reference};

use self::nodes::NodeAnswer;
use super::{
    source::{Source, SourceArgs},
    words,
};
use crate::{
    NO,
    output::{self, Output},
    scope::{self, NamespaceArgs},
};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The pod, as NAMESPACE/NAME, or NAME with -n
    #[arg(value_parser = pod_name)]
    pod: PodName,
    #[command(flatten)]
    namespace: NamespaceArgs,
    /// How nodes and cards are compared: tautline, fgd, best-fit, packing or spread
    #[arg(long, default_value_t, value_name = "NAME")]
    policy: Policy,
    /// The most nodes to show
    #[arg(long, default_value_t = 20)]
    nodes: usize,
    #[command(flatten)]
    source: SourceArgs,
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
}

#[derive(Clone, Debug)]
struct PodName {
    namespace: Option<String>,
    name: String,
}

fn pod_name(text: &str) -> Result<PodName, String> {
    let (namespace, name) = match text.split_once('/') {
        Some((namespace, name)) => (Some(scope::name(namespace)?), name),
        None => (None, text),
    };
    let name = scope::name(name)?;
    Ok(PodName { namespace, name })
}

/// Everything that is shown.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Explained {
    namespace: String,
    pod: String,
    /// Absent: it waits, or has finished.
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<String>,
    finished: bool,
    policy: &'static str,
    cards: Vec<HeldCard>,
    /// Offer and policy, where the offer names a policy that is not there.
    missing_policies: Vec<MissingPolicy>,
    /// Other rules of its offers, which are not looked at here.
    other_rules: Vec<String>,
    rules: Vec<RuleAnswer>,
    /// Nodes that all rules, and Kubernetes itself, allow.
    usable_nodes: Vec<String>,
}

/// A card of which the pod has a part.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct HeldCard {
    card: String,
    product: String,
    healthy: bool,
    milli: i64,
    /// Not written on the pod: the device plugin chose the card.
    card_is_guessed: bool,
    free_milli: i64,
    shared_with: Vec<Sharer>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Sharer {
    pod: String,
    milli: i64,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct MissingPolicy {
    offer: String,
    policy: String,
}

/// What one rule asks, and what becomes of it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct RuleAnswer {
    /// Absent: no rule governs the pod, and its own requests count.
    #[serde(skip_serializing_if = "Option::is_none")]
    offer: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    policy: Option<String>,
    request: String,
    limit: String,
    /// Why the rule cannot be read; there is nothing else then.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    need: Option<Need>,
    /// Of a pod that is placed.
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<State>,
    nodes: Vec<NodeAnswer>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Need {
    /// Absent: it asks for no GPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    gpu: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    least: Option<String>,
    models: Vec<String>,
    by_rule: bool,
    cpu_milli: i64,
    memory_bytes: i64,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct State {
    compliance: String,
    reason: String,
}

pub(crate) async fn run(args: Args) -> Result<ExitCode> {
    let name = &args.pod.name;
    let named = (args.pod.namespace.as_deref(), args.namespace.named());
    if let (Some(a), Some(b)) = named
        && a != b
    {
        bail!("the pod is {a}/{name}, and -n says {b}; leave one of them out");
    }
    let source = args.source.read(Some(name)).await?;
    let namespace = named.0.or(named.1).unwrap_or(&source.namespace).to_owned();
    let Some(pod) = find(&source, &namespace) else {
        eprintln!("error: {}", absent(&source, &namespace, name));
        return Ok(ExitCode::from(NO));
    };
    let explained = Explained::of(source.snapshot, &pod, args.policy)?;
    output::print(args.output, &explained, |e| e.text(args.nodes))?;
    let placed = explained.node.is_some() || explained.finished;
    Ok(if placed || !explained.usable_nodes.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(NO)
    })
}

/// The pod as it would be without a node: what restricts its placement is kept of
/// those alone.
fn find(source: &Source, namespace: &str) -> Option<Pod> {
    let of = |p: &&ApiPod| p.metadata.namespace.as_deref().unwrap_or("default") == namespace;
    let mut pod = source.named.iter().find(of)?.clone();
    if let Some(spec) = &mut pod.spec {
        spec.node_name = None;
    }
    Some(convert::pod(&pod))
}

fn absent(source: &Source, namespace: &str, name: &str) -> String {
    let others = source.named.iter().map(|p| {
        let of = p.metadata.namespace.as_deref().unwrap_or("default");
        key(of, name)
    });
    let others: Vec<String> = others.collect();
    match others.as_slice() {
        [] => format!("there is no pod {namespace}/{name}, nor one of that name in any namespace"),
        some => format!(
            "there is no pod {namespace}/{name}; there is {}",
            some.join(", ")
        ),
    }
}

impl Explained {
    fn of(snapshot: Arc<Snapshot>, pod: &Pod, policy: Policy) -> Result<Self> {
        let config = Config {
            policy,
            ..Config::default()
        };
        let mut view = View::new(Arc::clone(&snapshot), config);
        let known = snapshot.pod(&pod.namespace, &pod.name);
        let finished = known.is_some_and(|p| p.finished);
        let node = known
            .filter(|p| !p.finished)
            .and_then(|p| p.node.as_deref());
        let questions = view.questions(pod);
        let mut rules = Vec::new();
        for question in &questions.rules {
            rules.push(RuleAnswer::of(&mut view, question, pod, node)?);
        }
        let missing = questions
            .missing_policies
            .iter()
            .map(|(offer, policy)| MissingPolicy {
                offer: offer.to_string(),
                policy: policy.to_string(),
            });
        Ok(Self {
            namespace: pod.namespace.to_string(),
            pod: pod.name.to_string(),
            node: node.map(str::to_owned),
            finished,
            policy: policy.as_str(),
            cards: held(&view, pod, node),
            missing_policies: missing.collect(),
            other_rules: questions
                .other_rules
                .iter()
                .map(|r| r.to_string())
                .collect(),
            usable_nodes: nodes::usable_in_all(&rules),
            rules,
        })
    }
}

impl RuleAnswer {
    fn of(view: &mut View, question: &Question, pod: &Pod, node: Option<&str>) -> Result<Self> {
        let rule = &question.ask.rule;
        let by = question.by.as_ref();
        let mut answer = Self {
            offer: by.map(|(offer, _)| offer.name.to_string()),
            policy: by.map(|(_, policy)| policy.to_string()),
            request: rule.request.clone(),
            limit: rule.limit.clone(),
            error: None,
            need: None,
            state: None,
            nodes: Vec::new(),
        };
        let wanted = match view.wanted(&question.ask) {
            Ok(wanted) => wanted,
            Err(error) => {
                answer.error = Some(error.to_string());
                return Ok(answer);
            }
        };
        answer.need = Some(Need::of(wanted));
        let verdicts = view.costs(&question.ask)?;
        answer.nodes = nodes::answers(view, verdicts, pod, node);
        if node.is_some() {
            let target = Reference::pod(&pod.namespace, &pod.name);
            let evaluation = view.evaluate(&EvaluateQuestion {
                targets: BTreeMap::from([("pod".to_owned(), target)]),
                rule: rule.clone(),
            })?;
            answer.state = Some(State {
                compliance: evaluation.compliance.to_string(),
                reason: evaluation.reason,
            });
        }
        Ok(answer)
    }
}

impl Need {
    fn of(wanted: Wanted) -> Self {
        Self {
            gpu: wanted.gpu,
            least: wanted.least,
            models: wanted.models.iter().map(|m| m.to_string()).collect(),
            by_rule: wanted.by_rule,
            cpu_milli: wanted.cpu_milli,
            memory_bytes: wanted.memory_bytes,
        }
    }
}

/// The cards of which the pod has a part, and who has the rest.
fn held(view: &View, pod: &Pod, node: Option<&str>) -> Vec<HeldCard> {
    let name = key(&pod.namespace, &pod.name);
    let mut cards = Vec::new();
    let nodes = view.nodes();
    let pools = nodes.iter().filter(|n| Some(&**n.name) == node);
    for pool in pools.flat_map(|n| &n.inventory.pools) {
        for card in &pool.cards {
            let mut own = card.holders.iter().filter(|h| *h.pod == *name).peekable();
            let Some(first) = own.peek() else { continue };
            let others = card.holders.iter().filter(|h| *h.pod != *name);
            cards.push(HeldCard {
                card: card.name.to_string(),
                product: words::product(&pool.kind.product).to_owned(),
                healthy: card.healthy,
                card_is_guessed: !first.recorded,
                milli: own.map(|h| i64::from(h.milli)).sum(),
                free_milli: i64::from(card.left_milli()),
                shared_with: others
                    .map(|h| Sharer {
                        pod: h.pod.to_string(),
                        milli: i64::from(h.milli),
                    })
                    .collect(),
            });
        }
    }
    cards
}

#[cfg(test)]
mod tests;
