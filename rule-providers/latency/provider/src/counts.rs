//! What the answers count.

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Answer {
    rule: &'static str,
    basis: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Outcome {
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfRule {
    rule: &'static str,
}

/// Counters of the answers. Clones are one.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    answers: Family<Answer, Counter>,
    verifications: Family<Outcome, Counter>,
    rows_left_out: Family<OfRule, Gauge>,
}

impl Counts {
    pub fn register(&self, registry: &mut Registry) {
        registry.register(
            "latency_answers",
            "Nodes that were given a cost and pairs that were judged, by rule and by what the figure rests on",
            self.answers.clone(),
        );
        registry.register(
            "latency_verifications",
            "Pairs that a question wanted measured: asked and answered, or why they were not (out_of_time, left_out)",
            self.verifications.clone(),
        );
        registry.register(
            "latency_table_rows_left_out",
            "Rows of ConfigMaps that do not count: their namespaces have too many",
            self.rows_left_out.clone(),
        );
    }

    pub(crate) fn rows_left_out(&self, rule: &'static str, rows: usize) {
        let gauge = self.rows_left_out.get_or_create(&OfRule { rule });
        gauge.set(i64::try_from(rows).unwrap_or(i64::MAX));
    }

    /// Counts answers to a rule by what each rests on.
    pub(crate) fn answered(
        &self,
        rule: &'static str,
        bases: impl IntoIterator<Item = &'static str>,
    ) {
        // There are few bases: one look-up in the family for each, not for each node.
        let mut counts: Vec<(&'static str, u64)> = Vec::with_capacity(8);
        for basis in bases {
            match counts.iter_mut().find(|(b, _)| *b == basis) {
                Some((_, n)) => *n += 1,
                None => counts.push((basis, 1)),
            }
        }
        for (basis, n) in counts {
            let labels = Answer { rule, basis };
            self.answers.get_or_create(&labels).inc_by(n);
        }
    }

    pub(crate) fn verification(&self, outcome: &'static str, pairs: usize) {
        if pairs > 0 {
            let counter = self.verifications.get_or_create(&Outcome { outcome });
            counter.inc_by(pairs as u64);
        }
    }

    #[cfg(test)]
    pub(crate) fn verifications(&self, outcome: &'static str) -> u64 {
        self.verifications.get_or_create(&Outcome { outcome }).get()
    }
}
