//! What reports are made of.

use std::sync::Arc;

use super::{Direction, End, Estimated, Told};

/// A node and the zone it says it is in.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    pub node: String,
    pub zone: Option<String>,
}

/// A pair of nodes that an active rule names, what the rule asks of it, and how it
/// fares.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Demand {
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
pub type Way<'a> = &'a (dyn Fn(&str) -> Told + 'a);

/// What is known of nodes and of the ways between them, at one moment.
pub trait Facts {
    /// All nodes, sorted by name.
    fn places(&self) -> Vec<Place>;
    /// A node; `None` if there is none of that name.
    fn end(&self, node: &str) -> Option<End>;
    /// Hands `ask` what says what a rule would be told of the ways to one node, by
    /// the node they come from. Dear at the first question of a pair that is not
    /// measured, cheap then.
    fn ways(&self, to: &str, ask: &mut dyn FnMut(Way<'_>));
    /// What the agent of `from` knows of the way to `to`.
    fn direction(&self, from: &str, to: &str) -> Direction;
    /// Both directions taken together, if there is a figure that is not too old.
    fn combined_micros(&self, a: &str, b: &str) -> Option<u64>;
    fn estimate(&self, a: &str, b: &str) -> Option<Estimated>;
    fn configured_micros(&self, from: &str, to: &str) -> Option<u64>;
    /// The nodes between which and this one something was measured, either way.
    fn measured_with(&self, node: &str) -> Vec<Arc<str>>;
    /// What active rules name.
    fn demands(&self) -> Vec<Demand>;
    /// What a rule would be told of one way.
    fn told(&self, from: &str, to: &str) -> Told {
        let mut told = Told::default();
        self.ways(to, &mut |way| told = way(from));
        told
    }
}
