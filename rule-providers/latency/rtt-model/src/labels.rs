//! Predictions by labels: the typical time of a pair's class (same rack, same zone, two zones, two
//! regions) plus an offset for each node, which stands for its access line. Both are fitted in turn
//! by robust statistics, so that a few wrong labels or reports move them little.
//!
//! All nodes are one class if no node has labels; on a flat network, no prediction is better.

mod classes;

use std::collections::BTreeSet;

use crate::{
    corrections::Sample,
    network::{Location, Node, Pair},
    sparse::Sparse,
    statistics::{median, spread, weighted_quantile},
    tuning,
};
use classes::{Class, Classes};

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
    /// True if any node has labels; else all nodes are one class.
    pub labelled: bool,
    /// True for each node whose samples contradict its labels; its location is the zone that its
    /// samples fit.
    pub contradicted: Vec<bool>,
    /// The location of each node, and the index of its zone; `None` for a node without labels, or if
    /// no node has labels, for a node without samples.
    locations: Vec<Option<(Location, usize)>>,
    /// The zones of all nodes, as locations without a rack.
    zones: Vec<Location>,
    classes: Classes,
    offsets: Vec<f32>,
}

impl LabelFit {
    /// Fits classes and offsets to the pairs. A node whose samples fit another zone far better than
    /// its own is treated as part of that zone.
    pub fn new(
        nodes: &[Node],
        measured: &[bool],
        pairs: &[Pair],
        samples: &Sparse<Sample>,
    ) -> Self {
        let labelled = nodes.iter().any(Node::is_labelled);
        let located = nodes.iter().zip(measured).map(|(node, measured)| {
            (node.is_labelled() || !labelled && *measured).then_some(node.location)
        });
        let located: Vec<Option<Location>> = located.collect();
        let zone = |location: Location| Location {
            rack: 0,
            ..location
        };
        let zones: BTreeSet<Location> = located.iter().flatten().copied().map(zone).collect();
        let zones: Vec<Location> = zones.into_iter().collect();
        let locations = located.into_iter().map(|location| {
            let location = location?;
            Some((location, zones.binary_search(&zone(location)).ok()?))
        });
        let mut fit = Self {
            labelled,
            contradicted: vec![false; nodes.len()],
            locations: locations.collect(),
            zones,
            classes: Classes::default(),
            offsets: Vec::new(),
        };
        fit.fit(pairs);
        // Nodes of one rack may share a wrong label: each relocated node helps to find the rest.
        for _ in 0..tuning::RELOCATIONS {
            let better = |node| Some((node, fit.better_zone(node, samples.row(node))?));
            let all = (0..nodes.len()).filter(|_| labelled);
            let moved: Vec<(usize, usize)> = all.filter_map(better).collect();
            if moved.is_empty() {
                break;
            }
            for (node, zone) in moved {
                fit.contradicted[node] = true;
                fit.locations[node] = Some((fit.zones[zone], zone));
            }
            fit.fit(pairs);
        }
        fit
    }

    /// Fits classes and offsets to all pairs whose nodes both have a location.
    fn fit(&mut self, pairs: &[Pair]) {
        let at = |node: u32| self.locations[node as usize].map(|(location, _)| location);
        let known = |pair: &&Pair| at(pair.a).is_some() && at(pair.b).is_some();
        let pairs: Vec<Pair> = pairs.iter().filter(known).copied().collect();
        let times: Vec<f32> = pairs.iter().map(|pair| pair.log.exp()).collect();
        let ends = pairs.iter().map(|pair| Some([at(pair.a)?, at(pair.b)?]));
        let mut classes = Classes::new(ends.flatten());
        let mut offsets = vec![0.0; self.locations.len()];
        let numbered = (0u32..).zip(&pairs);
        let cells = numbered.clone().map(|(id, pair)| (pair.a, pair.b, id));
        let of_nodes = Sparse::new(offsets.len(), cells);
        let of_pair =
            |offsets: &[f32], pair: &Pair| [pair.a, pair.b].map(|node| offsets[node as usize]);
        let rest = |offsets: &[f32]| -> Vec<f32> {
            let rest = pairs.iter().zip(&times).map(|(pair, time)| {
                let [a, b] = of_pair(offsets, pair);
                time - a - b
            });
            rest.collect()
        };
        for _ in 0..tuning::LABEL_SWEEPS {
            classes.fit(&rest(&offsets));
            fit_offsets(&mut offsets, &classes, &of_nodes, &times);
        }
        classes.fit(&rest(&offsets));
        let residuals = numbered.map(|(id, pair)| {
            let predicted = classes.of_pair(id).predicted(of_pair(&offsets, pair));
            (pair.log - predicted.ln()).abs()
        });
        let residuals: Vec<f32> = residuals.collect();
        classes.fit_errors(&residuals);
        classes.forget_pairs();
        (self.classes, self.offsets) = (classes, offsets);
    }

