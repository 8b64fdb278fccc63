//! How fast a fit that goes on from the last one finds a network that has changed: its error over
//! that of a fit from nothing with the same samples. Beside it the error of a model that has always
//! known the changed network.

use tautline_rtt_model::NodeId;

use crate::{
    made::Made,
    random::Random,
    replay::{self, Labelling, Learned},
    scores::{Scores, predictions},
    shapes::CHANGING,
    worlds::{DRAW, World},
};

/// Fits while the network is cut; old samples are dropped after so many.
const CUT_FITS: usize = 20;
/// By how much a line becomes longer.
const LONGER_MICROS: f32 = 30e3;
/// Samples of a node between two fits.
const VISITS: usize = 10;
/// The fits that are printed.
const SHOWN: [usize; 7] = [1, 2, 3, 5, 10, 20, 40];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    /// Every other region loses the rest, and finds it again.
    Heal,
    /// The same, but the model starts while the network is cut.
    HealAfterStart,
    /// Two fifths of the zone pairs of different regions become longer by a factor.
    Reroute,
    /// One region's line to all others becomes longer.
    Line,
}

#[derive(clap::Args)]
pub struct Args {
    /// Targets a node.
    #[arg(long, value_delimiter = ',', default_value = "8,16,32")]
    k: Vec<usize>,
    /// Fits after the change.
    #[arg(long, default_value_t = 40)]
    fits: usize,
    /// The seed of the synthetic network: another than the table's.
    #[arg(long, default_value_t = DRAW)]
    draw: u64,
}

/// Prints the table of events.
pub fn print(args: &Args) {
    let shown: Vec<usize> = SHOWN.into_iter().filter(|s| *s <= args.fits).collect();
    let columns: Vec<String> = shown.iter().map(|fit| format!("fit {fit}")).collect();
    println!(
        "| event | labels | k | unreachable | fresh | cold | {} | near, fit 3 | bar holds, fit 3 | last |",
        columns.join(" | ")
    );
    println!("|{}", "---|".repeat(9 + shown.len()));
    let events = [
        ("heal", Event::Heal),
        ("heal, started cut", Event::HealAfterStart),
        ("reroute", Event::Reroute),
        ("longer line", Event::Line),
    ];
    for (name, event) in events {
        for (labels, labelling) in [("yes", Labelling::Right), ("no", Labelling::Without)] {
            for &k in &args.k {
                let line = replay(event, labelling, k, args.draw, &shown);
                println!("| {name} | {labels} | {k} | {line} |");
            }
        }
    }
}

fn replay(event: Event, labelling: Labelling, k: usize, draw: u64, shown: &[usize]) -> String {
    let shape = &CHANGING;
    let made = Made::new(shape, draw);
    let side: Vec<usize> = (0..shape.nodes).map(|n| made.region(n) % 2).collect();
    let together = |a: usize, b: usize| side[a] == side[b];
    let after = match event {
        Event::Reroute => made.rerouted(draw),
        Event::Line => made.lengthened(LONGER_MICROS),
        Event::Heal | Event::HealAfterStart => Made::new(shape, draw),
    };
    let (before, after) = (World::made(shape, made), World::made(shape, after));
    let mut random = Random::new(6000 + draw);
    let mut learned = match event {
        Event::HealAfterStart => replay::learn_some(&before, k, 0, labelling, &together),
        Event::Heal | Event::Reroute | Event::Line => replay::learn(&before, k, 0, labelling),
    };
    let mut lost = None;
    if matches!(event, Event::Heal | Event::HealAfterStart) {
        forget(&mut learned, |a, b| !together(a, b));
        for _ in 0..CUT_FITS {
            step(&mut learned, &before, k, &mut random, &together);
        }
        let targets = learned.targets.iter().enumerate();
        let all = targets.flat_map(|(a, row)| row.iter().map(move |b| (a, b.0 as usize)));
        let cut: Vec<bool> = all.map(|(a, b)| !together(a, b)).collect();
        lost = Some(cut.iter().filter(|c| **c).count() as f64 / cut.len().max(1) as f64);
    }
    // What is no target any more is too old.
    let targets = learned.targets.clone();
    forget(&mut learned, |a, b| !targets[a].contains(&NodeId(b as u32)));
    let anew = replay::learn(&after, k, 0, labelling);
    let fresh = predictions(&after, &anew, 0).scores.median;
    let (mut over, mut last) = (Vec::new(), [Scores::default(); 2]);
    let mut third = [f64::NAN; 2];
    for fit in 1..=shown.last().copied().unwrap_or_default() {
        step(&mut learned, &after, k, &mut random, &|_, _| true);
        if shown.contains(&fit) {
            let warm = predictions(&after, &learned, 0).scores;
            let cold = predictions(&after, &cold(&learned), 0).scores;
            over.push(format!("{:.2}", warm.median / cold.median));
            if fit == 3 {
                third = [warm.near / cold.near, warm.held];
            }
            last = [warm, cold];
        }
    }
    format!(
        "{} | {fresh:.4} | {:.4} | {} | {:.2} | {:.3} | {:.3}",
        lost.map_or("-".into(), |part| format!("{part:.2}")),
        last[1].median,
        over.join(" | "),
        third[0],
        third[1],
        last[0].held,
    )
}

/// Ten seconds: targets, what is missing of them, ten others again, and a fit.
fn step(
    learned: &mut Learned,
    world: &World,
    k: usize,
    random: &mut Random,
    reachable: &dyn Fn(usize, usize) -> bool,
) {
    learned.visit(world, k, random, reachable);
    for from in 0..world.nodes {
        for _ in 0..VISITS {
            let at = random.below(learned.targets[from].len());
            let Some(&to) = learned.targets[from].get(at) else {
                continue;
            };
            if reachable(from, to.0 as usize) {
                let (micros, spread) = world.measure(from, to.0 as usize, random);
                let node = learned.nodes[from];
                learned.model.observe(node, to, micros, spread);
            }
        }
    }
    learned.fit = Some(learned.model.fit());
}

fn forget(learned: &mut Learned, which: impl Fn(usize, usize) -> bool) {
    let n = learned.nodes.len();
    for (a, b) in (0..n).flat_map(|a| (0..n).map(move |b| (a, b))) {
        if which(a, b) {
            learned.model.forget(learned.nodes[a], learned.nodes[b]);
        }
    }
}

/// The same samples, fitted from nothing.
fn cold(learned: &Learned) -> Learned {
    let mut model = learned.model.clone();
    model.forget_places();
    let fit = Some(model.fit());
    Learned {
        model,
        fit,
        nodes: learned.nodes.clone(),
        targets: learned.targets.clone(),
        unreachable: learned.unreachable.clone(),
    }
}
