mod row;

pub use row::Row;

use crate::{
    NodeId,
    axes::Axes,
    coords::{Coords, Pair},
    error_bar::Calibration,
    held_out::HeldOut,
    labels::{LabelFit, LabelStatus},
    neighbours,
    noise::Noise,
    odd::Labels,
    smooth::{self, Sample, Shrink},
    sparse::Sparse,
    stated::{Residual, Stated},
};

/// The nodes whose pairs choose the corrections.
const CHOICE_ROWS: usize = 256;
/// The nodes whose predictions represent all.
const ROWS: usize = 64;

/// What the samples contradict about a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contradiction {
    /// Its labels: it is treated as where its measurements place it.
    Labels,
    /// Its reports, by the reports of others: they are left out.
    Reports,
}

/// Immutable; any number of readers use it without a lock.
#[derive(Clone, Debug)]
pub struct Fit {
    /// Microseconds a unit.
    scale: f32,
    axes: Axes,
    measured: Vec<bool>,
    samples: Sparse<Sample>,
    kernels: Sparse<[f32; 2]>,
    shrink: Shrink,
    calibration: Calibration,
    noise: Noise,
    labels: LabelFit,
    labelled: bool,
    /// Nodes whose reports were left out, whatever their labels.
    left_out: Vec<bool>,
}

impl Fit {
    pub(crate) fn new(
        scale: f32,
        coords: &Coords,
        pairs: &[Pair],
        measured: &[bool],
        labels: LabelFit,
        labelled: bool,
        held: &[HeldOut],
    ) -> Self {
        let n = measured.len();
        let axes = Axes::new(coords, pairs, Labels::new(labelled, &labels, scale));
        let cells = pairs.iter().map(|p| {
            let fitted = axes.distance(p.a as usize, p.b as usize).ln();
            (p.a, p.b, Sample::new(p, fitted))
        });
        let mut samples = Sparse::new(n, cells);
        let kernels = neighbours::kernels(&axes, &samples, measured);
        smooth::second_step(&mut samples, &kernels, smooth::NARROW, n);
        let live: Vec<usize> = (0..n).filter(|&i| measured[i]).collect();
        let stride = live.len().div_ceil(CHOICE_ROWS).max(1);
        let rows: Vec<usize> = live.into_iter().step_by(stride).collect();
        let shrink = smooth::choose(&samples, &kernels, &rows, n);
        let mut fit = Self {
            scale,
            axes,
            measured: measured.to_vec(),
            samples,
            kernels,
            shrink: smooth::SHRINKS[shrink],
            calibration: Calibration::default(),
            noise: Noise::new(pairs),
            labels,
            labelled,
            left_out: Vec::new(),
        };
        let live = measured.iter().filter(|m| **m).count();
        let degree = 2.0 * pairs.len() as f32 / live.max(1) as f32;
        let mut stated = Stated::new(&mut fit.residuals(&rows), degree);
        stated.raise(held, shrink);
        fit.calibration = Calibration::new(stated, held, shrink, labelled, &fit.some_keys());
        fit
    }

    /// What some nodes' pairs that were not measured have as key in the calibration: with labels'
    /// estimates, without, and of odd nodes.
    fn some_keys(&self) -> [Vec<f32>; 3] {
        let live: Vec<usize> = (0..self.measured.len())
            .filter(|i| self.measured[*i])
            .collect();
        let all: Vec<NodeId> = (0..self.measured.len() as u32).map(NodeId).collect();
        let mut keys = [Vec::new(), Vec::new(), Vec::new()];
        let mut guesses = Vec::new();
        for &from in live.iter().step_by(live.len().div_ceil(ROWS).max(1)) {
            guesses.clear();
            self.labels.row(NodeId(from as u32), &all, &mut guesses);
            let predictions = self.predictions(from);
            for (to, (micros, guess)) in predictions.into_iter().zip(&guesses).enumerate() {
                if !self.measured[to] || to == from || self.samples.get(from, to as u32).is_some() {
                    continue;
                }
                let coords = (micros / self.scale).ln();
                let (which, key) = match guess {
                    _ if self.axes.is_odd(from, to) => (2, coords),
                    Some(guess) if self.labelled => (0, (guess.micros / self.scale).ln()),
                    Some(_) => (0, coords),
                    None => (1, coords),
                };
                keys[which].push(key);
            }
        }
        keys
    }

