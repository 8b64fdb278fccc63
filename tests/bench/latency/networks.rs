//! The table of all networks: the model, serf as it is configured and with fixed targets, and both
//! simple references.

use std::path::Path;

use anyhow::Result;

use crate::{
    coverage::{labellings, mean, names},
    references::{Central, Offsets},
    replay::{self, Predictor},
    scores::{Scores, score},
    vivaldi::Serf,
    worlds::{DRAW, World},
};

#[derive(clap::Args)]
pub struct Args {
    /// Worlds; all if none is named.
    #[arg(long, value_delimiter = ',')]
    world: Vec<String>,
    /// Targets a node.
    #[arg(long, value_delimiter = ',', default_value = "8,16,32")]
    k: Vec<usize>,
    /// Replays of each.
    #[arg(long, default_value_t = 3)]
    seeds: u64,
    /// The seed of the synthetic networks: others than the table's.
    #[arg(long, default_value_t = DRAW)]
    draw: u64,
}

/// # Errors
/// There is no such world, or its file cannot be read.
pub fn print(args: &Args, data: &Path) -> Result<()> {
    println!(
        "| world | k | method | median | p90 | near | <= 1 ms | top-16 | bar holds | near | measured |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|");
    for name in names(&args.world) {
        let world = World::load(&name, data, args.draw)?;
        let judge = |learn: &dyn Fn(u64) -> Box<dyn Predictor>| -> Vec<Scores> {
            let seeds = 0..args.seeds;
            seeds
                .map(|seed| score(&world, learn(seed).as_ref(), seed).scores)
                .collect()
        };
        let gossip = judge(&|seed| Box::new(Serf::gossip(&world, seed)));
        line(&world, "all", "serf, all nodes", &gossip, false);
        for &k in &args.k {
            let count = k.to_string();
            let fixed = judge(&|seed| Box::new(Serf::learn(&world, k, seed)));
            line(&world, &count, "serf", &fixed, false);
            let central = judge(&|seed| Box::new(Central::learn(&world, k, seed)));
            line(&world, &count, "central, random targets", &central, false);
            let offsets: Vec<Scores> = (0..args.seeds)
                .filter_map(|seed| {
                    Some(score(&world, &Offsets::learn(&world, k, seed)?, seed).scores)
                })
                .collect();
            if !offsets.is_empty() {
                line(&world, &count, "labels with offsets", &offsets, false);
            }
            for (labels, labelling) in labellings(&world) {
                let ours = judge(&|seed| Box::new(replay::learn(&world, k, seed, *labelling)));
                let method = match *labels {
                    "yes" => "**Tautline**",
                    _ => "**Tautline**, no labels",
                };
                line(&world, &count, method, &ours, true);
            }
        }
    }
    Ok(())
}

fn line(world: &World, k: &str, method: &str, scores: &[Scores], bars: bool) {
    let mean = |of: fn(&Scores) -> f64| mean(scores, of);
    let held = |of: fn(&Scores) -> f64| match bars {
        true => format!("{:.3}", mean(of)),
        false => "-".into(),
    };
    println!(
        "| {} | {k} | {method} | {:.4} | {:.3} | {:.3} | {:.3} | {:.3} | {} | {} | {} |",
        world.name,
        mean(|s| s.median),
        mean(|s| s.p90),
        mean(|s| s.near),
        mean(|s| s.within_1ms),
        mean(|s| s.top16_1ms),
        held(|s| s.held),
        held(|s| s.held_near),
        held(|s| s.held_measured),
    );
}
