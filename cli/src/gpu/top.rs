//! Implements `tautline gpu top`, which shows the cards of each node: the parts that are held, free
//! and fragmented, in thousandths of a card.

use std::{fmt::Write, process::ExitCode};

use anyhow::Result;
use tautline_gpu_slice::{
    Config, Inspection,
    report::{
        Amounts, CardSums, CardTop, CountedTop, NodeTop, Order, PoolTop, Top, Total, format,
        has_gpus,
    },
};

use super::{
    bar::{BarSegments, TerminalStyle},
    source::{SourceArgs, UseArgs},
};
use crate::{
    EXIT_NO,
    choice_arg::{Choice, one_of},
    manifests::FileNamespace,
    output::{self, Output},
    scope,
    table::{cut, grid, plain},
    watch::screen,
};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only this node
    #[arg(long, value_name = "NAME", value_parser = scope::name)]
    node: Option<String>,
    /// Which nodes come first
    #[arg(long, default_value = "name", value_parser = one_of(&ORDERS))]
    sort: Order,
    #[command(flatten)]
    source: SourceArgs,
    #[command(flatten)]
    namespace: FileNamespace,
    #[command(flatten)]
    uses: UseArgs,
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
}

const ORDERS: [Choice<Order>; 3] = [
    ("name", "", Order::Name),
    ("idle", "Most idle GPU first", Order::Idle),
    (
        "fragmented",
        "Most unusable idle GPU first",
        Order::Fragmented,
    ),
];

pub(crate) async fn run(args: Args) -> Result<ExitCode> {
    let namespace = args.namespace.namespace.as_deref();
    let source = args.source.read_placed(namespace).await?;
    let config = Config::default();
    let inspection = Inspection::new(source.snapshot, config, source.devices);
    if let Some(name) = &args.node
        && inspection.snapshot().node(name).is_none()
    {
        note!("error: {}", absent(&inspection, name));
        return Ok(ExitCode::from(EXIT_NO));
    }
    let uses = args.uses.read(&args.source, &inspection).await;
    let top = Top::new(&inspection, &uses, args.node.as_deref(), args.sort);
    if top.nodes.is_empty() {
        match &args.node {
            Some(node) => note!("node {node} has no GPUs"),
            None => note!(
                "no node has GPUs, of {}",
                inspection.snapshot().node_count()
            ),
        }
    }
    output::print(args.output, &top, |top| {
        text(top, TerminalStyle::of_stdout(), screen::columns())
    })?;
    Ok(ExitCode::SUCCESS)
}

fn absent(inspection: &Inspection, name: &str) -> String {
    const MAX_SHOWN_NODES: usize = 5;
    let nodes = inspection.nodes();
    let with: Vec<&str> = nodes
        .iter()
        .filter(|n| has_gpus(n))
        .map(|n| &**n.name)
        .collect();
    let mut fix = match with.as_slice() {
        [] => "no node has GPUs".to_owned(),
        some => format!(
            "nodes with GPUs are {}",
            some[..some.len().min(MAX_SHOWN_NODES)].join(", ")
        ),
    };
    if with.len() > MAX_SHOWN_NODES {
        fix += &format!(" and {} more", with.len() - MAX_SHOWN_NODES);
    }
    format!("node {name} does not exist; {fix}")
}

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
/// The column of use, which is left out if no agent reports it.
const USED: &str = "USED";
/// The columns that a narrow terminal leaves out, in this order; the second table has MODE and
/// PRODUCT.
const LEFT_OUT: [&str; 4] = ["MODE", "PRODUCT", "HEALTH", "FRAGMENTED"];
/// The minimum width of HELD BY.
const MIN_HELD_BY_COLUMNS: usize = 20;

/// Renders the tables. `columns` is the terminal's width; `None` is unlimited.
fn text(top: &Top, style: TerminalStyle, columns: Option<usize>) -> String {
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
        out += &clip(&grid(&header, sums), columns);
    }
    if !top.warnings.is_empty() {
        out += "\nWarnings:\n";
    }
    for warning in &top.warnings {
        _ = writeln!(out, "  {}", plain(warning));
    }
    out
}

/// Renders the table of cards, without columns for which the terminal is too narrow.
fn fit(rows: &[Vec<String>], columns: Option<usize>) -> String {
    let mut shown: Vec<usize> = (0..HEADER.len()).collect();
    shown.retain(|i| HEADER[*i] != USED || rows.iter().any(|row| !row[*i].is_empty()));
    let mut left_out = LEFT_OUT.iter();
    loop {
        let header: Vec<&str> = shown.iter().map(|i| HEADER[*i]).collect();
        let cells = |row: &Vec<String>| shown.iter().map(|i| row[*i].clone()).collect();
        let text = grid(&header, rows.iter().map(cells));
        // HELD BY is the last column, and may be cut.
        let before = text.lines().next().and_then(|head| head.find("HELD BY"));
        let room = columns.is_none_or(|c| before.unwrap_or(0) + MIN_HELD_BY_COLUMNS <= c);
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
        rows.extend(pool.runs().map(|run| row(node, pool, run, style)));
    }
    rows.extend(node.counted.iter().map(|c| counted(node, c, style)));
    rows
}

fn row(
    node: &NodeTop,
    pool: &PoolTop,
    (name, first, count): (String, &CardTop, i64),
    style: TerminalStyle,
) -> Vec<String> {
    let sum = (first.fragmented * count as f64).round() as i64;
    let fragmented = first.fragmented_milli.map(|_| sum);
    let bar = style.bar(BarSegments {
        all: f64::from(tautline_gpu_placement::CARD_MILLI),
        used: first.held_milli as f64,
        fragmented: first.fragmented,
        lost: !first.healthy,
    });
    let holders = first.holders.iter().map(|h| {
        let guess = if h.card_is_guessed { "~" } else { "" };
        let used = h.used.map(|u| {
            let bytes = u.used_bytes.saturating_mul(count);
            format!(" (uses {})", format::memory(bytes))
        });
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

/// The row of cards of which only the number of units is known; the device plugin knows the
/// holders.
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
        Amounts::Cards(sums) => card_sums(sums),
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

/// The row of the cards of all products. It does not add up nodes, since one node may have several
/// products.
fn all(totals: &[Total]) -> Vec<String> {
    let head = ["all cards".to_owned(), String::new(), String::new()];
    let sums = card_sums(&CardSums::of_all(totals));
    head.into_iter().chain(sums).collect()
}

fn card_sums(sums: &CardSums) -> [String; 5] {
    [
        sums.cards.to_string(),
        sums.unhealthy_cards.to_string(),
        format::milli(sums.held_milli),
        format::milli(sums.free_milli),
        sums.fragmented_milli.map(format::milli).unwrap_or_default(),
    ]
}

#[cfg(test)]
mod tests;
