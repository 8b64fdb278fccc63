//! Fits all samples, starting from the last fit or from scratch.

use crate::{
    Model, NodeId,
    coords::{self, Pace, Place},
    fit::Fit,
    held_out::{self, mean_error},
    model::Pair,
    recovery::{self, History, NO_PART},
    tuning,
};

/// The coordinates of each node; `None` for a node without samples.
pub(crate) type Places = Vec<Option<Place>>;

/// The parts of a fit from which the next one continues.
#[derive(Clone, Debug, Default)]
pub(crate) struct LastFit {
    /// The unit of the coordinates, in microseconds.
    pub scale: f32,
    /// True if the usual corrections did harm, because samples are noisy.
    pub noisy: bool,
    pub places: Places,
    /// The places of fits without the held-out pairs, one for each fold.
    pub unseen: Vec<Places>,
    /// The part of the network in which each node is; empty if unknown.
    pub parts: Vec<u32>,
    pub history: History,
}

impl LastFit {
    /// Forgets the places of a node.
    pub fn forget(&mut self, node: NodeId) {
        for places in self.unseen.iter_mut().chain([&mut self.places]) {
            if let Some(place) = places.get_mut(node.slot()) {
                *place = None;
            }
        }
    }
}

/// A fit, and its mean error on held-out pairs, in logarithm; `None` if these are too few.
struct Attempt {
    fit: Fit,
    next: LastFit,
    missed: Option<f32>,
}

impl Model {
    /// Fits all samples, starting from the last fit. The fit starts from scratch if there is no
    /// last fit, if too much is new, or if that predicts better after the network has changed.
    /// Numbers of removed nodes become free.
    pub fn fit(&mut self) -> Fit {
        self.free.append(&mut self.resting);
        let parts = recovery::parts(&self.samples);
        let last = self.last.take().filter(|last| !self.is_new(last, &parts));
        let known = last.as_ref().map(|last| {
            (
                last.history,
                recovery::have_joined(&last.parts, &self.samples),
            )
        });
        let mut best = self.attempt(last);
        if let Some((mut history, joined)) = known {
            if history.asks(best.missed, joined) {
                let cold = self.attempt(None);
                let both = best.missed.zip(cold.missed);
                if both.is_none_or(|(warm, cold)| cold < tuning::MIN_GAIN_RATIO * warm) {
                    best = cold;
                }
            }
            best.next.history = history;
        }
        best.next.parts = parts;
        self.last = Some(best.next);
        best.fit
    }

    /// Drops all coordinates, but no samples: the next fit starts from scratch.
    pub fn forget_places(&mut self) {
        self.last = None;
    }

    /// Returns whether too many nodes are new, or times changed too much, for a fit that continues.
    fn is_new(&self, last: &LastFit, parts: &[u32]) -> bool {
        let measured = || (0..parts.len()).filter(|node| parts[*node] != NO_PART);
        let placed = |node: &usize| last.places.get(*node).is_some_and(Option::is_some);
        let new = measured().filter(|node| !placed(node)).count();
        let drift = self.scale() / last.scale;
        new as f32 > tuning::MAX_NEW_NODES * measured().count() as f32
            || !(0.5..=2.0).contains(&drift)
    }

    fn attempt(&self, last: Option<LastFit>) -> Attempt {
        let noisy = last.as_ref().is_some_and(|last| last.noisy);
        let scale = last
            .as_ref()
            .map_or_else(|| self.scale(), |last| last.scale);
        let (places, unseen) = last.map(|last| (last.places, last.unseen)).unzip();
        let mut starts = unseen.into_iter().flatten();
        let pairs = self.pairs(scale);
        let places = self.places(places, noisy, &pairs);
        let (mut held_out, mut unseen) = (Vec::new(), Vec::new());
        let folds = held_out::folds(pairs.len());
        for fold in 0..folds {
            let (held, kept) = held_out::split(&self.nodes, &pairs, fold);
            // One fold means many pairs for each node: coordinates soon forget the few that are
            // left out.
            let seen = || (folds == 1).then(|| places.clone());
            let start = starts.next().or_else(seen);
            let places = self.places(start, noisy, &kept);
            let fit = Fit::new(scale, &self.nodes, &places, &kept);
            held_out::predict(&fit, &kept, &held, &mut held_out);
            unseen.push(places);
        }
        let noisy = held_out::is_noisy(&mut held_out);
        Attempt {
            fit: Fit::new(scale, &self.nodes, &places, &pairs).calibrated(&held_out, noisy),
            missed: mean_error(&held_out),
            next: LastFit {
                scale,
                noisy,
                places,
                unseen,
                ..LastFit::default()
            },
        }
    }

    /// Returns the places of all nodes, fitted from `known` ones or from scratch.
    fn places(&self, known: Option<Places>, noisy: bool, pairs: &[Pair]) -> Places {
        let seed = self.options.seed;
        let known_at = |slot: usize| *known.as_ref()?.get(slot)?;
        let nodes = self.nodes.iter().enumerate();
        let places = nodes.map(|(slot, node)| {
            known_at(slot).unwrap_or_else(|| coords::random_place(node.key, seed))
        });
        let mut places: Vec<Place> = places.collect();
        if known.is_some() {
            coords::settle(&mut places, pairs, |node| known_at(node as usize).is_some());
            let pace = Pace::warm(self.options.warm_rounds, noisy);
            coords::descend(&mut places, pairs, pace);
        } else {
            for pace in Pace::cold(self.options.cold_rounds) {
                coords::descend(&mut places, pairs, pace);
            }
        }
        let mut fitted = vec![None; places.len()];
        for node in pairs.iter().flat_map(|pair| [pair.a, pair.b]) {
            fitted[node as usize] = Some(places[node as usize]);
        }
        fitted
    }
}
