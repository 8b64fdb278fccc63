//! Defines the Prometheus metrics of the measured network: agents, pairs, probes, and fits of the
//! model.

use std::sync::atomic::AtomicU64;

use prometheus_client::metrics::{counter::Counter, family::Family, gauge::Gauge};

use super::pair_store::{PairCounts, Refusal};

tautline_runtime::metrics! {
    pub(crate) struct NetworkMetrics {
        pub agents: Gauge => "latency_agents", "Connected agents";
        asymmetric: Gauge
            => "latency_pairs_asymmetric", "Pairs whose directions differ by over 20 %";
        connect: Gauge => "latency_pairs_by_connect",
            "Pairs measured by TCP connect, because UDP echoes are lost";
        pub demanded_pairs: Gauge => "latency_demand_pairs", "Pairs that active rules name";
        pub excess_pairs: Gauge => "latency_demand_excess",
            "Pairs that active rules name and that exceed the agents' budgets";
        pub outside: Gauge => "latency_outside_addresses",
            "Addresses outside the cluster that agents measure";
        pub fit_nodes: Gauge => "latency_fit_nodes", "Nodes with estimates in the last fit";
        pub frames: Counter => "latency_frames", "Messages received from agents";
        pub frames_limited: Counter => "latency_frames_limited",
            "Messages delayed because their agent sends too many";
        pub agents_refused: Counter => "latency_agents_refused",
            "Agents that did not prove to be on the node they named";
        pub fit_panics: Counter
            => "latency_fit_panics", "Fits that panicked; the last fit stayed in use";
        pub probes_sent: Counter => "latency_probes", "Probes sent to agents";
        pub probes_answered: Counter
            => "latency_probes_answered", "Probes that agents answered in time";
        pairs: Family<StateLabel, Gauge> => "latency_pairs", "Measured pairs, by state";
        pub flagged: Gauge => "latency_nodes_flagged",
            "Nodes whose measurements contradict their labels";
        reports_refused: Family<ReasonLabel, Counter>
            => "latency_reports_refused", "Reported pairs that were refused, by reason";
        pub fit_seconds: Gauge<f64, AtomicU64> => "latency_fit_seconds", "Duration of the last fit";
        pub fit_age_seconds: Gauge<f64, AtomicU64>
            => "latency_fit_age_seconds", "Time since the last fit";
    }
    labels StateLabel { state: &'static str }
    labels ReasonLabel { reason: &'static str }
}

impl NetworkMetrics {
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

    pub fn set_pairs(&self, counts: PairCounts) {
        let set = |state, count| _ = self.pairs.get_or_create(&StateLabel { state }).set(count);
        set("fresh", counts.fresh);
        set("unreachable", counts.unreachable);
        set("old", counts.stale);
        self.asymmetric.set(counts.asymmetric);
        self.connect.set(counts.connect);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl NetworkMetrics {
        pub(crate) fn reports_refused(&self, reason: &'static str) -> u64 {
            self.reports_refused
                .get_or_create(&ReasonLabel { reason })
                .get()
        }
    }
}
