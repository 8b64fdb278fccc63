use prometheus_client::metrics::{counter::Counter, gauge::Gauge};

tautline_runtime::metrics! {
    /// The agent's metrics since the process started. Clones share all values.
    pub struct Metrics {
        pub sent: Counter => "latency_agent_sent", "Echo requests sent";
        pub lost: Counter
            => "latency_agent_lost", "Echo requests without a reply within a second";
        pub refused: Counter => "latency_agent_refused",
            "Samples rejected: out of range, a clock was set, or this process was preempted while \
             it sent";
        pub dishonest: Counter => "latency_agent_dishonest",
            "Samples rejected: the responder claims to have held the packet nearly all the time";
        pub forged: Counter => "latency_agent_forged", "Packets with a wrong HMAC";
        pub replayed: Counter
            => "latency_agent_replayed", "Packets seen before, and replies to nothing";
        pub late: Counter => "latency_agent_late", "Replies after the time-out";
        pub malformed: Counter
            => "latency_agent_malformed", "Packets of another protocol or version";
        pub answered: Counter => "latency_agent_answered", "Echo requests answered";
        pub limited: Counter => "latency_agent_limited",
            "Echo requests not answered: their source exceeds its rate";
        pub fallback: Counter => "latency_agent_fallback",
            "Samples by TCP connect, where UDP is lost and TCP is not";
        pub probes_limited: Counter => "latency_agent_probes_limited",
            "Probes answered from cached samples: too many at once";
        pub streams: Gauge
            => "latency_agent_streams", "Replicas of the provider that are connected";
        pub targets: Gauge => "latency_agent_targets", "Nodes measured in turn";
        pub demand: Gauge
            => "latency_agent_demand_targets", "Nodes measured for active rules";
        pub outside: Gauge => "latency_agent_outside_targets",
            "Addresses outside the cluster, measured by TCP connect";
        pub demand_excess: Gauge => "latency_agent_demand_excess",
            "Nodes of active rules that exceed the budget of a visit every 2 s";
        pub base_excess: Gauge => "latency_agent_targets_refused",
            "Requested targets beyond the 32 in turn or the 256 outside, or without a usable address \
             or key";
    }
}
