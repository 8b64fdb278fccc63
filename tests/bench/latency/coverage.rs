//! How often the 0.8 error bar holds, in every world.

use std::path::Path;

use anyhow::Result;

use crate::{
    replay::{self, Labelling},
    scores::{Scores, predictions},
    shapes::SHAPES,
    worlds::{DRAW, World},
};

/// The worlds whose times are not of [`SHAPES`].
const OTHERS: [&str; 3] = ["pl490", "sea99", "k8s1000"];
/// What a bar of 0.8 should hold.
const GOAL: std::ops::RangeInclusive<f64> = 0.74..=0.90;

#[derive(clap::Args)]
pub struct Args {
    /// Worlds; all if none is named.
    #[arg(long, value_delimiter = ',')]
    world: Vec<String>,
    /// Targets a node.
    #[arg(long, value_delimiter = ',', default_value = "8,16,32")]
    k: Vec<usize>,
    /// Replays of each.
    #[arg(long, default_value_t = 1)]
    seeds: u64,
    /// The seed of the synthetic networks: others than the table's.
    #[arg(long, default_value_t = DRAW)]
    draw: u64,
}

/// The named worlds, or all of the table.
pub fn names(chosen: &[String]) -> Vec<String> {
    let all = SHAPES.iter().map(|shape| shape.name).chain(OTHERS);
    match chosen.is_empty() {
        true => all.map(String::from).collect(),
        false => chosen.to_vec(),
    }
}

/// How a world's nodes can be labelled.
pub fn labellings(world: &World) -> &'static [(&'static str, Labelling)] {
    match world.place(0) {
        Some(_) => &[("yes", Labelling::Right), ("no", Labelling::Without)],
        None => &[("no", Labelling::Without)],
    }
}

pub fn mean(scores: &[Scores], of: impl Fn(&Scores) -> f64) -> f64 {
    scores.iter().map(of).sum::<f64>() / scores.len().max(1) as f64
}

/// # Errors
/// There is no such world, or its file cannot be read.
pub fn print(args: &Args, data: &Path) -> Result<()> {
    println!("| world | labels | k | median | near | bar holds | near | measured | of three |");
    println!("|---|---|---|---|---|---|---|---|---|");
    let (mut met, mut all) = ([0; 3], 0);
    for name in names(&args.world) {
        let world = World::load(&name, data, args.draw)?;
        for (labels, labelling) in labellings(&world) {
            for &k in &args.k {
                let scores: Vec<Scores> = (0..args.seeds)
                    .map(|seed| {
                        let learned = replay::learn(&world, k, seed, *labelling);
                        predictions(&world, &learned, seed).scores
                    })
                    .collect();
                let held = [
                    mean(&scores, |s| s.held),
                    mean(&scores, |s| s.held_near),
                    mean(&scores, |s| s.held_measured),
                ];
                let good = held.map(|held| GOAL.contains(&held));
                for (met, good) in met.iter_mut().zip(good) {
                    *met += usize::from(good);
                }
                all += 1;
                println!(
                    "| {name} | {labels} | {k} | {:.4} | {:.3} | {:.3} | {:.3} | {:.3} | {} |",
                    mean(&scores, |s| s.median),
                    mean(&scores, |s| s.near),
                    held[0],
                    held[1],
                    held[2],
                    good.iter().filter(|good| **good).count(),
                );
            }
        }
    }
    println!();
    println!(
        "Within {} to {}: all pairs {} of {all}, near tenth {}, measured pairs {}.",
        GOAL.start(),
        GOAL.end(),
        met[0],
        met[1],
        met[2],
    );
    Ok(())
}
