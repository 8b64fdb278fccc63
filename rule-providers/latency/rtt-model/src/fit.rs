//! The published result of a fit: estimates with error bars.

use crate::{
    Estimate, NodeId,
    calibration::{Calibration, Ends, HeldOut},
    coords::{Coords, Pair},
    model::Node,
    predictor::Predictor,
};

/// Half the error bar of a measured pair, in logarithm, where its samples tell no spread: a median
/// of five errs by 15 % at the 99th percentile within a region.
const MEASURED_BAR: f32 = 0.1;
/// The least such bar: times drift by so much until they are measured again.
const MIN_BAR: f32 = 0.02;
/// The largest half of an error bar, in logarithm.
const MAX_BAR: f32 = 5.0;

/// The number of nodes whose predictions represent all.
const ROWS: usize = 64;

/// Immutable; any number of readers use it without a lock.
#[derive(Clone, Debug)]
pub struct Fit {
    /// Microseconds a unit.
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
        let some = predictor.some_unmeasured(ROWS);
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

    /// Returns the mean of both directions, in microseconds; `None`: the pair is not measured.
    pub fn measured(&self, a: NodeId, b: NodeId) -> Option<f32> {
        self.knows(a).then_some(())?;
        Some(self.predictor.samples.get(a.slot(), b.0)?.log.exp() * self.scale)
    }

    /// Returns whether a node's measurements contradict its labels: it is treated as where its
    /// measurements place it.
    pub fn contradicts_labels(&self, node: NodeId) -> bool {
        self.predictor.contradicted.get(node.slot()) == Some(&true)
    }

    /// Returns all nodes whose measurements contradict their labels, by number.
    pub fn with_contradicted_labels(&self) -> impl Iterator<Item = NodeId> {
        let all = (0..self.predictor.measured.len() as u32).map(NodeId);
        all.filter(|node| self.contradicts_labels(*node))
    }

    /// Returns how unlike a node each other one is, by their times to common targets.
    pub(crate) fn unlikeness(&self, node: NodeId) -> impl Iterator<Item = f32> {
        self.predictor.unlikeness(node.slot())
    }

    /// Returns microseconds from a node to all by coordinates and corrections.
    pub(crate) fn predictions(&self, from: usize) -> impl Iterator<Item = f32> {
        let scale = self.scale;
        let logs = self.predictor.coords(from).into_iter();
        logs.map(move |log| log.exp() * scale)
    }

    /// Returns all estimates from a peer: the measured time, else coordinates and labels combined;
    /// `None` if the fit does not know the peer. Takes some 100 us at 5,000 nodes: cache it while
    /// the fit is in use.
    pub fn row(&self, peer: NodeId) -> Option<Row> {
        let from = peer.slot();
        self.predictor.measured.get(from)?;
        let estimates = self.predictor.all(from).map(|(coords, labels)| {
            let (log, bar) = match (coords, labels) {
                (Some(coords), labels) => self.calibration.predict(coords, labels),
                // Without samples of a node its labels alone are known.
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
            micros: log.exp() * self.scale,
            factors: bar.map(|end| end.clamp(0.0, MAX_BAR).exp()),
        }
    }
}

/// 0 microseconds: there is no estimate.
#[derive(Clone, Copy, Debug, Default)]
struct Prediction {
    micros: f32,
    /// The factors to both ends of the error bar.
    factors: Ends,
}

/// A peer's estimates to all nodes.
#[derive(Clone, Debug)]
pub struct Row(Vec<Prediction>);

impl Row {
    /// `None` for the peer itself and for nodes that the fit does not know.
    pub fn estimate(&self, node: NodeId) -> Option<Estimate> {
        let Prediction { micros, factors } = *self.0.get(node.slot())?;
        (micros > 0.0).then(|| Estimate {
            micros,
            low: micros / factors[0],
            high: micros * factors[1],
        })
    }
}
