//! Predicts round-trip times that were not measured from those that were.
//!
//! Samples go in, estimates with an error bar come out. Pure: no input or
//! output, no clock, no threads; the same seed and samples give the same
//! estimates.
//!
//! A [`Model`] belongs to one background thread, which publishes each result as an immutable
//! [`Fit`] for any number of readers. [`Model::targets`] chooses what nodes should measure.
//!
//! # Method
//!
//! - Every node has coordinates in twelve dimensions and a height; the time of a pair
//!   is the distance of both coordinates and both heights, as in Vivaldi (Dabek et al.,
//!   SIGCOMM 2004). But all places are fitted together from all samples, as GNP
//!   does with its landmarks (Ng & Zhang, INFOCOM 2002), for the logarithm of
//!   fitted over measured by Huber's loss (1964), so that neither far pairs nor
//!   false reports outweigh the rest; near pairs, of which more are measured, count a little
//!   less. A fit continues from the last one.
//! - Networks have triangles that no such space has (Ledlie, Gardner & Seltzer,
//!   NSDI 2007, on coordinates in the wild; DMFSGD, Liao et al., ToN 2013, and
//!   Phoenix, Chen et al., TNSM 2011, factor matrices for that reason). So pairs
//!   are corrected by the residuals of measured pairs whose ends are near both ends:
//!   the Nadaraya-Watson estimate (1964), twice. If predicting each measured pair from the
//!   others shows that this does harm, only many residuals together count; the samples are
//!   noisy then, and Huber's loss turns from squares to lines at a half, not at a tenth.
//! - A node that is near to all, however far from each other these are (an address with an
//!   instance in each region), has no place: the median time of its pairs is predicted, corrected
//!   by its pairs, and those of its like, near the other node.
//! - Labels give classes of pairs (same rack, same zone, two zones, two regions)
//!   with typical times and an offset for each node, fitted robustly. A node whose samples
//!   contradict its labels is treated as where the samples place it. Without labels, all nodes are
//!   taken as alike.
//! - The errors of a node's own reports and of others' about it, for alike times, are compared. If
//!   they differ by a factor in two fits in a row, its own are left out until they agree
//!   ([`Fit::contradicted`]); with labels also if these contradict most of them.
//! - A second fit leaves out a tenth of the pairs. The errors that coordinates and labels state
//!   choose between them, unless labels alone (or, without labels, that all nodes are alike)
//!   clearly predict these pairs better.
//! - A measured pair is answered by its own time; its bar is what both directions of alike pairs
//!   differ by.
//! - Error bars hold four in five of the pairs that the second fit left out, weighed as all
//!   pairs are spread over times; what the measured times themselves err, by the difference of
//!   both directions, is taken out. Lower ends reach further where near pairs would be missed.
//! - Points are held at the middle by a weak force, or by a strong one (ridge regression), where
//!   coordinates alone then predict these pairs clearly better than all did: on flat networks,
//!   where points would follow noise. The other one is tried at the 2nd fit, the 4th, the
//!   8th and so on, and then at each 64th.
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
mod coords;
mod error_bar;
mod fit;
mod fitting;
mod hash;
mod held_out;
mod labels;
mod mix;
mod model;
mod neighbours;
mod noise;
mod odd;
mod recovery;
mod reports;
mod ridge;
mod samples;
mod smooth;
mod snapshot;
mod sparse;
mod stated;
mod targets;

pub use fit::{Contradiction, Fit, Row};
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
