//! The cost of `latency`: the longest median round-trip time to the peers' nodes.

use tautline_sdk::{CostAnswer, CostRequest, ProviderError};

use super::{
    context::{RuleContext, check_size, request_cost},
    cost_matrix::CostMatrix,
    hysteresis::Bounds,
    pair_rtt::PeerRtts,
    verify::verify,
};

pub(crate) async fn cost(
    context: RuleContext<'_>,
    request: CostRequest,
) -> Result<CostAnswer, ProviderError> {
    let Bounds {
        request: wanted,
        limit,
    } = Bounds::of_rule(&request.rule)?;
    check_size(&request)?;
    let namespace = &request.source.namespace;
    let mut matrix = matrix(
        context,
        namespace,
        request.eligible_nodes,
        request.peer_nodes,
    );
    let RuleContext {
        network, metrics, ..
    } = context;
    verify(network, metrics, &mut matrix, limit, request.deadline).await;
    metrics.answered("latency", matrix.bases(limit));
    let mut answer = matrix.into_answer(limit);
    answer.request_cost = request_cost(wanted);
    Ok(answer)
}

fn matrix(
    context: RuleContext<'_>,
    namespace: &str,
    nodes: Vec<String>,
    peers: Vec<String>,
) -> CostMatrix {
    let (snapshot, tables) = (context.network.store.snapshot(), context.tables.load());
    let tables = tables.for_namespace(Some(namespace));
    let locate = |node| tables.locate(&snapshot, node);
    let names = context.network.names();
    let column = |peer| PeerRtts::new(locate(peer), tables, names.row(context.network, peer));
    let columns: Vec<PeerRtts<'_>> = peers.iter().map(|peer| column(peer)).collect();
    let mut rtts = Vec::with_capacity(nodes.len() * peers.len());
    for node in &nodes {
        let (from, found) = (locate(node), names.find(node));
        rtts.extend(columns.iter().map(|column| column.rtt(from, found)));
    }
    CostMatrix::new(nodes, peers, rtts)
}
