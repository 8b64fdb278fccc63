//! What reports are made of.

use std::sync::Arc;

use super::{Direction, EffectiveRtt, End, Estimated};

/// A node and the zone it says it is in.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeZone {
    pub node: String,
    pub zone: Option<String>,
}

/// A pair of nodes that an active rule names, what the rule asks of it, and how it
/// fares.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RuleOnPair {
    pub from: String,
    pub to: String,
    /// The rule's name, `latency`.
    pub rule: String,
    pub request_micros: Option<u64>,
    pub limit_micros: Option<u64>,
    /// As it was judged last.
    pub judged: Option<&'static str>,
}

/// What a rule would be told, by the node that a way comes from.
pub type RttFrom<'a> = &'a (dyn Fn(&str) -> EffectiveRtt + 'a);

/// What is known of nodes and of the ways between them, at one moment.
pub trait ReportSource {
    /// All nodes, sorted by name.
    fn nodes(&self) -> Vec<NodeZone>;
    /// A node; `None` if there is none of that name.
    fn end(&self, node: &str) -> Option<End>;
    /// Hands `ask` what says what a rule would be told of the ways to one node, by
    /// the node they come from. Dear at the first question of a pair that is not
    /// measured, cheap then.
    fn with_rtts_to(&self, to: &str, ask: &mut dyn FnMut(RttFrom<'_>));
    /// What the agent of `from` knows of the way to `to`.
    fn direction(&self, from: &str, to: &str) -> Direction;
    /// Both directions taken together, if there is a figure that is not too old.
    fn combined_micros(&self, a: &str, b: &str) -> Option<u64>;
    fn estimate(&self, a: &str, b: &str) -> Option<Estimated>;
    fn configured_micros(&self, from: &str, to: &str) -> Option<u64>;
    /// The nodes between which and this one something was measured, either way.
    fn measured_with(&self, node: &str) -> Vec<Arc<str>>;
    /// What active rules name.
    fn active_rules(&self) -> Vec<RuleOnPair>;
    /// What a rule would be told of one way.
    fn effective_rtt(&self, from: &str, to: &str) -> EffectiveRtt {
        let mut told = EffectiveRtt::default();
        self.with_rtts_to(to, &mut |way| told = way(from));
        told
    }
}
