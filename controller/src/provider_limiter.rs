//! Limits concurrent evaluations per provider: a slow provider delays only the bindings that need
//! it, and namespaces that wait for the same provider take turns.

use std::{sync::Arc, time::Instant};

use hashbrown::HashMap;
use tautline_core::fair_queue::FairQueue;

use crate::binding_spec::{Key, namespace_of};

/// The number of waits after which a ticket runs even if its providers are busy: otherwise a ticket
/// for several busy providers could wait forever.
const MAX_WAITS: u32 = 3;

/// An evaluation that needs a slot at each of its providers.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Ticket {
    pub key: Key,
    /// The binding's UID: a later binding of the same name has its own ticket.
    pub uid: Box<str>,
    pub due: Instant,
    pub providers: Vec<Arc<str>>,
    /// The number of times that the ticket was queued.
    pub waits: u32,
}

#[derive(Debug, Default)]
struct Slots {
    running: usize,
    waiting: FairQueue<Ticket>,
}

/// The slots of each provider, by its `namespace/name`.
#[derive(Debug)]
pub(crate) struct ProviderLimiter {
    limit: usize,
    slots: HashMap<Arc<str>, Slots>,
}

impl ProviderLimiter {
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            limit: limit.max(1),
            slots: HashMap::new(),
        }
    }

    /// Takes a slot at each provider and returns the ticket. If a provider has no free slot, queues
    /// the ticket there and returns `None`.
    pub(crate) fn acquire(&mut self, mut ticket: Ticket) -> Option<Ticket> {
        if ticket.waits < MAX_WAITS {
            for provider in &ticket.providers {
                let slots = self.slots.entry(Arc::clone(provider)).or_default();
                if slots.running >= self.limit {
                    ticket.waits += 1;
                    let key = Arc::clone(&ticket.key);
                    slots.waiting.push(namespace_of(&key), ticket);
                    return None;
                }
            }
        }
        for provider in &ticket.providers {
            self.slots.entry(Arc::clone(provider)).or_default().running += 1;
        }
        Some(ticket)
    }

    /// Frees a ticket's slots, and returns the waiting tickets that have all their slots now.
    pub(crate) fn release(&mut self, providers: &[Arc<str>]) -> Vec<Ticket> {
        for provider in providers {
            if let Some(slots) = self.slots.get_mut(provider) {
                slots.running = slots.running.saturating_sub(1);
            }
        }
        let mut next = Vec::new();
        for provider in providers {
            while let Some(waiting) = self.pop_waiting(provider) {
                // The ticket may have to wait at another provider; then the next ticket runs.
                next.extend(self.acquire(waiting));
            }
            let idle = |s: &Slots| s.running == 0 && s.waiting.is_empty();
            if self.slots.get(provider).is_some_and(idle) {
                self.slots.remove(provider);
            }
        }
        next
    }

    fn pop_waiting(&mut self, provider: &Arc<str>) -> Option<Ticket> {
        let slots = self.slots.get_mut(provider)?;
        (slots.running < self.limit).then(|| slots.waiting.pop())?
    }

    pub(crate) fn waiting(&self) -> usize {
        self.slots.values().map(|s| s.waiting.len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    fn ticket(key: &str, providers: &[&str]) -> Ticket {
        Ticket {
            key: key.into(),
            uid: Box::default(),
            due: Instant::now(),
            providers: providers.iter().map(|p| (*p).into()).collect(),
            waits: 0,
        }
    }

    fn keys(tickets: &[Ticket]) -> Vec<&str> {
        tickets.iter().map(|t| &*t.key).collect()
    }

    #[test]
    fn limiter_runs_up_to_its_limit() {
        let mut limiter = ProviderLimiter::new(2);
        assert!(limiter.acquire(ticket("a", &["p"])).is_some());
        assert!(limiter.acquire(ticket("b", &["p"])).is_some());
        assert!(limiter.acquire(ticket("c", &["p"])).is_none());
        assert_eq!(limiter.waiting(), 1);
    }

    #[test]
    fn limiter_treats_a_limit_of_zero_as_one() {
        let mut limiter = ProviderLimiter::new(0);
        assert!(limiter.acquire(ticket("a", &["p"])).is_some());
        assert!(limiter.acquire(ticket("b", &["p"])).is_none());
    }

    #[test]
    fn limiter_holds_no_ticket_without_providers() {
        let mut limiter = ProviderLimiter::new(1);
        for key in ["a", "b", "c"] {
            assert!(limiter.acquire(ticket(key, &[])).is_some());
        }
    }

    #[test]
    fn limiter_releases_waiting_tickets_in_order() {
        let mut limiter = ProviderLimiter::new(1);
        let first = limiter.acquire(ticket("a", &["p"])).unwrap();
        for key in ["b", "c"] {
            assert!(limiter.acquire(ticket(key, &["p"])).is_none());
        }
        let next = limiter.release(&first.providers);
        assert_eq!(keys(&next), ["b"]);
        assert_eq!(keys(&limiter.release(&next[0].providers)), ["c"]);
    }

    #[test]
    fn limiter_lets_namespaces_that_wait_take_turns() {
        let mut limiter = ProviderLimiter::new(1);
        let mut running = limiter.acquire(ticket("loud/0", &["p"])).unwrap();
        for i in 1..100 {
            limiter.acquire(ticket(&format!("loud/{i}"), &["p"]));
        }
        limiter.acquire(ticket("quiet/0", &["p"]));
        let mut order = Vec::new();
        for _ in 0..2 {
            running = limiter.release(&running.providers).remove(0);
            order.push(running.key.to_string());
        }
        assert_eq!(order, ["loud/1", "quiet/0"]);
    }

    #[test]
    fn limiter_delays_no_binding_of_another_provider() {
        let mut limiter = ProviderLimiter::new(1);
        assert!(limiter.acquire(ticket("a", &["slow"])).is_some());
        assert!(limiter.acquire(ticket("b", &["slow"])).is_none());
        assert!(limiter.acquire(ticket("c", &["fast"])).is_some());
    }

    #[test]
    fn limiter_takes_no_slot_for_a_ticket_that_waits_elsewhere() {
        let mut limiter = ProviderLimiter::new(1);
        assert!(limiter.acquire(ticket("a", &["q"])).is_some());
        assert!(limiter.acquire(ticket("both", &["p", "q"])).is_none());
        assert!(limiter.acquire(ticket("c", &["p"])).is_some(), "p is free");
    }

    #[test]
    fn limiter_runs_a_ticket_that_has_waited_three_times() {
        let mut limiter = ProviderLimiter::new(1);
        assert!(limiter.acquire(ticket("a", &["p"])).is_some());
        let waited = Ticket {
            waits: MAX_WAITS,
            ..ticket("b", &["p"])
        };
        assert!(limiter.acquire(waited).is_some());
    }

    proptest! {
        /// No provider is over its limit, none idles while a ticket waits for it
        /// alone, and every ticket runs once.
        #[test]
        fn limiter_is_bounded_and_loses_no_ticket(needs in proptest::collection::vec(proptest::collection::btree_set(0u8..4, 0..4), 1..60), limit in 1usize..4) {
            let mut limiter = ProviderLimiter::new(limit);
            let ticket = |i: usize| Ticket {
                key: i.to_string().into(),
                uid: Box::default(),
                due: Instant::now(),
                providers: needs[i].iter().map(|p| p.to_string().into()).collect(),
                waits: 0,
            };
            let mut running: VecDeque<Ticket> = (0..needs.len()).filter_map(|i| limiter.acquire(ticket(i))).collect();
            let mut runs = vec![0; needs.len()];
            loop {
                for p in 0..4u8 {
                    let name: Arc<str> = p.to_string().into();
                    let here = running.iter().filter(|t| t.providers.contains(&name)).count();
                    let forced = running.iter().filter(|t| t.waits >= MAX_WAITS).count();
                    prop_assert!(here <= limit + forced);
                    let slots = limiter.slots.get(&name);
                    prop_assert!(slots.is_none_or(|s| s.running == here && (s.waiting.is_empty() || here >= limit)));
                }
                let Some(done) = running.pop_front() else { break };
                runs[done.key.parse::<usize>().unwrap()] += 1;
                running.extend(limiter.release(&done.providers));
            }
            prop_assert_eq!(limiter.waiting(), 0);
            prop_assert!(limiter.slots.is_empty());
            prop_assert!(runs.iter().all(|n| *n == 1), "{:?}", runs);
        }
    }
}
