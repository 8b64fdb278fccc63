//! Validation of labels and reports by the samples. Losses are negative log likelihoods with an
//! upper bound, so that the size of a gross error does not matter.

use super::candidates::{CUT, CandidateTables, loss};
use super::classes::{PairClasses, total};
use super::offsets::{NodeSamples, Offsets};
use super::placements::{NodePlacements, Placement};
use super::robust::{Weighed, median, spread, weighted_median};
use super::{LabelStatus, NodeId, Sample};

/// The least typical residual, in logarithm.
const MIN_RESIDUAL: f32 = 0.25;
/// Another place must have a loss smaller by this: two clear samples.
const GAIN: f32 = 6.0;
/// And at most this part of the loss of the labels.
const LEFT: f32 = 0.5;
/// Zones within this of the best are compared by class; a zone must be better than its whole
/// region by as much.
const PROOF: f32 = 2.0;
/// And better by this than any other zone; else only the region is used.
const MARGIN: f32 = 1.0;
const NEAREST: usize = 8;
/// Reports off by a factor of 2 are wrong. A misreporting node has most of its own reports
/// wrong, and few of the others' reports on it.
const WRONG: f32 = std::f32::consts::LN_2;
const OWN_WRONG: f32 = 0.6;
const OTHERS_WRONG: f32 = 0.3;
const FEWEST: usize = 3;

pub(super) struct LabelValidator<'a> {
    /// Placements by label, and current placements.
    pub labels: &'a NodePlacements,
    pub placements: &'a NodePlacements,
    pub classes: &'a PairClasses,
    pub offsets: &'a Offsets,
    pub samples: &'a [Sample],
    pub links: &'a NodeSamples,
}

/// A sample from the view of one of its nodes.
pub(super) struct Observation {
    id: u32,
    pub other: Placement,
    reported: bool,
    /// Without the other node's offset, microseconds.
    pub micros: f32,
}

