//! Judges a figure that wavers: a change needs three windows in a row, and to get
//! better they must be clearly better. A median of five still errs by 15 % once in
//! a hundred times.

use tautline_sdk::Compliance;

/// What a rule allows, in microseconds; what it leaves out is not judged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Bounds {
    pub request: Option<u64>,
    pub limit: Option<u64>,
}

/// From good to bad.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Level {
    /// Up to the request.
    Compliant,
    /// Above it, up to the limit.
    Limit,
    /// Above the limit.
    Violation,
}

impl From<Level> for Compliance {
    fn from(level: Level) -> Self {
        match level {
            Level::Compliant => Self::Compliant,
            Level::Limit => Self::Limit,
            Level::Violation => Self::Violation,
        }
    }
}

impl Bounds {
    /// The level of one figure by itself.
    pub(crate) fn level(self, micros: u64) -> Level {
        self.at(micros, 10)
    }

    /// The same with bounds of so many tenths.
    fn at(self, micros: u64, tenths: u64) -> Level {
        let above = |bound: Option<u64>| {
            bound.is_some_and(|b| micros.saturating_mul(10) > b.saturating_mul(tenths))
        };
        if above(self.limit) {
            Level::Violation
        } else if above(self.request) {
            Level::Limit
        } else {
            Level::Compliant
        }
    }
}

/// The level that follows `before`, given the medians after the last visits, newest
/// first. The first time, and while there are fewer than three, the newest decides,
/// but Compliant takes that no window says otherwise, and of fewer than three none
/// makes a Violation: it is Limit until three agree. Later it gets worse if the last
/// three all are, and better if they all are by a tenth of the bound. `None`: no
/// window.
pub(crate) fn judge(before: Option<Level>, windows: &[u64], bounds: Bounds) -> Option<Level> {
    let newest = *windows.first()?;
    let (Some(before), Some(last)) = (before, windows.get(..3)) else {
        let level = bounds.level(newest);
        let doubt = windows.iter().any(|w| bounds.level(*w) > Level::Compliant);
        return Some(match level {
            Level::Compliant if doubt => Level::Limit,
            Level::Violation if windows.len() < 3 && before != Some(level) => Level::Limit,
            level => level,
        });
    };
    let all_at_least = last.iter().map(|w| bounds.level(*w)).min();
    let all_at_most = last.iter().map(|w| bounds.at(*w, 9)).max();
    let worse = all_at_least.filter(|l| *l > before);
    let better = all_at_most.filter(|l| *l < before);
    Some(worse.or(better).unwrap_or(before))
}

#[cfg(test)]
mod tests {
    use Level::{Compliant, Limit, Violation};
    use proptest::prelude::*;

    use super::*;

    const BOUNDS: Bounds = Bounds {
        request: Some(5_000),
        limit: Some(20_000),
    };

    #[test]
    fn three_in_a_row_and_a_tenth_better() {
        let after = |before, windows: &[u64]| judge(before, windows, BOUNDS).unwrap();
        assert_eq!(judge(None, &[], BOUNDS), None);
        assert_eq!(after(None, &[5_000]), Compliant);
        assert_eq!(after(None, &[5_001]), Limit);
        assert_eq!(after(None, &[20_001, 1, 1]), Violation);
        assert_eq!(after(None, &[4_000, 5_001, 4_000]), Limit, "in doubt");
        let good = Some(Compliant);
        assert_eq!(after(good, &[9_000, 9_000, 5_000]), Compliant);
        assert_eq!(after(good, &[9_000, 9_000, 5_001]), Limit);
        assert_eq!(after(good, &[90_000, 90_000, 9_000]), Limit);
        assert_eq!(after(None, &[20_001]), Limit, "until three agree");
        assert_eq!(after(good, &[90_000, 90_000]), Limit, "two are too few");
        assert_eq!(after(Some(Limit), &[90_000; 3]), Violation);
        let bad = Some(Violation);
        assert_eq!(after(bad, &[20_001]), Violation, "as it was");
        assert_eq!(after(bad, &[5_001]), Limit, "judged anew");
        assert_eq!(after(bad, &[18_000, 18_000, 18_001]), Violation);
        assert_eq!(after(bad, &[18_000, 18_000, 18_000]), Limit);
        assert_eq!(after(bad, &[4_500, 4_500, 4_500]), Compliant);
        assert_eq!(after(bad, &[4_500, 4_501, 4_500]), Limit);
    }

