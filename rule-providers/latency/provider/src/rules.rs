//! Computes the costs and evaluations of the rules `latency`, `jitter` and `bandwidth` for pods and
//! their nodes.

pub(crate) mod answer_metrics;
pub(crate) mod bandwidth;
pub(crate) mod context;
pub(crate) mod cost_matrix;
pub(crate) mod evaluation;
pub(crate) mod hysteresis;
pub(crate) mod jitter_cost;
pub(crate) mod latency_cost;
pub(crate) mod pair_rtt;
pub(crate) mod pair_state;
pub(crate) mod pod_demand;
mod probe_selection;
pub(crate) mod verify;
