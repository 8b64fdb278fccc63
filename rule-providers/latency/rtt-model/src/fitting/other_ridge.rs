//! Which ridge predicts pairs that are held out better.

use super::Attempt;
use crate::{
    Model,
    coords::Pace,
    held_out::{self, Fold},
    model::Places,
    noise::Noise,
    ridge::Ridge,
};

/// The other ridge is chosen if errors then are smaller by this factor.
const BETTER: f32 = 0.85;

impl Model {
    /// That attempt, or one from nothing with the other ridge if its coordinates alone predict
    /// clearly better than all that the first predicts by.
    pub(super) fn with_better_ridge(&mut self, last: Attempt) -> Attempt {
        let ridge = last.places.ridge.other();
        let other = self.missed_with(ridge, &last.places, last.fit.shrink());
        match (last.predicted, other) {
            (Some(last), Some(other)) if other < BETTER * last => {}
            _ => return last,
        }
        self.history.forget_errors();
        self.attempt(ridge, None, Vec::new())
    }

    /// The error of coordinates with another ridge than `like`. They are fitted from nothing, and
    /// then on, because they come to follow noise only then.
    fn missed_with(&self, ridge: Ridge, like: &Places, shrink: usize) -> Option<f32> {
        let labels = self.label_fit(None);
        let pairs = self.pairs(like.scale, &labels);
        let noise = Noise::new(&pairs);
        let rounds = self.options.cold_rounds;
        let mut out = Vec::new();
        for fold in 0..held_out::folds(pairs.len()) {
            let (held, kept) = self.split(&pairs, fold);
            let mut coords = self.placed_anew(ridge, &kept);
            coords.descend(&kept, Pace::warm(rounds, like.noisy, ridge));
            let fold = Fold {
                scale: like.scale,
                coords: &coords,
                kept: &kept,
                held: &held,
                labels: [&labels, &labels],
                labelled: self.labelled(),
                noise: &noise,
            };
            fold.predict(&mut out);
        }
        held_out::missed(&out, |held| held.coords[shrink])
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
