use crate::{
    Estimate, NodeId,
    coords::{Axes, Coords, Pair},
    error_bar::{ErrorBars, FOUR_OF_FIVE, Residual, WIDEST, inflation, quantile},
    labels::{LabelFit, LabelStatus},
    neighbours,
    smooth::{self, Sample, Shrink},
    sparse::Sparse,
};

/// A measured pair's bar in logarithm: a median of five errs by 15 % at the 99th
/// percentile within a region.
const MEASURED_BAR: f32 = 0.1;
/// An offset a node and its share of the classes follow about so many samples.
const FOLLOWED_BY_LABELS: f32 = 1.2;
/// From so many measured pairs on, labels' errors are checked.
const FEWEST_LABELLED: usize = 50;
const CALIBRATION_ROWS: usize = 256;

/// What the samples contradict about a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contradiction {
    /// Its labels: it is treated as where its measurements place it.
    Labels,
    /// Its reports, by the reports of others: they are left out of classes.
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
    bars: ErrorBars,
    labels: Option<LabelFit>,
    /// The factor from the labels' errors to half an 80 % bar.
    label_bar: f32,
}

impl Fit {
    pub(crate) fn new(
        scale: f32,
        coords: &Coords,
        pairs: &[Pair],
        measured: &[bool],
        labels: Option<LabelFit>,
    ) -> Self {
        let n = measured.len();
        let axes = Axes::new(coords);
        let cells = pairs.iter().map(|p| {
            let fitted = axes.distance(p.a as usize, p.b as usize).ln();
            (p.a, p.b, Sample::new(p.log, fitted))
        });
        let mut samples = Sparse::new(n, cells);
        let kernels = neighbours::kernels(&axes, &samples, measured);
        smooth::second_step(&mut samples, &kernels, smooth::NARROW, n);
        let mut fit = Self {
            scale,
            axes,
            measured: measured.to_vec(),
            samples,
            kernels,
            shrink: smooth::NARROW,
            bars: ErrorBars::default(),
            labels,
            label_bar: FOUR_OF_FIVE,
        };
        let rows = fit.calibration_rows();
        fit.shrink = smooth::choose(&fit.samples, &fit.kernels, &rows, n);
        let live = measured.iter().filter(|m| **m).count();
        let degree = 2.0 * pairs.len() as f32 / live.max(1) as f32;
        fit.bars = fit.calibrate(&rows, degree);
        let label_bar = fit.calibrate_labels(&rows, degree);
        fit.label_bar = label_bar.unwrap_or(FOUR_OF_FIVE);
        fit
    }

    /// All estimates from a peer: the measured time, else coordinates and labels combined; `None`
    /// if the fit does not know the peer. Takes some 100 us at 5,000 nodes: cache it while the fit
    /// is in use.
    pub fn row(&self, peer: NodeId) -> Option<Row> {
        let from = peer.slot();
        let known = *self.measured.get(from)?;
        let mut row = Row {
            micros: vec![0.0; self.measured.len()],
            bars: vec![1.0; self.measured.len()],
        };
        if known {
            let predictions = self.predictions(from);
            for (to, micros) in predictions.into_iter().enumerate() {
                if self.measured[to] {
                    row.micros[to] = micros;
                    row.bars[to] = self.bars.width(micros / self.scale);
                }
            }
        }
        self.add_labels(peer, &mut row);
        for &(to, sample) in self.samples.row(from) {
            row.micros[to as usize] = sample.log.exp() * self.scale;
            row.bars[to as usize] = MEASURED_BAR;
        }
        row.micros[from] = 0.0;
        for bar in &mut row.bars {
            *bar = bar.min(WIDEST).exp();
        }
        row.micros.iter().any(|m| *m > 0.0).then_some(row)
    }

