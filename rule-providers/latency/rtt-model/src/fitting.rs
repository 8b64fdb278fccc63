//! A fit of all samples: from the last one, or from nothing.

use crate::{
    Model,
    coords::{CLIP, Coords, NOISY_CLIP, Pace, Pair},
    fit::Fit,
    held_out::{self, Fold, HeldOut},
    labels::LabelFit,
    model::Places,
    noise::Noise,
    recovery,
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
    /// The mean error of pairs that were held out; `None`: there are too few.
    missed: Option<f32>,
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
                self.attempt(None, Vec::new())
            }
            Some(last) => {
                let joined = recovery::have_joined(&last.components, &components);
                let warm = self.attempt(Some(last), unseen);
                match self.history.asks(warm.missed, joined) {
                    true => self.better(warm),
                    false => warm,
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
        let cold = self.attempt(None, Vec::new());
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

    fn attempt(&self, places: Option<Places>, unseen: Vec<Places>) -> Attempt {
        let scale = places.as_ref().map_or_else(|| self.scale(), |p| p.scale);
        let labels = self.label_fit(None);
        let pairs = self.pairs(scale, &labels);
        let measured = measured(self.nodes.len(), &pairs);
        let coords = self.placed(places, &pairs);
        let (held, mut unseen) = self.hold_out(&pairs, &labels, (scale, &coords), unseen);
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
            components: Vec::new(),
        };
        Attempt {
            missed: held_out::missed(&held, fit.shrink()),
            fit,
            places,
            unseen,
        }
    }

    /// Pairs that were held out, predicted by fits of the others, and these fits' places.
    fn hold_out(
        &self,
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
            let key = |node: u32| self.nodes[node as usize].key;
            let is_held = |p: &&Pair| held_out::is_held(key(p.a), key(p.b), fold);
            let held: Vec<Pair> = pairs.iter().filter(is_held).copied().collect();
            let kept: Vec<Pair> = pairs.iter().filter(|p| !is_held(p)).copied().collect();
            let labels = self.label_fit(Some(fold));
            // Where many pairs hold each node, coordinates soon forget the few that are left out.
            let seen = || Places {
                scale,
                coords: coords.clone(),
                placed: vec![true; self.nodes.len()],
                noisy: false,
                components: Vec::new(),
            };
            let start = known.next().or_else(|| (folds == 1).then(seen));
            let coords = self.placed(start, &kept);
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
                components: Vec::new(),
            });
        }
        (out, unseen)
    }

    fn placed(&self, places: Option<Places>, pairs: &[Pair]) -> Coords {
        let keys = self.nodes.iter().map(|node| node.key);
        let seed = self.options.seed;
        let Some(mut known) = places else {
            let mut coords = Coords::scatter(keys, seed);
            // Together from the start, near pairs would hold each other at their random places.
            let far = Pace {
                rounds: self.options.cold_rounds / 2,
                first: 0.3,
                last: 0.003,
                far_first: true,
                clip: CLIP,
            };
            coords.descend(pairs, far);
            let all = Pace {
                rounds: self.options.cold_rounds / 2,
                first: 0.02,
                last: 0.0005,
                far_first: false,
                clip: CLIP,
            };
            coords.descend(pairs, all);
            return coords;
        };
        known.placed.resize(self.nodes.len(), false);
        let mut coords = known.coords;
        for (slot, key) in keys.enumerate() {
            if slot >= coords.points.len() {
                coords.push(key, seed);
            } else if !known.placed[slot] {
                coords.place(slot, key, seed);
            }
        }
        coords.settle(pairs, &known.placed);
        // Larger steps would undo what near pairs have found.
        let pace = Pace {
            rounds: self.options.warm_rounds,
            first: 0.005,
            last: 0.0005,
            far_first: false,
            clip: if known.noisy { NOISY_CLIP } else { CLIP },
        };
        coords.descend(pairs, pace);
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
