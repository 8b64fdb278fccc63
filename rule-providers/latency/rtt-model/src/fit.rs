//! The published result of a fit: estimates with error bars.

use crate::{
    Estimate, NodeId,
    calibration::{Calibration, Ends, HeldOut},
    coords::{Coords, Pair},
    model::Node,
    predictor::Predictor,
};

/// Half the error bar of a measured pair, in logarithm, if the spread of its samples is unknown: a
/// median of five errs by 15 % at the 99th percentile within a region.
const MEASURED_BAR: f32 = 0.1;
/// The least half of a measured pair's error bar, in logarithm: times drift that far before they
/// are measured again.
const MIN_BAR: f32 = 0.02;
/// The largest half of an error bar, in logarithm.
const MAX_BAR: f32 = 5.0;

/// The least estimate, in microseconds; a shorter sample counts as this too.
const MIN_MICROS: f32 = 1.0;

/// The largest number of nodes whose predictions represent those of all nodes in the calibration.
const MAX_CALIBRATION_NODES: usize = 64;

/// The immutable result of a fit, which any number of readers use without a lock.
#[derive(Clone, Debug)]
pub struct Fit {
    /// The unit of all times in the fit, in microseconds.
    scale: f32,
    predictor: Predictor,
    calibration: Calibration,
}

impl Fit {
    pub(crate) fn new(
        scale: f32,
        nodes: &[Node],
        coords: &Coords,
        pairs: &[Pair],
        (held, noisy): (&[HeldOut], bool),
    ) -> Self {
        let mut predictor = Predictor::new(nodes, coords, pairs);
        predictor.noisy = noisy;
        let some = predictor.some_unmeasured(MAX_CALIBRATION_NODES);
        Self {
            scale,
            calibration: Calibration::new(held, predictor.labelled, &some),
            predictor,
        }
    }

    /// Returns whether the fit has a sample from the node or to it.
    pub fn knows(&self, node: NodeId) -> bool {
        self.predictor.knows(node.slot())
    }

    /// Returns the measured time of a pair, in microseconds: the geometric mean of both directions.
    /// `None` if the pair is not measured.
    pub fn measured(&self, a: NodeId, b: NodeId) -> Option<f32> {
        self.knows(a).then_some(())?;
        Some(self.predictor.samples.get(a.slot(), b.0)?.log.exp() * self.scale)
    }

    /// Returns whether a node's measurements contradict its labels. Such a node is treated as part
    /// of the zone that its measurements fit.
    pub fn contradicts_labels(&self, node: NodeId) -> bool {
        self.predictor.contradicted.get(node.slot()) == Some(&true)
    }

    /// Returns all nodes whose measurements contradict their labels, in order of their numbers.
    pub fn with_contradicted_labels(&self) -> impl Iterator<Item = NodeId> {
        let all = (0..self.predictor.measured.len() as u32).map(NodeId);
        all.filter(|node| self.contradicts_labels(*node))
    }

    /// Returns, for each node, how much its times to common targets differ from those of `node`, in
    /// logarithm.
    pub(crate) fn unlikeness(&self, node: NodeId) -> impl Iterator<Item = f32> {
        self.predictor.unlikeness(node.slot())
    }

    /// Returns the predicted times from a node to all nodes by coordinates and corrections, in
    /// microseconds.
    pub(crate) fn predictions(&self, from: usize) -> impl Iterator<Item = f32> {
        let scale = self.scale;
        let logs = self.predictor.coords(from).into_iter();
        logs.map(move |log| log.exp() * scale)
    }

    /// Returns the estimates from a peer to all nodes: the measured time, else coordinates and
    /// labels combined. `None` if the fit has no estimate from the peer. A row takes about 100 us
    /// at 5,000 nodes: cache it while the fit is in use.
    pub fn row(&self, peer: NodeId) -> Option<Row> {
        let from = peer.slot();
        self.predictor.measured.get(from)?;
        let estimates = self.predictor.all(from).map(|(coords, labels)| {
            let (log, bar) = match (coords, labels) {
                (Some(coords), labels) => self.calibration.predict(coords, labels),
                // A node without samples has only a prediction by labels.
                (None, Some(labels)) => {
                    let (_, bar) = self.calibration.predict(labels.log, Some(labels));
                    (labels.log, bar)
                }
                (None, None) => return Prediction::default(),
            };
            self.prediction(log, bar)
        });
        let mut row = Row(estimates.collect());
        for &(to, sample) in self.predictor.samples.row(from) {
            let bar = sample.noise.map_or(MEASURED_BAR, |bar| bar.max(MIN_BAR));
            row.0[to as usize] = self.prediction(sample.log, [bar; 2]);
        }
        row.0[from] = Prediction::default();
        row.0.iter().any(|one| one.micros > 0.0).then_some(row)
    }

    fn prediction(&self, log: f32, bar: Ends) -> Prediction {
        Prediction {
            micros: (log.exp() * self.scale).max(MIN_MICROS),
            factors: bar.map(|end| end.clamp(0.0, MAX_BAR).exp()),
        }
    }
}

/// A time with its error bar; 0 microseconds stand for no estimate.
#[derive(Clone, Copy, Debug, Default)]
struct Prediction {
    micros: f32,
    /// The factors between the time and both ends of the error bar.
    factors: Ends,
}

/// The estimates from a peer to all nodes.
#[derive(Clone, Debug)]
pub struct Row(Vec<Prediction>);

impl Row {
    /// Returns the estimate to a node; `None` for the peer itself and for nodes that the fit does
    /// not know.
    pub fn estimate(&self, node: NodeId) -> Option<Estimate> {
        let Prediction { micros, factors } = *self.0.get(node.slot())?;
        (micros > 0.0).then(|| Estimate {
            micros,
            low: micros / factors[0],
            high: micros * factors[1],
        })
    }
}
