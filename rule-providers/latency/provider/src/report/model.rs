use serde::{Deserialize, Serialize};

/// The source of a round-trip time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Basis {
    /// Both ends are one node: the time is 0.
    Same,
    /// A fresh measurement, by echo or TCP connect.
    Measured,
    /// A row of a table.
    Configured,
    /// A prediction: there is no fresh measurement.
    Estimated,
    /// An old measurement: there is no prediction.
    Old,
    /// Three echoes or more were lost in a row; there is no time.
    Unreachable,
    /// There is no data, and no time.
    #[default]
    Nothing,
}

/// The round-trip time that rules use when they place pods, and its source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EffectiveRtt {
    /// The source of the time.
    pub basis: Basis,
    /// The time in microseconds; `None` if the pair is unreachable or has no data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rtt_micros: Option<u64>,
}

impl EffectiveRtt {
    /// Creates a time in microseconds with its source.
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
    /// The name of the node.
    pub node: String,
    /// The zone, by the node's label.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// The UID of the Node object; empty if unknown.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// The ID of the measured boot; figures of an earlier boot do not count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot: Option<String>,
    /// True if an agent of the node is connected to this replica.
    pub agent: bool,
    /// True if the node is an address outside the cluster.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub outside: bool,
}

/// The state of one direction of a pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum State {
    /// The direction is measured, and the figures are fresh.
    Measured,
    /// Three echoes or more were lost in a row.
    Unreachable,
    /// The last sample is older than twice the refresh time.
    Stale,
    /// The direction was not measured, or too long ago.
    #[default]
    Nothing,
}

/// The measurements of one direction of a pair, by the agent of its first node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Direction {
    /// The node whose agent sends the echoes.
    pub from: String,
    /// The node whose agent answers them.
    pub to: String,
    /// The state. There are figures if it is `Measured` or `Stale`.
    pub state: State,
    /// The median of the last five samples, in microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub median_micros: Option<u64>,
    /// The medians after each of the last three visits, in microseconds, newest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub window_micros: Vec<u64>,
    /// The 50th percentile of the last `samples` samples, in microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p50_micros: Option<u64>,
    /// The 95th percentile of the same samples, in microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p95_micros: Option<u64>,
    /// The number of samples behind both percentiles, at most 60; 0 without figures.
    pub samples: u32,
    /// The age of the last sample, in microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub age_micros: Option<u64>,
    /// The time between two visits of the pair, in microseconds; 15 s if it was measured only once,
    /// on demand.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refresh_micros: Option<u64>,
    /// The time since the pair became unreachable, in microseconds; `None` in other states.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unreachable_micros: Option<u64>,
    /// True if the times are those of TCP connects, because UDP echoes are lost.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub by_connect: bool,
}

/// A prediction with its 80 % interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Estimated {
    /// The predicted time, in microseconds.
    pub rtt_micros: u64,
    /// The lower end of the interval, in microseconds.
    pub low_micros: u64,
    /// The upper end of the interval, in microseconds.
    pub high_micros: u64,
}
