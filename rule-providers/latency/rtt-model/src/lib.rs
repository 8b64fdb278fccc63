//! Predicts the round-trip times of node pairs that were not measured from those of measured pairs.
//!
//! The crate turns samples into estimates with an error bar. It has no input or output, no clock
//! and no threads; the same seed and samples give the same estimates.
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
//! - Every node has coordinates in twelve dimensions and a height. The time of a pair is the
//!   distance between both points plus both heights, as in Vivaldi (Dabek et al., SIGCOMM 2004).
//!   All places are fitted together from all samples, as GNP does with its landmarks (Ng & Zhang,
//!   INFOCOM 2002). The fit minimises Huber's loss (1964) of the logarithm of fitted over measured
//!   time, so that neither far pairs nor false reports outweigh the rest. A fit continues from the
//!   last one.
//! - Networks violate the triangle inequality, as no such space can (Ledlie, Gardner & Seltzer,
//!   NSDI 2007; DMFSGD, Liao et al., ToN 2013, and Phoenix, Chen et al., TNSM 2011, factor matrices
//!   for that reason). So pairs are corrected by the residuals of measured pairs whose ends are
//!   near both ends: the Nadaraya-Watson estimate (1964), twice. If these corrections do harm,
//!   samples are noisy: only many residuals together then correct a pair, and each sample may pull
//!   harder.
//! - Labels give classes of pairs (same rack, same zone, two zones, two regions) with typical times
//!   and an offset for each node, fitted robustly. A node whose samples fit another zone far better
//!   than its own is treated as part of that zone. All nodes are one class if no node has labels.
//! - A second fit leaves out a tenth of the pairs. Its errors on these pairs decide between
//!   coordinates and labels, and give the error bars, after the noise of the measured times is
//!   subtracted. Lower ends reach further where near pairs would be missed.
//! - A fit from scratch is tried when the error on held-out pairs stays above the usual one, or
//!   when two parts of the network join.
//! - Pairs and each node's 32 nearest nodes are stored sparsely: no table has n x n entries.
//!
//! `tests/bench/latency` measures the model's accuracy, which `docs/latency.md` lists.
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

mod calibration;
mod coords;
mod corrections;
mod fit;
mod fitting;
mod hash;
mod held_out;
mod labels;
mod last_fit;
mod model;
mod network;
mod recovery;
mod sparse;
mod statistics;
mod targets;
mod tuning;

pub use fit::{Fit, Row};
pub use model::{Model, Options};

/// The number of a node in a model. Numbers of removed nodes are used again, but not before a fit
/// without the node has been made.
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
    /// The name of the region.
    pub region: Option<&'a str>,
    /// The name of the zone; equal names in two regions are two zones.
    pub zone: Option<&'a str>,
    /// The name of the rack; equal names in two zones are two racks.
    pub rack: Option<&'a str>,
}

/// A round-trip time with its error bar: in four of five cases the true median is within
/// `low..=high`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The median round-trip time in microseconds, measured if the pair was measured, else
    /// predicted.
    pub micros: f32,
    /// The lower end of the error bar, in microseconds.
    pub low: f32,
    /// The upper end of the error bar, in microseconds.
    pub high: f32,
}
