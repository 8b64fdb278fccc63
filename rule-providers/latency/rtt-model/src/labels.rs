//! Predictions by labels: the typical time of a pair's class (same rack, same zone, two zones, two
//! regions) plus an offset for each node, which stands for its access line. Both are fitted in turn
//! by robust statistics, so that a few wrong labels or reports move them little.
//!
//! All nodes are one class if no node has labels; on a flat network, no prediction is better.

mod classes;

use crate::{
    coords::Pair,
    smooth::Sample,
    sparse::Sparse,
    statistics::{median, spread, weighted_median},
    tuning::TUNING,
};
use classes::{Class, Classes};
pub(crate) use classes::{Location, Locations};

/// The least number of pairs with which a node's samples can contradict its labels.
const MIN_COMPARED_PAIRS: usize = 6;
/// The upper bound of a pair's error in that comparison, in logarithm.
const MAX_COMPARED_ERROR: f32 = 1.0;
/// The residual, in standard deviations, that halves a pair's weight in a node's offset.
const HALF_WEIGHT_DEVIATIONS: f32 = 2.0;
/// The number of times that an offset is computed with such weights.
const OFFSET_REWEIGHTINGS: usize = 2;
/// The largest number of zones that are tried for a node whose labels may be wrong.
const MAX_CANDIDATE_ZONES: usize = 256;

/// A prediction by labels.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LabelEstimate {
    /// The logarithm of the time.
    pub log: f32,
    /// The standard deviation of that logarithm's error in the pair's class.
    pub error: f32,
}

/// The classes and offsets of a fit; times are multiples of the fit's scale.
#[derive(Clone, Debug)]
pub(crate) struct LabelFit {
    pub locations: Locations,
    classes: Classes,
    offsets: Vec<f32>,
}

impl LabelFit {
    /// Fits classes and offsets to all pairs whose nodes both have a location.
    pub fn new(locations: Locations, pairs: &[Pair]) -> Self {
        let nodes = locations.nodes.len();
        let at = |node: u32| locations.nodes[node as usize];
        let known = |pair: &&Pair| [pair.a, pair.b].iter().all(|node| at(*node).is_some());
        let pairs: Vec<Pair> = pairs.iter().filter(known).copied().collect();
        let times: Vec<f32> = pairs.iter().map(|pair| pair.log.exp()).collect();
        let ends = pairs.iter().map(|pair| [pair.a, pair.b]);
        let mut classes = Classes::new(ends.filter_map(|[a, b]| Some([at(a)?, at(b)?])));
        let mut offsets = vec![0.0; nodes];
        let numbered = (0u32..).zip(&pairs);
        let of_nodes = Sparse::new(nodes, numbered.map(|(id, pair)| (pair.a, pair.b, id)));
        let rest = |offsets: &[f32]| -> Vec<f32> {
            let both = pairs.iter().zip(&times);
            both.map(|(pair, time)| time - offsets[pair.a as usize] - offsets[pair.b as usize])
                .collect()
        };
        for _ in 0..TUNING.label_sweeps {
            classes.fit(&rest(&offsets));
            fit_offsets(&mut offsets, &classes, &of_nodes, &times);
        }
        classes.fit(&rest(&offsets));
        let residuals = (0u32..).zip(&pairs).map(|(id, pair)| {
            let ends = [pair.a, pair.b].map(|node| offsets[node as usize]);
            (pair.log - classes.of_pair(id).predicted(ends).ln()).abs()
        });
        let residuals: Vec<f32> = residuals.collect();
        classes.fit_errors(&residuals);
        classes.forget_pairs();
        Self {
            locations,
            classes,
            offsets,
        }
    }

