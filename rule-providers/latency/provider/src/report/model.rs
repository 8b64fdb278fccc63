use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Basis {
    Same,
    Measured,
    Configured,
    Estimated,
    /// Measured, but not lately, and not predicted.
    Old,
    Unreachable,
    #[default]
    Nothing,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EffectiveRtt {
    pub basis: Basis,
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

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct End {
    pub node: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// The measured boot: figures of an earlier boot do not count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot: Option<String>,
    pub agent: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum State {
    Measured,
    /// Three losses in a row.
    Unreachable,
    /// No sample for twice the refresh time.
    Stale,
    #[default]
    Nothing,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Direction {
    pub from: String,
    pub to: String,
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
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p95_micros: Option<u64>,
    pub samples: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub age_micros: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refresh_micros: Option<u64>,
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
    pub rtt_micros: u64,
    pub low_micros: u64,
    pub high_micros: u64,
}
