//! `?pods=250,250,1000&cpu=2&memory=8Gi` shows where further pods would be placed.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::Context;
use maud::{Markup, html};
use serde::Serialize;
use tautline_core::quantity::{QuantityError, parse_milli};
use tautline_gpu_placement::Shape;
use tautline_gpu_slice::report::{MAX_PODS, WhatIf, WhatIfPod, format};

use super::bars::MAX_NAME_CHARS;
use crate::{
    draw::{clean, joined, state},
    form,
    inspections::Inspected,
    links,
    request::{PageError, PageRequest, PageResult},
};

/// The maximum time to place pods; those that are not placed by then are left out.
const DEADLINE: Duration = Duration::from_millis(500);
/// The maximum number of nodes that are shown for one request.
const MAX_PLACES: usize = 20;
/// The maximum length of a field's error, in characters.
const MAX_ERROR_CHARS: usize = 160;

/// The places of the pods of the address.
#[derive(Debug, Serialize)]
pub(super) struct Answer {
    /// The number of requested pods.
    requested: usize,
    #[serde(flatten)]
    placed: WhatIf,
}

/// The errors of the fields `cpu` and `memory`, by their names.
pub(super) type Errors = BTreeMap<&'static str, String>;

/// Reads the CPU and memory of each pod. Errors are shown beside their fields.
pub(super) fn host(request: &PageRequest) -> (Shape, Errors) {
    let mut errors = Errors::new();
    let mut milli = |name| {
        let text = request.field(name).unwrap_or("0").trim();
        let error = |e: QuantityError| errors.insert(name, clean(&e.to_string(), MAX_ERROR_CHARS));
        parse_milli(text).map_err(error).unwrap_or_default()
    };
    let host = Shape {
        cpu_milli: milli("cpu"),
        memory_bytes: milli("memory") / 1000,
        ..Shape::default()
    };
    (host, errors)
}

/// Parses the requests in `pods`, such as `250`, `2x500m`, `1000` or `20Gi`, separated by commas.
/// Returns them in the syntax of a rule, one for each pod.
fn requests(pods: &str, model: Option<&str>) -> PageResult<Vec<String>> {
    let mut all = Vec::new();
    let parts = pods.split(',').map(str::trim);
    for part in parts.filter(|part| !part.is_empty()) {
        let (count, amount) = counted(part);
        if count > MAX_PODS || all.len() + count > MAX_PODS {
            return Err(PageError::bad(format!(
                "pods: at most {MAX_PODS} pods can be placed"
            )));
        }
        let request = match model {
            Some(model) => format!("{amount},model={model}"),
            None => amount,
        };
        all.extend(std::iter::repeat_n(request, count));
    }
    Ok(all)
}

/// Returns the number of pods and the amount of one part, in the syntax of a rule: `2x250` is two
/// of `250m`.
fn counted(part: &str) -> (usize, String) {
    let times = part.split_once('x');
    let times = times.and_then(|(count, amount)| Some((count.parse().ok()?, amount)));
    let (count, amount) = times.unwrap_or((1, part));
    let amount = match amount.parse::<u64>() {
        Ok(milli) if milli % 1000 == 0 => (milli / 1000).to_string(),
        Ok(milli) => format!("{milli}m"),
        Err(_) => amount.to_owned(),
    };
    (count, amount)
}

/// Places the pods of the address; `None` if it has none, or no valid CPU and memory.
pub(super) async fn answer(
    request: &PageRequest,
    host: Option<Shape>,
    inspected: &Arc<Inspected>,
) -> PageResult<Option<Answer>> {
    let (Some(pods), Some(host)) = (request.field("pods"), host) else {
        return Ok(None);
    };
    let requests = requests(pods, request.field("model"))?;
    let inspected = Arc::clone(inspected);
    let requested = requests.len();
    let task = tokio::task::spawn_blocking(move || {
        inspected
            .inspection
            .what_if(&requests, &host, Instant::now() + DEADLINE)
    });
    let result = task.await.context("the pods cannot be placed")?;
    let placed = result.map_err(|error| PageError::bad(format!("pods: {error}")))?;
    Ok(Some(Answer { requested, placed }))
}

