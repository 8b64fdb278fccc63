use serde::{Deserialize, Serialize};

/// Source of a round-trip time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Basis {
    /// Both ends are one node: the time is 0.
    Same,
    /// A fresh measurement, by echo or TCP connect.
    Measured,
    /// A table.
    Configured,
    /// A prediction: there is no fresh measurement.
    Estimated,
    /// Measured, but not lately, and not predicted.
    Old,
    /// Three echoes or more were lost in a row; there is no time.
    Unreachable,
    /// No data; there is no time.
    #[default]
    Nothing,
}

/// The round-trip time that rules use when they place pods, and its source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EffectiveRtt {
    /// Source of the time.
    pub basis: Basis,
    /// `None` if unreachable or without data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rtt_micros: Option<u64>,
}

impl EffectiveRtt {
    /// A time in microseconds and its source.
    pub fn new(basis: Basis, micros: u64) -> Self {
        Self {
            basis,
            rtt_micros: Some(micros),
        }
    }
}

/// A node of a pair.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct End {
    /// Node's name.
    pub node: String,
    /// Zone by the node's label.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// UID of the Node object; empty if unknown.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// The measured boot: figures of an earlier boot do not count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot: Option<String>,
    /// Whether an agent of the node is connected to this replica.
    pub agent: bool,
}

/// State of one direction of a pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum State {
    /// Measured, and the figures are fresh.
    Measured,
    /// Three losses in a row.
    Unreachable,
    /// No sample for twice the refresh time.
    Stale,
    /// Not measured, or too long ago.
    #[default]
    Nothing,
}

/// What the agent of one node measured to another.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Direction {
    /// Node whose agent sends the echoes.
    pub from: String,
    /// Node whose agent answers them.
    pub to: String,
    /// State, which says whether there are figures.
    pub state: State,
    /// Of the last five samples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub median_micros: Option<u64>,
    /// That median after each of the last three visits, newest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub window_micros: Vec<u64>,
    /// Of the last `samples`, at most 60.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p50_micros: Option<u64>,
    /// 95th percentile of the same samples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p95_micros: Option<u64>,
    /// Number of samples behind both percentiles; 0 without figures.
    pub samples: u32,
    /// Age of the last sample.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub age_micros: Option<u64>,
    /// Time between two visits of the pair; 15 s if it was measured only once, on demand.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refresh_micros: Option<u64>,
    /// Time since the pair became unreachable; `None` in other states.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unreachable_micros: Option<u64>,
    /// Times of TCP connects: UDP echoes are lost.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub by_connect: bool,
}

/// A prediction with its 80 % interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Estimated {
    /// Predicted time.
    pub rtt_micros: u64,
    /// Lower end of the interval.
    pub low_micros: u64,
    /// Upper end of the interval.
    pub high_micros: u64,
}
