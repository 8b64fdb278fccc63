//! The cost of `latency`: the longest median round-trip time to the peers' nodes.

use hashbrown::HashMap;
use tautline_sdk::{CostAnswer, CostRequest, ProviderError};

use super::{
    context::{RuleContext, check_size, request_cost},
    cost_matrix::CostMatrix,
    hysteresis::Bounds,
    pair_rtt::PeerRtts,
    verify::verify,
};
use crate::{
    location::{location_of_place, row_name},
    network::outside::NoFigure,
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
    let requester = context.requester(&request.source.namespace);
    let peers = request.peer_nodes.iter();
    let no_figures = peers.map(|peer| context.network.want_outside(requester, peer));
    let no_figures = no_figures.collect();
    let deadline = request.deadline;
    let mut matrix = matrix(context, request, no_figures);
    let RuleContext {
        network, metrics, ..
    } = context;
    verify(network, metrics, &mut matrix, limit, deadline).await;
    metrics.answered("latency", matrix.bases(limit));
    let mut answer = matrix.into_answer(limit);
    answer.request_cost = request_cost(wanted);
    Ok(answer)
}

fn matrix(
    context: RuleContext<'_>,
    request: CostRequest,
    no_figures: Vec<Option<NoFigure>>,
) -> CostMatrix {
    let (nodes, peers) = (request.eligible_nodes, request.peer_nodes);
    let (snapshot, tables) = (context.network.store.snapshot(), context.tables.load());
    let tables = tables.for_namespace(Some(&request.source.namespace));
    let locate = |node| tables.locate(&snapshot, node);
    let places = request.peers.iter();
    let row_names = places.filter_map(|p| Some((p.node.as_deref()?, row_name(&p.reference)?)));
    let row_names: HashMap<&str, &str> = row_names.collect();
    let names = context.network.names();
    let column = |peer| {
        let name = row_names.get(String::as_str(peer)).copied();
        let to = location_of_place(locate(peer), name);
        PeerRtts::new(to, tables, names.row(context.network, peer))
    };
    let columns: Vec<PeerRtts<'_>> = peers.iter().map(column).collect();
    let mut rtts = Vec::with_capacity(nodes.len() * peers.len());
    for node in &nodes {
        let (from, found) = (locate(node), names.find(node));
        rtts.extend(columns.iter().map(|column| column.rtt(from, found)));
    }
    CostMatrix::new(nodes, peers, rtts).with_no_figures(no_figures)
}
