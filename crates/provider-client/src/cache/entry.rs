use std::sync::Arc;

use tautline_core::{nodes::NodeSet, planning::Costs, providers::Address};
use tokio::time::Instant;

use super::{Key, refresh_at::RefreshAt};

/// The lines of one or several answers to one question.
#[derive(Debug)]
pub(super) struct CacheEntry {
    pub(super) key: Key,
    pub(super) nodes: NodeSet,
    pub(super) costs: Costs,
    pub(super) validity: EntryValidity,
    pub(super) refresh_at: RefreshAt,
    pub(super) first_requested_at: Instant,
}

#[derive(Debug)]
pub(super) enum EntryValidity {
    /// The end of each line, by position.
    Until(Vec<Instant>),
    /// A version of the provider's replica at this address.
    Versioned {
        version: u64,
        endpoint: Arc<Address>,
        /// No later version exists until then.
        fresh_until: Instant,
        /// All nodes are requested again then.
        until: Instant,
        /// Identifies the node positions: those of another answer differ.
        serial: u64,
    },
}

impl CacheEntry {
    pub(super) fn mostly_valid(&self) -> bool {
        let now = Instant::now();
        match &self.validity {
            EntryValidity::Until(until) => {
                2 * until.iter().filter(|then| **then > now).count() > until.len()
            }
            EntryValidity::Versioned { .. } => false,
        }
    }

    /// Merges lines valid until `then`; lines valid for longer are newer and stay.
    pub(super) fn add(&mut self, nodes: &NodeSet, newer: &Costs, then: Instant) {
        let EntryValidity::Until(until) = &mut self.validity else {
            return;
        };
        let mut next = 0;
        for (from, name) in nodes.iter().enumerate() {
            let at = self.nodes.position_from(next, name);
            let to = at.unwrap_or_else(|| self.nodes.insert(name));
            next = to + 1;
            if until.get(to).is_some_and(|until| *until > then) {
                continue;
            }
            self.costs.copy_from(to, newer, from);
            until.resize(self.nodes.len(), then);
            until[to] = then;
        }
        if until.iter().all(|until| *until <= then) {
            self.costs.resolution = newer.resolution;
            self.costs.request_cost = newer.request_cost;
        }
        self.costs.repack();
    }

    /// Keeps the valid lines of other nodes.
    pub(super) fn keep_valid_from(&mut self, before: &Self, now: Instant) {
        let (EntryValidity::Until(until), EntryValidity::Until(then)) =
            (&mut self.validity, &before.validity)
        else {
            return;
        };
        for (from, name) in before.nodes.iter().enumerate() {
            if then[from] > now && self.nodes.position(name).is_none() {
                let to = self.nodes.insert(name);
                self.costs.copy_from(to, &before.costs, from);
                until.push(then[from]);
            }
        }
    }
}
