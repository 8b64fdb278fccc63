//! A lane for each provider: so many evaluations at once, the others wait in
//! order. A slow provider holds up its own bindings and nobody else's.

use std::{collections::VecDeque, sync::Arc};

use hashbrown::HashMap;
use tokio::time::Instant;

use crate::known::Key;

/// Having waited so often, a ticket runs whatever else does.
const ENOUGH: u32 = 3;

/// A binding that wants to be evaluated, since when, and whom that needs.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Ticket {
    pub key: Key,
    pub due: Instant,
    pub providers: Vec<Arc<str>>,
    /// How often it waited: one that needs several busy lanes would wait for ever.
    pub waits: u32,
}

#[derive(Debug, Default)]
struct Lane {
    running: usize,
    waiting: VecDeque<Ticket>,
}

/// Lanes by provider, `namespace/name`.
#[derive(Debug)]
pub(crate) struct Lanes {
    most: usize,
    lanes: HashMap<Arc<str>, Lane>,
}

impl Lanes {
    pub(crate) fn new(most: usize) -> Self {
        Self {
            most: most.max(1),
            lanes: HashMap::new(),
        }
    }

    /// Takes a place in the lane of each provider and gives the ticket back, or
    /// lets it wait in the first lane that is full.
    pub(crate) fn take(&mut self, mut ticket: Ticket) -> Option<Ticket> {
        if ticket.waits < ENOUGH {
            for provider in &ticket.providers {
                let lane = self.lanes.entry(Arc::clone(provider)).or_default();
                if lane.running >= self.most {
                    ticket.waits += 1;
                    lane.waiting.push_back(ticket);
                    return None;
                }
            }
        }
        for provider in &ticket.providers {
            self.lanes.entry(Arc::clone(provider)).or_default().running += 1;
        }
        Some(ticket)
    }

    /// Gives a ticket's places back; others that waited for them have theirs now.
    pub(crate) fn give(&mut self, ticket: &Ticket) -> Vec<Ticket> {
        for provider in &ticket.providers {
            if let Some(lane) = self.lanes.get_mut(provider) {
                lane.running = lane.running.saturating_sub(1);
            }
        }
        let mut next = Vec::new();
        for provider in &ticket.providers {
            while let Some(waiting) = self.first_waiting(provider) {
                // It may come to wait in another lane; then the next has its turn.
                next.extend(self.take(waiting));
            }
            let idle = |l: &Lane| l.running == 0 && l.waiting.is_empty();
            if self.lanes.get(provider).is_some_and(idle) {
                self.lanes.remove(provider);
            }
        }
        next
    }

    fn first_waiting(&mut self, provider: &Arc<str>) -> Option<Ticket> {
        let lane = self.lanes.get_mut(provider)?;
        (lane.running < self.most).then(|| lane.waiting.pop_front())?
    }

    pub(crate) fn waiting(&self) -> usize {
        self.lanes.values().map(|l| l.waiting.len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Whatever providers tickets need: no lane is overfull, none idles while
        /// somebody waits for it alone, and all are served in the end.
        #[test]
        fn bounded_and_nobody_is_lost(needs in proptest::collection::vec(proptest::collection::btree_set(0u8..4, 0..4), 1..60), most in 1usize..4) {
            let mut lanes = Lanes::new(most);
            let ticket = |i: usize| Ticket {
                key: i.to_string().into(),
                due: Instant::now(),
                providers: needs[i].iter().map(|p| p.to_string().into()).collect(),
                waits: 0,
            };
            let mut running: VecDeque<Ticket> = (0..needs.len()).filter_map(|i| lanes.take(ticket(i))).collect();
            let mut served = vec![0; needs.len()];
            loop {
                for p in 0..4u8 {
                    let name: Arc<str> = p.to_string().into();
                    let here = running.iter().filter(|t| t.providers.contains(&name)).count();
                    let forced = running.iter().filter(|t| t.waits >= ENOUGH).count();
                    prop_assert!(here <= most + forced);
                    let lane = lanes.lanes.get(&name);
                    prop_assert!(lane.is_none_or(|l| l.running == here && (l.waiting.is_empty() || here >= most)));
                }
                let Some(done) = running.pop_front() else { break };
                served[done.key.parse::<usize>().unwrap()] += 1;
                running.extend(lanes.give(&done));
            }
            prop_assert_eq!(lanes.waiting(), 0);
            prop_assert!(lanes.lanes.is_empty());
            prop_assert!(served.iter().all(|n| *n == 1), "{:?}", served);
        }
    }
}
