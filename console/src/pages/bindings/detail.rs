//! `/bindings/NAMESPACE/NAME` shows one binding.

use k8s_openapi::jiff::Timestamp;
use maud::{Markup, html};
use serde::Serialize;
use tautline_api::{
    constraint::{Compliance, Reference},
    display::{Enforcement, EventSummary, RuleRow, age, eviction_wait, reference, rule_rows},
};
use tautline_core::index::Snapshot;

use super::timeline::{Moment, Sources, timeline};
use crate::{
    Console,
    admin::decisions,
    console::quote,
    draw::{badge, clean_text as clean, or_problem},
    figures::Measured,
    links,
    request::{PageError, PageRequest, PageResult},
    table::{column, name, number, table, text},
};

/// The rules about a pair of nodes. The page of the pair has the details.
const PAIR_RULES: [&str; 3] = ["latency", "jitter", "bandwidth"];

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct View {
    namespace: String,
    name: String,
    offer: String,
    offer_exists: bool,
    compliance: Compliance,
    reason: String,
    since: Option<Timestamp>,
    violation_policy: Option<String>,
    period: Option<String>,
    grace: Option<String>,
    next_eviction: Option<String>,
    targets: Vec<Target>,
    rules: Vec<Rule>,
    timeline: Vec<Moment>,
    /// The errors of the parts that could not be read.
    problems: Vec<String>,
    #[serde(skip)]
    now: Timestamp,
}

#[derive(Serialize)]
struct Target {
    role: String,
    object: String,
    /// The link to the page of a pod.
    #[serde(skip)]
    link: Option<String>,
    node: Option<String>,
    /// `HOST:PORT` of an endpoint outside the cluster, if the object has no other endpoint.
    #[serde(skip_serializing_if = "Option::is_none")]
    address: Option<String>,
    exists: bool,
}

#[derive(Serialize)]
struct Rule {
    policy: String,
    rule: String,
    compliance: Compliance,
    reason: String,
    provider: String,
    request: String,
    limit: String,
    /// The link to the page of the pair of nodes that the rule is about.
    #[serde(skip)]
    pair: Option<String>,
}

pub(in super::super) async fn page(
    request: &PageRequest,
    namespace: &str,
    name: &str,
) -> PageResult {
    let view = view(&request.console, namespace, name).await?;
    let title = format!("Binding {name}");
    let command = format!("describe binding {} -n {}", quote(name), quote(namespace));
    request.respond(&title, &command, &view, render)
}

async fn view(console: &Console, namespace: &str, name: &str) -> PageResult<View> {
    let binding = console.bindings.find(namespace, name);
    let binding = binding.ok_or_else(|| absent(console, namespace, name))?;
    let source = &*console.source;
    let (events, decisions) = tokio::join!(source.events(namespace, name), decisions(source),);
    let mut problems = Vec::new();
    let events = or_problem(events, "Events cannot be read: ", &mut problems);
    let unread = "The controller's decisions cannot be read: ";
    let mut decisions = or_problem(decisions, unread, &mut problems);
    let key = format!("{namespace}/{name}");
    decisions.retain(|decision| decision.binding == key);
    let events: Vec<EventSummary> = events.into_iter().map(EventSummary::from).collect();
    let offer = console.offers.find(namespace, &binding.spec.offer);
    let now = Timestamp::now();
    let sources = Sources {
        binding: &binding,
        offer: offer.as_deref(),
        events: &events,
        decisions: &decisions,
    };
    let timeline = timeline(&sources, now);
    let status = binding.status.clone().unwrap_or_default();
    let snapshot = console.store.snapshot();
    let targets = binding.spec.targets.iter();
    let targets: Vec<Target> = targets
        .map(|(role, object)| target(&snapshot, namespace, role, object))
        .collect();
    let policies = console.policies.list();
    let mut here: Vec<_> = policies.iter().map(|p| &**p).collect();
    here.retain(|p| p.metadata.namespace.as_deref() == Some(namespace));
    let pair = pair(&targets);
    let rules = rule_rows(&status.details, offer.as_deref(), &here).into_iter();
    let is_of_pair = |row: &RuleRow| PAIR_RULES.contains(&&*row.rule);
    let rules = rules.map(|row| Rule {
        pair: pair.clone().filter(|_| is_of_pair(&row)),
        policy: clean(&row.policy),
        rule: clean(&row.rule),
        compliance: row.compliance,
        reason: clean(&row.reason),
        provider: clean(&row.provider),
        request: clean(&row.request),
        limit: clean(&row.limit),
    });
    let terms = offer.as_deref().map(Enforcement::of);
    let changed = status.last_compliance_change_timestamp.as_ref();
    Ok(View {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        offer: binding.spec.offer.clone(),
        offer_exists: offer.is_some(),
        compliance: binding.compliance(),
        reason: clean(&status.first_reason),
        since: changed.map(|time| time.0),
        violation_policy: terms.as_ref().map(|t| t.violation_policy.clone()),
        period: terms.as_ref().map(|t| clean(&t.period)),
        grace: terms.as_ref().map(|t| clean(&t.grace)),
        next_eviction: offer.and_then(|offer| eviction_wait(&binding, &offer, now)),
        targets,
        rules: rules.collect(),
        timeline,
        problems,
        now,
    })
}

fn absent(console: &Console, namespace: &str, name: &str) -> PageError {
    let known = console.bindings.list().len();
    PageError::absent(format!(
        "there is no binding {namespace}/{name}, of {known} known: it is deleted with the objects \
         that it is about, and with its offer"
    ))
}

