//! Builds and renders the offers on the page `/policies`, with their targets, rules and problems;
//! offers with problems come first.

use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use maud::{Markup, html};
use serde::Serialize;
use tautline_api::{
    ConstraintPolicyOffer,
    constraint::{LastEviction, TargetKind},
    display::{Enforcement, age, group, selector},
};
use tautline_core::{
    binding::is_countable,
    index::{Kind, OfferEntry, Snapshot},
    model, providers,
};

use super::rules::{self, MAX_RULES, Provider, Rule};
use crate::{
    Console,
    console::lists,
    draw::{self, clean_text as clean, not_known},
    links,
    request::{PageRequest, PageResult},
    table::Window,
};

#[derive(Serialize)]
pub(super) struct View {
    problems: Vec<String>,
    offers: Window<Row>,
    #[serde(skip)]
    now: Timestamp,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    namespace: String,
    name: String,
    problems: Vec<String>,
    targets: Vec<Target>,
    /// The rule by which pods form groups; absent without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    group: Option<String>,
    rules: Vec<Rule>,
    violation_policy: String,
    period: String,
    grace: String,
    bindings: i64,
    compliant: i64,
    last_eviction: Option<LastEviction>,
}

#[derive(Serialize)]
struct Target {
    name: String,
    kind: String,
    selector: String,
    /// The number of objects that the target selects now, without finished pods; absent for peers,
    /// for pods of other clusters, and if the console does not watch the kind.
    selected: Option<usize>,
}

pub(super) fn view(request: &PageRequest) -> PageResult<View> {
    let console = &request.console;
    let snapshot = console.store.snapshot();
    let all = console.offers.list();
    let shown = all.iter().filter_map(|offer| {
        let (namespace, name) = (offer.namespace().unwrap_or_default(), offer.name_any());
        rules::is_wanted(request, &namespace, &name).then(|| {
            let entry = snapshot.offer(&namespace, &name);
            let problems = problems(console, &snapshot, offer, entry);
            (offer, entry, problems)
        })
    });
    let mut shown: Vec<(&Arc<ConstraintPolicyOffer>, _, Vec<String>)> = shown.collect();
    // The sort is stable: offers with problems come first, and both groups stay sorted by name.
    shown.sort_by_key(|(_, _, problems)| problems.is_empty());
    Ok(View {
        problems: rules::unusable(console, Kind::Offer),
        offers: Window::new(request, &shown, |(offer, entry, problems)| {
            row(console, &snapshot, offer, *entry, problems)
        })?,
        now: Timestamp::now(),
    })
}

fn problems(
    console: &Console,
    snapshot: &Snapshot,
    offer: &ConstraintPolicyOffer,
    entry: Option<&OfferEntry>,
) -> Vec<String> {
    let namespace = offer.namespace().unwrap_or_default();
    let mut all = Vec::new();
    let conditions = offer.status.iter().flat_map(|s| &s.conditions);
    for condition in conditions.filter(|c| c.type_ == "Ready" && c.status != "True") {
        all.push(format!("{}: {}", condition.reason, condition.message));
    }
    let Some(entry) = entry else {
        return all.iter().map(|text| clean(text)).collect();
    };
    let peers = entry.offer.group.as_ref().and_then(|group| group.peers);
    for (i, (target, members)) in entry.offer.targets.iter().zip(&entry.members).enumerate() {
        // A target of another kind may select objects that the console does not watch. Peers are
        // the pods of another target.
        let is_pod = target.kind == model::TargetKind::Pod && peers != Some(i);
        if is_pod && !members.values().any(is_countable) {
            all.push(format!("target {} selects nothing", target.name));
        }
    }
    let mut absent = Vec::new();
    for policy in &entry.offer.policies {
        let Some(policy) = snapshot.policy(&namespace, policy) else {
            absent.push(&**policy);
            continue;
        };
        for rule in &policy.rules {
            let provider = Provider::new(snapshot, &console.trusted, &namespace, &rule.name);
            all.extend(provider.problem.map(|p| format!("rule {}: {p}", rule.name)));
        }
    }
    if !absent.is_empty() {
        let absent = absent.join(", ");
        let text = format!("ConstraintPolicy {absent} does not exist in this namespace");
        // The condition may have the same text already.
        if !all.iter().any(|problem| problem.contains(&text)) {
            all.push(text);
        }
    }
    let mediates = entry.offer.violation_policy == model::ViolationPolicy::Mediate;
    let underlay = providers::choose_underlay(snapshot, &namespace, &console.trusted);
    if mediates && underlay.is_none() {
        let label = providers::UNDERLAY_LABEL;
        all.push(format!(
            "violationPolicy Mediate: no Service has the label {label}"
        ));
    }
    all.dedup();
    all.iter().map(|text| clean(text)).collect()
}

