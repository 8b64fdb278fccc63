use std::fmt::Write;

use tautline_gpu_slice::report::{
    Amounts, CardTop, CountedTop, NodeTop, PoolTop, Top, Total, format,
};

use crate::{
    gpu::bar::{BarSegments, TerminalStyle},
    table::{cut, plain, table},
};

const HEADER: [&str; 11] = [
    "NODE",
    "CARD",
    "USE",
    "HELD",
    USED,
    "FREE",
    "FRAGMENTED",
    "HEALTH",
    "PRODUCT",
    "MODE",
    "HELD BY",
];
/// Left out if no agent reports it.
const USED: &str = "USED";
/// Columns that a narrow terminal leaves out, in this order; the second table has MODE and PRODUCT.
const LEFT_OUT: [&str; 4] = ["MODE", "PRODUCT", "HEALTH", "FRAGMENTED"];
/// The least that is shown of HELD BY.
const HELD_BY: usize = 20;

/// `columns`: the terminal's width; `None`: unlimited.
pub(super) fn text(top: &Top, style: TerminalStyle, columns: Option<usize>) -> String {
    let mut out = String::new();
    if !top.nodes.is_empty() {
        let rows: Vec<_> = top.nodes.iter().flat_map(|n| rows(n, style)).collect();
        let cards = fit(&rows, columns) + &clip(&style.legend(), columns);
        out += &style.paint(&cards);
        let header = [
            "PRODUCT",
            "MODE",
            "NODES",
            "CARDS",
            "UNHEALTHY",
            "HELD",
            "FREE",
            "FRAGMENTED",
        ];
        let sums = top.totals.iter().map(sum).chain([all(&top.totals)]);
        out += "\n";
        out += &clip(&table(&header, sums), columns);
    }
    if !top.warnings.is_empty() {
        out += "\nWarnings:\n";
    }
    for warning in &top.warnings {
        _ = writeln!(out, "  {}", plain(warning));
    }
    out
}

/// The table of cards, without columns for which the terminal is too narrow.
fn fit(rows: &[Vec<String>], columns: Option<usize>) -> String {
    let mut shown: Vec<usize> = (0..HEADER.len()).collect();
    shown.retain(|i| HEADER[*i] != USED || rows.iter().any(|row| !row[*i].is_empty()));
    let mut left_out = LEFT_OUT.iter();
    loop {
        let header: Vec<&str> = shown.iter().map(|i| HEADER[*i]).collect();
        let cells = |row: &Vec<String>| shown.iter().map(|i| row[*i].clone()).collect();
        let text = table(&header, rows.iter().map(cells));
        // HELD BY is the last column, and may be cut.
        let before = text.lines().next().and_then(|head| head.find("HELD BY"));
        let room = columns.is_none_or(|c| before.unwrap_or(0) + HELD_BY <= c);
        match left_out.next() {
            Some(name) if !room => shown.retain(|i| HEADER[*i] != *name),
            _ => return clip(&text, columns),
        }
    }
}

fn clip(text: &str, columns: Option<usize>) -> String {
    let line = |line: &str| match columns {
        Some(columns) => cut(line, columns) + "\n",
        None => line.to_owned() + "\n",
    };
    text.lines().map(line).collect()
}

fn rows(node: &NodeTop, style: TerminalStyle) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    for pool in &node.pools {
        // Adjacent equal cards share a row.
        for alike in pool.cards.chunk_by(|before, card| card.is_like(before)) {
            rows.push(row(node, pool, alike, style));
        }
    }
    rows.extend(node.counted.iter().map(|c| counted(node, c, style)));
    rows
}

