//! What is kept of one question: lines, and what they hold by.

use std::sync::Arc;

use tautline_core::{nodes::NodeSet, planning::Costs, providers::Address};
use tokio::time::Instant;

use super::{Key, refresh_at::RefreshAt};

/// What the provider said of nodes, in one answer or several.
#[derive(Debug)]
pub(super) struct CacheEntry {
    pub(super) key: Key,
    pub(super) nodes: NodeSet,
    pub(super) costs: Costs,
    pub(super) validity: EntryValidity,
    pub(super) refresh_at: RefreshAt,
    /// When the first of these lines was asked for.
    pub(super) first_requested_at: Instant,
}

/// What lines hold by.
#[derive(Debug)]
pub(super) enum EntryValidity {
    /// Until then, by position.
    Until(Vec<Instant>),
    /// As of a version of who answers at this address.
    Versioned {
        version: u64,
        endpoint: Arc<Address>,
        /// Until then there is no later version.
        fresh_until: Instant,
        /// Then all is asked anew.
        until: Instant,
        /// Which answer's nodes these are: another's have other positions.
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

    /// Takes over lines that hold until `then`; such as hold for longer were asked for
    /// later.
    pub(super) fn add(&mut self, nodes: &NodeSet, said: &Costs, then: Instant) {
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
            self.costs.copy_from(to, said, from);
            until.resize(self.nodes.len(), then);
            until[to] = then;
        }
        if until.iter().all(|until| *until <= then) {
            self.costs.resolution = said.resolution;
        }
        self.costs.repack();
    }

    /// Takes over lines about other nodes that are valid still.
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
