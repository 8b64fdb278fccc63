//! The hysteresis of levels: a level changes when three windows in a row agree, and gets better
//! only when they are better by a tenth. A median of five samples errs by 15 % at the 99th
//! percentile.

use tautline_sdk::{Compliance, ProviderError, Rule};

use crate::format::{micros, show_micros};

/// The bounds of a rule in microseconds; an absent bound always holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Bounds {
    pub request: Option<u64>,
    pub limit: Option<u64>,
}

impl Bounds {
    pub(crate) fn of_rule(rule: &Rule) -> Result<Self, ProviderError> {
        Ok(Self {
            request: rule.request_duration()?.map(micros),
            limit: rule.limit_duration()?.map(micros),
        })
    }

    pub(crate) fn level(self, micros: u64) -> Compliance {
        self.scaled_level(micros, 10)
    }

    /// Returns a time against the bound that decides: "900us > 100us" beyond the limit, "40us of
    /// 100us" within it.
    pub(crate) fn compare(self, micros: u64) -> String {
        let time = show_micros(micros);
        let above = |bound: u64| micros > bound;
        match (self.request, self.limit) {
            (_, Some(limit)) if above(limit) => format!("{time} > {}", show_micros(limit)),
            (Some(request), Some(limit)) if above(request) => {
                let (request, limit) = (show_micros(request), show_micros(limit));
                format!("{time} of {limit} (request {request})")
            }
            (_, Some(limit)) => format!("{time} of {}", show_micros(limit)),
            (Some(request), None) => {
                let sign = if above(request) { ">" } else { "of" };
                format!("{time} {sign} the request {}", show_micros(request))
            }
            (None, None) => time,
        }
    }

    fn scaled_level(self, micros: u64, tenths: u64) -> Compliance {
        let above = |bound: Option<u64>| {
            bound.is_some_and(|b| micros.saturating_mul(10) > b.saturating_mul(tenths))
        };
        if above(self.limit) {
            Compliance::Violation
        } else if above(self.request) {
            Compliance::Limit
        } else {
            Compliance::Compliant
        }
    }
}

/// Returns the level after `before`, given the windows (the medians after the last visits), newest
/// first. Without `before`, or with fewer than three windows, the newest window decides, with two
/// exceptions: Compliant needs all windows, and a new Violation needs three windows and is Limit
/// until then. Otherwise the level gets worse if the last three windows are all worse, and better
/// if they are all better by a tenth of the bound.
pub(crate) fn next_level(
    before: Option<Compliance>,
    windows: &[u64],
    bounds: Bounds,
) -> Option<Compliance> {
    let newest = *windows.first()?;
    let (Some(before), Some(last)) = (before, windows.get(..3)) else {
        let level = bounds.level(newest);
        let doubt = windows
            .iter()
            .any(|w| bounds.level(*w) > Compliance::Compliant);
        return Some(match level {
            Compliance::Compliant if doubt => Compliance::Limit,
            Compliance::Violation if windows.len() < 3 && before != Some(level) => {
                Compliance::Limit
            }
            level => level,
        });
    };
    let all_at_least = last.iter().map(|w| bounds.level(*w)).min();
    let all_at_most = last.iter().map(|w| bounds.scaled_level(*w, 9)).max();
    let worse = all_at_least.filter(|l| *l > before);
    let better = all_at_most.filter(|l| *l < before);
    Some(worse.or(better).unwrap_or(before))
}

#[cfg(test)]
mod tests {
    use Compliance::{Compliant, Limit, Violation};
    use proptest::prelude::*;

    use super::*;

    const BOUNDS: Bounds = Bounds {
        request: Some(5_000),
        limit: Some(20_000),
    };

    #[test]
    fn comparison_has_the_value_and_the_bound() {
        let of = |request, limit, micros| Bounds { request, limit }.compare(micros);
        let limit = Some(20_000);
        for (request, limit, micros, expected) in [
            (None, limit, 900, "900us of 20ms"),
            (None, limit, 20_000, "20ms of 20ms"),
            (None, limit, 20_001, "20.001ms > 20ms"),
            (Some(5_000), limit, 5_000, "5ms of 20ms"),
            (Some(5_000), limit, 6_000, "6ms of 20ms (request 5ms)"),
            (Some(5_000), limit, 31_000, "31ms > 20ms"),
            (Some(5_000), None, 4_000, "4ms of the request 5ms"),
            (Some(5_000), None, 6_000, "6ms > the request 5ms"),
            (None, None, 6_000, "6ms"),
        ] {
            assert_eq!(of(request, limit, micros), expected);
        }
    }