/// Renders the form, which keeps what was written.
pub(super) fn form(request: &PageRequest, errors: &Errors) -> Markup {
    let quantity = |title: &str, name: &str| {
        let error = errors.get(name);
        let id = error.map(|_| format!("gpu-{name}-error"));
        html! {
            div {
                label { (title) input name=(name) value=[request.field(name)] aria-invalid=[error.map(|_| "true")] aria-describedby=[&id]; }
                @if let Some((error, id)) = error.zip(id.as_ref()) { span .error #(id) role="alert" { (error) } }
            }
        }
    };
    html! {
        form #gpu-what-if .filter method="get" action="/gpu" hx-preserve="true" {
            label {
                "Pods"
                input name="pods" value=(request.field("pods").unwrap_or("250m")) required aria-describedby="gpu-amounts";
            }
            (form::text("Model, if it matters", "model", request.field("model")))
            (quantity("CPU of each pod", "cpu"))
            (quantity("Memory of each pod", "memory"))
            button { "Do they fit?" }
        }
        p #gpu-amounts .dim {
            code { "250m" } " of a card, " code { "2000m" } " for two cards, " code { "20Gi" } " of one card's memory, or "
            code { "mig-1g.10gb" } "; several with commas, and equal ones as " code { "3x250m" } ". CPU such as " code { "2" } " or " code { "500m" }
            ", memory such as " code { "8Gi" } "; they count if they are given."
        }
    }
}

pub(super) fn render(answer: &Answer) -> Markup {
    let (requested, pods) = (answer.requested, &answer.placed.pods);
    let fit = fit(pods);
    let not_tried = requested - pods.len();
    html! {
        p .lead {
            (state(if fit == requested { "good" } else { "bad" }, &format!("{fit} of {requested} fit")))
            " on the cards, CPU and memory that are free now, placed one after the other as the provider would. Taints and \
             affinity of the pods do not count; cordoned nodes are left out."
        }
        @if answer.placed.short_total > 0 { (short_nodes(&answer.placed)) }
        @if not_tried > 0 {
            p .note { (format::count(not_tried, "pod")) " not tried: time was short." }
        }
        @for pods in pods.chunk_by(|a, b| a.request == b.request) { (equal_requests(pods)) }
    }
}

fn fit(pods: &[WhatIfPod]) -> usize {
    pods.iter().filter(|pod| pod.placed.is_some()).count()
}

/// Renders the places of pods with the same request.
fn equal_requests(pods: &[WhatIfPod]) -> Markup {
    // The number of pods and the indexes of the cards, by node.
    let mut places: BTreeMap<&str, (usize, BTreeSet<&str>)> = BTreeMap::new();
    for placed in pods.iter().filter_map(|pod| pod.placed.as_ref()) {
        let (count, cards) = places.entry(&placed.node).or_default();
        *count += 1;
        cards.extend(placed.cards.iter().map(String::as_str));
    }
    let more_nodes = places.len().saturating_sub(MAX_PLACES);
    let request = pods.first().map_or("", |pod| &pod.request);
    let refused = pods.iter().find(|pod| pod.placed.is_none());
    let refused = refused
        .map(|pod| &pod.refused)
        .filter(|by_code| !by_code.is_empty());
    html! {
        h3 { (pods.len()) " × " code { (clean(request, MAX_NAME_CHARS)) } ": " (fit(pods)) " fit" }
        @if !places.is_empty() {
            ul {
                @for (node, (count, cards)) in places.iter().take(MAX_PLACES) { li { (place(node, *count, cards)) } }
                @if more_nodes > 0 { li { "and on " (format::count(more_nodes, "more node")) } }
            }
        }
        @if let Some(refused) = refused {
            p {
                "The next one fits nowhere: "
                (joined(refused.iter().map(|(code, nodes)| html! { code { (code) } " on " (format::count(*nodes, "node")) })))
            }
        }
    }
}

/// Renders the nodes that fit none of the pods, as too little CPU or memory is free.
fn short_nodes(placed: &WhatIf) -> Markup {
    let more = placed.short_total - placed.short.len();
    html! {
        p { "Too little CPU or memory is free on " (format::count(placed.short_total, "node")) " with GPUs:" }
        ul {
            @for (node, reason) in &placed.short {
                li { a href=(links::gpus(node)) { (clean(node, MAX_NAME_CHARS)) } ": " (reason) }
            }
            @if more > 0 { li { "and " (format::count(more, "more node")) } }
        }
    }
}

fn place(node: &str, pods: usize, cards: &BTreeSet<&str>) -> Markup {
    html! {
        a href=(links::gpus(node)) { (clean(node, MAX_NAME_CHARS)) }
        ": " (format::count(pods, "pod"))
        @if !cards.is_empty() {
            ", card" @if cards.len() > 1 { "s" } " " (joined(cards.iter().map(|card| html! { (card) })))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_those_of_a_rule() {
        let of = |pods| requests(pods, None).ok().unwrap();
        assert_eq!(
            of("250,2x500m, 1000,,20Gi,1500"),
            ["250m", "500m", "500m", "1", "20Gi", "1500m"]
        );
        assert_eq!(
            requests("250", Some("A100")).ok().unwrap(),
            ["250m,model=A100"]
        );
        assert_eq!(of("256x1").len(), 256);
        for many in ["257x1", "99999999999999999999x1,200x1,200x1", "200x1,57x1"] {
            assert!(requests(many, None).is_err(), "{many}");
        }
    }
}
