//! `?pods=250,250,1000` shows where further pods would be placed.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::Context;
use maud::{Markup, html};
use serde::Serialize;
use tautline_gpu_slice::report::{MAX_PODS, Placed, WhatIf, WhatIfPod, format};

use super::bars::MAX_NAME_CHARS;
use crate::{
    draw::{clean, joined},
    inspections::Inspected,
    request::{PageError, PageRequest, PageResult},
};

/// The maximum time to place pods; those that are not placed by then are left out.
const DEADLINE: Duration = Duration::from_millis(500);
/// The maximum number of nodes that are shown for one request.
const MAX_PLACES: usize = 20;
const MAX_AMOUNT_CHARS: usize = 60;

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Answer {
    /// The runs of equal requests, in their order.
    pub requests: Vec<Requested>,
    pub pods: usize,
    pub fit: usize,
    /// The number of pods that were not tried, for lack of time.
    pub not_tried: usize,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Requested {
    pub request: String,
    pub pods: usize,
    pub fit: usize,
    pub places: Vec<Place>,
    /// The number of nodes that are not in `places`.
    pub more_nodes: usize,
    /// The number of nodes by reason code, for the first pod that does not fit.
    pub refused: BTreeMap<&'static str, usize>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Place {
    pub node: String,
    pub pods: usize,
    /// The indexes of the cards, without duplicates.
    pub cards: Vec<String>,
}

/// Returns the canonical address for the form's fields `amount` and `count`; `None` without
/// `amount`.
pub(super) fn redirect(request: &PageRequest) -> PageResult<Option<String>> {
    let Some(amount) = request.field("amount") else {
        return Ok(None);
    };
    let count = request.number::<usize>("count")?.unwrap_or(1);
    if !(1..=MAX_PODS).contains(&count) {
        return Err(PageError::bad(format!(
            "count={count}: write 1 to {MAX_PODS} pods"
        )));
    }
    // A number without a unit means cards here, and thousandths of a card in `pods`.
    let amount: String = amount.trim().chars().take(MAX_AMOUNT_CHARS).collect();
    let amount = match amount.parse::<u32>() {
        Ok(cards) => (u64::from(cards) * 1000).to_string(),
        Err(_) => amount,
    };
    let pods = match count {
        1 => amount,
        count => format!("{count}x{amount}"),
    };
    let others = ["amount", "count", "page", "pods"];
    Ok(Some(request.link_without(&others, Some(("pods", &pods)))))
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

/// Places the pods of the address; `None` if it has none.
pub(super) async fn answer(
    request: &PageRequest,
    inspected: &Arc<Inspected>,
) -> PageResult<Option<Answer>> {
    let Some(pods) = request.field("pods") else {
        return Ok(None);
    };
    let requests = requests(pods, request.field("model"))?;
    let inspected = Arc::clone(inspected);
    let count = requests.len();
    let task = tokio::task::spawn_blocking(move || {
        inspected
            .inspection
            .what_if(&requests, Instant::now() + DEADLINE)
    });
    let result = task.await.context("the pods cannot be placed")?;
    let placed = result.map_err(|error| PageError::bad(format!("pods: {error}")))?;
    Ok(Some(Answer::new(&placed, count)))
}

impl Answer {
    fn new(placed: &WhatIf, pods: usize) -> Self {
        let runs = placed.pods.chunk_by(|a, b| a.request == b.request);
        Self {
            requests: runs.map(Requested::new).collect(),
            pods,
            fit: placed.pods.iter().filter(|p| p.placed.is_some()).count(),
            not_tried: pods - placed.pods.len(),
        }
    }
}

impl Requested {
    fn new(pods: &[WhatIfPod]) -> Self {
        let mut places: BTreeMap<&str, Vec<&Placed>> = BTreeMap::new();
        for placed in pods.iter().filter_map(|p| p.placed.as_ref()) {
            places.entry(&placed.node).or_default().push(placed);
        }
        let more_nodes = places.len().saturating_sub(MAX_PLACES);
        let place = |(node, pods): (&str, Vec<&Placed>)| {
            let mut cards: Vec<String> = pods.iter().flat_map(|p| p.cards.clone()).collect();
            cards.sort_unstable();
            cards.dedup();
            Place {
                node: node.to_owned(),
                pods: pods.len(),
                cards,
            }
        };
        let refused = pods.iter().find(|p| p.placed.is_none());
        Self {
            request: pods.first().map(|p| p.request.clone()).unwrap_or_default(),
            pods: pods.len(),
            fit: pods.iter().filter(|p| p.placed.is_some()).count(),
            places: places.into_iter().take(MAX_PLACES).map(place).collect(),
            more_nodes,
            refused: refused.map(|p| p.refused.clone()).unwrap_or_default(),
        }
    }
}

/// Renders the form, with the amount in the address if there is only one.
pub(super) fn form(request: &PageRequest) -> Markup {
    let asked = request.field("pods").filter(|pods| !pods.contains(','));
    let (count, amount) = counted(asked.unwrap_or("250"));
    html! {
        form #gpu-what-if .filter method="get" action="/gpu" hx-preserve="true" {
            label {
                "Amount of each pod"
                input name="amount" value=(amount) required maxlength=(MAX_AMOUNT_CHARS)
                    aria-describedby="gpu-amounts";
            }
            label { "Pods" input name="count" type="number" min="1" max=(MAX_PODS) value=(count); }
            label { "Model, if it matters" input name="model" value=[request.field("model")]; }
            button { "Do they fit?" }
        }
        p #gpu-amounts .dim {
            code { "250m" } " of a card, " code { "2" } " cards, " code { "20Gi" } " of one card's memory, or "
            code { "mig-1g.10gb" } "; several amounts in the address: " code { "?pods=250,250,1000" } "."
        }
    }
}

pub(super) fn render(answer: &Answer) -> Markup {
    html! {
        p .lead {
            span class={ "state " @if answer.fit == answer.pods { "good" } @else { "bad" } } {
                (answer.fit) " of " (answer.pods) " fit"
            }
            " on the cards that are free now, placed one after the other as the provider would. CPU, memory, taints and \
             affinity of the pods do not count; cordoned nodes are left out."
        }
        @if answer.not_tried > 0 {
            p .note { (format::count(answer.not_tried, "pod")) " not tried: time was short." }
        }
        @for asked in &answer.requests {
            h3 { (asked.pods) " × " code { (clean(&asked.request, MAX_NAME_CHARS)) } ": " (asked.fit) " fit" }
            @if !asked.places.is_empty() {
                ul {
                    @for place in &asked.places { li { (place_text(place)) } }
                    @if asked.more_nodes > 0 { li { "and on " (format::count(asked.more_nodes, "more node")) } }
                }
            }
            @if !asked.refused.is_empty() {
                p {
                    "The next one fits nowhere: "
                    (joined(asked.refused.iter().map(|(code, nodes)| html! { code { (code) } " on " (format::count(*nodes, "node")) })))
                }
            }
        }
    }
}

fn place_text(place: &Place) -> Markup {
    html! {
        a href=(super::link(&place.node)) { (clean(&place.node, MAX_NAME_CHARS)) }
        ": " (format::count(place.pods, "pod"))
        @if !place.cards.is_empty() {
            ", card" @if place.cards.len() > 1 { "s" } " " (place.cards.join(", "))
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
