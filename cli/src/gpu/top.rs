mod text;

use std::process::ExitCode;

use anyhow::Result;
use tautline_gpu_slice::{
    Config, Inspection,
    report::{Order, Top, has_gpus},
};

use super::{bar::TerminalStyle, source::SourceArgs, uses::UseArgs};
use crate::{
    EXIT_NO,
    choice_arg::{Choice, one_of},
    output::{self, Output},
    scope,
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
    let source = args.source.read(None).await?;
    let inspection = Inspection::new(source.snapshot, Config::default());
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
        text::text(top, TerminalStyle::of_stdout(), screen::columns())
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

#[cfg(test)]
mod tests;