    /// Returns the estimates from a node.
    pub fn row(&self, from: usize) -> LabelRow<'_> {
        let location = self.locations.nodes.get(from).copied().flatten();
        let offset = self.offsets.get(from).copied().unwrap_or_default();
        self.row_at(from, location, offset)
    }

    fn row_at(&self, from: usize, location: Option<Location>, offset: f32) -> LabelRow<'_> {
        let by_zone = location.map(|location| {
            let zones = self.locations.zones.iter();
            let classes = zones.map(|zone| self.classes.find(location, *zone));
            classes.collect()
        });
        LabelRow {
            fit: self,
            from,
            location,
            offset,
            rack: location.and_then(|location| self.classes.find(location, location)),
            by_zone: by_zone.unwrap_or_default(),
        }
    }

    /// Returns the zone that a node's samples fit far better than its labels; `None` if they do not
    /// contradict its labels.
    pub fn better_location(&self, node: usize, samples: &[(u32, Sample)]) -> Option<Location> {
        let (least, ratio) = TUNING.contradiction;
        let as_labelled = self.row(node).mean_error(samples)?;
        if as_labelled < least {
            return None;
        }
        let zones = self.locations.zones.iter().take(MAX_CANDIDATE_ZONES);
        let candidates = zones.filter_map(|zone| {
            let row = self.row_at(node, Some(*zone), 0.0);
            Some((row.mean_error(samples)?, *zone))
        });
        let (error, zone) = candidates.min_by(|a, b| a.0.total_cmp(&b.0))?;
        (error < ratio * as_labelled).then_some(zone)
    }
}

/// The estimates from one node.
pub(crate) struct LabelRow<'a> {
    fit: &'a LabelFit,
    from: usize,
    location: Option<Location>,
    offset: f32,
    /// The class of pairs in the node's own rack.
    rack: Option<Class>,
    /// The class of the node's pairs with each zone, by the zone's index.
    by_zone: Vec<Option<Class>>,
}

impl LabelRow<'_> {
    /// Returns the estimate to a node; `None` for the node itself, without labels, and if no class
    /// of the pair has samples.
    pub fn estimate(&self, to: usize) -> Option<LabelEstimate> {
        let other = (*self.fit.locations.nodes.get(to)?)?;
        let one = self.location.filter(|_| to != self.from)?;
        let class = if one.shares_rack(other) {
            self.rack?
        } else {
            (*self.by_zone.get(other.zone_index as usize)?)?
        };
        Some(LabelEstimate {
            log: class.predicted([self.offset, self.fit.offsets[to]]).ln(),
            error: class.error,
        })
    }

    /// Returns the mean error of the estimates of measured pairs, in logarithm; `None` if too few
    /// pairs have an estimate.
    pub fn mean_error(&self, samples: &[(u32, Sample)]) -> Option<f32> {
        let known = samples.iter().filter_map(|(to, sample)| {
            let off = sample.log - self.estimate(*to as usize)?.log;
            Some(off.abs().min(MAX_COMPARED_ERROR))
        });
        let (sum, count) = known.fold((0.0, 0), |(sum, count), off| (sum + off, count + 1));
        (count >= MIN_COMPARED_PAIRS).then(|| sum / count as f32)
    }
}

