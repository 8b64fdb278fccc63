//! The measured pairs and their scale, which a fit reads from a model's samples.

use crate::{Model, coords::Pair};

impl Model {
    /// Returns the unit of the coordinates, in microseconds: the mean of all samples, each counted
    /// as at most twice the 90th percentile. The median would be tiny if most samples are of near
    /// nodes.
    pub(crate) fn scale(&self) -> f32 {
        let mut all: Vec<f32> = self.samples.iter().flatten().map(|s| s.micros).collect();
        if all.is_empty() {
            return 1.0;
        }
        let at = (all.len() - 1) * 9 / 10;
        let most = 2.0 * *all.select_nth_unstable_by(at, f32::total_cmp).1;
        let sum: f64 = all.iter().map(|micros| f64::from(micros.min(most))).sum();
        (sum / all.len() as f64) as f32
    }

    /// Returns all measured pairs in order, each with the lower number first.
    pub(crate) fn pairs(&self, scale: f32) -> Vec<Pair> {
        let mut pairs: Vec<Pair> = Vec::new();
        for (from, samples) in (0u32..).zip(&self.samples) {
            pairs.extend(samples.iter().map(|sample| Pair {
                a: sample.to.min(from),
                b: sample.to.max(from),
                log: (sample.micros / scale).ln(),
                weight: 1.0,
                spread: sample.spread,
            }));
        }
        // The sort is stable, so that both directions are always summed in the same order.
        pairs.sort_by_key(|pair| (pair.a, pair.b));
        pairs.dedup_by(|next, first| {
            let same = (next.a, next.b) == (first.a, first.b);
            if same {
                first.log = (first.log + next.log) / 2.0;
                first.weight += next.weight;
                first.spread = match (first.spread, next.spread) {
                    (Some(one), Some(other)) => Some(one.hypot(other) / 2.0),
                    (one, other) => one.or(other).map(|spread| spread / 2.0f32.sqrt()),
                };
            }
            same
        });
        pairs
    }
}
