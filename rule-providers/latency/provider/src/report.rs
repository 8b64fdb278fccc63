//! What the provider shows of the network, as JSON on its admin port:
//! `/latency/pair`, `/latency/matrix` and `/latency/top`.
//!
//! Names are in camelCase; durations are whole microseconds and their names end
//! in `Micros`. What is not known is absent. Wrong questions get a line of text:
//! 400 with what to write, 404 with names that are near.

mod facts;
mod matrix;
mod names;
mod own;
mod pages;
mod pair;
mod query;
mod top;

use serde::{Deserialize, Serialize};

pub use facts::{Demand, Facts, Place, Way};
pub use matrix::{By, Cell, MatrixReport};
pub use pages::Pages;
pub use pair::{Direction, End, Estimated, NamedBy, PairReport, State};
pub use top::{TopPair, TopReport};

/// Where a figure comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Basis {
    /// The same node twice: 0.
    Same,
    /// Measured, and fresh.
    Measured,
    /// From a table that people wrote.
    Configured,
    /// Predicted.
    Estimated,
    /// Measured, but not lately, and nothing is predicted.
    Old,
    /// Echoes are lost.
    Unreachable,
    /// Nothing is known.
    #[default]
    Nothing,
}

/// What a rule would be told of a pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Told {
    pub basis: Basis,
    /// Round-trip time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rtt_micros: Option<u64>,
}

impl Told {
    /// A figure and where it comes from.
    pub fn new(basis: Basis, micros: u64) -> Self {
        Self {
            basis,
            rtt_micros: Some(micros),
        }
    }
}

/// A question that has no answer.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReportError {
    #[error("there is no {what} {name}{}", names::near_text(near))]
    Unknown {
        what: &'static str,
        name: String,
        near: Vec<String>,
    },
    #[error("{count} {what}, and at most {most} can be shown; {mend}")]
    TooMany {
        count: usize,
        what: &'static str,
        most: usize,
        mend: &'static str,
    },
    #[error("{field}: {what}")]
    Query { field: String, what: String },
}

impl ReportError {
    /// Of HTTP.
    pub fn status(&self) -> u16 {
        match self {
            Self::Unknown { .. } => 404,
            Self::TooMany { .. } | Self::Query { .. } => 400,
        }
    }
}

#[cfg(test)]
mod dashboard;
#[cfg(test)]
mod tests;
