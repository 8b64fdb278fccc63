//! The data behind reports.

use std::sync::Arc;

use super::model::{Direction, EffectiveRtt, End, Estimated};

/// A node and its zone label.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeZone {
    pub node: String,
    pub zone: Option<String>,
}

/// A pair of nodes that an active rule names.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RuleOnPair {
    pub from: String,
    pub to: String,
    /// The rule's name, `latency`.
    pub rule: String,
    pub request_micros: Option<u64>,
    pub limit_micros: Option<u64>,
    /// The level of the last evaluation.
    pub level: Option<&'static str>,
}

/// The time that a rule uses, by the first node of a pair.
pub type RttFrom<'a> = &'a (dyn Fn(&str) -> EffectiveRtt + 'a);

/// Nodes and the pairs between them, at one moment.
pub trait ReportSource {
    /// All nodes, sorted by name.
    fn nodes(&self) -> Vec<NodeZone>;
    /// A node, if it exists.
    fn end(&self, node: &str) -> Option<End>;
    /// Passes the times to one node to `ask`. The first look-up of a pair that is not
    /// measured is expensive, the next ones are cheap.
    fn with_rtts_to(&self, to: &str, ask: &mut dyn FnMut(RttFrom<'_>));
    /// The measurements of the agent of `from`.
    fn direction(&self, from: &str, to: &str) -> Direction;
    /// Both directions combined, if there is a figure that is not too old.
    fn combined_micros(&self, a: &str, b: &str) -> Option<u64>;
    fn estimate(&self, a: &str, b: &str) -> Option<Estimated>;
    fn configured_micros(&self, from: &str, to: &str) -> Option<u64>;
    /// The nodes with a measured pair with this one.
    fn measured_with(&self, node: &str) -> Vec<Arc<str>>;
    /// The pairs that active rules name.
    fn active_rules(&self) -> Vec<RuleOnPair>;
    /// The time that a rule uses for one pair.
    fn effective_rtt(&self, from: &str, to: &str) -> EffectiveRtt {
        let mut rtt = EffectiveRtt::default();
        self.with_rtts_to(to, &mut |rtt_from| rtt = rtt_from(from));
        rtt
    }
}
