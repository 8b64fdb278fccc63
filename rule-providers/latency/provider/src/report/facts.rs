use std::sync::Arc;

use super::model::{Direction, EffectiveRtt, End, Estimated};

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeZone {
    pub node: String,
    pub zone: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RuleOnPair {
    pub from: String,
    pub to: String,
    pub rule: String,
    pub request_micros: Option<u64>,
    pub limit_micros: Option<u64>,
    pub level: Option<&'static str>,
}

pub type RttFrom<'a> = &'a (dyn Fn(&str) -> EffectiveRtt + 'a);

pub trait ReportSource {
    fn nodes(&self) -> Vec<NodeZone>;
    fn end(&self, node: &str) -> Option<End>;
    /// Calls `visit` with the round-trip times to a node. The first look-up of a pair that is not
    /// measured is expensive.
    fn with_rtts_to(&self, to: &str, visit: &mut dyn FnMut(RttFrom<'_>));
    fn direction(&self, from: &str, to: &str) -> Direction;
    /// Returns the time of both directions combined, if there is a figure that is not too old.
    fn combined_micros(&self, a: &str, b: &str) -> Option<u64>;
    fn estimate(&self, a: &str, b: &str) -> Option<Estimated>;
    fn configured_micros(&self, from: &str, to: &str) -> Option<u64>;
    fn measured_with(&self, node: &str) -> Vec<Arc<str>>;
    fn active_rules(&self) -> Vec<RuleOnPair>;
    fn effective_rtt(&self, from: &str, to: &str) -> EffectiveRtt {
        let mut rtt = EffectiveRtt::default();
        self.with_rtts_to(to, &mut |rtt_from| rtt = rtt_from(from));
        rtt
    }
}
