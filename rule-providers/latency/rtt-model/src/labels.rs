//! Predictions from labels and sparse samples: the typical round-trip time of a pair's class (same
//! rack, same zone, zone pair, region pair) plus an offset for each node. Labels and reports may be
//! wrong: see `label_validator`. Memory is O(nodes + samples). The order of the samples does not
//! matter.

mod candidates;
mod classes;
mod index;
mod label_validator;
mod offsets;
mod placements;
mod robust;

use crate::NodeId;
use classes::PairClasses;
use index::ClassIndex;
use offsets::{NodeSamples, Offsets};
use placements::{NONE, NodePlacements};

/// Rounds of validation, each by the fit after the last one.
const VALIDATIONS: usize = 3;
const FIRST_SWEEPS: usize = 3;
const SWEEPS: usize = 2;
/// Valid round-trip times, in microseconds.
const CREDIBLE: std::ops::RangeInclusive<f32> = 1.0..=60e6;

/// A node's labels, as numbers of names: a zone's is unique in its region, a rack's in its zone.
/// Nodes without any label are not estimated; nodes without a region count as one region.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    pub region: Option<u32>,
    pub zone: Option<u32>,
    pub rack: Option<u32>,
}

/// A round-trip time that `from` reports, already filtered (a median of a few).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    pub from: NodeId,
    pub to: NodeId,
    pub micros: f32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LabelStatus {
    /// Without labels, or not a node of this fit.
    #[default]
    Unlabelled,
    Fits,
    /// The samples contradict the labels and fit this place. Its rack is unknown, and so is its
    /// zone if several zones fit equally.
    Misplaced(Place),
    Misreports,
}

/// A predicted round-trip time. `error` is one standard deviation of
/// `ln(truth / micros)`: in four of five cases the truth is within a factor of
/// `exp(1.28 * error)`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LabelEstimate {
    pub micros: f32,
    pub error: f32,
}

#[derive(Clone, Debug, Default)]
pub struct LabelFit {
    placements: NodePlacements,
    classes: PairClasses,
    index: ClassIndex,
    offsets: Offsets,
    standings: Vec<LabelStatus>,
}

impl LabelFit {
    /// Fits nodes `0..places.len()`. Skips samples of unknown nodes, of a node with itself and of
    /// incredible times.
    #[must_use]
    pub fn new(places: &[Place], samples: impl Iterator<Item = Sample>) -> Self {
        let mut samples: Vec<Sample> = samples
            .filter(|s| s.from != s.to && CREDIBLE.contains(&s.micros))
            .filter(|s| [s.from, s.to].iter().all(|n| labelled(places, *n)))
            .collect();
        // Sums then do not depend on the order in which samples came.
        samples.sort_unstable_by_key(|s| (s.from, s.to, s.micros.to_bits()));
        let links = NodeSamples::new(places.len(), &samples);
        let labels = NodePlacements::new(places);
        let mut standings: Vec<LabelStatus> = places.iter().map(at_first).collect();
        let mut placements = labels.clone();
        let mut offsets = Offsets::new(places.len());
        let mut classes = PairClasses::new(&placements, &samples, counts(&standings));
        offsets.fit(&mut classes, &samples, &links, FIRST_SWEEPS);
        for _ in 0..VALIDATIONS {
            let validator = label_validator::LabelValidator {
                labels: &labels,
                placements: &placements,
                classes: &classes,
                offsets: &offsets,
                samples: &samples,
                links: &links,
            };
            let (next, statuses) = validator.validate(&standings);
            let changed: Vec<NodeId> = (0u32..)
                .zip(standings.iter().zip(&statuses))
                .filter(|(n, (was, is))| {
                    was != is || placements.placement(NodeId(*n)) != next.placement(NodeId(*n))
                })
                .map(|(n, _)| NodeId(n))
                .collect();
            if changed.is_empty() {
                break;
            }
            (placements, standings) = (next, statuses);
            classes = PairClasses::new(&placements, &samples, counts(&standings));
            offsets.forget(&changed);
            offsets.fit(&mut classes, &samples, &links, SWEEPS);
        }
        offsets.fit(&mut classes, &samples, &links, SWEEPS);
        classes.measure_errors(&samples, &offsets);
        classes.forget_samples();
        Self {
            index: ClassIndex::new(&classes),
            placements,
            classes,
            offsets,
            standings,
        }
    }

    #[cfg(test)]
    pub fn estimate(&self, a: NodeId, b: NodeId) -> Option<LabelEstimate> {
        let (p, q) = (self.placements.placement(a)?, self.placements.placement(b)?);
        let class = self.classes.class_of(&self.placements, p, q)?;
        (a != b).then(|| self.guess(class, a, b))
    }

    /// [`LabelFit::estimate`] of `peer` with each candidate, in their order, appended to `out`.
    pub fn row(&self, peer: NodeId, candidates: &[NodeId], out: &mut Vec<Option<LabelEstimate>>) {
        let Some(p) = self.placements.placement(peer) else {
            out.extend(candidates.iter().map(|_| None));
            return;
        };
        let rack = self.classes.rack_class(p);
        let classes = self.index.classes_from(&self.placements, &self.classes, p);
        out.extend(candidates.iter().map(|&c| {
            let q = self.placements.placement(c)?;
            let class = match rack {
                Some(class) if p.rack == q.rack => class,
                _ => *classes.get(q.place as usize)?,
            };
            (class != NONE && c != peer).then(|| self.guess(class, peer, c))
        }));
    }

    #[must_use]
    pub fn status(&self, node: NodeId) -> LabelStatus {
        self.standings
            .get(node.0 as usize)
            .copied()
            .unwrap_or_default()
    }

    fn guess(&self, class: u32, a: NodeId, b: NodeId) -> LabelEstimate {
        let class = self.classes.class(class);
        let (a, b) = (self.offsets.of(a), self.offsets.of(b));
        let micros = classes::total(class.base, a.micros, b.micros);
        let error = (class.error.powi(2) + (a.variance + b.variance) / micros.powi(2)).sqrt();
        LabelEstimate { micros, error }
    }
}

fn labelled(places: &[Place], node: NodeId) -> bool {
    places
        .get(node.0 as usize)
        .is_some_and(|p| *p != Place::default())
}

fn at_first(place: &Place) -> LabelStatus {
    if *place == Place::default() {
        LabelStatus::Unlabelled
    } else {
        LabelStatus::Fits
    }
}

fn counts(standings: &[LabelStatus]) -> impl Fn(&Sample) -> bool {
    |s| standings.get(s.from.0 as usize) != Some(&LabelStatus::Misreports)
}

#[cfg(test)]
mod tests;