fn row(node: &NodeTop, pool: &PoolTop, cards: &[CardTop], style: TerminalStyle) -> Vec<String> {
    let (Some(first), Some(last)) = (cards.first(), cards.last()) else {
        return Vec::new();
    };
    let count = cards.len() as i64;
    let name = match cards {
        [one] => one.card.clone(),
        _ => format!("{}-{}", first.card, last.card),
    };
    let sum = (first.fragmented * count as f64).round() as i64;
    let fragmented = first.fragmented_milli.map(|_| sum);
    let bar = style.bar(BarSegments {
        all: f64::from(tautline_gpu_placement::CARD),
        used: first.held_milli as f64,
        fragmented: first.fragmented,
        lost: !first.healthy,
    });
    let holders = first.holders.iter().map(|h| {
        let guess = if h.card_is_guessed { "~" } else { "" };
        let used = h.used.map(|u| u.used_bytes.saturating_mul(count));
        let used = used.map(|bytes| format!(" (uses {})", format::memory(bytes)));
        let milli = format::milli(h.milli * count);
        format!("{guess}{} {milli}{}", h.pod, used.unwrap_or_default())
    });
    let used = first.used.map(|u| {
        let memory = format::memory(u.used_bytes.saturating_mul(count));
        format!("{memory} {}", format::percent(u.busy_milli as f64, 1000.0))
    });
    vec![
        node.node.clone(),
        name,
        bar,
        format::milli(first.held_milli * count),
        used.unwrap_or_default(),
        format::milli(first.free_milli * count),
        fragmented.map(format::milli).unwrap_or_default(),
        first.health().into(),
        pool.product.clone(),
        format::sharing_mode(pool.sharing_mode),
        holders.collect::<Vec<_>>().join(", "),
    ]
}

/// Only the number of units is known; the device plugin knows the holders.
fn counted(node: &NodeTop, c: &CountedTop, style: TerminalStyle) -> Vec<String> {
    let bar = style.bar(BarSegments {
        all: c.units as f64,
        used: c.used_units as f64,
        ..BarSegments::default()
    });
    let health = if c.used_units > c.units {
        "over-committed"
    } else {
        ""
    };
    vec![
        node.node.clone(),
        String::new(),
        bar,
        format!("{} of {}", c.used_units, c.units),
        String::new(),
        c.free_units.to_string(),
        String::new(),
        health.into(),
        c.product.clone(),
        c.resource.clone(),
        String::new(),
    ]
}

fn sum(total: &Total) -> Vec<String> {
    let head = [
        total.product.clone(),
        total.lane.clone(),
        total.nodes.to_string(),
    ];
    let rest = match &total.amounts {
        Amounts::Cards {
            cards,
            unhealthy_cards,
            held_milli,
            free_milli,
            fragmented_milli,
            ..
        } => [
            cards.to_string(),
            unhealthy_cards.to_string(),
            format::milli(*held_milli),
            format::milli(*free_milli),
            fragmented_milli.map(format::milli).unwrap_or_default(),
        ],
        Amounts::Units {
            units,
            used_units,
            free_units,
        } => [
            String::new(),
            String::new(),
            format!("{used_units} of {units}"),
            free_units.to_string(),
            String::new(),
        ],
    };
    head.into_iter().chain(rest).collect()
}

/// The cards of all products. Nodes are not added up: one may have several.
fn all(totals: &[Total]) -> Vec<String> {
    let (mut count, mut lost, mut held, mut free) = (0, 0, 0, 0);
    let mut useless: Option<f64> = None;
    for total in totals {
        if let Amounts::Cards {
            cards,
            unhealthy_cards,
            held_milli,
            free_milli,
            fragmented,
            ..
        } = &total.amounts
        {
            count += cards;
            lost += unhealthy_cards;
            held += held_milli;
            free += free_milli;
            useless = fragmented.map(|f| useless.unwrap_or(0.0) + f);
        }
    }
    vec![
        "all cards".into(),
        String::new(),
        String::new(),
        count.to_string(),
        lost.to_string(),
        format::milli(held),
        format::milli(free),
        useless
            .map(|f| format::milli(f.round() as i64))
            .unwrap_or_default(),
    ]
}
