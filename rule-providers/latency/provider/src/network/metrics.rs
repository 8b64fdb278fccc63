use std::sync::atomic::AtomicU64;

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};

use super::pair_store::{PairCounts, Refusal};

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabel {
    reason: &'static str,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StateLabel {
    state: &'static str,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct NetworkMetrics {
    pub agents: Gauge,
    pub agents_refused: Counter,
    pairs: Family<StateLabel, Gauge>,
    asymmetric: Gauge,
    connect: Gauge,
    pub frames: Counter,
    pub frames_limited: Counter,
    reports_refused: Family<ReasonLabel, Counter>,
    pub demanded_pairs: Gauge,
    pub excess_pairs: Gauge,
    pub fit_seconds: Gauge<f64, AtomicU64>,
    pub fit_age_seconds: Gauge<f64, AtomicU64>,
    pub fit_panics: Counter,
    pub fit_nodes: Gauge,
    flagged: Family<ReasonLabel, Gauge>,
    pub probes_sent: Counter,
    pub probes_answered: Counter,
}

impl NetworkMetrics {
    pub fn register(&self, registry: &mut Registry) {
        for (name, help, gauge) in [
            ("latency_agents", "Connected agents", &self.agents),
            (
                "latency_pairs_asymmetric",
                "Pairs whose directions differ by over 20 %",
                &self.asymmetric,
            ),
            (
                "latency_pairs_by_connect",
                "Pairs measured by TCP connect, because UDP echoes are lost",
                &self.connect,
            ),
            (
                "latency_demand_pairs",
                "Pairs that active rules name",
                &self.demanded_pairs,
            ),
            (
                "latency_demand_excess",
                "Pairs that active rules name and that exceed the agents' budgets",
                &self.excess_pairs,
            ),
            (
                "latency_fit_nodes",
                "Nodes with estimates in the last fit",
                &self.fit_nodes,
            ),
        ] {
            registry.register(name, help, gauge.clone());
        }
        for (name, help, counter) in [
            (
                "latency_frames",
                "Messages received from agents",
                &self.frames,
            ),
            (
                "latency_frames_limited",
                "Messages delayed because their agent sends too many",
                &self.frames_limited,
            ),
            (
                "latency_agents_refused",
                "Agents that did not prove to be on the node they named",
                &self.agents_refused,
            ),
            (
                "latency_fit_panics",
                "Fits that panicked; the last fit stayed in use",
                &self.fit_panics,
            ),
            ("latency_probes", "Probes sent to agents", &self.probes_sent),
            (
                "latency_probes_answered",
                "Probes that agents answered in time",
                &self.probes_answered,
            ),
        ] {
            registry.register(name, help, counter.clone());
        }
        registry.register(
            "latency_pairs",
            "Measured pairs, by state",
            self.pairs.clone(),
        );
        registry.register(
            "latency_nodes_flagged",
            "Nodes whose labels or reports contradict the measurements of others",
            self.flagged.clone(),
        );
        registry.register(
            "latency_reports_refused",
            "Reported pairs that were refused, by reason",
            self.reports_refused.clone(),
        );
        registry.register(
            "latency_fit_seconds",
            "Duration of the last fit",
            self.fit_seconds.clone(),
        );
        registry.register(
            "latency_fit_age_seconds",
            "Time since the last fit",
            self.fit_age_seconds.clone(),
        );
    }

    /// Gives each metric with labels a series, for the reference of metrics.
    pub fn add_examples(&self) {
        _ = self.pairs.get_or_create(&Default::default());
        _ = self.flagged.get_or_create(&Default::default());
        _ = self.reports_refused.get_or_create(&Default::default());
    }

    pub fn refuse_report(&self, refusal: Refusal) {
        let reason = match refusal {
            Refusal::UnknownInstance => "unknown-instance",
            Refusal::SameNode => "same-node",
            Refusal::Malformed => "malformed",
            Refusal::TooMany => "too-many",
        };
        self.reports_refused
            .get_or_create(&ReasonLabel { reason })
            .inc();
    }

    pub fn set_flagged(&self, labels: usize, reports: usize) {
        for (reason, count) in [("labels", labels), ("reports", reports)] {
            let gauge = self.flagged.get_or_create(&ReasonLabel { reason });
            gauge.set(i64::try_from(count).unwrap_or(i64::MAX));
        }
    }

    pub fn set_pairs(&self, counts: PairCounts) {
        let set = |state, count| _ = self.pairs.get_or_create(&StateLabel { state }).set(count);
        set("fresh", counts.fresh);
        set("unreachable", counts.unreachable);
        set("old", counts.stale);
        self.asymmetric.set(counts.asymmetric);
        self.connect.set(counts.connect);
    }

    #[cfg(test)]
    pub fn reports_refused(&self, reason: &'static str) -> u64 {
        self.reports_refused
            .get_or_create(&ReasonLabel { reason })
            .get()
    }
}
