//! Reports of the network, as JSON on the admin port:
//! `/latency/pair`, `/latency/matrix` and `/latency/top`.
//!
//! Names are in camelCase; durations are whole microseconds and their names end
//! in `Micros`. Unknown values are absent. A wrong request gets a line of text: 400 with the
//! fix, 404 with similar names.

mod facts;
mod matrix;
mod names;
mod pages;
mod pair;
mod provider_facts;
mod query;
mod top;

use serde::{Deserialize, Serialize};

pub use facts::{NodeZone, ReportSource, RttFrom, RuleOnPair};
pub use matrix::{By, Cell, MatrixReport};
pub use pages::Pages;
pub use pair::{ActiveRule, Direction, End, Estimated, PairReport, State};
pub use top::{TopPair, TopReport};

/// The source of a figure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Basis {
    /// The same node twice: 0.
    Same,
    /// Measured, and fresh.
    Measured,
    /// From a table.
    Configured,
    /// Predicted.
    Estimated,
    /// Measured, but not lately, and not predicted.
    Old,
    /// Echoes are lost.
    Unreachable,
    /// Nothing is known.
    #[default]
    Nothing,
}

/// The round-trip time that a rule uses for a pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EffectiveRtt {
    pub basis: Basis,
    /// Round-trip time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rtt_micros: Option<u64>,
}

impl EffectiveRtt {
    pub fn new(basis: Basis, micros: u64) -> Self {
        Self {
            basis,
            rtt_micros: Some(micros),
        }
    }
}

/// A request that has no answer.
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
    /// The HTTP status.
    pub fn status(&self) -> u16 {
        match self {
            Self::Unknown { .. } => 404,
            Self::TooMany { .. } | Self::Query { .. } => 400,
        }
    }
}

#[cfg(test)]
mod dashboard_tests;
#[cfg(test)]
mod tests;
