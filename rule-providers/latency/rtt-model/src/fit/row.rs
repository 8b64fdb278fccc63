//! A peer's estimates: measured times, and coordinates and labels combined.

use super::Fit;
use crate::{
    Estimate, NodeId,
    error_bar::{Ends, WIDEST},
};

/// A measured pair's bar in logarithm where nothing tells its noise: a median of five errs by 15 %
/// at the 99th percentile within a region.
const MEASURED_BAR: f32 = 0.1;
/// Times drift by so much until they are measured again.
const LEAST_BAR: f32 = 0.02;

impl Fit {
    /// All estimates from a peer: the measured time, else coordinates and labels combined; `None`
    /// if the fit does not know the peer. Takes some 100 us at 5,000 nodes: cache it while the fit
    /// is in use.
    pub fn row(&self, peer: NodeId) -> Option<Row> {
        let from = peer.slot();
        let known = *self.measured.get(from)?;
        let mut row = Row {
            micros: vec![0.0; self.measured.len()],
            bars: vec![[1.0; 2]; self.measured.len()],
        };
        if known {
            for (to, micros) in self.predictions(from).into_iter().enumerate() {
                if self.measured[to] {
                    row.micros[to] = micros;
                }
            }
        }
        self.add_labels(peer, &mut row);
        for &(to, sample) in self.samples.row(from) {
            row.micros[to as usize] = sample.log.exp() * self.scale;
            let noise = self.noise.of(sample.log, sample.directions, sample.spread);
            row.bars[to as usize] = [noise.map_or(MEASURED_BAR, |bar| bar.max(LEAST_BAR)); 2];
        }
        row.micros[from] = 0.0;
        for bar in &mut row.bars {
            *bar = bar.map(|end| end.min(WIDEST).exp());
        }
        row.micros.iter().any(|m| *m > 0.0).then_some(row)
    }

    /// Combines a row with the labels' estimates, as pairs that were held out say.
    fn add_labels(&self, peer: NodeId, row: &mut Row) {
        let all: Vec<NodeId> = (0..row.micros.len() as u32).map(NodeId).collect();
        let mut guesses = Vec::with_capacity(all.len());
        self.labels.row(peer, &all, &mut guesses);
        if !self.labelled {
            // Nodes without samples are then not known.
            let known = |node: &NodeId| self.knows(peer) && self.knows(*node);
            for (guess, _) in guesses
                .iter_mut()
                .zip(&all)
                .filter(|(_, node)| !known(node))
            {
                *guess = None;
            }
        }
        let scale = self.scale;
        for (to, guess) in guesses.into_iter().enumerate() {
            let (micros, bar) = (&mut row.micros[to], &mut row.bars[to]);
            *bar = match (*micros > 0.0, guess) {
                (true, _) if self.axes.is_odd(peer.slot(), to) => {
                    self.calibration.odd(*micros / scale)
                }
                (true, Some(guess)) => {
                    let times = [*micros / scale, guess.micros / scale];
                    let error = guess.error.max(1e-3);
                    let (share, ends) = self.calibration.combine(times, error);
                    if share < 1.0 {
                        *micros = guess.micros * (share * (*micros / guess.micros).ln()).exp();
                    }
                    ends
                }
                (true, None) => self.calibration.plain(*micros / scale),
                (false, Some(guess)) => {
                    *micros = guess.micros;
                    self.calibration.labels(guess.error.max(1e-3))
                }
                (false, None) => continue,
            };
        }
    }
}

/// A peer's estimates to all nodes.
#[derive(Clone, Debug)]
pub struct Row {
    /// 0 where there is no estimate.
    micros: Vec<f32>,
    /// The factors to both ends of the error bar.
    bars: Vec<Ends>,
}

impl Row {
    /// `None` for the peer itself and for nodes that the fit does not know.
    pub fn estimate(&self, node: NodeId) -> Option<Estimate> {
        let micros = *self.micros.get(node.slot())?;
        let [low, high] = self.bars.get(node.slot())?.map(|end| end.max(1.0));
        (micros > 0.0).then_some(Estimate {
            micros,
            low: micros / low,
            high: micros * high,
        })
    }
}
