//! Predicts round-trip times that were not measured from those that were.
//!
//! Samples go in, estimates with an error bar come out. Pure: no input or
//! output, no clock, no threads; the same seed and samples give the same
//! estimates.
//!
//! A [`Model`] belongs to whoever fits it (a background thread); what it has
//! learned is published as an immutable [`Fit`] that any number of readers ask.

/// A node, as the model numbers it. Numbers of removed nodes are used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u32);

/// Where a node is said to be; unknown parts are `None`. Labels may be wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Labels<'a> {
    pub region: Option<&'a str>,
    pub zone: Option<&'a str>,
    pub rack: Option<&'a str>,
}

/// A predicted round-trip time, in microseconds, with its error bar: in four
/// of five cases the true median is within `low..=high`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    pub micros: f32,
    pub low: f32,
    pub high: f32,
}
