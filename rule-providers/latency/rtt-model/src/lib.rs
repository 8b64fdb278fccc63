//! Predicts round-trip times that were not measured from those that were.
//!
//! Samples go in, estimates with an error bar come out. Pure: no input or
//! output, no clock, no threads; the same seed and samples give the same
//! estimates.
//!
//! A [`Model`] belongs to one background thread, which publishes each result as an immutable
//! [`Fit`] for any number of readers. [`Model::targets`] chooses what nodes should measure.
//!
//! ```text
//! samples ─▶ pairs ─┬▶ coordinates ─▶ corrections by near pairs ─┐
//!                   ├▶ labels: classes and offsets ──────────────┼▶ one prediction, with an error
//!                   └▶ both again without a tenth of the pairs ──┘  bar: calibration
//! ```
//!
//! # Method
//!
//! - Every node has coordinates in twelve dimensions and a height; the time of a pair
//!   is the distance of both coordinates and both heights, as in Vivaldi (Dabek et al.,
//!   SIGCOMM 2004). But all places are fitted together from all samples, as GNP does
//!   with its landmarks (Ng & Zhang, INFOCOM 2002), for the logarithm of fitted over measured by
//!   Huber's loss (1964), so that neither far pairs nor false reports outweigh the rest. A fit
//!   continues from the last one.
//! - Networks have triangles that no such space has (Ledlie, Gardner & Seltzer,
//!   NSDI 2007; DMFSGD, Liao et al., ToN 2013, and Phoenix, Chen et al., TNSM 2011, factor matrices
//!   for that reason). So pairs are corrected by the residuals of measured pairs whose ends are near
//!   both ends: the Nadaraya-Watson estimate (1964), twice. Where that does harm, samples are
//!   noisy: corrections are left out, and each sample may pull harder.
//! - Labels give classes of pairs (same rack, same zone, two zones, two regions) with typical times
//!   and an offset for each node, fitted robustly. A node whose samples fit another zone far better
//!   than its own is treated as there. Without labels, all nodes are one class.
//! - A second fit leaves out a tenth of the pairs. Its errors for these choose between coordinates
//!   and labels, and are the error bars. What the measured times themselves err is taken out.
//!   Lower ends reach further where near pairs would be missed.
//! - A fit from nothing is tried when the error of these pairs stays above the usual one, or when
//!   two parts of the network join.
//! - Pairs are kept sparsely, and so are each node's 32 nearest: never n x n.
//!
//! Its accuracy is in `docs/latency.md`, measured by `tests/bench/latency`.
//!
//! ```
//! use tautline_rtt_model::{Labels, Model, Options};
//!
//! let mut model = Model::new(Options::default());
//! let nodes: Vec<_> = ["a", "b", "c", "d"]
//!     .iter()
//!     .map(|name| model.insert(name, Labels::default()))
//!     .collect();
//! for (from, to, micros) in [(0, 1, 900.0), (1, 2, 1_100.0), (2, 3, 950.0), (3, 0, 1_000.0)] {
//!     assert!(model.observe(nodes[from], nodes[to], micros, None));
//! }
//! let fit = model.fit();
//! let row = fit.row(nodes[0]).expect("a is measured");
//! let estimate = row.estimate(nodes[2]).expect("c is measured");
//! assert!(estimate.low <= estimate.micros && estimate.micros <= estimate.high);
//! ```

#![warn(missing_docs)]

mod axes;
mod calibration;
mod coords;
mod fit;
mod fitting;
mod hash;
mod held_out;
mod labels;
mod model;
mod neighbours;
mod predictor;
mod recovery;
mod samples;
mod smooth;
mod snapshot;
mod sparse;
mod statistics;
mod targets;
mod tuning;

pub use fit::{Fit, Row};
pub use model::{Model, Options};
pub use snapshot::RestoreError;

/// A node, as the model numbers it. Numbers of removed nodes are used again,
/// but not before a fit without the node has been made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u32);

impl NodeId {
    pub(crate) fn slot(self) -> usize {
        self.0 as usize
    }
}

/// A node's labels; unknown parts are `None`. Labels may be wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Labels<'a> {
    /// Region.
    pub region: Option<&'a str>,
    /// Zone; equal names in two regions are two zones.
    pub zone: Option<&'a str>,
    /// Rack; equal names in two zones are two racks.
    pub rack: Option<&'a str>,
}

/// A round-trip time in microseconds with its error bar: in four of five cases
/// the true median is within `low..=high`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The median: measured if the pair was, else predicted.
    pub micros: f32,
    /// Lower end of the error bar.
    pub low: f32,
    /// Upper end of the error bar.
    pub high: f32,
}
