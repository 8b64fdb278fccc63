//! Which ridge predicts pairs that are held out better.

use super::Attempt;
use crate::{
    Model,
    coords::{Coords, Pace, Pair},
    held_out::{self, Fold},
    labels::LabelFit,
    model::Places,
    noise::Noise,
    ridge::Ridge,
};

/// The other ridge is chosen if errors then are smaller by this factor.
const BETTER: f32 = 0.85;

/// Coordinates of a fit without the pairs that are held out.
struct Unseen {
    held: Vec<Pair>,
    kept: Vec<Pair>,
    coords: Coords,
}

impl Model {
    /// That attempt, or one from nothing with the other ridge if its coordinates alone predict
    /// clearly better than all that the first predicts by.
    pub(super) fn with_better_ridge(&mut self, last: Attempt) -> Attempt {
        let ridge = last.places.ridge.other();
        let labels = self.label_fit(None);
        let pairs = self.pairs(last.places.scale, &labels);
        let Some(folds) = self.better_folds(ridge, &last, &pairs, &labels) else {
            return last;
        };
        let places = |coords, pairs: &[Pair]| Places {
            coords,
            placed: super::measured(self.nodes.len(), pairs),
            ridge,
            components: Vec::new(),
            ..last.places
        };
        let mut coords = self.placed_anew(ridge, &pairs);
        coords.descend(&pairs, self.long_pace(ridge, &last));
        let unseen = folds.into_iter();
        let unseen = unseen.map(|fold| places(fold.coords, &fold.kept)).collect();
        let best = self.attempt(ridge, Some(places(coords, &pairs)), unseen);
        self.history.forget_errors();
        best
    }

    /// Coordinates from nothing that predict better, and still do when they are fitted on: they
    /// come to follow noise only then. `None`: they do not.
    fn better_folds(
        &self,
        ridge: Ridge,
        last: &Attempt,
        pairs: &[Pair],
        labels: &LabelFit,
    ) -> Option<Vec<Unseen>> {
        let noise = Noise::new(pairs);
        let is_better = |folds: &[Unseen]| {
            let mut out = Vec::new();
            for Unseen { held, kept, coords } in folds {
                let fold = Fold {
                    scale: last.places.scale,
                    coords,
                    kept,
                    held,
                    labels: [labels; 2],
                    labelled: self.labelled(),
                    noise: &noise,
                };
                fold.predict(&mut out);
            }
            let missed = held_out::missed(&out, |held| held.coords[last.fit.shrink()]);
            let both = missed.zip(last.predicted);
            both.is_some_and(|(missed, predicted)| missed < BETTER * predicted)
        };
        let unseen = |fold| {
            let (held, kept) = self.split(pairs, fold);
            let coords = self.placed_anew(ridge, &kept);
            Unseen { held, kept, coords }
        };
        let mut folds: Vec<Unseen> = (0..held_out::folds(pairs.len())).map(unseen).collect();
        is_better(&folds).then_some(())?;
        for Unseen { kept, coords, .. } in &mut folds {
            coords.descend(kept, self.long_pace(ridge, last));
        }
        is_better(&folds).then_some(folds)
    }

    /// As long as many warm fits take.
    fn long_pace(&self, ridge: Ridge, last: &Attempt) -> Pace {
        Pace::warm(self.options.cold_rounds, last.places.noisy, ridge)
    }
}

#[cfg(test)]
mod tests {
    use crate::{Labels, Model, NodeId, Options, hash::Random, ridge::Ridge};

    const NODES: usize = 80;

    /// The ridge after some fits, each pair in four being measured with this noise, and the median
    /// error of the others' logarithms.
    fn fitted(truth: impl Fn(usize, usize) -> f32, noise: f32) -> (Ridge, f32) {
        let mut random = Random::new(3);
        let mut model = Model::new(Options::default());
        for node in 0..NODES {
            model.insert(&format!("node-{node}"), Labels::default());
        }
        let pairs = (0..NODES).flat_map(|b| (0..b).map(move |a| (a, b)));
        let (measured, rest): (Vec<_>, Vec<_>) = pairs.partition(|_| random.unit() < 0.25);
        for (a, b) in measured {
            let micros = truth(a, b) * (noise * random.normal()).exp();
            assert!(model.observe(NodeId(a as u32), NodeId(b as u32), micros, None));
        }
        let fit = (0..6).map(|_| model.fit()).last().unwrap();
        let mut errors: Vec<f32> = rest
            .into_iter()
            .map(|(a, b)| {
                let row = fit.row(NodeId(a as u32)).unwrap();
                let estimate = row.estimate(NodeId(b as u32)).unwrap();
                (estimate.micros / truth(a, b)).ln().abs()
            })
            .collect();
        errors.sort_by(f32::total_cmp);
        (model.places.unwrap().ridge, errors[errors.len() / 2])
    }

    #[test]
    fn noise_in_a_flat_network_is_not_followed() {
        let height = |node: usize| (node * 37 % NODES) as f32;
        let path = |a: usize, b: usize| if a % 4 == b % 4 { 150.0 } else { 500.0 };
        let (ridge, error) = fitted(|a, b| path(a, b) + height(a) + height(b), 0.05);
        assert_eq!(ridge, Ridge::Strong);
        assert!(error < 0.06, "{error}");
    }

    #[test]
    fn places_on_a_plane_are_followed() {
        let at = |node: usize| [node * 29 % NODES, node * 53 % NODES].map(|x| x as f32);
        let truth = |a: usize, b: usize| {
            let ([x, y], [u, v]) = (at(a), at(b));
            500.0 + 100.0 * (x - u).hypot(y - v)
        };
        let (ridge, error) = fitted(truth, 0.02);
        assert_eq!(ridge, Ridge::Weak);
        assert!(error < 0.06, "{error}");
    }
}
