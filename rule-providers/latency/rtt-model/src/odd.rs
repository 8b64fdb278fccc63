//! Odd nodes: near to all, however far from each other these are, like an address with an instance
//! in each region. No place in a space explains that, and no label does. Instead, they have a level:
//! the median time of their pairs.

use crate::{NodeId, coords::Pair, held_out::quantile, labels::LabelFit};

/// A node with fewer pairs is not judged.
const FEWEST: usize = 6;
/// The logarithm of a far pair is above the level by so much; one pair in so many may be far.
const FAR: f32 = 1.5;
const MANY: usize = 20;
/// The mean residuals of coordinates and of labels are at least this, and that around the level is
/// at most this part of each.
const LEAST: f32 = 0.7;
const PART: f32 = 0.5;
/// The upper bound of a residual in these means.
const MOST: f32 = 3.0;
/// In the second round, pairs with nodes that the first one found do not count.
const ROUNDS: usize = 2;

/// Levels of odd nodes, as logarithms of multiples of the fit's scale; empty: no node is odd.
#[derive(Clone, Debug, Default)]
pub(crate) struct Levels(Vec<Option<f32>>);

/// A measured pair of a node.
#[derive(Clone, Copy)]
struct Own {
    other: u32,
    log: f32,
    /// By coordinates.
    fitted: f32,
}

impl Levels {
    /// `fitted` are the logarithms of the pairs' distances.
    pub fn new(nodes: usize, pairs: &[Pair], fitted: &[f32], labels: Option<Labels<'_>>) -> Self {
        let mut all: Vec<Vec<Own>> = vec![Vec::new(); nodes];
        for (pair, fitted) in pairs.iter().zip(fitted) {
            for (node, other) in [(pair.a, pair.b), (pair.b, pair.a)] {
                all[node as usize].push(Own {
                    other,
                    log: pair.log,
                    fitted: *fitted,
                });
            }
        }
        let mut levels = Self::default();
        for _ in 0..ROUNDS {
            let level = |(node, own): (u32, &Vec<Own>)| {
                let counts = |own: &&Own| levels.of(own.other as usize).is_none();
                let own: Vec<Own> = own.iter().filter(counts).copied().collect();
                match own.len() < FEWEST {
                    true => levels.of(node as usize),
                    false => level(node, &own, labels),
                }
            };
            let next: Vec<Option<f32>> = (0u32..).zip(&all).map(level).collect();
            let odd = next.iter().any(Option::is_some);
            levels = Self(if odd { next } else { Vec::new() });
        }
        levels
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn of(&self, node: usize) -> Option<f32> {
        self.0.get(node).copied().flatten()
    }

    /// Of a pair: that of its odd node, or the mean of two; `None`: neither is odd.
    pub fn of_pair(&self, a: usize, b: usize) -> Option<f32> {
        match (self.of(a), self.of(b)) {
            (Some(a), Some(b)) => Some((a + b) / 2.0),
            (one, other) => one.or(other),
        }
    }
}

/// Labels, and the fit's scale.
#[derive(Clone, Copy)]
pub(crate) struct Labels<'a> {
    fit: &'a LabelFit,
    scale: f32,
}

impl<'a> Labels<'a> {
    /// `None` if they are not real ones.
    pub fn new(real: bool, fit: &'a LabelFit, scale: f32) -> Option<Self> {
        real.then_some(Self { fit, scale })
    }
}

/// `None` of an ordinary node.
fn level(node: u32, own: &[Own], labels: Option<Labels<'_>>) -> Option<f32> {
    let level = quantile(own.iter().map(|own| own.log).collect(), 0.5)?;
    let far = own.iter().filter(|own| own.log > level + FAR);
    if MANY * far.count() > own.len() {
        return None;
    }
    let around = mean(own.iter().map(|own| own.log - level));
    let least = LEAST.max(around / PART);
    let missed = mean(own.iter().map(|own| own.log - own.fitted));
    (missed >= least).then_some(())?;
    let mut predicted: Vec<f32> = own.iter().map(|own| own.fitted).collect();
    if let Some(Labels { fit, scale }) = labels {
        let others: Vec<NodeId> = own.iter().map(|own| NodeId(own.other)).collect();
        let mut guesses = Vec::new();
        fit.row(NodeId(node), &others, &mut guesses);
        for (predicted, guess) in predicted.iter_mut().zip(guesses) {
            *predicted = guess.map_or(f32::INFINITY, |guess| (guess.micros / scale).ln());
        }
        let missed = mean(own.iter().zip(&predicted).map(|(own, log)| own.log - log));
        (missed >= least).then_some(())?;
    }
    // Pairs that are near anyway say less of the others, and more of one place.
    let both = own.iter().zip(&predicted);
    let odd = both.filter(|(own, log)| **log > own.log + LEAST);
    let odd: Vec<f32> = odd.map(|(own, _)| own.log).collect();
    match odd.len() < FEWEST {
        true => Some(level),
        false => quantile(odd, 0.5),
    }
}

fn mean(residuals: impl ExactSizeIterator<Item = f32>) -> f32 {
    let count = residuals.len().max(1) as f32;
    residuals.map(|off| off.abs().min(MOST)).sum::<f32>() / count
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two sites, at 0 and 1,000; the last node is near to the first `near` others.
    fn levels(near: u32) -> Levels {
        const NODES: u32 = 20;
        let site = |node: u32| if node < NODES / 2 { 0.0f32 } else { 1_000.0 };
        let (mut pairs, mut fitted) = (Vec::new(), Vec::new());
        for (a, b) in (0..NODES).flat_map(|b| (0..b).map(move |a| (a, b))) {
            let distance = (1.0 + (site(a) - site(b)).abs()).ln();
            let odd = b == NODES - 1 && a < near;
            pairs.push(Pair {
                a,
                b,
                log: if odd { 0.2 } else { distance },
                weight: 1.0,
                apart: 0.0,
                spread: None,
            });
            fitted.push(distance);
        }
        Levels::new(NODES as usize, &pairs, &fitted, None)
    }

    #[test]
    fn a_node_that_is_near_to_all_is_odd() {
        let all = levels(20);
        assert_eq!(all.of(19), Some(0.2));
        assert!((0..19).all(|node| all.of(node).is_none()));
        assert_eq!(all.of_pair(3, 19), Some(0.2));
        assert_eq!(all.of_pair(3, 4), None);
    }

    #[test]
    fn a_node_with_far_pairs_is_at_another_place_only() {
        assert!(levels(0).is_empty());
        assert!(levels(7).is_empty());
    }
}