impl LabelValidator<'_> {
    pub fn validate(&self, before: &[LabelStatus]) -> (NodePlacements, Vec<LabelStatus>) {
        let usual = self.typical_residual();
        let mut tables = CandidateTables::default();
        let mut placements = self.labels.clone();
        let mut standings = before.to_vec();
        let mut seen = Vec::new();
        for (node, standing) in standings.iter_mut().enumerate() {
            let id = NodeId(node as u32);
            let (Some(label), Some(now)) =
                (self.labels.placement(id), self.placements.placement(id))
            else {
                continue;
            };
            seen.clear();
            seen.extend(
                self.links
                    .of(node)
                    .iter()
                    .filter_map(|&s| self.observation(id, s, before)),
            );
            let misreports = self.misreports(now, &seen);
            let mut place = None;
            if !misreports {
                place = self.better_place(id, label, now, &seen, usual, &mut tables);
                place = place.filter(|place| !self.is_slow_line(label, *place, &seen));
            }
            // Wrong labels may hide wrong reports: use the others' reports alone.
            if place.is_none() {
                seen.retain(|s| !s.reported);
                place = self.better_place(id, label, now, &seen, usual, &mut tables);
                place =
                    place.filter(|place| misreports || !self.is_slow_line(label, *place, &seen));
            }
            if let Some(place) = place {
                placements.put(id, place);
            }
            *standing = match place {
                _ if misreports => LabelStatus::Misreports,
                Some(place)
                    if self.labels.is_zone(label.place)
                        || self.labels.region(place) != label.region =>
                {
                    LabelStatus::Misplaced(self.labels.labels(place))
                }
                // Only a region was named, and its zone is now found.
                _ => LabelStatus::Fits,
            };
        }
        (placements, standings)
    }

    /// `None` for a report that is left out, unless it is the node's own.
    fn observation(&self, node: NodeId, id: u32, standings: &[LabelStatus]) -> Option<Observation> {
        let s = &self.samples[id as usize];
        let reported = s.from == node;
        let other = if reported { s.to } else { s.from };
        let left_out = !reported && standings[other.0 as usize] == LabelStatus::Misreports;
        let rest = s.micros - self.offsets.of(other).micros;
        let seen = Observation {
            id,
            other: self.placements.placement(other)?,
            reported,
            micros: rest.max(0.3 * s.micros),
        };
        (!left_out).then_some(seen)
    }

    fn typical_residual(&self) -> f32 {
        let mut residuals: Vec<f32> = (0u32..)
            .zip(self.samples)
            .filter_map(|(id, s)| {
                let (a, b) = (self.offsets.of(s.from).micros, self.offsets.of(s.to).micros);
                Some(
                    (s.micros / total(self.classes.leaf(id)?.base, a, b))
                        .ln()
                        .abs(),
                )
            })
            .collect();
        (1.5 * spread(&mut residuals)).max(MIN_RESIDUAL)
    }

    pub fn base(&self, spot: Placement, other: Placement) -> Option<f32> {
        let class = self.classes.class_of(self.placements, spot, other)?;
        Some(self.classes.class(class).base)
    }

    fn base_now(&self, spot: Placement, now: Placement, seen: &Observation) -> Option<f32> {
        let leaf = (spot == now).then(|| self.classes.leaf(seen.id)).flatten();
        leaf.map(|c| c.base).or_else(|| self.base(spot, seen.other))
    }

    /// By the offset from the others' reports: only its own are wrong.
    fn misreports(&self, now: Placement, seen: &[Observation]) -> bool {
        let rests = |reported: bool| -> Vec<(f32, f32)> {
            let side = seen.iter().filter(|s| s.reported == reported);
            side.filter_map(|s| Some((s.micros, self.base_now(now, now, s)?)))
                .collect()
        };
        let (own, others) = (rests(true), rests(false));
        if own.len() < FEWEST || others.len() < FEWEST {
            return false;
        }
        let least = others
            .iter()
            .map(|(_, base)| *base)
            .fold(f32::INFINITY, f32::min);
        let near = others.iter().filter(|(_, base)| *base <= 2.0 * least);
        let mut near: Vec<f32> = near.map(|(micros, base)| micros - base).collect();
        let offset = median(&mut near);
        let wrong = |side: &[(f32, f32)]| {
            let off = |(micros, base): &&(f32, f32)| {
                (micros / total(*base, offset, 0.0)).ln().abs() > WRONG
            };
            side.iter().filter(off).count() as f32 / side.len() as f32
        };
        wrong(&own) > OWN_WRONG && wrong(&others) < OTHERS_WRONG
    }

    /// A place that explains the samples far better than the labels do.
    fn better_place(
        &self,
        node: NodeId,
        label: Placement,
        now: Placement,
        seen: &[Observation],
        usual: f32,
        tables: &mut CandidateTables,
    ) -> Option<u32> {
        let scale = 0.5 / usual.powi(2);
        let offset = self.offsets.of(node).micros;
        // As labelled: with its offset, which is the less likely the larger
        // it is, or without.
        let (mut with, mut without) = ((1.0 + (offset / self.offsets.spread()).powi(2)).ln(), 0.0);
        for s in seen {
            let base = self.base_now(label, now, s)?;
            with += loss((s.micros / total(base, offset, 0.0)).ln(), scale);
            without += loss((s.micros / base).ln(), scale);
        }
        let labelled = with.min(without);
        if labelled < GAIN {
            return None;
        }
        let most = (labelled - GAIN).min(LEFT * labelled);
        let tables = tables.of(self);
        let (place, best) = tables.best(seen, scale)?;
        if best > most {
            return None;
        }
        let whole = self.placements.whole_region(place);
        let zone = if tables.by_region {
            self.nearest_zone(whole, seen, scale)
        } else {
            self.best_zone(tables.within(best + PROOF), seen)
        };
        Some(zone.unwrap_or(whole))
    }

    /// Whether a node is in its labelled zone, on a slow line: as far from its own zone as a
    /// node of the next zone, but not from the others.
    fn is_slow_line(&self, label: Placement, place: u32, seen: &[Observation]) -> bool {
        let zones = self.labels.is_zone(label.place) && self.placements.is_zone(place);
        let near = zones && self.placements.region(place) == label.region;
        near && self.class_loss(label, seen)
            < self.class_loss(self.placements.placement_in(place), seen) + GAIN
    }

    /// The loss of a placement by each class's own spread, with the best offset.
    fn class_loss(&self, spot: Placement, seen: &[Observation]) -> f32 {
        let weighed = |s: &Observation| {
            let class = self.classes.class_of(self.placements, spot, s.other)?;
            let class = self.classes.class(class);
            Some(Weighed {
                micros: s.micros - class.base,
                precision: class.sigma.powi(-2),
            })
        };
        let mut rests: Vec<Weighed> = seen.iter().filter_map(weighed).collect();
        let unknown = CUT * (seen.len() - rests.len()) as f32;
        let offset = weighted_median(&mut rests);
        let against = |w: &Weighed| loss(w.micros - offset, 0.5 * w.precision);
        unknown + rests.iter().map(against).sum::<f32>()
    }

    /// The zone with the least loss by each class's own spread, if by a margin.
    fn best_zone(&self, zones: impl Iterator<Item = u32>, seen: &[Observation]) -> Option<u32> {
        let (mut best, mut least, mut second) = (None, f32::INFINITY, f32::INFINITY);
        for zone in zones {
            let spot = self.placements.placement_in(zone);
            let against = |s: &Observation| {
                let class = self
                    .classes
                    .class_of(self.placements, spot, s.other)
                    .map(|c| self.classes.class(c));
                class.map_or(CUT, |c| loss(s.micros - c.base, 0.5 * c.sigma.powi(-2)))
            };
            let sum: f32 = seen.iter().map(against).sum();
            if sum < least {
                (best, least, second) = (Some(zone), sum, least);
            } else {
                second = second.min(sum);
            }
        }
        best.filter(|_| second >= least + MARGIN)
    }

    /// The zone of a near peer in this region, if the samples fit it.
    fn nearest_zone(&self, region: u32, seen: &[Observation], scale: f32) -> Option<u32> {
        let mut nearest: Vec<(f32, u32)> = seen.iter().map(|s| (s.micros, s.other.place)).collect();
        nearest.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        let mut zones: Vec<u32> = Vec::with_capacity(NEAREST);
        for zone in nearest.into_iter().map(|(_, place)| place) {
            let here = self.placements.is_zone(zone)
                && self.placements.region(zone) == self.placements.region(region);
            if zones.len() < NEAREST && here && !zones.contains(&zone) {
                zones.push(zone);
            }
        }
        let against = |place| -> f32 {
            let spot = self.placements.placement_in(place);
            let one = |s: &Observation| {
                self.base(spot, s.other)
                    .map_or(CUT, |base| loss((s.micros / base).ln(), scale))
            };
            seen.iter().map(one).sum()
        };
        let most = against(region) - PROOF;
        let zones = zones
            .into_iter()
            .map(|zone| (against(zone), zone))
            .filter(|(loss, _)| *loss <= most);
        zones
            .min_by(|a, b| a.0.total_cmp(&b.0))
            .map(|(_, zone)| zone)
    }
}