fn row(
    console: &Console,
    snapshot: &Snapshot,
    offer: &ConstraintPolicyOffer,
    entry: Option<&OfferEntry>,
    problems: &[String],
) -> Row {
    let namespace = offer.namespace().unwrap_or_default();
    let status = offer.status.clone().unwrap_or_default();
    let terms = Enforcement::of(offer);
    // The entry has the members of the targets of this cluster, in their order.
    let mut members = entry.map_or(&[][..], |e| e.members.as_slice()).iter();
    let targets = offer.spec.targets.iter().map(|target| {
        let is_local = target.cluster.is_none();
        let selected = is_local.then(|| members.next()).flatten();
        let count = || selected.map_or(0, |all| all.values().filter(|m| is_countable(m)).count());
        let is_watched = is_local
            && target.peers.is_none()
            && matches!(target.kind, TargetKind::Pod | TargetKind::Endpoint);
        Target {
            name: clean(target.name.as_deref().unwrap_or("default")),
            kind: format!("{:?}", target.kind),
            selector: clean(&selector(target)),
            selected: is_watched.then(count),
        }
    });
    let names = offer.spec.policies.iter();
    let policies = names.filter_map(|policy| snapshot.policy(&namespace, policy));
    let all_rules = policies.flat_map(|policy| policy.rules.iter().map(move |rule| (policy, rule)));
    let rules = all_rules.take(MAX_RULES).map(|(policy, rule)| Rule {
        policy: Some(policy.name.to_string()),
        weight: None,
        name: clean(&rule.name),
        request: clean(&rule.request),
        limit: clean(&rule.limit),
        provider: Provider::new(snapshot, &console.trusted, &namespace, &rule.name),
    });
    Row {
        name: offer.name_any(),
        problems: problems.to_vec(),
        targets: targets.collect(),
        group: group(offer).map(|text| clean(&text)),
        rules: rules.collect(),
        violation_policy: terms.violation_policy,
        period: clean(&terms.period),
        grace: clean(&terms.grace),
        bindings: status.binding_count,
        compliant: status.compliant_binding_count,
        last_eviction: status.last_eviction,
        namespace,
    }
}

pub(super) fn render(view: &View, request: &PageRequest) -> Markup {
    let rows = &view.offers.rows;
    html! {
        (draw::problems(&view.problems))
        @if rows.is_empty() && request.console.lacks(&[lists::OFFERS]) {
            (not_known())
        } @else if rows.is_empty() {
            p .note {
                "No offer is here. A ConstraintPolicyOffer names the pods that policies govern: "
                code { "tautline plan -f examples/edge-inference" } " shows some at work."
            }
        }
        div .cards { @for row in rows { (card(row, view.now)) } }
        (view.offers.pager(request, ""))
    }
}

fn card(row: &Row, now: Timestamp) -> Markup {
    let of_offer = [("namespace", &*row.namespace), ("offer", &*row.name)];
    html! {
        section .tile {
            h2 { (row.namespace) "/" wbr; (row.name) }
            (draw::problems(&row.problems))
            p {
                a href=(links::link("/bindings", of_offer)) { (row.bindings) (if row.bindings == 1 { " binding" } else { " bindings" }) }
                ", " (row.compliant) " compliant"
            }
            dl .facts {
                @for target in &row.targets {
                    dt { (target.name) }
                    dd {
                        @if let Some(count) = target.selected { b { (count) } " " }
                        (target.kind) (if target.selected == Some(1) { "" } else { "s" })
                        ": " code { (target.selector) }
                    }
                }
                @if let Some(group) = &row.group { dt { "Group" } dd { (group) } }
                dt { "On violation" } dd { (row.violation_policy) }
                dt { "Evaluated every" } dd { (row.period) }
                dt { "Grace" } dd { (row.grace) }
                @if let Some(eviction) = &row.last_eviction {
                    dt { "Last eviction" }
                    dd {
                        (age::since(eviction.time.0, now)) " ago: pod " (eviction.pod) " from node " (eviction.node)
                        ", for " a href=(links::binding(&row.namespace, &eviction.binding)) { (eviction.binding) }
                    }
                }
            }
            @if !row.rules.is_empty() { (rules::render(&row.namespace, &row.rules, true)) }
        }
    }
}
