//! Limits the label values of metrics that tenants and providers choose, since a new value is a
//! series for ever.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use parking_lot::RwLock;

/// The label value of rules and providers beyond the limit.
pub const OTHER: &str = "other";

/// The maximum number of rules in a metric.
pub const MAX_RULES: usize = 256;
/// The maximum number of pairs of a rule and a provider in a metric.
pub const MAX_RULE_PROVIDERS: usize = 1024;
/// The maximum number of reason codes per rule in a metric.
pub const MAX_CODES_PER_RULE: usize = 64;

/// The limit on the pairs of a metric's label values. The first pairs stay for the life of the
/// process; clones share them.
#[derive(Clone, Debug)]
pub struct LabelBound {
    max_seconds_per_first: usize,
    max_pairs: usize,
    other_second: &'static str,
    seen: Arc<RwLock<Seen>>,
}

#[derive(Debug, Default)]
struct Seen {
    seconds: HashMap<Box<str>, HashSet<Box<str>>>,
    pairs: usize,
}

impl LabelBound {
    /// Makes the limit on pairs of a rule and its provider.
    pub fn for_providers() -> Self {
        Self {
            max_seconds_per_first: MAX_RULE_PROVIDERS,
            max_pairs: MAX_RULE_PROVIDERS,
            other_second: OTHER,
            seen: Arc::default(),
        }
    }

    /// Makes the limit on pairs of a rule and a reason code.
    pub fn for_codes() -> Self {
        Self {
            max_seconds_per_first: MAX_CODES_PER_RULE,
            max_pairs: MAX_RULES * MAX_CODES_PER_RULE,
            other_second: "Other",
            seen: Arc::default(),
        }
    }

    /// Returns the label values for a pair, which differ from it beyond the limit. A known pair
    /// costs a read lock.
    pub fn pair<'a>(&self, first: &'a str, second: &'a str) -> (&'a str, &'a str) {
        if let Some(known) = self.known(&self.seen.read(), first, second) {
            return known;
        }
        let mut seen = self.seen.write();
        // Another thread may have been first.
        if let Some(known) = self.known(&seen, first, second) {
            return known;
        }
        seen.pairs += 1;
        let seconds = seen.seconds.entry(first.into()).or_default();
        seconds.insert(second.into());
        (first, second)
    }

    fn known<'a>(
        &self,
        seen: &Seen,
        first: &'a str,
        second: &'a str,
    ) -> Option<(&'a str, &'a str)> {
        match seen.seconds.get(first) {
            Some(seconds) if seconds.contains(second) => Some((first, second)),
            Some(seconds)
                if seconds.len() >= self.max_seconds_per_first || seen.pairs >= self.max_pairs =>
            {
                Some((first, self.other_second))
            }
            None if seen.seconds.len() >= MAX_RULES || seen.pairs >= self.max_pairs => {
                Some((OTHER, self.other_second))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn distinct(bound: &LabelBound, pairs: impl Iterator<Item = (String, String)>) -> usize {
        let mut seen = HashSet::new();
        for (first, second) in pairs {
            let (a, b) = bound.pair(&first, &second);
            seen.insert((a.to_owned(), b.to_owned()));
        }
        seen.len()
    }

    #[test]
    fn label_bound_replaces_pairs_beyond_the_limit() {
        let codes = LabelBound::for_codes();
        assert_eq!(codes.pair("gpu-slice", "Full"), ("gpu-slice", "Full"));
        let random = (0..10_000).map(|i| ("latency".to_owned(), format!("Code{i}")));
        assert_eq!(distinct(&codes, random), MAX_CODES_PER_RULE + 1);
        assert_eq!(codes.pair("latency", "Late"), ("latency", "Other"));
        assert_eq!(codes.pair("latency", "Code7"), ("latency", "Code7"));
        assert_eq!(codes.pair("gpu-slice", "Busy"), ("gpu-slice", "Busy"));
        let rules = (0..10_000).map(|i| (format!("rule-{i}"), "Full".to_owned()));
        assert!(distinct(&codes, rules) < MAX_RULES);
        assert_eq!(codes.pair("rule-9999", "Full"), (OTHER, "Other"));
        assert_eq!(codes.pair("gpu-slice", "Full"), ("gpu-slice", "Full"));
    }

    #[test]
    fn every_combination_of_rules_and_providers_is_bounded() {
        let providers = LabelBound::for_providers();
        let all = (0..100_000).map(|i| (format!("rule-{}", i % 300), format!("ns/p-{}", i / 300)));
        let count = distinct(&providers, all);
        assert!(
            (MAX_RULE_PROVIDERS..=MAX_RULE_PROVIDERS + MAX_RULES + 1).contains(&count),
            "{count}"
        );
    }
}
