//! Defines the Prometheus metrics of the latency provider's answers: their sources, the
//! verification of estimates, and table rows left out.

use prometheus_client::metrics::{counter::Counter, family::Family, gauge::Gauge};

tautline_runtime::metrics! {
    pub struct AnswerMetrics {
        answers: Family<AnswerLabels, Counter> => "latency_answers",
            "Costs of nodes and evaluations of pairs, by rule and by the source of the figure";
        verifications: Family<OutcomeLabel, Counter> => "latency_verifications",
            "Pairs to measure for a question: asked, answered, and the reasons without an answer \
             (out_of_time, left_out)";
        rows_left_out: Family<RuleLabel, Gauge> => "latency_table_rows_left_out",
            "Rows of ConfigMaps above the bounds of their namespaces";
    }
    labels AnswerLabels { rule: &'static str, basis: &'static str }
    labels OutcomeLabel { outcome: &'static str }
    labels RuleLabel { rule: &'static str }
}

impl AnswerMetrics {
    pub(crate) fn set_rows_left_out(&self, rule: &'static str, rows: usize) {
        let gauge = self.rows_left_out.get_or_create(&RuleLabel { rule });
        gauge.set(i64::try_from(rows).unwrap_or(i64::MAX));
    }

    pub(crate) fn answered(
        &self,
        rule: &'static str,
        bases: impl IntoIterator<Item = &'static str>,
    ) {
        // Counting first saves a look-up for each node.
        let mut counts: Vec<(&'static str, u64)> = Vec::with_capacity(8);
        for basis in bases {
            match counts.iter_mut().find(|(b, _)| *b == basis) {
                Some((_, n)) => *n += 1,
                None => counts.push((basis, 1)),
            }
        }
        for (basis, n) in counts {
            let labels = AnswerLabels { rule, basis };
            self.answers.get_or_create(&labels).inc_by(n);
        }
    }

    pub(crate) fn verification(&self, outcome: &'static str, pairs: usize) {
        if pairs > 0 {
            let counter = self.verifications.get_or_create(&OutcomeLabel { outcome });
            counter.inc_by(pairs as u64);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl AnswerMetrics {
        pub(crate) fn verifications(&self, outcome: &'static str) -> u64 {
            self.verifications
                .get_or_create(&OutcomeLabel { outcome })
                .get()
        }
    }
}
