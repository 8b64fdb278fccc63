//! Events for the task that acts on violations. The inbox holds one entry per binding: the
//! last state, and whether the violation was cleared before.

use std::sync::Arc;

use hashbrown::HashMap;

use super::violation::ViolationEvent;
use crate::binding_spec::Key;

#[derive(Default)]
pub(crate) struct Inbox(HashMap<Key, Waiting>);

#[derive(Default)]
struct Waiting {
    cleared: bool,
    raised: Option<ViolationEvent>,
}

impl Inbox {
    pub(crate) fn push(&mut self, event: ViolationEvent) {
        let key = match &event {
            ViolationEvent::Raised { binding, .. } => binding.key(),
            ViolationEvent::Cleared(key) => Arc::clone(key),
        };
        let waiting = self.0.entry(key).or_default();
        match event {
            ViolationEvent::Cleared(_) => {
                (waiting.cleared, waiting.raised) = (true, None);
            }
            raised => waiting.raised = Some(merge(waiting.raised.take(), raised)),
        }
    }

    pub(crate) fn drain(&mut self) -> Vec<ViolationEvent> {
        let mut events = Vec::new();
        for (key, waiting) in self.0.drain() {
            if waiting.cleared {
                events.push(ViolationEvent::Cleared(key));
            }
            events.extend(waiting.raised);
        }
        events
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}

/// Returns the later event, with the earliest start and the latest mitigation of both.
fn merge(earlier: Option<ViolationEvent>, mut later: ViolationEvent) -> ViolationEvent {
    if let ViolationEvent::Raised {
        since, mitigated, ..
    } = &mut later
        && let Some(ViolationEvent::Raised {
            since: first,
            mitigated: last,
            ..
        }) = earlier
    {
        *since = first.min(*since);
        *mitigated = last.max(*mitigated);
    }
    later
}