fn target(snapshot: &Snapshot, own: &str, role: &str, object: &Reference) -> Target {
    let is_pod = object.is_local_pod();
    let namespace = match object.namespace.as_str() {
        "" => own,
        namespace => namespace,
    };
    let pod = is_pod
        .then(|| snapshot.pod(namespace, &object.name))
        .flatten();
    let is_endpoint = object.kind == "Endpoints" && object.cluster.is_empty();
    let places = is_endpoint.then(|| snapshot.endpoint_places(namespace, &object.name));
    let place = match places.as_deref() {
        Some([place]) => Some(place.to_string()),
        _ => None,
    };
    let (of_endpoint, address) = match place {
        Some(place) if snapshot.node(&place).is_some() => (Some(place), None),
        // A Service without endpoints has its name for a place.
        place => (None, place.filter(|place| place.contains(':'))),
    };
    let of_pod = pod.and_then(|p| p.node.as_deref()).map(str::to_owned);
    Target {
        role: clean(role),
        object: clean(&reference(object, own)),
        link: pod.map(|_| links::pod(namespace, &object.name)),
        node: of_pod.or(of_endpoint),
        address,
        exists: !is_pod || pod.is_some(),
    }
}

/// Returns the link to the page of the two nodes that the targets are on, or of a node and an address
/// outside the cluster; `None` unless exactly two targets have one, and these differ.
fn pair(targets: &[Target]) -> Option<String> {
    let targets = targets.iter();
    let nodes: Vec<&str> = targets
        .filter_map(|t| t.node.as_deref().or(t.address.as_deref()))
        .collect();
    match nodes[..] {
        [a, b] if a != b => Some(links::pair(a, b)),
        _ => None,
    }
}

fn render(view: &View) -> Markup {
    let offer = links::offer(&view.namespace, &view.offer);
    html! {
        p .verdict {
            (badge(view.compliance.name())) " "
            @if let Some(since) = view.since {
                span .dim { "for " (age::since(since, view.now)) ", since " time datetime=(age::second(since)) { (age::second(since)) } }
            }
        }
        @if !view.reason.is_empty() { p .lead { (view.reason) } }
        dl .facts {
            dt { "Offer" }
            dd {
                @if view.offer_exists { a href=(offer) { (view.namespace) "/" (view.offer) } }
                @else { (view.offer) ", which was deleted" }
            }
            @if let Some(policy) = &view.violation_policy {
                dt { "On violation" } dd { (on_violation(policy)) }
            }
            @if let Some(period) = &view.period { dt { "Evaluated every" } dd { (period) } }
            @if let Some(grace) = &view.grace { dt { "Grace" } dd { (grace) } }
            @if let Some(wait) = &view.next_eviction { dt { "Next eviction" } dd { (wait) } }
        }
        @for problem in &view.problems { p .error role="status" { (problem) } }
        (targets(view))
        (rules(view))
        (history(view))
    }
}

fn on_violation(policy: &str) -> String {
    let meaning = match policy {
        "Mediate" => "the underlay controller is asked to mitigate",
        "Evict" => "a pod is evicted, if a node within the rules can take it",
        _ => "it is reported only",
    };
    format!("{policy}: {meaning}")
}

fn targets(view: &View) -> Markup {
    html! {
        h2 { "Targets" }
        (table(("", ""), &view.targets, &[
            name("Role", &|target| html! { (target.role) }),
            text("Object", &|target| html! {
                @match &target.link {
                    Some(link) => a href=(link) { (target.object) },
                    None => (target.object),
                }
                @if !target.exists { " " span .dim { "(does not exist)" } }
            }),
            text("Node", &|target| html! {
                @if let Some(node) = &target.node { a href=(links::gpus(node)) { (node) } }
                @else if let Some(address) = &target.address { (address) }
                @else { span .dim { "none" } }
            }),
        ]))
    }
}

fn rules(view: &View) -> Markup {
    html! {
        h2 { "Rules" }
        @if view.rules.is_empty() {
            p .note { "The offer names no policy with rules." }
        } @else {
            (table(("", ""), &view.rules, &[
                text("Compliance", &|rule| badge(rule.compliance.name())),
                name("Rule", &|rule| html! {
                    @match &rule.pair {
                        Some(link) => a href=(link) { (rule.rule) },
                        None if rule.rule.is_empty() => "none",
                        None => (rule.rule),
                    }
                }),
                column("text", "Reason", &|rule| html! { (rule.reason) }),
                text("Of the limit", &|rule| html! { @if let Some(measured) = Measured::parse(&rule.reason) { (measured.bar()) } }),
                number("Request", &|rule| html! { (rule.request) }),
                number("Limit", &|rule| html! { (rule.limit) }),
                text("Policy", &|rule| html! {
                    a href=(links::policy(&view.namespace, &rule.policy)) { (rule.policy) }
                }),
                text("Provider", &|rule| html! { (rule.provider) }),
            ]))
        }
    }
}

fn history(view: &View) -> Markup {
    html! {
        h2 { "Timeline" }
        @if view.timeline.is_empty() {
            p .note { "Nothing is recorded yet. States, evictions, mitigation and events are shown here." }
        }
        ol .timeline {
            @for moment in &view.timeline {
                li class=(moment.tone) {
                    time datetime=(age::second(moment.time)) title=(age::second(moment.time)) {
                        @if moment.is_expected { "in " (age::since(view.now, moment.time)) }
                        @else { (age::since(moment.time, view.now)) " ago" }
                    }
                    b { (moment.title) }
                    @if !moment.text.is_empty() { span { (moment.text) } }
                }
            }
        }
    }
}