    /// Returns the estimates from a node.
    pub fn row(&self, from: usize) -> LabelRow<'_> {
        let location = self.locations[from].map(|(location, _)| location);
        self.row_at(from, location, self.offsets[from])
    }

    fn row_at(&self, from: usize, location: Option<Location>, offset: f32) -> LabelRow<'_> {
        let class = |other: &Location| self.classes.find(location?, *other);
        LabelRow {
            fit: self,
            from,
            location,
            offset,
            rack: location.as_ref().and_then(class),
            by_zone: self.zones.iter().map(class).collect(),
        }
    }

    /// Returns the zone that a node's samples fit far better than its labels; `None` if they do not
    /// contradict its labels.
    fn better_zone(&self, node: usize, samples: &[(u32, Sample)]) -> Option<usize> {
        let as_labelled = self.row(node).mean_error(samples)?;
        if as_labelled < tuning::CONTRADICTION {
            return None;
        }
        let zones = self.zones.iter().enumerate().take(256);
        let errors = zones.filter_map(|(index, zone)| {
            let row = self.row_at(node, Some(*zone), 0.0);
            Some((row.mean_error(samples)?, index))
        });
        let (error, zone) = errors.min_by(|a, b| a.0.total_cmp(&b.0))?;
        (error < tuning::CONTRADICTION_RATIO * as_labelled).then_some(zone)
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
        let (other, zone) = self.fit.locations[to]?;
        let one = self.location.filter(|_| to != self.from)?;
        let class = if one.shares_rack(other) {
            self.rack?
        } else {
            self.by_zone[zone]?
        };
        Some(LabelEstimate {
            log: class.predicted([self.offset, self.fit.offsets[to]]).ln(),
            error: class.error,
        })
    }

    /// Returns the mean error of the estimates of measured pairs, in logarithm; `None` if fewer
    /// than six have an estimate.
    fn mean_error(&self, samples: &[(u32, Sample)]) -> Option<f32> {
        let known = samples.iter().filter_map(|(to, sample)| {
            let off = sample.log - self.estimate(*to as usize)?.log;
            Some(off.abs().min(tuning::MAX_ERROR))
        });
        let (sum, count) = known.fold((0.0, 0), |(sum, count), off| (sum + off, count + 1));
        (count >= 6).then(|| sum / count as f32)
    }
}

/// Fits each node's offset to its excess times: a pair's time minus its class's time and the other
/// node's offset. The median comes first, so that a slow node is found however slow it is; then the
/// mean with Cauchy's weights, which a residual of two standard deviations halves. The more uncertain an offset is, the
/// more it is drawn towards 0.
fn fit_offsets(offsets: &mut [f32], classes: &Classes, of_nodes: &Sparse<u32>, times: &[f32]) {
    // Returns the excess times, each with the inverse of its class's spread.
    let above = |node: usize, offsets: &[f32]| -> Vec<(f32, f32)> {
        let own = of_nodes.row(node).iter().map(|&(other, at)| {
            let class = classes.of_pair(at);
            let above = times[at as usize] - class.time - offsets[other as usize];
            (above, class.spread.recip())
        });
        own.collect()
    };
    let (mut sizes, mut variances) = (Vec::new(), Vec::new());
    for node in 0..offsets.len() {
        let mut own = above(node, offsets);
        if let Some(offset) = weighted_quantile(&mut own, 0.5) {
            let precision: f32 = own.iter().map(|(_, weight)| weight.powi(2)).sum();
            variances.push(precision.recip());
            offsets[node] = offset;
            sizes.push(offset.abs());
        }
    }
    let usual = spread(&mut sizes).powi(2) + median(&mut variances);
    for node in (0..offsets.len()).filter(|node| !of_nodes.row(*node).is_empty()) {
        let own = above(node, offsets);
        for _ in 0..2 {
            let offset = offsets[node];
            // An offset far beyond the usual ones is drawn towards 0 less.
            let (mut sum, mut total) = (0.0, (usual + offset.powi(2)).recip());
            for (above, weight) in &own {
                let precision = weight.powi(2);
                let off = (above - offset).powi(2) * precision / 4.0;
                let weight = precision / (1.0 + off);
                sum += weight * above;
                total += weight;
            }
            offsets[node] = sum / total;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{hash::Random, network::Node};

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

    /// A fit to samples 3 % off of a third of all pairs, with labels as `zone_of` says.
    fn fitted(zone_of: impl Fn(u64) -> u64) -> (LabelFit, Sparse<Sample>) {
        let nodes = (0..NODES).map(|node| Node {
            key: node + 1,
            location: Location {
                region: 1,
                zone: zone_of(node),
                rack: 0,
            },
            is_excluded: false,
        });
        let nodes: Vec<Node> = nodes.collect();
        let mut random = Random::new(5);
        let all = (0..NODES).flat_map(|b| (0..b).map(move |a| (a, b)));
        let some: Vec<(u64, u64)> = all.filter(|_| random.unit() < 0.33).collect();
        let pairs = some.into_iter().map(|(a, b)| Pair {
            a: a as u32,
            b: b as u32,
            log: truth(a, b) + 0.03 * random.normal(),
            weight: 1.0,
            noise: None,
        });
        let pairs: Vec<Pair> = pairs.collect();
        let sample = |log| Sample {
            log,
            ..Sample::default()
        };
        let cells = pairs.iter().map(|p| (p.a, p.b, sample(p.log)));
        let samples = Sparse::new(NODES as usize, cells);
        let measured = [true; NODES as usize];
        (LabelFit::new(&nodes, &measured, &pairs, &samples), samples)
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
        let (fit, samples) = fitted(|node| if node == 9 { 1 } else { zone(node) });
        let moved = (0..).zip(&fit.contradicted).filter(|(_, moved)| **moved);
        assert_eq!(moved.map(|(node, _)| node).collect::<Vec<_>>(), [9]);
        let error = fit.row(9).mean_error(samples.row(9)).unwrap();
        assert!(error < 0.1, "{error}");
    }
}
