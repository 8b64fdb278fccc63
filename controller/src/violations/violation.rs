//! Violated bindings, and attempts to act on them.

use std::{collections::BTreeMap, sync::Arc, time::Instant};

use tautline_core::compliance_state::UnixTime;

use crate::{
    binding_spec::{BindingSpec, Key},
    eviction::EvictionRow,
};

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ViolationEvent {
    Raised {
        binding: Arc<BindingSpec>,
        since: UnixTime,
        reason: String,
        /// The time of the last mitigation in the binding's status.
        mitigated: Option<UnixTime>,
    },
    Cleared(Key),
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Violation {
    pub binding: Arc<BindingSpec>,
    pub since: UnixTime,
    pub reason: String,
    /// The time of the last mitigation.
    pub mitigated: Option<UnixTime>,
    /// The number of mitigations for this violation.
    pub mitigations: u32,
    pub tried_at: Option<Instant>,
    pub not_before: Option<Instant>,
    /// True if only an eviction of last resort would end the violation, so that others come first.
    pub last_resort: bool,
}

#[derive(Debug)]
pub(crate) struct Attempt {
    pub offer: Key,
    pub violations: Vec<Violation>,
    /// The number of pods in violation of the offer, by target.
    pub pods: BTreeMap<Arc<str>, usize>,
    pub cool_down: CoolDown,
}

/// An offer's cool-down after its evictions.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct CoolDown {
    /// True if the last eviction, which an earlier leader may have made, has been read.
    pub loaded: bool,
    /// The last row of the offer's evictions.
    pub row: Option<EvictionRow>,
}

#[derive(Debug)]
pub(crate) struct AttemptResult {
    pub cool_down: CoolDown,
    pub outcomes: Vec<(Key, AttemptOutcome)>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum AttemptOutcome {
    /// The next attempt waits until this time.
    NotBefore(Instant),
    /// A mitigation was requested at this time.
    Mitigated(UnixTime),
    /// The attempt did nothing, as only an eviction of last resort would end the violation.
    LastResort,
}
