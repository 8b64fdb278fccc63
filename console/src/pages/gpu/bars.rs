//! Renders cards as bars: a segment for each pod, fragments hatched, lost cards red. Adjacent cards
//! with the same pods share a bar.

use maud::{Markup, html};
use tautline_core::planning::fnv1a_64;
use tautline_gpu_placement::CARD_MILLI;
use tautline_gpu_slice::report::{
    CardTop, CountedTop, HolderTop, NodeTop, PoolTop, UsedTop, format,
};

use crate::{
    draw::{cards, cards_of, clean, key, state},
    links,
};

/// The limit for names; longer ones are cut.
pub(super) const MAX_NAME_CHARS: usize = 120;
/// The maximum number of segments in a bar. Further pods share one segment.
const MAX_SEGMENTS: usize = 24;

/// The number of colours of pods. The namespace selects the colour.
const COLOUR_COUNT: u64 = 6;

/// Returns whether the use of one of the node's cards is known.
pub(super) fn is_measured(node: &NodeTop) -> bool {
    let mut cards = node.pools.iter().flat_map(|pool| &pool.cards);
    cards.any(|card| card.used.is_some())
}

/// Renders the table of cards, with a column for the use if `measured`.
pub(super) fn table(nodes: &[NodeTop], measured: bool) -> Markup {
    let columns = if measured { 8 } else { 7 };
    html! {
        (legend(measured))
        div .scroll {
            table .gpu {
                thead {
                    tr {
                        th scope="col" { "Card" }
                        th .gpu-bar scope="col" { "Given to pods" }
                        th .number scope="col" { "Given" }
                        @if measured { th .number scope="col" { "Used" } }
                        th .number scope="col" { "Free" }
                        th .number scope="col" { "Useless" }
                        th scope="col" { "Health" }
                        th scope="col" { "Pods" }
                    }
                }
                @for node in nodes {
                    tbody { (node_rows(node, columns, measured)) }
                }
            }
        }
    }
}

fn node_rows(node: &NodeTop, columns: usize, measured: bool) -> Markup {
    let alone = node.pools.len() == 1 && node.counted.is_empty();
    html! {
        tr .gpu-node {
            th scope="rowgroup" colspan=(columns) {
                a href=(links::gpus(&node.node)) { (clean(&node.node, MAX_NAME_CHARS)) }
                span .dim {
                    @if let (true, Some(pool)) = (alone, node.pools.first()) { ", " (pool_text(pool)) }
                    @if let Some(cpu) = node.cpu_free_milli { ", " (format::cores(cpu)) " CPU free" }
                }
            }
        }
        @for pool in &node.pools {
            @if !alone { tr { td .dim colspan=(columns) { (pool_text(pool)) } } }
            @for (name, card, count) in pool.runs() { (bar_row((&name, card, count), pool, measured)) }
        }
        @for counted in &node.counted { (counted_row(counted, measured)) }
    }
}

/// Returns a text such as `NVIDIA-L4, mode shared/4, 22.5Gi each`.
fn pool_text(pool: &PoolTop) -> String {
    let memory = pool
        .card_memory_bytes
        .map(|bytes| format!(", {} each", format::memory(bytes)));
    format!(
        "{}, mode {}{}",
        clean(&pool.product, MAX_NAME_CHARS),
        format::sharing_mode(pool.sharing_mode),
        memory.unwrap_or_default()
    )
}

/// Renders the row of a run of equal cards. Its amounts are the sums of all cards.
fn bar_row((name, card, count): (&str, &CardTop, i64), pool: &PoolTop, measured: bool) -> Markup {
    let tone = if card.health() == "ok" { "good" } else { "bad" };
    html! {
        tr {
            th scope="row" { (clean(name, MAX_NAME_CHARS)) }
            td .gpu-bar data-th="Given to pods" { (drawing(card, pool.card_memory_bytes)) }
            td .number data-th="Given" { (cards(card.held_milli * count)) }
            @if measured {
                td .number data-th="Used" {
                    @if let Some(used) = card.used { (used_text(used)) } @else { span .dim { "not reported" } }
                }
            }
            td .number data-th="Free" { (cards(card.free_milli * count)) }
            td .number data-th="Useless" {
                @match card.fragmented_milli {
                    Some(milli) => (cards(milli * count)),
                    None => "-",
                }
            }
            td data-th="Health" {
                (state(tone, &clean(card.health(), MAX_NAME_CHARS)))
                @if !card.healthy { span .dim { " lost" } }
            }
            td .gpu-pods data-th="Pods" { (pods(card)) }
        }
    }
}

/// Returns the holders that have segments of their own in the bar, and the further holders.
fn segments(card: &CardTop) -> (&[HolderTop], &[HolderTop]) {
    card.holders.split_at(card.holders.len().min(MAX_SEGMENTS))
}

fn pods(card: &CardTop) -> Markup {
    let (pods, more) = segments(card);
    html! {
        @for (i, pod) in pods.iter().enumerate() {
            @if i > 0 { ", " }
            @if pod.card_is_guessed { abbr title="The device plugin chose the card; this is a guess" { "~" } }
            (self::pod(pod))
            " " (cards_of(pod.milli))
            @if let Some(used) = pod.used { span .dim { " uses " (used_text(used)) } }
        }
        @if !more.is_empty() { " and " (more.len()) " more" }
        @if pods.is_empty() && card.healthy { span .dim { "none" } }
    }
}

