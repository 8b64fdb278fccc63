use maud::{Markup, html};
use tautline_core::planning::fnv1a_64;
use tautline_gpu_placement::CARD_MILLI;
use tautline_gpu_slice::report::{CountedTop, format};

use super::{Bar, MAX_NAME_CHARS, NodeBars, PoolBars, Segment, Used};
use crate::{
    draw::{clean, key},
    pages::decisions,
};

/// The number of colours of pods. The namespace selects the colour.
const COLOUR_COUNT: u64 = 6;

/// Renders the table of cards, with a column for the use if `measured`.
pub(in super::super) fn table(nodes: &[NodeBars], measured: bool) -> Markup {
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

fn node_rows(node: &NodeBars, columns: usize, measured: bool) -> Markup {
    let alone = node.pools.len() == 1 && node.counted.is_empty();
    html! {
        tr .gpu-node {
            th scope="rowgroup" colspan=(columns) {
                a href=(super::super::link(&node.node)) { (clean(&node.node, MAX_NAME_CHARS)) }
                span .dim {
                    @if let (true, Some(pool)) = (alone, node.pools.first()) { ", " (pool_text(pool)) }
                    @if let Some(cpu) = node.cpu_free_milli { ", " (format::cores(cpu)) " CPU free" }
                }
            }
        }
        @for pool in &node.pools {
            @if !alone { tr { td .dim colspan=(columns) { (pool_text(pool)) } } }
            @for bar in &pool.bars { (bar_row(bar, pool, measured)) }
        }
        @for counted in &node.counted { (counted_row(counted, measured)) }
    }
}

/// Returns a text such as `NVIDIA-L4, mode shared/4, 22.5Gi each`.
fn pool_text(pool: &PoolBars) -> String {
    let memory = pool
        .card_memory_bytes
        .map(|bytes| format!(", {} each", format::memory(bytes)));
    format!(
        "{}, mode {}{}",
        pool.product,
        pool.mode,
        memory.unwrap_or_default()
    )
}

fn bar_row(bar: &Bar, pool: &PoolBars, measured: bool) -> Markup {
    let lost = bar.is_lost();
    let count = bar.count;
    html! {
        tr {
            th scope="row" { (bar.cards) }
            td .gpu-bar { (drawing(bar, pool.card_memory_bytes)) }
            td .number { (format::milli(bar.given_milli * count)) }
            @if measured {
                td .number {
                    @if let Some(used) = bar.used { (used_text(used)) } @else { span .dim { "not reported" } }
                }
            }
            td .number { (format::milli(bar.free_milli * count)) }
            td .number {
                @match bar.fragmented_milli {
                    Some(milli) => (format::milli(milli * count)),
                    None => "-",
                }
            }
            td {
                span class={ "state " @if bar.health == "ok" { "good" } @else { "bad" } } { (bar.health) }
                @if lost { span .dim { " lost" } }
            }
            td .gpu-pods { (pods(bar)) }
        }
    }
}

fn pods(bar: &Bar) -> Markup {
    html! {
        @for (i, pod) in bar.pods.iter().enumerate() {
            @if i > 0 { ", " }
            @if pod.card_is_guessed { abbr title="The device plugin chose the card; this is a guess" { "~" } }
            a href=(decisions::link(&pod.namespace, &pod.pod)) { (pod_name(pod)) }
            " " (format::milli(pod.milli))
            @if let Some(used) = pod.used { span .dim { " uses " (used_text(used)) } }
        }
        @if bar.more_pods > 0 { " and " (bar.more_pods) " more" }
        @if bar.pods.is_empty() && !bar.is_lost() { span .dim { "none" } }
    }
}

/// Draws a bar. Its links and titles are for the mouse; other columns have the same as text.
fn drawing(bar: &Bar, memory: Option<i64>) -> Markup {
    let card = i64::from(CARD_MILLI);
    let percent = |milli: i64| format!("{}.{}%", milli / 10, milli % 10);
    let width = |from: i64, milli: i64| percent((card - from).clamp(0, milli.max(0)));
    let mut from = 0;
    let mut starts = Vec::new();
    for pod in &bar.pods {
        starts.push(from.min(card));
        from += pod.milli;
    }
    let more = from.min(card);
    let given = bar.given_milli.min(card);
    let used = bar.used.zip(memory.filter(|m| *m > 0));
    let used = used.map(|(used, memory)| (used, share_milli(used.memory_bytes, memory)));
    html! {
        svg .gpu-drawing height="20" aria-hidden="true" focusable="false" {
            rect .gpu-card width="100%" height="14" {}
            @if bar.is_lost() {
                rect .gpu-lost width="100%" height="14" { title { (bar.health) } }
            }
            @for (pod, start) in bar.pods.iter().zip(&starts) {
                a href=(decisions::link(&pod.namespace, &pod.pod)) tabindex="-1" {
                    rect class={ "gpu-pod c" (colour(&pod.namespace)) } x=(percent(*start))
                        width=(width(*start, pod.milli)) height="14" { title { (segment_title(pod)) } }
                }
            }
            @if bar.more_pods > 0 {
                rect .gpu-pod x=(percent(more)) width=(width(more, bar.more_milli)) height="14" {
                    title { (bar.more_pods) " more pods " (format::milli(bar.more_milli)) }
                }
            }
            @if bar.fragmented() > 0 && !bar.is_lost() {
                rect .gpu-fragment x=(percent(given)) width=(width(given, bar.fragmented())) height="14" {
                    title { (format::milli(bar.fragmented())) " free, but not usable by the next expected request" }
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
            li { (key("gpu-fragment")) " free, but not usable by the next expected request" }
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

pub(in super::super) fn pod_name(pod: &Segment) -> String {
    let name = format!("{}/{}", pod.namespace, pod.pod);
    clean(&name, MAX_NAME_CHARS)
}

/// Returns a text such as `14.2Gi, 36% busy`.
pub(in super::super) fn used_text(used: Used) -> String {
    let busy = format::percent(used.busy_milli as f64, 1000.0);
    format!("{}, {busy} busy", format::memory(used.memory_bytes))
}

fn segment_title(pod: &Segment) -> String {
    let used = pod.used.map(|used| format!(", uses {}", used_text(used)));
    let milli = format::milli(pod.milli);
    format!("{} {milli}{}", pod_name(pod), used.unwrap_or_default())
}

/// Returns the colour of a namespace by its FNV-1a hash, so that it is the same on all pages.
fn colour(namespace: &str) -> u64 {
    fnv1a_64(&[namespace]) % COLOUR_COUNT
}
