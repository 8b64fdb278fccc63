//! What is known of the way between two nodes.

use std::time::Duration;

use smallvec::SmallVec;

/// What is known of the way between two nodes, both directions taken together.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Reading {
    /// Measured, and still so.
    Fresh(Figure),
    /// Echoes are lost, three and more in a row, for so long. `seldom`: it is visited
    /// less than every five seconds, and a probe could tell more.
    Unreachable { since: Duration, seldom: bool },
    /// Was measured less than ten minutes ago; it may have changed since.
    Old(Figure),
    /// Never measured, or too long ago.
    #[default]
    Nothing,
}

/// Round-trip times of a pair of nodes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figure {
    /// Of the last five samples.
    pub median: Duration,
    /// That median after each of the last three visits, newest first.
    pub windows: SmallVec<[Duration; 3]>,
    /// Of the last `samples` samples, as is `p95`.
    pub p50: Duration,
    pub p95: Duration,
    /// At most 60.
    pub samples: u32,
    /// Since the last sample.
    pub age: Duration,
    /// The directions differ by over 20 %; the larger is given.
    pub apart: bool,
    /// By TCP connect: echoes by UDP are lost.
    pub connect: bool,
}
