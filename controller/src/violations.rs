//! The state machine of violations: it orders the attempts to act on them, and decides the next
//! step of each.

mod decide;
mod inbox;
#[cfg(test)]
mod tests;
mod tracker;
mod violation;

pub(crate) use decide::{NextStep, decide_action};
pub(crate) use inbox::Inbox;
pub(crate) use tracker::ViolationTracker;
pub(crate) use violation::{
    Attempt, AttemptOutcome, AttemptResult, CoolDown, Violation, ViolationEvent,
};
