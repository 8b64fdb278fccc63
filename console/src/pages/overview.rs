//! `/` shows the state of the whole cluster, each part with a link to its page.

mod attention;
mod counts;
mod feed;
mod providers;

use anyhow::Result;
use k8s_openapi::jiff::Timestamp;
use maud::{Markup, html};
use serde::Serialize;
use tautline_agent_link::SilentAgents;
use tautline_gpu_slice::report::CardSums;

use self::{
    attention::Attention,
    counts::{Agents, Bindings, Gpu, Part, Waiting},
    feed::Feed,
    providers::Extender,
};
use crate::{
    Console, admin,
    console::lists,
    draw::{self, cards_of},
    history::{GIVEN_CARDS, History, VIOLATIONS, WAITING_PODS},
    links,
    request::{PageRequest, PageResult},
    source::Component,
    sparkline::sparkline,
};

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Overview {
    attention: Attention,
    nodes: usize,
    pods: usize,
    offers: usize,
    policies: usize,
    bindings: Bindings,
    waiting: Waiting,
    extender: Part<Extender>,
    gpu: Part<Gpu>,
    agents: Part<Agents>,
    /// The silent agents of GPUs and of latency; absent where no provider has the list.
    silent_gpu_agents: Option<SilentAgents>,
    silent_latency_agents: Option<SilentAgents>,
    feed: Feed,
    history: History,
    /// The names of the lists that are not complete.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    missing: Vec<String>,
    #[serde(skip)]
    of_manifests: bool,
}

impl Overview {
    fn lacks(&self, lists: &[&str]) -> bool {
        self.missing.iter().any(|list| lists.contains(&&**list))
    }

    /// Returns the number of nodes without a latency agent, if agents run at all.
    fn silent_agents(&self) -> usize {
        match &self.agents {
            Part::Known(Agents {
                agents: Some(agents @ 1..),
                nodes,
            }) => nodes.saturating_sub(usize::try_from(*agents).unwrap_or(*nodes)),
            _ => 0,
        }
    }
}

pub(super) async fn page(request: &PageRequest) -> PageResult {
    let now = Timestamp::now();
    let view = overview(&request.console, now).await?;
    request.respond("Overview", "doctor", &view, |view| render(view, now))
}

async fn overview(console: &Console, now: Timestamp) -> Result<Overview> {
    let source = &*console.source;
    let (statuses, summaries, decisions, agents, inspected, silent, history) = tokio::join!(
        admin::statuses(source),
        admin::summaries(source),
        admin::decisions(source),
        counts::agents(source),
        console.inspections.get(console),
        silent_agents(console),
        history(console),
    );
    // This is read before the objects, whose lists may become complete in between.
    let missing = console.readiness.missing();
    let snapshot = console.store.snapshot();
    let bindings = console.bindings.list();
    let rounds = summaries.as_deref().unwrap_or_default();
    let inspected_now = inspected.as_deref().ok();
    Ok(Overview {
        attention: Attention::new(&snapshot, &bindings, rounds, inspected_now, now).await?,
        nodes: snapshot.node_count(),
        pods: snapshot.pod_count(),
        offers: console.offers.list().len(),
        policies: console.policies.list().len(),
        bindings: Bindings::new(&bindings),
        waiting: Waiting::new(&snapshot),
        extender: Part::new(statuses.map(|all| Extender::new(&all))),
        gpu: Part::new(inspected.map(|i| Gpu::new(&i.totals))),
        agents: Part::new(agents.map(|agents| Agents {
            agents,
            nodes: snapshot.node_count(),
        })),
        silent_gpu_agents: silent.0,
        silent_latency_agents: silent.1,
        feed: Feed::new(summaries, decisions, &bindings, now),
        history,
        missing,
        of_manifests: console.of_manifests,
    })
}

/// Returns the silent agents of GPUs and of latency; manifests have no agents.
async fn silent_agents(console: &Console) -> (Option<SilentAgents>, Option<SilentAgents>) {
    if console.of_manifests {
        return (None, None);
    }
    let source = &*console.source;
    tokio::join!(
        admin::silent_agents(source, Component::Gpu, "/gpu/silent"),
        admin::silent_agents(source, Component::Latency, "/latency/silent"),
    )
}

/// Returns the last hours of the figures; manifests have none.
async fn history(console: &Console) -> History {
    if console.of_manifests {
        return History::default();
    }
    console.history.get(&*console.source).await
}