    /// Of measured pairs of some rows, each as if it were not measured.
    fn residuals(&self, rows: &[usize]) -> Vec<Residual> {
        let nodes = self.measured.len();
        let (mut out, mut guesses) = (Vec::new(), Vec::new());
        for &from in rows {
            let targets = self.samples.row(from).iter().map(|e| NodeId(e.0));
            let targets: Vec<NodeId> = targets.collect();
            guesses.clear();
            self.labels.row(NodeId(from as u32), &targets, &mut guesses);
            let others =
                smooth::without_own(&self.samples, &self.kernels, self.shrink, from, nodes);
            out.extend(
                others
                    .zip(&guesses)
                    .filter(|((to, ..), _)| !self.axes.is_odd(from, *to as usize))
                    .map(|((to, sample, correction), guess)| {
                        let predicted = self.axes.distance(from, to as usize) * correction.exp();
                        Residual {
                            predicted,
                            coords: (sample.log - predicted.ln()).abs(),
                            labels: guess.map(|guess| {
                                let off = sample.log - (guess.micros / self.scale).ln();
                                off.abs() / guess.error.max(1e-3)
                            }),
                        }
                    }),
            );
        }
        out
    }

    /// What is predicted for a pair that was held out, as a logarithm of multiples of the scale.
    pub(crate) fn predicted(&self, held: &HeldOut) -> f32 {
        self.calibration.predicted(held, self.shrink())
    }

    pub(crate) fn noisy(&self) -> bool {
        self.shrink() != 0
    }

    /// The number of the corrections in use.
    pub(crate) fn shrink(&self) -> usize {
        usize::from(self.shrink == smooth::WIDE)
    }

    /// Whether the fit has a sample from the node or to it.
    pub fn knows(&self, node: NodeId) -> bool {
        self.measured.get(node.slot()).copied().unwrap_or(false)
    }

    /// The mean of both directions, in microseconds.
    pub fn measured(&self, a: NodeId, b: NodeId) -> Option<f32> {
        self.knows(a).then_some(())?;
        Some(self.samples.get(a.slot(), b.0)?.log.exp() * self.scale)
    }

    /// Coordinates, and microseconds a unit.
    pub(crate) fn space(&self) -> (&Axes, f32) {
        (&self.axes, self.scale)
    }

    pub(crate) fn leave_out(&mut self, nodes: Vec<bool>) {
        self.left_out = nodes;
    }

    /// What is contradicted about a node; `None`: nothing.
    pub fn contradiction(&self, node: NodeId) -> Option<Contradiction> {
        if self.left_out.get(node.slot()) == Some(&true) {
            return Some(Contradiction::Reports);
        }
        self.labelled.then_some(())?;
        contradiction(self.labels.status(node))
    }

    /// All nodes with a contradiction, by number.
    pub fn contradicted(&self) -> impl Iterator<Item = (NodeId, Contradiction)> {
        let all = (0..self.measured.len() as u32).map(NodeId);
        all.filter_map(|node| Some((node, self.contradiction(node)?)))
    }

    /// How unlike a node each other one is: the mean difference of their times' logarithms over the
    /// nodes that both measured; 1 without such a node.
    pub(crate) fn unlikeness(&self, node: NodeId) -> impl Iterator<Item = f32> {
        let mut sums = vec![[0.0f32; 2]; self.measured.len()];
        neighbours::unlikeness(&self.samples, node.slot(), &mut sums);
        let mean = |[sum, count]: [f32; 2]| if count > 0.0 { sum / count } else { 1.0 };
        sums.into_iter().map(mean)
    }

    /// Microseconds from a node to all by coordinates and corrections.
    pub(crate) fn predictions(&self, from: usize) -> Vec<f32> {
        let mut row = vec![0.0f32; self.measured.len()];
        self.axes.distances(from, &mut row);
        let corrections =
            smooth::corrections(&self.samples, &self.kernels, self.shrink, from, row.len());
        for (micros, correction) in row.iter_mut().zip(corrections) {
            *micros *= correction.exp() * self.scale;
        }
        row
    }
}

fn contradiction(standing: LabelStatus) -> Option<Contradiction> {
    match standing {
        LabelStatus::Unlabelled | LabelStatus::Fits => None,
        LabelStatus::Misplaced(_) => Some(Contradiction::Labels),
        LabelStatus::Misreports => Some(Contradiction::Reports),
    }
}