    /// Combines a row with the labels' estimates, weighted by the inverse squared errors.
    fn add_labels(&self, peer: NodeId, row: &mut Row) {
        let Some(labels) = &self.labels else {
            return;
        };
        let all: Vec<NodeId> = (0..row.micros.len() as u32).map(NodeId).collect();
        let mut guesses = Vec::with_capacity(all.len());
        labels.row(peer, &all, &mut guesses);
        for ((micros, bar), guess) in row.micros.iter_mut().zip(&mut row.bars).zip(guesses) {
            let Some(guess) = guess else { continue };
            let label_bar = (self.label_bar * guess.error).max(1e-3);
            if *micros > 0.0 && 3.0 * *bar < label_bar {
                let part = bar.powi(-2) / (bar.powi(-2) + label_bar.powi(-2));
                *micros = guess.micros * (part * (*micros / guess.micros).ln()).exp();
                // Both err alike in part: together no surer than the surer one.
                *bar = bar.min(label_bar);
            } else {
                (*micros, *bar) = (guess.micros, label_bar);
            }
        }
    }

    pub(crate) fn noisy(&self) -> bool {
        self.shrink == smooth::WIDE
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

    /// What is contradicted about a node; `None`: nothing, or no node has labels.
    pub fn contradiction(&self, node: NodeId) -> Option<Contradiction> {
        contradiction(self.labels.as_ref()?.status(node))
    }

    /// All nodes with a contradiction, by number.
    pub fn contradicted(&self) -> impl Iterator<Item = (NodeId, Contradiction)> {
        let all = self.labels.iter().flat_map(LabelFit::contradicted);
        all.filter_map(|(node, standing)| Some((node, contradiction(standing)?)))
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

    fn calibration_rows(&self) -> Vec<usize> {
        let live = (0..self.measured.len()).filter(|&i| self.measured[i]);
        let live: Vec<usize> = live.collect();
        let stride = live.len().div_ceil(CALIBRATION_ROWS).max(1);
        live.into_iter().step_by(stride).collect()
    }

    /// The ratio of residuals to the errors that labels state; `None` for too few pairs.
    fn calibrate_labels(&self, rows: &[usize], degree: f32) -> Option<f32> {
        let labels = self.labels.as_ref()?;
        let mut residuals = Vec::new();
        let (mut targets, mut guesses) = (Vec::new(), Vec::new());
        for &from in rows {
            targets.clear();
            guesses.clear();
            targets.extend(self.samples.row(from).iter().map(|e| NodeId(e.0)));
            labels.row(NodeId(from as u32), &targets, &mut guesses);
            for ((_, sample), guess) in self.samples.row(from).iter().zip(&guesses) {
                residuals.extend(guess.map(|guess| {
                    let off = sample.log - (guess.micros / self.scale).ln();
                    off.abs() / guess.error.max(1e-3)
                }));
            }
        }
        let enough = residuals.len() >= FEWEST_LABELLED;
        let usual = enough.then(|| quantile(residuals, 0.8)).flatten()?;
        let usual = usual * inflation(FOLLOWED_BY_LABELS, degree);
        Some(usual.clamp(0.5 * FOUR_OF_FIVE, 2.0 * FOUR_OF_FIVE))
    }

    fn calibrate(&self, rows: &[usize], degree: f32) -> ErrorBars {
        let mut residuals = Vec::new();
        for &from in rows {
            let nodes = self.measured.len();
            let others =
                smooth::without_own(&self.samples, &self.kernels, self.shrink, from, nodes);
            residuals.extend(others.map(|(to, sample, correction)| {
                let predicted = self.axes.distance(from, to as usize) * correction.exp();
                let log = (sample.log - predicted.ln()).abs();
                Residual { predicted, log }
            }));
        }
        ErrorBars::new(&mut residuals, degree)
    }
}

fn contradiction(standing: LabelStatus) -> Option<Contradiction> {
    match standing {
        LabelStatus::Unlabelled | LabelStatus::Fits => None,
        LabelStatus::Misplaced(_) => Some(Contradiction::Labels),
        LabelStatus::Misreports => Some(Contradiction::Reports),
    }
}

/// A peer's estimates to all nodes.
#[derive(Clone, Debug)]
pub struct Row {
    /// 0 where there is no estimate.
    micros: Vec<f32>,
    /// The factor to an end of the error bar.
    bars: Vec<f32>,
}

impl Row {
    /// `None` for the peer itself and for nodes that the fit does not know.
    pub fn estimate(&self, node: NodeId) -> Option<Estimate> {
        let micros = *self.micros.get(node.slot())?;
        let bar = self.bars.get(node.slot())?.max(1.0);
        (micros > 0.0).then_some(Estimate {
            micros,
            low: micros / bar,
            high: micros * bar,
        })
    }
}
