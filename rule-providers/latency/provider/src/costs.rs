//! EndpointCost of `latency`: the worst median round trip to the peers' nodes.

use std::time::Duration;

use tautline_sdk::{CostAnswer, CostRequest, ProviderError};

use crate::{
    Latency,
    board::Board,
    figures::{Ways, micros},
    places::{Place, place},
};

/// Figures move, and a changed table must act within seconds.
pub(crate) const VALID_FOR: Duration = Duration::from_secs(1);
/// Some 100 MB while a question is answered.
const MOST_PAIRS: usize = 4_000_000;

/// Refuses questions that are too large to hold.
pub(crate) fn check_size(ask: &CostRequest) -> Result<(), ProviderError> {
    let (nodes, peers) = (ask.eligible_nodes.len(), ask.peer_nodes.len());
    if nodes.saturating_mul(peers) <= MOST_PAIRS {
        return Ok(());
    }
    Err(ProviderError::BadRule(format!(
        "rule {:?}: {nodes} nodes by {peers} peers' nodes; at most {MOST_PAIRS} pairs are answered: give the offer fewer peers",
        ask.rule.name
    )))
}

impl Latency {
    pub(crate) async fn cost_of_latency(
        &self,
        ask: CostRequest,
    ) -> Result<CostAnswer, ProviderError> {
        ask.rule.request_duration()?;
        let limit = ask.rule.limit_duration()?.map(micros);
        check_size(&ask)?;
        let namespace = &ask.source.namespace;
        let mut board = self.board(namespace, ask.eligible_nodes, ask.peer_nodes);
        self.verifier.verify(&mut board, limit, ask.deadline).await;
        self.counts.answered("latency", board.bases(limit));
        Ok(board.answer(limit, VALID_FOR))
    }

    fn board(&self, namespace: &str, nodes: Vec<String>, peers: Vec<String>) -> Board {
        let (snapshot, tables) = (self.feed.snapshot(), self.tables.load());
        let tables = tables.for_namespace(Some(namespace));
        let place = |node| match tables.is_empty() {
            // Zones matter to tables alone.
            true => Place { node, zone: None },
            false => place(&snapshot, node),
        };
        let measuring = self.network.is_measuring();
        let view = measuring.then(|| self.network.view());
        let ways: Vec<Ways<'_>> = peers
            .iter()
            .map(|peer| {
                let row = view.as_ref().map(|view| view.row(peer));
                Ways::new(place(peer), tables, row)
            })
            .collect();
        let mut known = Vec::with_capacity(nodes.len() * peers.len());
        for node in &nodes {
            let from = place(node);
            let spot = view.as_ref().map(|view| view.spot(node));
            let spot = spot.unwrap_or_default();
            known.extend(ways.iter().map(|way| way.at_spot(from, spot)));
        }
        Board::new(nodes, peers, known)
    }
}
