//! The law of mediation and eviction, apart from what cools down.

use std::time::Duration;

use tautline_core::{compliance_state::UnixTime, model::ViolationPolicy};

use super::Case;

/// The shortest wait between two mitigations of one violation, and the longest.
const SHORTEST_WAIT: Duration = Duration::from_secs(10);
const LONGEST_WAIT: Duration = Duration::from_secs(3600);

/// What a violated binding calls for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Nothing,
    /// It is to be mediated, and there is nobody to ask.
    NoUnderlay,
    Wait(UnixTime),
    Mitigate,
    Evict,
}

/// What `case` calls for now. `underlay`: there is one to ask.
pub(super) fn step(
    policy: ViolationPolicy,
    underlay: bool,
    grace: Duration,
    case: &Case,
    now: UnixTime,
) -> Step {
    // Times in statuses are whole seconds, rounded up.
    let tried = case
        .mitigated
        .filter(|at| *at + Duration::from_secs(1) >= case.since);
    match (policy, tried) {
        (ViolationPolicy::Ignore, _) => Step::Nothing,
        (ViolationPolicy::Mediate, _) if !underlay => Step::NoUnderlay,
        (_, None) if underlay => Step::Mitigate,
        (ViolationPolicy::Mediate, None) => Step::Nothing,
        (ViolationPolicy::Mediate, Some(at)) => {
            let doubled = 2u32.saturating_pow(case.attempts.saturating_sub(1).min(16));
            let wait = grace.max(SHORTEST_WAIT).saturating_mul(doubled);
            let until = at + wait.min(LONGEST_WAIT.max(grace));
            if now < until {
                Step::Wait(until)
            } else {
                Step::Mitigate
            }
        }
        (ViolationPolicy::Evict, Some(at)) if now < at + grace => Step::Wait(at + grace),
        (ViolationPolicy::Evict, _) => Step::Evict,
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, sync::Arc};

    use super::*;
    use crate::known::Known;

    fn case(mitigated: Option<u64>, attempts: u32) -> Case {
        let known = Known {
            namespace: "ns".into(),
            name: "b".into(),
            uid: "".into(),
            offer: "o".into(),
            owner: "".into(),
            terminating: false,
            targets: BTreeMap::new(),
        };
        Case {
            binding: Arc::new(known),
            since: Duration::from_secs(1000),
            reason: String::new(),
            mitigated: mitigated.map(Duration::from_secs),
            attempts,
            tried_at: None,
            not_before: None,
        }
    }

    #[test]
    fn mediation_before_eviction_and_one_grace_between() {
        use ViolationPolicy::{Evict, Ignore, Mediate};
        let grace = Duration::from_secs(60);
        let at = |policy, underlay, case: &Case, secs| {
            step(policy, underlay, grace, case, Duration::from_secs(secs))
        };
        let until = |secs| Step::Wait(Duration::from_secs(secs));
        let (fresh, tried) = (case(None, 0), case(Some(1000), 1));
        assert_eq!(at(Ignore, true, &fresh, 1001), Step::Nothing);
        assert_eq!(at(Evict, false, &fresh, 1001), Step::Evict);
        assert_eq!(at(Evict, true, &fresh, 1001), Step::Mitigate);
        assert_eq!(at(Evict, true, &tried, 1059), until(1060));
        assert_eq!(at(Evict, true, &tried, 1060), Step::Evict);
        // What was tried for an earlier violation was not tried for this one.
        assert_eq!(at(Evict, true, &case(Some(900), 1), 1001), Step::Mitigate);
        assert_eq!(at(Mediate, false, &fresh, 1001), Step::NoUnderlay);
        assert_eq!(at(Mediate, true, &fresh, 1001), Step::Mitigate);
        assert_eq!(at(Mediate, true, &tried, 1060), Step::Mitigate);
        // The wait doubles, and never evicts.
        let often = case(Some(1000), 3);
        assert_eq!(at(Mediate, true, &often, 1239), until(1240));
        assert_eq!(at(Mediate, true, &often, 1240), Step::Mitigate);
    }
}
