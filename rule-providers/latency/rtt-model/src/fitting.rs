//! A fit of all samples: from the last one, or from nothing.

mod other_ridge;

use crate::{
    Model,
    coords::{Coords, Pace, Pair},
    fit::Fit,
    held_out::{self, Fold, HeldOut},
    labels::LabelFit,
    model::Places,
    noise::Noise,
    recovery,
    ridge::Ridge,
};

/// A fit starts from nothing when more than one measured node in so many is new.
const FEW: usize = 5;
/// A fit from nothing replaces one that goes on if pairs that were held out err by this factor.
const BETTER: f32 = 0.95;

/// A fit, and what the next one starts from.
struct Attempt {
    fit: Fit,
    places: Places,
    unseen: Vec<Places>,
    /// The mean error of coordinates for pairs that were held out; `None`: there are too few.
    missed: Option<f32>,
    /// The same of all that the fit predicts them by.
    predicted: Option<f32>,
}

impl Model {
    /// Fits all samples: from the last fit, or from nothing if there is none, or too much is new,
    /// or that predicts better after the network has changed. Numbers of removed nodes become free.
    pub fn fit(&mut self) -> Fit {
        self.free.append(&mut self.resting);
        let last = self.places.take().filter(|places| !self.is_new(places));
        let unseen = std::mem::take(&mut self.unseen);
        let components = recovery::components(&self.samples);
        let mut best = match last {
            None => {
                self.history = recovery::History::default();
                self.attempt(Ridge::default(), None, Vec::new())
            }
            Some(last) => {
                let joined = recovery::have_joined(&last.components, &components);
                let warm = self.attempt(last.ridge, Some(last), unseen);
                let best = match self.history.asks(warm.missed, joined) {
                    true => self.better(warm),
                    false => warm,
                };
                match self.history.asks_for_ridge() {
                    true => self.with_better_ridge(best),
                    false => best,
                }
            }
        };
        best.places.components = components;
        self.places = Some(best.places);
        self.unseen = best.unseen;
        let left_out = (0..self.nodes.len()).map(|node| self.doubts.leave_out(node));
        best.fit.leave_out(left_out.collect());
        self.doubts.update(&self.samples, best.fit.space());
        best.fit
    }

    /// Drops all coordinates, but no samples: the next fit starts from nothing.
    pub fn forget_places(&mut self) {
        self.places = None;
        self.unseen.clear();
    }

    /// That attempt, or one from nothing.
    fn better(&self, warm: Attempt) -> Attempt {
        let cold = self.attempt(warm.places.ridge, None, Vec::new());
        let better = match (warm.missed, cold.missed) {
            (Some(warm), Some(cold)) => cold < BETTER * warm,
            _ => true,
        };
        if better { cold } else { warm }
    }

    fn is_new(&self, last: &Places) -> bool {
        let mut measured = vec![false; self.nodes.len()];
        for (from, samples) in self.samples.iter().enumerate() {
            for sample in samples {
                measured[from] = true;
                measured[sample.to as usize] = true;
            }
        }
        let placed = |node: usize| last.placed.get(node).copied().unwrap_or(false);
        let all = measured.iter().filter(|m| **m).count();
        let new = (0..measured.len()).filter(|node| measured[*node] && !placed(*node));
        let drift = self.scale() / last.scale;
        new.count() * FEW > all || !(0.5..=2.0).contains(&drift)
    }

    fn attempt(&self, ridge: Ridge, places: Option<Places>, unseen: Vec<Places>) -> Attempt {
        let scale = places.as_ref().map_or_else(|| self.scale(), |p| p.scale);
        let labels = self.label_fit(None);
        let pairs = self.pairs(scale, &labels);
        let measured = measured(self.nodes.len(), &pairs);
        let coords = self.placed(ridge, places, &pairs);
        let (held, mut unseen) = self.hold_out(ridge, &pairs, &labels, (scale, &coords), unseen);
        let fit = Fit::new(
            scale,
            &coords,
            &pairs,
            &measured,
            labels,
            self.labelled(),
            &held,
        );
        for places in &mut unseen {
            places.noisy = fit.noisy();
        }
        let places = Places {
            scale,
            coords,
            placed: measured,
            noisy: fit.noisy(),
            ridge,
            components: Vec::new(),
        };
        Attempt {
            missed: held_out::missed(&held, |held| held.coords[fit.shrink()]),
            predicted: held_out::missed(&held, |held| fit.predicted(held)),
            fit,
            places,
            unseen,
        }
    }

    /// Pairs that were held out, predicted by fits of the others, and these fits' places.
    fn hold_out(
        &self,
        ridge: Ridge,
        pairs: &[Pair],
        all: &LabelFit,
        (scale, coords): (f32, &Coords),
        unseen: Vec<Places>,
    ) -> (Vec<HeldOut>, Vec<Places>) {
        let noise = Noise::new(pairs);
        let folds = held_out::folds(pairs.len());
        let mut known = unseen.into_iter();
        let (mut out, mut unseen) = (Vec::new(), Vec::new());
        for fold in 0..folds {
            let (held, kept) = self.split(pairs, fold);
            let labels = self.label_fit(Some(fold));
            // Where many pairs hold each node, coordinates soon forget the few that are left out.
            let seen = || Places {
                scale,
                coords: coords.clone(),
                placed: vec![true; self.nodes.len()],
                noisy: false,
                ridge,
                components: Vec::new(),
            };
            let start = known.next().or_else(|| (folds == 1).then(seen));
            let coords = self.placed(ridge, start, &kept);
            let fold = Fold {
                scale,
                coords: &coords,
                kept: &kept,
                held: &held,
                labels: [&labels, all],
                labelled: self.labelled(),
                noise: &noise,
            };
            fold.predict(&mut out);
            unseen.push(Places {
                scale,
                coords,
                placed: measured(self.nodes.len(), &kept),
                noisy: false,
                ridge,
                components: Vec::new(),
            });
        }
        (out, unseen)
    }

    /// Pairs that are held out in a fold, and the others.
    fn split(&self, pairs: &[Pair], fold: usize) -> (Vec<Pair>, Vec<Pair>) {
        let key = |node: u32| self.nodes[node as usize].key;
        let is_held = |p: &Pair| held_out::is_held(key(p.a), key(p.b), fold);
        pairs.iter().partition(|pair| is_held(pair))
    }

    fn placed(&self, ridge: Ridge, places: Option<Places>, pairs: &[Pair]) -> Coords {
        let Some(mut known) = places else {
            return self.placed_anew(ridge, pairs);
        };
        known.placed.resize(self.nodes.len(), false);
        let mut coords = known.coords;
        for (slot, node) in self.nodes.iter().enumerate() {
            if slot >= coords.points.len() {
                coords.push(node.key, self.options.seed);
            } else if !known.placed[slot] {
                coords.place(slot, node.key, self.options.seed);
            }
        }
        coords.settle(pairs, &known.placed);
        let rounds = self.options.warm_rounds;
        coords.descend(pairs, Pace::warm(rounds, known.noisy, ridge));
        coords
    }

    fn placed_anew(&self, ridge: Ridge, pairs: &[Pair]) -> Coords {
        let keys = self.nodes.iter().map(|node| node.key);
        let mut coords = Coords::scatter(keys, self.options.seed);
        for pace in Pace::cold(self.options.cold_rounds, ridge) {
            coords.descend(pairs, pace);
        }
        coords
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
