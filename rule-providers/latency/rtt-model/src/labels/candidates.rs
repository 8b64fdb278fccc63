//! Candidate places of a node, and the loss of its samples at each.

use super::label_validator::{LabelValidator, Observation};

/// With up to so many zones all are tried, else so many regions.
const CANDIDATES: usize = 256;
/// The largest loss of one sample.
pub(super) const CUT: f32 = 3.0;

/// The loss of a residual; `scale` is half the inverse of the variance.
pub(super) fn loss(residual: f32, scale: f32) -> f32 {
    (residual * residual * scale).min(CUT)
}

/// The logarithms of the usual times between candidate places (all zones, or whole regions where
/// zones are many) and any other; computed on demand.
#[derive(Default)]
pub(super) struct CandidateTables {
    made: bool,
    candidates: Vec<u32>,
    pub by_region: bool,
    /// A row of candidates for each other, `f32::MAX` where nothing is known.
    logs: Vec<f32>,
    losses: Vec<f32>,
}

impl CandidateTables {
    pub fn of(&mut self, validator: &LabelValidator<'_>) -> &mut Self {
        if !std::mem::replace(&mut self.made, true) {
            let placements = validator.placements;
            let all = || 0..placements.places();
            let regions = || all().filter(|p| placements.whole_region(*p) == *p);
            let zones = || all().filter(|p| placements.is_zone(*p));
            self.by_region = zones().count() > CANDIDATES;
            self.candidates = if self.by_region {
                regions().collect()
            } else {
                zones().collect()
            };
            if self.candidates.len() > CANDIDATES {
                self.candidates.clear();
            }
            let others: Vec<u32> = if self.by_region {
                regions().collect()
            } else {
                all().collect()
            };
            let pairs = others
                .iter()
                .flat_map(|other| self.candidates.iter().map(move |place| (*place, *other)));
            let base =
                |(a, b)| validator.base(placements.placement_in(a), placements.placement_in(b));
            self.logs = pairs
                .map(|pair| base(pair).map_or(f32::MAX, f32::ln))
                .collect();
        }
        self
    }

    pub fn best(&mut self, seen: &[Observation], scale: f32) -> Option<(u32, f32)> {
        let candidates = self.candidates.len();
        self.losses.clear();
        self.losses.resize(candidates, 0.0);
        for s in seen {
            let row = if self.by_region {
                s.other.region
            } else {
                s.other.place
            };
            let (log, at) = (s.micros.ln(), row as usize * candidates);
            for (sum, known) in self.losses.iter_mut().zip(&self.logs[at..at + candidates]) {
                *sum += loss(log - known, scale);
            }
        }
        let losses = self.candidates.iter().zip(&self.losses);
        losses
            .map(|(place, loss)| (*place, *loss))
            .min_by(|a, b| a.1.total_cmp(&b.1))
    }

    pub fn within(&self, most: f32) -> impl Iterator<Item = u32> + '_ {
        let losses = self.candidates.iter().zip(&self.losses);
        losses
            .filter(move |(_, loss)| **loss <= most)
            .map(|(place, _)| *place)
    }
}
