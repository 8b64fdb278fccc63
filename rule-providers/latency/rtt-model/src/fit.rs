//! The published result of a fit: estimates with error bars.

use crate::{
    Estimate, NodeId,
    calibration::{Calibration, Ends, HeldOut, Predicted},
    coords::{Axes, Place},
    corrections::Corrections,
    labels::LabelFit,
    network::{Node, Pair},
};

/// The immutable result of a fit, which any number of readers use without a lock.
#[derive(Clone, Debug)]
pub struct Fit {
    /// The unit of all times in the fit, in microseconds.
    scale: f32,
    axes: Axes,
    /// True for each node with samples from it or to it.
    pub(crate) measured: Vec<bool>,
    corrections: Corrections,
    labels: LabelFit,
    /// True if samples are noisy, so that only many residuals together correct coordinates.
    noisy: bool,
    calibration: Calibration,
}

impl Fit {
    /// Returns the fit of these pairs and the places that were fitted to them, with unknown error
    /// bars.
    pub(crate) fn new(
        scale: f32,
        nodes: &[Node],
        places: &[Option<Place>],
        pairs: &[Pair],
    ) -> Self {
        let axes = Axes::new(places);
        let measured: Vec<bool> = places.iter().map(Option::is_some).collect();
        let corrections = Corrections::new(&axes, &measured, pairs);
        Self {
            scale,
            axes,
            labels: LabelFit::new(nodes, &measured, pairs, &corrections.samples),
            measured,
            corrections,
            noisy: false,
            calibration: Calibration::default(),
        }
    }

    /// Calibrates predictions on held-out pairs; the pairs of 64 nodes represent all others.
    pub(crate) fn calibrated(mut self, held: &[HeldOut], noisy: bool) -> Self {
        self.noisy = noisy;
        let all = 0..self.measured.len();
        let live: Vec<usize> = all.filter(|node| self.measured[*node]).collect();
        let stride = live.len().div_ceil(64).max(1);
        let mut others = Vec::new();
        for &from in live.iter().step_by(stride) {
            let samples = &self.corrections.samples;
            let open = |to| to != from && self.measured[to] && samples.get(from, to).is_none();
            let all = self.predictions(from).enumerate();
            others.extend(all.filter(|(to, _)| open(*to)).filter_map(|(_, one)| one));
        }
        self.calibration = Calibration::new(held, self.labels.labelled, &others);
        self
    }

    /// Returns whether the fit has a sample from the node or to it.
    pub fn knows(&self, node: NodeId) -> bool {
        self.measured.get(node.slot()) == Some(&true)
    }

    /// Returns the measured time of a pair, in microseconds: the geometric mean of both directions.
    /// `None` if the pair is not measured.
    pub fn measured(&self, a: NodeId, b: NodeId) -> Option<f32> {
        self.knows(a).then_some(())?;
        let sample = self.corrections.samples.get(a.slot(), b.slot())?;
        Some(sample.log.exp() * self.scale)
    }

    /// Returns all nodes whose measurements contradict their labels, in order of their numbers.
    /// Such a node is treated as part of the zone that its measurements fit.
    pub fn with_contradicted_labels(&self) -> impl Iterator<Item = NodeId> {
        let all = (0..).map(NodeId).zip(&self.labels.contradicted);
        all.filter_map(|(node, contradicted)| contradicted.then_some(node))
    }

    /// Returns, for each node, the time from `from` by coordinates, in microseconds, and how much
    /// the times of both to common targets differ, in logarithm.
    pub(crate) fn nearness(&self, from: usize) -> impl Iterator<Item = (f32, f32)> {
        let times = self.coords(from).map(|log| log.exp() * self.scale);
        times.zip(self.corrections.unlikeness(from))
    }

    /// Returns the estimates from a peer to all nodes: the measured time, else coordinates and
    /// labels combined. `None` if the fit has no estimate from the peer. A row takes about 100 us
    /// at 5,000 nodes: cache it while the fit is in use.
    pub fn row(&self, peer: NodeId) -> Option<Row> {
        let from = peer.slot();
        self.measured.get(from)?;
        let estimates = self.predictions(from).map(|predicted| {
            let (log, bar) = self.calibration.predict(predicted?);
            Some(self.estimate(log, bar))
        });
        let mut row: Vec<Option<Estimate>> = estimates.collect();
        for &(to, sample) in self.corrections.samples.row(from) {
            // A median of five errs by 15 % at the 99th percentile within a region, and times drift
            // by 2 % before they are measured again.
            let bar = sample.noise.map_or(0.1, |bar| bar.max(0.02));
            row[to as usize] = Some(self.estimate(sample.log, [bar; 2]));
        }
        row[from] = None;
        row.iter().any(Option::is_some).then_some(Row(row))
    }

    fn estimate(&self, log: f32, bar: Ends) -> Estimate {
        let micros = (log.exp() * self.scale).max(1.0);
        let [low, high] = bar.map(|end| end.clamp(0.0, 5.0).exp());
        Estimate {
            micros,
            low: micros / low,
            high: micros * high,
        }
    }

    /// Returns the predictions from a node to all nodes; `None` without samples or labels of both.
    fn predictions(&self, from: usize) -> impl Iterator<Item = Option<Predicted>> {
        let row = self.labels.row(from);
        self.coords(from).enumerate().map(move |(to, coords)| {
            let labels = row.estimate(to);
            let known = self.measured[from] && self.measured[to];
            let coords = if known { coords } else { labels?.log };
            Some(Predicted { coords, labels })
        })
    }

    /// Returns the distances from a node to all nodes, in logarithm, with corrections.
    fn coords(&self, from: usize) -> impl Iterator<Item = f32> {
        let distances = self.axes.distances(from).into_iter();
        let both = distances.zip(self.corrections.all(from, self.noisy));
        both.map(|(distance, correction)| distance.ln() + correction)
    }

    /// Returns the predictions from a node to the nodes `to`, each also by coordinates with the
    /// corrections of noisy samples.
    pub(crate) fn some(&self, from: usize, to: &[u32]) -> impl Iterator<Item = (Predicted, f32)> {
        let row = self.labels.row(from);
        let corrections = self.corrections.some(from, to);
        to.iter().zip(corrections).map(move |(&to, corrections)| {
            let to = to as usize;
            let distance = self.axes.distance(from, to).ln();
            let [coords, if_noisy] = corrections.map(|correction| distance + correction);
            let labels = row.estimate(to);
            (Predicted { coords, labels }, if_noisy)
        })
    }
}

/// The estimates from a peer to all nodes.
#[derive(Clone, Debug)]
pub struct Row(Vec<Option<Estimate>>);

impl Row {
    /// Returns the estimate to a node; `None` for the peer itself and for nodes that the fit does
    /// not know.
    pub fn estimate(&self, node: NodeId) -> Option<Estimate> {
        *self.0.get(node.slot())?
    }
}