fn render(view: &Overview, now: Timestamp) -> Markup {
    html! {
        @if view.offers == 0 && !view.lacks(&[lists::OFFERS]) { (no_offer(view.of_manifests)) }
        (attention::render(view, now))
        (feed::render(&view.feed, now))
        h2 { "Cluster" }
        (tiles(view, now))
        (providers::render(&view.extender, now))
    }
}

fn no_offer(of_manifests: bool) -> Markup {
    if of_manifests {
        return html! {
            p .note {
                "The manifests have no ConstraintPolicyOffer, so no pod is governed. One selects pods and names policies: "
                code { "examples/edge-inference" } " has some."
            }
        };
    }
    html! {
        p .note {
            "No offer exists yet, so Tautline affects no pod. An offer selects pods and names policies: "
            code { "kubectl apply -f examples/near-server" } " makes the first one; docs/tutorial.md explains it."
        }
    }
}

/// Renders the tiles, one for each part of the cluster.
fn tiles(view: &Overview, now: Timestamp) -> Markup {
    html! {
        div .tiles {
            @if view.lacks(&[lists::BINDINGS]) { (unknown("Bindings", "/bindings")) }
            @else { (compliance(&view.bindings, &view.history)) }
            @if view.lacks(&[lists::PODS]) { (unknown("Pods without a node", "/decisions?view=waiting")) }
            @else { (waiting(&view.waiting, &view.history)) }
            (scheduler(&view.extender, view.of_manifests, now))
            @if view.lacks(&[lists::NODES, lists::PODS]) { (unknown("GPU", "/gpu")) }
            @else { (gpu(&view.gpu, &view.history)) }
            (agents(&view.agents))
            (counts(view))
        }
    }
}

fn failed(error: &str) -> Markup {
    html! { p .error { (error) } }
}

fn tile(title: &str, link: &str, content: &Markup) -> Markup {
    html! {
        section .tile {
            h2 { a href=(link) { (title) } }
            (content)
        }
    }
}

fn unknown(title: &str, link: &str) -> Markup {
    tile(title, link, &html! { p .figure { "unknown" } })
}

fn compliance(all: &Bindings, history: &History) -> Markup {
    let existing = all.states.iter().filter(|count| !count.is_none());
    let content = html! {
        p .figure { (all.total) }
        @if all.total == 0 {
            p .dim { "The controller makes a binding for each pod with a node that an offer selects." }
        } @else {
            (draw::counts(existing, None, |name| links::link("/bindings", [("compliance", name)])))
        }
        (sparkline("Violations", history.get(VIOLATIONS)))
    };
    tile("Bindings", "/bindings", &content)
}

fn waiting(waiting: &Waiting, history: &History) -> Markup {
    let link = |reason: &str| {
        let fields = [("view", "waiting"), ("reason", reason)];
        links::link("/decisions", fields)
    };
    let rest = [
        ("gated", "with scheduling gates", waiting.gated),
        ("other", "other reasons, or not tried yet", waiting.other),
    ];
    let content = html! {
        p .figure { (waiting.total) }
        @if waiting.total == 0 {
            p .dim { "Every pod has a node." }
        } @else {
            ul .counts .lines {
                @for r in waiting.rules.iter().take(8) {
                    li { a href=(link(&r.rule)) { "rule " (draw::clean(&r.rule, 60)) } " " b { (r.pods) } }
                }
                @for (reason, text, pods) in rest {
                    @if pods > 0 {
                        li { a href=(link(reason)) { (text) } " " b { (pods) } }
                    }
                }
            }
        }
        (sparkline("Waiting pods", history.get(WAITING_PODS)))
    };
    tile("Pods without a node", "/decisions?view=waiting", &content)
}

fn scheduler(extender: &Part<Extender>, of_manifests: bool, now: Timestamp) -> Markup {
    let content = match extender {
        Part::Failed { error } => failed(error),
        Part::Known(extender) => {
            let last = extender.last_request.as_ref();
            let at = |seconds| Timestamp::from_second(seconds).unwrap_or_default();
            html! {
                @match last {
                    Some(last) => p .figure { (draw::ago(at(last.at_unix_seconds), now)) },
                    None => p .figure { "never" },
                }
                @match last {
                    Some(last) => p .dim { "the last call, of the verb " (last.verb) },
                    None if of_manifests => p .dim { "No pod of the manifests waits for a node." },
                    None => p .dim {
                        "No replica has been called since it started: pods may not be governed, or kube-scheduler \
                         is not configured with the extender. " code { "tautline doctor" } " says which."
                    },
                }
                p .dim {
                    (extender.replicas) " replica" (if extender.replicas == 1 { "" } else { "s" })
                    " of the extender; answer " (extender.answers.join(", "))
                }
            }
        }
    };
    tile("kube-scheduler", "/decisions", &content)
}