/// Draws a bar. Its links and titles are for the mouse; other columns have the same as text.
fn drawing(card: &CardTop, memory: Option<i64>) -> Markup {
    let all = i64::from(CARD_MILLI);
    let percent = |milli: i64| format!("{}.{}%", milli / 10, milli % 10);
    let width = |from: i64, milli: i64| percent((all - from).clamp(0, milli.max(0)));
    let (pods, more) = segments(card);
    let mut from = 0;
    let mut starts = Vec::new();
    for pod in pods {
        starts.push(from.min(all));
        from += pod.milli;
    }
    let start_of_more = from.min(all);
    let more_milli = more.iter().map(|pod| pod.milli).sum();
    let given = card.held_milli.min(all);
    let fragmented = card.fragmented_milli.unwrap_or(0).min(card.free_milli);
    let used = card.used.zip(memory.filter(|m| *m > 0));
    let used = used.map(|(used, memory)| (used, share_milli(used.used_bytes, memory)));
    html! {
        svg .gpu-drawing height="20" aria-hidden="true" focusable="false" {
            rect .gpu-card width="100%" height="14" {}
            @if !card.healthy {
                rect .gpu-lost width="100%" height="14" { title { (clean(card.health(), MAX_NAME_CHARS)) } }
            }
            @for (pod, start) in pods.iter().zip(&starts) {
                a href=(pod_link(pod)) tabindex="-1" {
                    rect class={ "gpu-pod c" (colour(pod)) } x=(percent(*start))
                        width=(width(*start, pod.milli)) height="14" { title { (segment_title(pod)) } }
                }
            }
            @if !more.is_empty() {
                rect .gpu-pod x=(percent(start_of_more)) width=(width(start_of_more, more_milli)) height="14" {
                    title { (more.len()) " more pods, " (cards(more_milli)) }
                }
            }
            @if fragmented > 0 && card.healthy {
                rect .gpu-fragment x=(percent(given)) width=(width(given, fragmented)) height="14" {
                    title { (cards(fragmented)) " useless: free, but not usable by the next expected request" }
                }
            }
            @if let Some((used, milli)) = used {
                rect .gpu-unused y="16" width="100%" height="4" {}
                rect .gpu-used y="16" width=(percent(milli)) height="4" { title { "uses " (used_text(used)) } }
            }
        }
    }
}

/// Returns the part in thousandths of `all`, at most 1000. A small part stays visible.
fn share_milli(part: i64, all: i64) -> i64 {
    let milli = i128::from(part.max(0)) * 1000 / i128::from(all.max(1));
    i64::try_from(milli)
        .unwrap_or(1000)
        .clamp(i64::from(part > 0) * 3, 1000)
}

/// Renders the legend of the bars.
fn legend(measured: bool) -> Markup {
    html! {
        // The pattern of fragments, which all bars of the page use.
        svg .gpu-defs width="0" height="0" aria-hidden="true" focusable="false" {
            defs {
                pattern #gpu-hatch width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)" {
                    rect .gpu-hatch-ground width="6" height="6" {}
                    rect .gpu-hatch-line width="2" height="6" {}
                }
            }
        }
        ul .legend {
            li { (key("gpu-pod c0")) " a pod's part; the colour is its namespace's" }
            li { (key("gpu-fragment")) " useless: free, but not usable by the next expected request" }
            li { (key("gpu-card")) " free" }
            li { (key("gpu-lost")) " lost by a fault" }
            @if measured { li { (key("gpu-used")) " memory in use, below the bar" } }
        }
    }
}

fn counted_row(counted: &CountedTop, measured: bool) -> Markup {
    let over = counted.used_units > counted.units;
    let share = share_milli(counted.used_units, counted.units);
    html! {
        tr {
            th scope="row" { (clean(&counted.resource, MAX_NAME_CHARS)) }
            td .gpu-bar {
                svg .gpu-drawing height="20" aria-hidden="true" focusable="false" {
                    rect .gpu-card width="100%" height="14" {}
                    rect .gpu-pod width={ (share / 10) "%" } height="14" {}
                }
            }
            td .number { (counted.used_units) " of " (counted.units) }
            @if measured { td .number { span .dim { "not reported" } } }
            td .number { (counted.free_units) }
            td .number { "-" }
            td { @if over { span .state.bad { "over-committed" } } }
            td .dim { (clean(&counted.product, MAX_NAME_CHARS)) "; only the number of units is known" }
        }
    }
}

/// Returns the namespace and the name of a pod.
fn key_parts(pod: &HolderTop) -> (&str, &str) {
    pod.pod.split_once('/').unwrap_or(("", &pod.pod))
}

/// Renders a pod's name with a link to it. A claim without pods has no page.
pub(super) fn pod(pod: &HolderTop) -> Markup {
    let is_claim = pod.pod.contains(' ');
    html! {
        @if is_claim { (pod_name(pod)) } @else { a href=(pod_link(pod)) { (pod_name(pod)) } }
    }
}

fn pod_link(pod: &HolderTop) -> String {
    let (namespace, name) = key_parts(pod);
    links::pod(namespace, name)
}

fn pod_name(pod: &HolderTop) -> String {
    clean(&pod.pod, MAX_NAME_CHARS)
}

/// Returns a text such as `14.2Gi, 36% busy`.
pub(super) fn used_text(used: UsedTop) -> String {
    let busy = format::percent(used.busy_milli as f64, 1000.0);
    format!("{}, {busy} busy", format::memory(used.used_bytes))
}

fn segment_title(pod: &HolderTop) -> String {
    let used = pod.used.map(|used| format!(", uses {}", used_text(used)));
    let cards = cards(pod.milli);
    format!("{} {cards}{}", pod_name(pod), used.unwrap_or_default())
}

/// Returns the colour of a pod's namespace by its FNV-1a hash, so that it is the same on all pages.
fn colour(pod: &HolderTop) -> u64 {
    fnv1a_64(&[key_parts(pod).0]) % COLOUR_COUNT
}
