//! What is known of one direction, for people who look.

use std::{sync::Arc, time::Duration};

use super::{Id, Instance, Ledger, way::Way};
use crate::reading::Reading;

impl Ledger {
    /// What the agent of `from` found, and how often it visits the pair.
    pub fn direction(&self, from: Id, to: Id, now: Duration) -> (Reading, Option<Duration>) {
        let refresh = self.way(from, to).map(Way::refresh);
        (self.one_way(from, to, now), refresh)
    }

    /// The nodes that an instance has measured, or that have measured it.
    pub fn others(&self, of: Id) -> Vec<Arc<str>> {
        let Some(instance) = self.instances.get(&of) else {
            return Vec::new();
        };
        let others = instance.ways.iter().map(|w| &w.0).chain(&instance.sources);
        let known = others.filter_map(|id| self.instances.get(id));
        known.map(|i| Arc::clone(&i.node)).collect()
    }
}

impl Instance {
    /// Whether its agent is connected.
    pub fn has_agent(&self) -> bool {
        self.stream != 0
    }
}
