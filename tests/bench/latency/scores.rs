//! The quality of predictions, by the measures of the table.

use crate::{
    random::Random,
    replay::Predictor,
    worlds::{World, median},
};

/// Maximum number of compared pairs.
const MOST_PAIRS: usize = 400_000;
const QUERIES: usize = 1_000;
const CANDIDATES: usize = 500;
const SHORTLIST: usize = 16;

/// Scores for pairs that were not measured, and for choices among all nodes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Scores {
    pub median: f64,
    pub p90: f64,
    pub near: f64,
    /// The chosen node is within 1 ms of the best; below, within 10 %.
    pub within_1ms: f64,
    pub within_tenth: f64,
    /// The same after the eight or sixteen best were measured.
    pub top8_tenth: f64,
    pub top16_1ms: f64,
    /// Precision and recall of "within the limit", by prediction alone.
    pub feasible: [(f64, f64); 3],
    /// For the second limit with pairs between half and twice of it measured: part measured,
    /// precision, recall.
    pub band: (f64, f64, f64),
    /// Part of pairs whose true value is within the error bar: all, the closest tenth, and pairs
    /// that were measured.
    pub held: f64,
    pub held_near: f64,
    pub held_measured: f64,
}

pub struct Scored {
    pub scores: Scores,
    /// Relative errors, sorted.
    pub errors: Vec<f32>,
}

struct Pair {
    truth: f32,
    predicted: f32,
    held: bool,
}

pub fn score(world: &World, predictor: &dyn Predictor, seed: u64) -> Scored {
    let mut scored = predictions(world, predictor, seed);
    choices(world, predictor, seed, &mut scored.scores);
    scored
}

/// The scores but those of choices.
pub fn predictions(world: &World, predictor: &dyn Predictor, seed: u64) -> Scored {
    let mut scores = Scores::default();
    let (mut measured, mut pairs) = compared(world, predictor, seed);
    measured.retain(|p| p.predicted > 0.0);
    scores.held_measured = share(measured.iter().filter(|p| p.held).count(), measured.len());
    let off = |pair: &Pair| (pair.predicted - pair.truth).abs() / pair.truth;
    let mut errors: Vec<f32> = pairs.iter().map(off).collect();
    errors.sort_unstable_by(f32::total_cmp);
    scores.median = quantile(&errors, 0.5);
    scores.p90 = quantile(&errors, 0.9);
    scores.held = share(pairs.iter().filter(|p| p.held).count(), pairs.len());
    for (feasible, limit) in scores.feasible.iter_mut().zip(world.limits) {
        *feasible = precision_recall(&pairs, |p| p.predicted <= limit, limit);
    }
    let limit = world.limits[1];
    let inside = |p: &Pair| p.predicted > limit / 2.0 && p.predicted < limit * 2.0;
    let decide = |p: &Pair| {
        if inside(p) {
            p.truth <= limit
        } else {
            p.predicted <= limit
        }
    };
    let (precision, recall) = precision_recall(&pairs, decide, limit);
    let measured = share(pairs.iter().filter(|p| inside(p)).count(), pairs.len());
    scores.band = (measured, precision, recall);
    pairs.sort_unstable_by(|a, b| a.truth.total_cmp(&b.truth));
    let tenth = &pairs[..pairs.len() / 10];
    scores.held_near = share(tenth.iter().filter(|p| p.held).count(), tenth.len());
    let mut near: Vec<f32> = tenth.iter().map(off).collect();
    near.sort_unstable_by(f32::total_cmp);
    scores.near = quantile(&near, 0.5);
    Scored { scores, errors }
}

fn share(part: usize, all: usize) -> f64 {
    part as f64 / all.max(1) as f64
}

pub fn quantile(sorted: &[f32], at: f64) -> f64 {
    let last = sorted.len().saturating_sub(1);
    sorted
        .get((at * last as f64).round() as usize)
        .map_or(f64::NAN, |x| f64::from(*x))
}

fn precision_recall(pairs: &[Pair], predicted: impl Fn(&Pair) -> bool, limit: f32) -> (f64, f64) {
    let both = pairs
        .iter()
        .filter(|p| predicted(p) && p.truth <= limit)
        .count();
    let all_predicted = pairs.iter().filter(|p| predicted(p)).count();
    let all_true = pairs.iter().filter(|p| p.truth <= limit).count();
    (share(both, all_predicted), share(both, all_true))
}

/// Pairs that a node measured, and those that neither did: all, or those of some peers.
fn compared(world: &World, predictor: &dyn Predictor, seed: u64) -> (Vec<Pair>, Vec<Pair>) {
    let n = world.nodes;
    let whole = n * (n - 1) / 2 <= MOST_PAIRS;
    let peers = match whole {
        true => (0..n).collect(),
        false => Random::new(5 + seed).choose(n, MOST_PAIRS / n),
    };
    let (mut measured, mut pairs) = (Vec::new(), Vec::new());
    for &a in peers.iter().filter(|a| world.honest(**a)) {
        let row = predictor.row(a);
        let bars = predictor.bars(a);
        let from = if whole { a + 1 } else { 0 };
        for b in (from..n).filter(|b| *b != a && world.honest(*b)) {
            let truth = world.truth(a, b);
            if truth > 0.0 {
                let held = bars
                    .as_ref()
                    .is_some_and(|bars| bars[b].0 <= truth && truth <= bars[b].1);
                let pair = Pair {
                    truth,
                    predicted: row[b],
                    held,
                };
                match predictor.measured(a, b) {
                    true => measured.push(pair),
                    false => pairs.push(pair),
                }
            }
        }
    }
    (measured, pairs)
}

/// One peer, up to 500 candidates: the chosen node, and its distance from the best.
fn choices(world: &World, predictor: &dyn Predictor, seed: u64, scores: &mut Scores) {
    let mut random = Random::new(9 + seed);
    let mut rows: Vec<Option<Vec<f32>>> = vec![None; world.nodes];
    let mut hits = [0usize; 4];
    for _ in 0..QUERIES {
        let peer = random.below(world.nodes);
        let mut candidates = random.choose(world.nodes, CANDIDATES + 1);
        candidates.retain(|c| *c != peer);
        candidates.truncate(CANDIDATES);
        let row = rows[peer].get_or_insert_with(|| predictor.row(peer));
        candidates.sort_by(|a, b| row[*a].total_cmp(&row[*b]));
        let truth = |node: usize| world.truth(node, peer);
        let best = candidates
            .iter()
            .map(|c| truth(*c))
            .fold(f32::INFINITY, f32::min);
        let mut again = |count: usize| {
            let fresh = candidates.iter().take(count).map(|c| {
                let mut three = [0.0f32; 3];
                three.fill_with(|| world.fresh(*c, peer, &mut random));
                (median(&mut three), truth(*c))
            });
            fresh
                .min_by(|a, b| a.0.total_cmp(&b.0))
                .map_or(0.0, |f| f.1)
        };
        let (eight, sixteen) = (again(8), again(SHORTLIST));
        let first = candidates.first().map_or(0.0, |c| truth(*c));
        hits[0] += usize::from(first <= best + 1_000.0);
        hits[1] += usize::from(first <= best * 1.1);
        hits[2] += usize::from(eight <= best * 1.1);
        hits[3] += usize::from(sixteen <= best + 1_000.0);
    }
    let [near, tenth, eight, sixteen] = hits.map(|hit| share(hit, QUERIES));
    scores.within_1ms = near;
    scores.within_tenth = tenth;
    scores.top8_tenth = eight;
    scores.top16_1ms = sixteen;
}
