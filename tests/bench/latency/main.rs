//! `cargo run --release -p tautline-bench --bin tautline-bench-latency`: the model's predictions of
//! round-trip times that were not measured, compared with serf's coordinates and a reference in
//! Python; with `--speed` their cost. Commands: `coverage` of error bars, `networks` without structure or with
//! oddities, `recovery` after changes. Prints Markdown.

mod coverage;
mod docs;
mod made;
mod networks;
mod random;
mod recovery;
mod references;
mod replay;
mod scores;
mod shapes;
mod speed;
mod synthetic;
mod table;
mod vivaldi;
mod worlds;

use std::path::PathBuf;

use anyhow::Result;
use clap::{Parser, Subcommand};

use crate::{
    replay::Labelling,
    scores::{Scores, score},
    table::{Figures, HEAD, Line},
    vivaldi::Serf,
    worlds::World,
};

/// Replays recorded and synthetic round-trip times through the model.
#[derive(Parser)]
struct Args {
    #[command(subcommand)]
    mode: Option<Mode>,
    /// Worlds: pl490, sea99, k8s1000, k8s5000.
    #[arg(long, value_delimiter = ',', default_value = "pl490,sea99,k8s1000")]
    data: Vec<String>,
    /// Targets a node.
    #[arg(long, value_delimiter = ',', default_value = "8,16,32")]
    k: Vec<usize>,
    /// Replays of each.
    #[arg(long, default_value_t = 3)]
    seeds: u64,
    /// Leave serf's coordinates out.
    #[arg(long)]
    alone: bool,
    /// Adds serf as it is configured, which gossips with all nodes.
    #[arg(long)]
    gossip: bool,
    /// Writes the table into docs/latency.md, and plots beside it.
    #[arg(long)]
    docs: bool,
    /// What fits and questions cost instead, at each world's size.
    #[arg(long)]
    speed: bool,
    /// Where the recorded worlds are.
    #[arg(long, default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/latency/data"))]
    dir: PathBuf,
}

#[derive(Subcommand)]
enum Mode {
    /// How often error bars hold, and the median error, in every world.
    Coverage(coverage::Args),
    /// The table of all worlds, with serf that gossips with all nodes, and simple references.
    Networks(networks::Args),
    /// Errors after a partition heals and after a reroute, over a cold fit's.
    Recovery(recovery::Args),
}

fn main() -> Result<()> {
    let args = Args::parse();
    if let Some(mode) = &args.mode {
        match mode {
            Mode::Coverage(coverage) => coverage::print(coverage, &args.dir)?,
            Mode::Networks(networks) => networks::print(networks, &args.dir)?,
            Mode::Recovery(recovery) => recovery::print(recovery),
        }
        return Ok(());
    }
    let mut pages = docs::Pages::default();
    if !args.speed {
        println!("{HEAD}");
    }
    for name in &args.data {
        let world = World::load(name, &args.dir, worlds::DRAW)?;
        for &k in &args.k {
            if args.speed {
                speed::print(&world, k)?;
                continue;
            }
            for line in lines(&args, &world, k, &mut pages)? {
                println!("{}", line.markdown());
                pages.lines.push(line);
            }
        }
    }
    if args.docs {
        pages.write()?;
    }
    Ok(())
}

/// The table's lines for a world and `k`.
fn lines(args: &Args, world: &World, k: usize, pages: &mut docs::Pages) -> Result<Vec<Line>> {
    let recorded = world.place(0).is_none();
    let line = |method: &str, scores: &[Scores], bars: bool| Line {
        world: world.name.into(),
        k,
        method: method.into(),
        seeds: scores.len(),
        figures: Figures::mean(scores, recorded, bars),
    };
    let mut lines = Vec::new();
    if !args.alone {
        let mut scores = Vec::new();
        for seed in 0..args.seeds {
            let scored = score(world, &Serf::learn(world, k, seed), seed);
            scores.push(scored.scores);
            pages.keep(world.name, k, "serf", &scored.errors);
        }
        lines.push(line("serf", &scores, false));
    }
    if args.gossip {
        let seeds = 0..args.seeds;
        let scores: Vec<Scores> = seeds
            .map(|seed| score(world, &Serf::gossip(world, seed), seed).scores)
            .collect();
        lines.push(line("serf, all nodes", &scores, false));
    }
    lines.extend(table::reference(&args.dir, world.name, k)?);
    let ways: &[(&str, Labelling)] = match recorded {
        true => &[("**Tautline**", Labelling::Right)],
        false => &[
            ("**Tautline**", Labelling::Right),
            ("**Tautline**, 5 % wrong labels", Labelling::Wrong(5)),
            ("**Tautline**, no labels", Labelling::Without),
        ],
    };
    for (method, labelling) in ways {
        let mut scores = Vec::new();
        for seed in 0..args.seeds {
            let learned = replay::learn(world, k, seed, *labelling);
            let scored = score(world, &learned, seed);
            scores.push(scored.scores);
            pages.keep(world.name, k, "Tautline", &scored.errors);
        }
        lines.push(line(method, &scores, true));
    }
    Ok(lines)
}
