//! A rule provider: a node costs as many as there are peers on it.

use tautline_sdk::{Config, CostAnswer, CostRequest, ProviderError};

async fn spread(request: CostRequest) -> Result<CostAnswer, ProviderError> {
    let peers = request.peer_counts();
    let nodes = request.eligible_nodes.iter();
    Ok(nodes.map(|node| (node, peers.on(node))).collect())
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    tautline_sdk::serve(spread, Config::from_env()?).await
}

#[cfg(test)]
mod tests;
