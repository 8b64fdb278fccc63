//! Fits all samples, starting from the last fit or from scratch.

use crate::{
    Model,
    coords::{self, Place},
    fit::Fit,
    held_out::{self, mean_error},
    last_fit::{LastFit, Places},
    network::Pair,
    recovery::{self, NO_PART},
    tuning,
};

impl Model {
    /// Fits all samples, starting from the last fit. The fit starts from scratch if there is no
    /// last fit, if too much is new, or if that predicts better after the network has changed.
    /// Numbers of removed nodes become free.
    pub fn fit(&mut self) -> Fit {
        self.free.append(&mut self.resting);
        let parts = recovery::parts(&self.samples);
        let last = self.last.take().filter(|last| !self.is_new(last, &parts));
        let joined = last
            .as_ref()
            .map(|last| recovery::have_joined(&last.parts, &self.samples));
        let (mut fit, mut next) = self.attempt(last);
        if joined.is_some_and(|joined| next.history.asks(next.missed, joined)) {
            let (cold_fit, cold) = self.attempt(None);
            let both = next.missed.zip(cold.missed);
            if both.is_none_or(|(warm, cold)| cold < tuning::MIN_GAIN_RATIO * warm) {
                let history = next.history;
                (fit, next) = (cold_fit, LastFit { history, ..cold });
            }
        }
        self.last = Some(LastFit { parts, ..next });
        fit
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

    /// Returns a fit that continues from the last one, or from scratch, and what the next one needs.
    fn attempt(&self, last: Option<LastFit>) -> (Fit, LastFit) {
        let scratch = || LastFit {
            scale: self.scale(),
            ..LastFit::default()
        };
        let last = last.unwrap_or_else(scratch);
        let (scale, noisy) = (last.scale, last.noisy);
        let pairs = self.pairs(scale);
        let places = self.places(&last.places, noisy, &pairs);
        let mut starts = last.unseen.into_iter();
        let (mut held_out, mut unseen) = (Vec::new(), Vec::new());
        let folds = match pairs.len() {
            ..tuning::HELD_OUT_FEW_PAIRS => tuning::HELD_OUT_FOLDS,
            _ => 1,
        };
        for fold in 0..folds {
            let (held, kept) = held_out::split(&self.nodes, &pairs, fold);
            let start = starts.next().unwrap_or_else(|| match folds {
                // Many pairs for each node: coordinates soon forget the few that are left out.
                1 => places.clone(),
                _ => Places::new(),
            });
            let places = self.places(&start, noisy, &kept);
            let fit = Fit::new(scale, &self.nodes, &places, &kept);
            held_out::predict(&fit, &kept, &held, &mut held_out);
            unseen.push(places);
        }
        let noisy = held_out::is_noisy(&mut held_out);
        let fit = Fit::new(scale, &self.nodes, &places, &pairs).calibrated(&held_out, noisy);
        let next = LastFit {
            scale,
            noisy,
            places,
            unseen,
            parts: Vec::new(),
            missed: mean_error(&held_out),
            history: last.history,
        };
        (fit, next)
    }

    /// Returns the places of all nodes, fitted from `known` ones, or from scratch if there are none.
    fn places(&self, known: &[Option<Place>], noisy: bool, pairs: &[Pair]) -> Places {
        let seed = self.options.seed;
        let known_at = |slot: usize| *known.get(slot)?;
        let nodes = self.nodes.iter().enumerate();
        let places = nodes.map(|(slot, node)| {
            known_at(slot).unwrap_or_else(|| coords::random_place(node.key, seed))
        });
        let mut places: Vec<Place> = places.collect();
        coords::settle(&mut places, pairs, |node| known_at(node as usize).is_some());
        let mut descend = |rounds, steps, time_weight| {
            let max_residual = tuning::MAX_PULL_RESIDUALS[usize::from(noisy)];
            coords::descend(&mut places, pairs, rounds, steps, time_weight, max_residual);
        };
        if known.is_empty() {
            // Far pairs dominate the first half: near ones would hold each other where they are.
            let rounds = self.options.cold_rounds / 2;
            descend(rounds, tuning::COLD_STEPS[0], 1.0);
            descend(rounds, tuning::COLD_STEPS[1], tuning::TIME_WEIGHT_POWER);
        } else {
            let (rounds, power) = (self.options.warm_rounds, tuning::TIME_WEIGHT_POWER);
            descend(rounds, tuning::WARM_STEPS, power);
        }
        let mut fitted = vec![None; places.len()];
        for node in pairs.iter().flat_map(|pair| [pair.a, pair.b]) {
            fitted[node as usize] = Some(places[node as usize]);
        }
        fitted
    }
}
