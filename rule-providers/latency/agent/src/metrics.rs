use prometheus_client::{
    metrics::{counter::Counter, gauge::Gauge},
    registry::Registry,
};
use tautline_proto::latency::Counts;

/// Since the process started. Clones share all values.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    pub sent: Counter,
    pub lost: Counter,
    pub refused: Counter,
    pub dishonest: Counter,
    pub forged: Counter,
    pub replayed: Counter,
    pub late: Counter,
    pub malformed: Counter,
    pub answered: Counter,
    pub limited: Counter,
    pub fallback: Counter,
    pub probes_limited: Counter,
    pub streams: Gauge,
    pub targets: Gauge,
    pub demand: Gauge,
    pub demand_excess: Gauge,
    pub base_excess: Gauge,
}

impl Metrics {
    pub fn register(&self, registry: &mut Registry) {
        let counters = [
            ("sent", "Echo requests sent", &self.sent),
            (
                "lost",
                "Echo requests without a reply within a second",
                &self.lost,
            ),
            (
                "refused",
                "Samples rejected: out of range, a clock was set, or this process was preempted while it sent",
                &self.refused,
            ),
            (
                "dishonest",
                "Samples rejected: the responder claims to have held the packet nearly all the time",
                &self.dishonest,
            ),
            ("forged", "Packets with a wrong HMAC", &self.forged),
            (
                "replayed",
                "Packets seen before, and replies to nothing",
                &self.replayed,
            ),
            ("late", "Replies after the time-out", &self.late),
            (
                "malformed",
                "Packets of another protocol or version",
                &self.malformed,
            ),
            ("answered", "Echo requests answered", &self.answered),
            (
                "limited",
                "Echo requests not answered: their source exceeds its rate",
                &self.limited,
            ),
            (
                "fallback",
                "Samples by TCP connect, where UDP is lost and TCP is not",
                &self.fallback,
            ),
            (
                "probes_limited",
                "Probes answered from cached samples: too many at once",
                &self.probes_limited,
            ),
        ];
        for (name, help, counter) in counters {
            registry.register(format!("latency_agent_{name}"), help, counter.clone());
        }
        let gauges = [
            (
                "streams",
                "Replicas of the provider that are connected",
                &self.streams,
            ),
            ("targets", "Nodes measured in turn", &self.targets),
            (
                "demand_targets",
                "Nodes measured for active rules",
                &self.demand,
            ),
            (
                "demand_excess",
                "Nodes of active rules that exceed the budget of a visit every 2 s",
                &self.demand_excess,
            ),
            (
                "targets_refused",
                "Requested nodes beyond the 32 in turn, or without a usable address or key",
                &self.base_excess,
            ),
        ];
        for (name, help, gauge) in gauges {
            registry.register(format!("latency_agent_{name}"), help, gauge.clone());
        }
    }

    pub fn counts(&self) -> Counts {
        Counts {
            sent: self.sent.get(),
            lost: self.lost.get(),
            refused: self.refused.get() + self.dishonest.get(),
            forged: self.forged.get() + self.replayed.get(),
            limited: self.limited.get(),
        }
    }
}