/// Fits each node's offset to its excess times: a pair's time minus its class's time and the other
/// node's offset. The median comes first, so that a slow node is found however slow it is; then the
/// mean with Cauchy's weights, which fall with the residual. The more uncertain an offset is, the
/// more it is drawn towards 0.
fn fit_offsets(offsets: &mut [f32], classes: &Classes, of_nodes: &Sparse<u32>, times: &[f32]) {
    let above = |node: usize, offsets: &[f32], own: &mut Vec<(f32, f32)>| {
        own.clear();
        own.extend(of_nodes.row(node).iter().map(|&(other, at)| {
            let class = classes.of_pair(at);
            let above = times[at as usize] - class.time - offsets[other as usize];
            (above, class.spread.powi(-2))
        }));
    };
    let mut own: Vec<(f32, f32)> = Vec::new();
    let (mut sizes, mut variances) = (Vec::new(), Vec::new());
    for node in 0..offsets.len() {
        above(node, offsets, &mut own);
        if own.is_empty() {
            continue;
        }
        let precision: f32 = own.iter().map(|(_, precision)| precision).sum();
        variances.push(precision.recip());
        offsets[node] = weighted_median(&mut own);
        sizes.push(offsets[node].abs());
    }
    let usual = spread(&mut sizes).powi(2) + median(&mut variances);
    for node in 0..offsets.len() {
        above(node, offsets, &mut own);
        for _ in 0..OFFSET_REWEIGHTINGS {
            let offset = offsets[node];
            // An offset far beyond the usual ones is drawn towards 0 less.
            let (mut sum, mut total) = (0.0, (usual + offset.powi(2)).recip());
            for (above, precision) in &own {
                let off = (above - offset).powi(2) * precision / HALF_WEIGHT_DEVIATIONS.powi(2);
                let weight = precision / (1.0 + off);
                sum += weight * above;
                total += weight;
            }
            offsets[node] = if own.is_empty() { 0.0 } else { sum / total };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{hash::Random, model::Node};

    const ZONES: u64 = 4;
    const NODES: u64 = 60;

    fn zone(node: u64) -> u64 {
        1 + node % ZONES
    }

    /// The logarithm of a pair's time: 1 within a zone, 8 between two, and offsets up to 0.5.
    fn truth(a: u64, b: u64) -> f32 {
        let path = if zone(a) == zone(b) { 1.0 } else { 8.0 };
        let offset = |node: u64| (node * 7 % 11) as f32 / 22.0;
        (path + offset(a) + offset(b)).ln()
    }

    /// Labels as `zone_of` says, a third of all pairs, and samples 3 % off.
    fn fitted(zone_of: impl Fn(u64) -> u64) -> (LabelFit, Vec<Pair>) {
        let nodes: Vec<Node> = (0..NODES)
            .map(|node| Node {
                key: node + 1,
                region: 1,
                zone: zone_of(node),
                rack: 0,
            })
            .collect();
        let mut random = Random::new(5);
        let all = (0..NODES).flat_map(|b| (0..b).map(move |a| (a, b)));
        let pairs: Vec<Pair> = all
            .filter(|_| random.unit() < 0.33)
            .collect::<Vec<_>>()
            .into_iter()
            .map(|(a, b)| Pair {
                a: a as u32,
                b: b as u32,
                log: truth(a, b) + 0.03 * random.normal(),
                weight: 1.0,
                spread: None,
            })
            .collect();
        (LabelFit::new(Locations::new(&nodes), &pairs), pairs)
    }

    fn samples(pairs: &[Pair]) -> Sparse<Sample> {
        let cells = pairs.iter().map(|p| (p.a, p.b, Sample::new(p, p.log)));
        Sparse::new(NODES as usize, cells)
    }

    #[test]
    fn class_and_offsets_predict_a_pair() {
        let (fit, _) = fitted(zone);
        for (a, b) in [(0, 4), (1, 2), (7, 50), (3, 59)] {
            let estimate = fit.row(a as usize).estimate(b as usize).unwrap();
            let off = (estimate.log - truth(a, b)).abs();
            assert!(off < 0.15 && estimate.error < 0.15, "{a} {b}: {estimate:?}");
        }
    }

    #[test]
    fn node_with_a_wrong_label_moves_to_its_zone() {
        let (fit, pairs) = fitted(|node| if node == 9 { 1 } else { zone(node) });
        let samples = samples(&pairs);
        let better = |node: u32| fit.better_location(node as usize, samples.row(node as usize));
        let moved: Vec<u32> = (0..NODES as u32).filter(|n| better(*n).is_some()).collect();
        assert_eq!(moved, [9]);
        let mut locations = fit.locations.clone();
        locations.nodes[9] = better(9);
        let moved = LabelFit::new(locations, &pairs);
        let error = moved.row(9).mean_error(samples.row(9)).unwrap();
        assert!(error < 0.1, "{error}");
    }
}
