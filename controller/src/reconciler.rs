//! The state machine of bindings, their evaluations and statuses. It takes events and the time, and
//! returns actions; the executor carries these out and returns their results as events.

mod diff;
mod evaluate;
mod events;
mod messages;
mod state;
#[cfg(test)]
mod tests;
mod writes;

use std::time::Instant;

use crate::clock::Now;

pub(crate) use messages::{
    Action, BindingEvent, ClusterChange, Counts, Evaluate, Event, KindState, KindStates,
    Leadership, NewBinding, OfferStatusWrite, Write, WriteError, Written,
};
pub(crate) use state::BindingReconciler;

impl BindingReconciler {
    /// Applies an event and returns the actions to carry out. Only a leader evaluates and writes.
    pub(crate) fn apply(&mut self, event: Event, now: Now) -> Vec<Action> {
        match event {
            Event::Bindings(events) => {
                for event in events {
                    self.apply_binding_event(event, now.instant);
                }
            }
            Event::Cluster(change) => self.apply_cluster_change(change, now.instant),
            Event::Kinds(kinds) => self.apply_kinds(kinds, now.instant),
            Event::Leadership(leadership) => {
                let begins = !self.has_term();
                self.leadership = leadership;
                if begins {
                    self.begin_term(now.instant);
                }
            }
            Event::Evaluated(evaluate, evaluation) => self.evaluated(&evaluate, evaluation, now),
            Event::Written(write, result) => self.written(write, result, now.instant),
            Event::Tick => {}
        }
        if self.leadership == Leadership::Leading {
            self.start_due_work(now.instant);
            self.compare_offers(now.instant);
            self.start_writes();
            self.flush_offer_statuses(now);
        }
        std::mem::take(&mut self.actions)
    }

    /// Returns the time of the next tick, if this replica leads.
    pub(crate) fn next_time(&self) -> Option<Instant> {
        if self.leadership != Leadership::Leading {
            return None;
        }
        let times = [self.schedule.next(), self.flush_at];
        times.into_iter().flatten().min()
    }

    /// Returns the number of bindings that are due and wait for a provider's slot.
    pub(crate) fn waiting(&self) -> usize {
        self.limiter.waiting()
    }
}
