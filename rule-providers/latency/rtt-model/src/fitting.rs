//! Fits all samples, starting from the last fit or from scratch.

use crate::{
    Model,
    coords::{Coords, Pace, Pair},
    fit::Fit,
    held_out::{self, mean_error},
    model::Places,
    recovery,
    tuning::TUNING,
};

/// The ratio of mean errors on held-out pairs below which a fit from scratch replaces one that
/// continues.
const MIN_GAIN_RATIO: f32 = 0.95;

/// A fit, and the places from which the next one starts.
struct Attempt {
    fit: Fit,
    places: Places,
    /// The places of fits without the held-out pairs, one for each fold.
    unseen: Vec<Places>,
    /// The mean error of coordinates on held-out pairs, in logarithm; `None` if there are too few
    /// pairs.
    missed: Option<f32>,
}

impl Model {
    /// Fits all samples, starting from the last fit. The fit starts from scratch if there is no
    /// last fit, if too much is new, or if that predicts better after the network has changed.
    /// Numbers of removed nodes become free.
    pub fn fit(&mut self) -> Fit {
        self.free.append(&mut self.resting);
        let last = self.places.take().filter(|places| !self.is_new(places));
        let unseen = std::mem::take(&mut self.unseen);
        let components = recovery::components(&self.samples);
        let mut best = match last {
            None => {
                self.history = recovery::History::default();
                self.attempt(None, Vec::new())
            }
            Some(last) => {
                let joined = recovery::have_joined(&last.components, &components);
                let warm = self.attempt(Some(last), unseen);
                if self.history.asks(warm.missed, joined) {
                    self.better(warm)
                } else {
                    warm
                }
            }
        };
        best.places.components = components;
        self.places = Some(best.places);
        self.unseen = best.unseen;
        best.fit
    }

    /// Drops all coordinates, but no samples: the next fit starts from scratch.
    pub fn forget_places(&mut self) {
        self.places = None;
        self.unseen.clear();
    }

    /// Returns `warm`, or an attempt from scratch if that is clearly better or either error is
    /// unknown.
    fn better(&self, warm: Attempt) -> Attempt {
        let cold = self.attempt(None, Vec::new());
        let better = match (warm.missed, cold.missed) {
            (Some(warm), Some(cold)) => cold < MIN_GAIN_RATIO * warm,
            _ => true,
        };
        if better { cold } else { warm }
    }

    /// Returns whether too many nodes are new, or times changed too much, for a fit that continues.
    fn is_new(&self, last: &Places) -> bool {
        let measured = measured(self.nodes.len(), &self.pairs(1.0));
        let placed = |node: usize| last.placed.get(node).copied().unwrap_or(false);
        let all = measured.iter().filter(|m| **m).count();
        let new = (0..measured.len()).filter(|node| measured[*node] && !placed(*node));
        let drift = self.scale() / last.scale;
        new.count() as f32 > TUNING.max_new_nodes * all as f32 || !(0.5..=2.0).contains(&drift)
    }

    fn attempt(&self, places: Option<Places>, unseen: Vec<Places>) -> Attempt {
        let scale = places.as_ref().map_or_else(|| self.scale(), |p| p.scale);
        let pairs = self.pairs(scale);
        let mut places = self.placed(scale, places, &pairs);
        let folds = held_out::folds(pairs.len());
        let mut known = unseen.into_iter();
        let (mut held_out, mut unseen) = (Vec::new(), Vec::new());
        for fold in 0..folds {
            let (held, kept) = held_out::split(&self.nodes, &pairs, fold);
            // One fold means many pairs for each node: coordinates soon forget the few that are
            // left out.
            let seen = || (folds == 1).then(|| places.clone());
            let start = known.next().or_else(seen);
            let places = self.placed(scale, start, &kept);
            held_out::predict(&self.nodes, &places.coords, &kept, &held, &mut held_out);
            unseen.push(places);
        }
        let noisy = held_out::is_noisy(&mut held_out);
        for places in unseen.iter_mut().chain([&mut places]) {
            places.noisy = noisy;
        }
        let held = (&held_out[..], noisy);
        Attempt {
            fit: Fit::new(scale, &self.nodes, &places.coords, &pairs, held),
            missed: mean_error(&held_out),
            places,
            unseen,
        }
    }

    /// Returns the places of all nodes, fitted from `places` or from scratch.
    fn placed(&self, scale: f32, places: Option<Places>, pairs: &[Pair]) -> Places {
        let keys = self.nodes.iter().map(|node| node.key);
        let mut coords;
        if let Some(mut known) = places {
            known.placed.resize(self.nodes.len(), false);
            coords = known.coords;
            for (slot, key) in keys.enumerate() {
                if slot >= coords.points.len() {
                    coords.push(key, self.options.seed);
                } else if !known.placed[slot] {
                    coords.place(slot, key, self.options.seed);
                }
            }
            coords.settle(pairs, &known.placed);
            coords.descend(pairs, Pace::warm(self.options.warm_rounds, known.noisy));
        } else {
            coords = Coords::scatter(keys, self.options.seed);
            for pace in Pace::cold(self.options.cold_rounds) {
                coords.descend(pairs, pace);
            }
        }
        Places {
            scale,
            coords,
            placed: measured(self.nodes.len(), pairs),
            noisy: false,
            components: Vec::new(),
        }
    }
}

fn measured(nodes: usize, pairs: &[Pair]) -> Vec<bool> {
    let mut measured = vec![false; nodes];
    for pair in pairs {
        measured[pair.a as usize] = true;
        measured[pair.b as usize] = true;
    }
    measured
}