    #[test]
    fn level_changes_after_three_windows_and_improves_by_a_tenth() {
        let after = |before, windows: &[u64]| next_level(before, windows, BOUNDS).unwrap();
        assert_eq!(next_level(None, &[], BOUNDS), None);
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
        assert_eq!(after(bad, &[5_001]), Limit, "fewer than three windows");
        assert_eq!(after(bad, &[18_000, 18_000, 18_001]), Violation);
        assert_eq!(after(bad, &[18_000, 18_000, 18_000]), Limit);
        assert_eq!(after(bad, &[4_500, 4_500, 4_500]), Compliant);
        assert_eq!(after(bad, &[4_500, 4_501, 4_500]), Limit);
    }

    #[test]
    fn absent_bounds_always_hold() {
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

    fn any_level() -> impl Strategy<Value = Option<Compliance>> {
        proptest::option::of(prop_oneof![Just(Compliant), Just(Limit), Just(Violation)])
    }

    proptest! {
        #[test]
        fn first_level_is_compliant_only_if_all_windows_are(
            bounds in any_bounds(), windows in proptest::collection::vec(0u64..1_200, 1..4)
        ) {
            let above = |b: Option<u64>| b.is_some_and(|b| windows.iter().any(|w| *w > b));
            let level = next_level(None, &windows, bounds);
            if above(bounds.request) || above(bounds.limit) {
                prop_assert_ne!(level, Some(Compliant));
            } else {
                prop_assert_eq!(level, Some(Compliant));
            }
        }

        /// A series within a tenth below a bound keeps its first level.
        #[test]
        fn no_change_within_the_dead_band(
            bound in 100u64..10_000, tenths in proptest::collection::vec(9_001u64..=10_000, 3..40), bad in any::<bool>()
        ) {
            let bounds = Bounds { request: Some(bound), limit: Some(bound * 4) };
            let series: Vec<u64> = tenths.iter().map(|t| (bound * t).div_ceil(10_000)).collect();
            let mut level = Some(if bad { Limit } else { Compliant });
            for i in 2..series.len() {
                let windows = [series[i], series[i - 1], series[i - 2]];
                let next = next_level(level, &windows, bounds);
                prop_assert_eq!(next, level);
                level = next;
            }
        }

        /// Longer times never give a better level, nor does a worse past.
        #[test]
        fn level_is_monotone(
            bounds in any_bounds(), a in proptest::array::uniform3(0u64..1_200), more in proptest::array::uniform3(0u64..400),
            before in any_level()
        ) {
            let b = [a[0] + more[0], a[1] + more[1], a[2] + more[2]];
            prop_assert!(next_level(before, &a, bounds) <= next_level(before, &b, bounds));
            let past = |p| next_level(Some(p), &a, bounds);
            prop_assert!(past(Compliant) <= past(Limit) && past(Limit) <= past(Violation));
        }

        #[test]
        fn same_windows_again_change_nothing(bounds in any_bounds(), windows in proptest::collection::vec(0u64..1_200, 3), before in any_level()) {
            let once = next_level(before, &windows, bounds);
            if before.is_some() {
                prop_assert_eq!(next_level(once, &windows, bounds), once);
            }
        }

        /// Fewer than three windows never make a Violation, and are never Compliant
        /// if one is above a bound.
        #[test]
        fn few_windows_make_no_violation(
            bounds in any_bounds(), windows in proptest::collection::vec(0u64..1_200, 1..3), before in any_level()
        ) {
            let level = next_level(before, &windows, bounds);
            prop_assert!(level < Some(Violation) || before == Some(Violation));
            let above = windows.iter().any(|w| bounds.level(*w) > Compliant);
            prop_assert_eq!(level == Some(Compliant), !above);
        }

        #[test]
        fn windows_far_from_bounds_decide(rtt in 0u64..100_000, before in any_level()) {
            prop_assume!(rtt <= 4_500 || (5_001..=18_000).contains(&rtt) || rtt > 20_000);
            prop_assert_eq!(next_level(before, &[rtt; 3], BOUNDS), Some(BOUNDS.level(rtt)));
        }
    }
}