    #[test]
    fn what_is_left_out_is_not_judged() {
        let request = Bounds {
            limit: None,
            ..BOUNDS
        };
        assert_eq!(request.level(u64::MAX), Limit);
        let limit = Bounds {
            request: None,
            ..BOUNDS
        };
        assert_eq!(limit.level(20_000), Compliant);
        assert_eq!(Bounds::default().level(u64::MAX), Compliant);
    }

    fn any_bounds() -> impl Strategy<Value = Bounds> {
        let bound = || proptest::option::of(1u64..1_000);
        (bound(), bound()).prop_map(|(request, limit)| Bounds { request, limit })
    }

    fn any_level() -> impl Strategy<Value = Option<Level>> {
        proptest::option::of(prop_oneof![Just(Compliant), Just(Limit), Just(Violation)])
    }

    proptest! {
        #[test]
        fn never_compliant_at_first_with_a_window_above(
            bounds in any_bounds(), windows in proptest::collection::vec(0u64..1_200, 1..4)
        ) {
            let above = |b: Option<u64>| b.is_some_and(|b| windows.iter().any(|w| *w > b));
            let level = judge(None, &windows, bounds);
            if above(bounds.request) || above(bounds.limit) {
                prop_assert_ne!(level, Some(Compliant));
            } else {
                prop_assert_eq!(level, Some(Compliant));
            }
        }

        /// A series that keeps within a tenth below to nothing above a bound settles
        /// with its first judgement.
        #[test]
        fn no_change_within_the_dead_band(
            bound in 100u64..10_000, tenths in proptest::collection::vec(9_001u64..=10_000, 3..40), bad in any::<bool>()
        ) {
            let bounds = Bounds { request: Some(bound), limit: Some(bound * 4) };
            let figures: Vec<u64> = tenths.iter().map(|t| (bound * t).div_ceil(10_000)).collect();
            let mut level = Some(if bad { Limit } else { Compliant });
            for i in 2..figures.len() {
                let windows = [figures[i], figures[i - 1], figures[i - 2]];
                let next = judge(level, &windows, bounds);
                prop_assert_eq!(next, level);
                level = next;
            }
        }

        /// Longer ways are never judged better, and a worse past never helps.
        #[test]
        fn monotone(
            bounds in any_bounds(), a in proptest::array::uniform3(0u64..1_200), more in proptest::array::uniform3(0u64..400),
            before in any_level()
        ) {
            let b = [a[0] + more[0], a[1] + more[1], a[2] + more[2]];
            prop_assert!(judge(before, &a, bounds) <= judge(before, &b, bounds));
            let past = |p| judge(Some(p), &a, bounds);
            prop_assert!(past(Compliant) <= past(Limit) && past(Limit) <= past(Violation));
        }

        /// The same windows again change nothing.
        #[test]
        fn settled(bounds in any_bounds(), windows in proptest::collection::vec(0u64..1_200, 3), before in any_level()) {
            let once = judge(before, &windows, bounds);
            if before.is_some() {
                prop_assert_eq!(judge(once, &windows, bounds), once);
            }
        }

        /// Fewer than three windows never make a Violation, and are never Compliant
        /// if one is above a bound.
        #[test]
        fn few_windows_are_in_doubt(
            bounds in any_bounds(), windows in proptest::collection::vec(0u64..1_200, 1..3), before in any_level()
        ) {
            let level = judge(before, &windows, bounds);
            prop_assert!(level < Some(Violation) || before == Some(Violation));
            let above = windows.iter().any(|w| bounds.level(*w) > Compliant);
            prop_assert_eq!(level == Some(Compliant), !above);
        }

        /// Three windows far from every bound are judged as they are.
        #[test]
        fn what_is_clear_counts(figure in 0u64..100_000, before in any_level()) {
            prop_assume!(figure <= 4_500 || (5_001..=18_000).contains(&figure) || figure > 20_000);
            prop_assert_eq!(judge(before, &[figure; 3], BOUNDS), Some(BOUNDS.level(figure)));
        }
    }
}
