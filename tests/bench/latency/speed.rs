//! The model's cost: time of a fit, of a request, and memory.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use tautline_bench::Times;
use tautline_tests::process::peak_bytes;

use crate::{random::Random, replay, worlds::World};

const WARM_FITS: usize = 8;
const QUESTIONS: usize = 50;
const PEERS: usize = 3;

/// Prints a table of costs at a world's size, `k` targets a node.
///
/// # Errors
/// The time of this thread cannot be read.
pub fn print(world: &World, k: usize) -> Result<()> {
    let mut random = Random::new(77);
    let peak = || peak_bytes(std::process::id());
    let before = peak();
    let mut learned = replay::learn(world, k, 0, replay::Labelling::Right);
    let mut warm = Vec::new();
    for _ in 0..WARM_FITS {
        // One target of every node is measured again every second, for ten seconds.
        for from in 0..world.nodes {
            for _ in 0..10 {
                let to = learned.targets[from][random.below(learned.targets[from].len())];
                let (micros, spread) = world.measure(from, to.0 as usize, &mut random);
                let node = learned.nodes[from];
                learned.model.observe(node, to, micros, spread);
            }
        }
        let start = cpu()?;
        learned.fit = Some(learned.model.fit());
        warm.push(cpu()? - start);
    }
    let after = peak();
    let warm = Times::new(warm);
    let mut questions = Vec::new();
    for _ in 0..QUESTIONS {
        let peers = random.choose(world.nodes, PEERS);
        let start = Instant::now();
        let mut worst = vec![0.0f32; world.nodes];
        for peer in peers {
            let fit = learned.fit.as_ref();
            let Some(row) = fit.and_then(|fit| fit.row(learned.nodes[peer])) else {
                continue;
            };
            for (worst, node) in worst.iter_mut().zip(&learned.nodes) {
                *worst = worst.max(row.estimate(*node).map_or(0.0, |e| e.micros));
            }
        }
        std::hint::black_box(&worst);
        questions.push(start.elapsed());
    }
    let questions = Times::new(questions);
    let start = cpu()?;
    let mut targets = Vec::new();
    for (node, present) in learned.nodes.iter().zip(&learned.targets) {
        targets.clone_from(present);
        learned
            .model
            .targets(learned.fit.as_ref(), *node, k, &[], &mut targets);
    }
    let choosing = cpu()? - start;
    let mut again = learned.model.clone();
    again.forget_places();
    let start = cpu()?;
    std::hint::black_box(again.fit());
    let cold = cpu()? - start;
    println!("{}: {} nodes x {k} targets", world.name, world.nodes);
    println!();
    println!("| what | CPU time, or memory |");
    println!("|---|---|");
    println!("| fit from nothing | {cold:.2?} |");
    println!(
        "| fit that goes on from the last: median | {:.2?} |",
        warm.quantile(0.5)
    );
    println!(
        "| the same: worst of {WARM_FITS} | {:.2?} |",
        warm.quantile(1.0)
    );
    println!(
        "| {} candidates x {PEERS} peers, rows not kept (wall time): median | {:.2?} |",
        world.nodes,
        questions.quantile(0.5)
    );
    println!(
        "| the same: worst of {QUESTIONS} | {:.2?} |",
        questions.quantile(1.0)
    );
    println!("| all nodes' targets | {choosing:.2?} |");
    println!(
        "| memory that model and fit added, with what fitting needed | {:.1} MB |",
        (after - before) as f64 / f64::from(1 << 20)
    );
    Ok(())
}

/// The CPU time of this thread.
fn cpu() -> Result<Duration> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    let nanos = text.split_whitespace().next();
    let nanos = nanos.context("/proc/thread-self/schedstat")?.parse()?;
    Ok(Duration::from_nanos(nanos))
}
