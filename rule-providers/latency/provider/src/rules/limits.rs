use tautline_sdk::{CostRequest, ProviderError};

/// The maximum number of pairs of a question, which take some 100 MB while it is answered.
const MAX_PAIRS: usize = 4_000_000;

/// Returns the cost of a node that just meets a request, given in microseconds.
pub(crate) fn request_cost(micros: Option<u64>) -> Option<i64> {
    micros.map(|micros| i64::try_from(micros).unwrap_or(i64::MAX))
}

pub(crate) fn check_size(request: &CostRequest) -> Result<(), ProviderError> {
    let (nodes, peers) = (request.eligible_nodes.len(), request.peer_nodes.len());
    if nodes.saturating_mul(peers) <= MAX_PAIRS {
        return Ok(());
    }
    Err(ProviderError::BadRule(format!(
        "rule {:?}: {nodes} nodes by {peers} peers' nodes; at most {MAX_PAIRS} pairs are answered: give the offer fewer peers",
        request.rule.name
    )))
}
