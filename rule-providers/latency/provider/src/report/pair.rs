//! `/latency/pair?from=A&to=B`

use serde::{Deserialize, Serialize};

use super::{EffectiveRtt, ReportError, ReportSource, facts::RuleOnPair, names};

/// All that is known of the way between two nodes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PairReport {
    pub from: End,
    pub to: End,
    /// What a rule would be told now.
    pub told: EffectiveRtt,
    /// As asked, then the other way.
    pub directions: Vec<Direction>,
    /// Both directions taken together: the larger median of the fresh ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub combined_micros: Option<u64>,
    /// The larger p50 over the smaller, less 1, where both are measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub apart: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub estimate: Option<Estimated>,
    /// What the configured table says, of the nodes or of their zones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub configured_micros: Option<u64>,
    /// Active rules that name the pair: it is then visited every two seconds.
    pub named_by: Vec<ActiveRule>,
}

/// A node of a pair.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct End {
    pub node: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// The Node object's.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// Which boot of it is measured: figures of an earlier one do not count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot: Option<String>,
    /// Whether its agent is connected.
    pub agent: bool,
}

/// Of one direction of a pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum State {
    Measured,
    /// Three losses in a row.
    Unreachable,
    /// No sample for twice the refresh time.
    Stale,
    /// Nobody measures it.
    #[default]
    Nothing,
}

/// What one agent knows of the way to the other.
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
    /// Since the last sample.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub age_micros: Option<u64>,
    /// How often the agent visits the pair.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refresh_micros: Option<u64>,
    /// For how long it is unreachable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unreachable_micros: Option<u64>,
    /// The figures are times of TCP connects: echoes by UDP are lost.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub by_connect: bool,
}

/// A prediction with its error bar: four of five times the truth lies in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Estimated {
    pub rtt_micros: u64,
    pub low_micros: u64,
    pub high_micros: u64,
}

/// What an active rule asks of the pair.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ActiveRule {
    pub rule: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_micros: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit_micros: Option<u64>,
}

impl PairReport {
    /// # Errors
    /// A node that is not there.
    pub fn of(facts: &impl ReportSource, from: &str, to: &str) -> Result<Self, ReportError> {
        let end = |name: &str| {
            facts.end(name).ok_or_else(|| {
                let places = facts.nodes();
                ReportError::Unknown {
                    what: "node",
                    name: name.to_owned(),
                    near: names::near(name, places.iter().map(|p| p.node.as_str())),
                }
            })
        };
        let (a, b) = (end(from)?, end(to)?);
        let directions = match from == to {
            true => Vec::new(),
            false => vec![facts.direction(from, to), facts.direction(to, from)],
        };
        let demands = facts.active_rules().into_iter();
        Ok(Self {
            from: a,
            to: b,
            told: facts.effective_rtt(from, to),
            combined_micros: facts.combined_micros(from, to),
            apart: apart(&directions),
            estimate: facts.estimate(from, to),
            configured_micros: facts.configured_micros(from, to),
            named_by: demands
                .filter(|d| names_pair(d, from, to))
                .map(ActiveRule::from)
                .collect(),
            directions,
        })
    }
}

fn names_pair(demand: &RuleOnPair, from: &str, to: &str) -> bool {
    let names = (demand.from.as_str(), demand.to.as_str());
    names == (from, to) || names == (to, from)
}

/// How far the directions differ, where both are measured.
pub(super) fn apart(directions: &[Direction]) -> Option<f64> {
    let [one, other] = directions else {
        return None;
    };
    if one.state != State::Measured || other.state != State::Measured {
        return None;
    }
    let (one, other) = (one.p50_micros?, other.p50_micros?);
    let (low, high) = (one.min(other), one.max(other));
    (low > 0).then(|| high as f64 / low as f64 - 1.0)
}

impl From<RuleOnPair> for ActiveRule {
    fn from(demand: RuleOnPair) -> Self {
        Self {
            rule: demand.rule,
            request_micros: demand.request_micros,
            limit_micros: demand.limit_micros,
        }
    }
}
