//! What the measuring side counts.

use std::sync::atomic::AtomicU64;

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};

use crate::ledger::{Refusal, Tally};

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct Why {
    reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct InState {
    state: &'static str,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Metrics {
    pub agents: Gauge,
    pairs: Family<InState, Gauge>,
    apart: Gauge,
    connect: Gauge,
    pub frames: Counter,
    refused: Family<Why, Counter>,
    pub limited: Counter,
    pub turned_away: Counter,
    pub demand: Gauge,
    pub excess: Gauge,
    pub fit_seconds: Gauge<f64, AtomicU64>,
    pub fit_age_seconds: Gauge<f64, AtomicU64>,
    pub fit_panics: Counter,
    pub fit_nodes: Gauge,
    flagged: Family<Why, Gauge>,
    pub probes_asked: Counter,
    pub probes_answered: Counter,
}

impl Metrics {
    pub fn register(&self, registry: &mut Registry) {
        let mut add = |name: &str, help: &str, gauge: &Gauge| {
            registry.register(name, help, gauge.clone());
        };
        add("latency_agents", "Agents connected", &self.agents);
        add(
            "latency_pairs_asymmetric",
            "Pairs whose directions differ by over 20 %",
            &self.apart,
        );
        add(
            "latency_pairs_by_connect",
            "Pairs measured by TCP connect, as echoes by UDP are lost",
            &self.connect,
        );
        add(
            "latency_demand_pairs",
            "Pairs that active rules name",
            &self.demand,
        );
        add(
            "latency_demand_excess",
            "Pairs that active rules name and that no agent has room for",
            &self.excess,
        );
        add(
            "latency_fit_nodes",
            "Nodes that the last fit knows",
            &self.fit_nodes,
        );
        let mut count = |name: &str, help: &str, counter: &Counter| {
            registry.register(name, help, counter.clone());
        };
        count("latency_frames", "Messages of agents taken", &self.frames);
        count(
            "latency_frames_limited",
            "Messages that had to wait: their agent sends too many",
            &self.limited,
        );
        count(
            "latency_agents_refused",
            "Agents that did not prove to be on the node they named",
            &self.turned_away,
        );
        count(
            "latency_fit_panics",
            "Fits that failed; the last one stayed",
            &self.fit_panics,
        );
        count(
            "latency_probes",
            "Agents asked to measure at once",
            &self.probes_asked,
        );
        count(
            "latency_probes_answered",
            "Agents that answered in time when asked to measure at once",
            &self.probes_answered,
        );
        registry.register(
            "latency_pairs",
            "Pairs measured, by state",
            self.pairs.clone(),
        );
        registry.register(
            "latency_nodes_flagged",
            "Nodes whose labels, or whose own reports, others' measurements contradict",
            self.flagged.clone(),
        );
        registry.register(
            "latency_reports_refused",
            "Reported pairs not taken, by reason",
            self.refused.clone(),
        );
        registry.register(
            "latency_fit_seconds",
            "What the last fit took",
            self.fit_seconds.clone(),
        );
        registry.register(
            "latency_fit_age_seconds",
            "Since the last fit",
            self.fit_age_seconds.clone(),
        );
    }

    pub fn refuse(&self, refusal: Refusal) {
        let reason = match refusal {
            Refusal::UnknownInstance => "unknown-instance",
            Refusal::Itself => "same-node",
            Refusal::Garbage => "malformed",
            Refusal::TooMany => "too-many",
        };
        self.refused.get_or_create(&Why { reason }).inc();
    }

    pub fn flagged(&self, labels: usize, reports: usize) {
        for (reason, count) in [("labels", labels), ("reports", reports)] {
            let gauge = self.flagged.get_or_create(&Why { reason });
            gauge.set(i64::try_from(count).unwrap_or(i64::MAX));
        }
    }

    pub fn tally(&self, tally: Tally) {
        let set = |state, count| _ = self.pairs.get_or_create(&InState { state }).set(count);
        set("fresh", tally.fresh);
        set("unreachable", tally.unreachable);
        set("old", tally.old);
        self.apart.set(tally.apart);
        self.connect.set(tally.connect);
    }

    #[cfg(test)]
    pub fn refused(&self, reason: &'static str) -> u64 {
        self.refused.get_or_create(&Why { reason }).get()
    }
}