fn gpu(gpu: &Part<Gpu>, history: &History) -> Markup {
    let content = match gpu {
        Part::Failed { error } => failed(error),
        Part::Known(gpu) if gpu.sums.cards == 0 && gpu.counted_units == 0 => html! {
            p .figure { "none" }
            p .dim { "No node reports GPUs. Cards show once an agent or a device plugin runs: docs/howto/gpu-sharing.md." }
        },
        Part::Known(gpu) => html! {
            @if gpu.sums.cards > 0 {
                (cards(&gpu.sums))
                (sparkline("Given to pods", history.get(GIVEN_CARDS)))
            }
            @if gpu.counted_units > 0 {
                p .dim {
                    (gpu.counted_used_units) " of " (gpu.counted_units)
                    " GPUs used of which only the number is known"
                }
            }
        },
    };
    tile("GPU", "/gpu", &content)
}

fn cards(gpu: &CardSums) -> Markup {
    let useless = gpu.fragmented_milli.unwrap_or(0);
    let useless = useless.clamp(0, gpu.free_milli.max(0));
    let idle = gpu.free_milli - useless;
    let amounts = [
        ("u-used", "given to pods", gpu.held_milli),
        ("u-idle", "idle", idle),
        (
            "u-useless",
            "useless: idle, but not usable by the next expected request",
            useless,
        ),
    ];
    let parts = amounts.map(|(class, label, milli)| (class, label, milli.max(0).unsigned_abs()));
    html! {
        p .figure { (cards_of(gpu.held_milli)) " of " (gpu.cards) " cards" }
        (draw::share("Thousandths of cards", parts.into_iter()))
        ul .counts .lines {
            @for (class, label, milli) in amounts {
                li { (draw::key(class)) " " (label) " " b { (cards_of(milli)) } }
            }
        }
        @if gpu.fragmented_milli.is_none() {
            p .dim { "Useless parts are not known before a pod has requested a card." }
        }
        @if gpu.unhealthy_cards > 0 {
            p { span .state.bad { (gpu.unhealthy_cards) " unhealthy" } }
        }
    }
}

fn agents(agents: &Part<Agents>) -> Markup {
    let content = match agents {
        Part::Failed { error } => html! {
            p .figure { "unknown" }
            p .dim { "The latency provider did not answer, or is not installed (docs/latency.md):" }
            (failed(error))
        },
        Part::Known(Agents { agents: None, .. }) => html! {
            p .figure { "none" }
            p .dim { "Manifests have no agents: delays come from their tables." }
        },
        Part::Known(Agents {
            agents: Some(agents),
            nodes,
        }) => {
            let without = (*nodes as u64).saturating_sub(*agents);
            html! {
                p .figure { (agents) " of " (nodes) " nodes" }
                (draw::share("Nodes", [("u-used", "with an agent", *agents), ("u-idle", "without", without)].into_iter()))
                p .dim {
                    @if without == 0 { "Every node has an agent." }
                    @else { (without) " without: their delays are predicted, or unknown." }
                }
            }
        }
    };
    tile("Latency agents", "/latency", &content)
}

fn counts(view: &Overview) -> Markup {
    let count = |list, count: usize| {
        if view.lacks(&[list]) {
            "unknown".to_owned()
        } else {
            count.to_string()
        }
    };
    let content = html! {
        p .figure { (count(lists::NODES, view.nodes)) " nodes" }
        ul .counts .lines {
            li { "pods " b { (count(lists::PODS, view.pods)) } }
            li { a href="/policies" { "offers" } " " b { (count(lists::OFFERS, view.offers)) } }
            li { a href="/policies?list=policies" { "policies" } " " b { (count(lists::POLICIES, view.policies)) } }
        }
    };
    tile("Objects", "/policies", &content)
}

#[cfg(test)]
mod tests;
