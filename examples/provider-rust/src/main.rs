//! A rule provider that prefers the nodes with the fewest peers.

use tautline_sdk::{
    Config, CostAnswer, CostRequest, Evaluation, EvaluationRequest, ProviderError, RuleProvider,
};

struct Spread;

impl RuleProvider for Spread {
    async fn endpoint_cost(&self, request: CostRequest) -> Result<CostAnswer, ProviderError> {
        let mut answer = CostAnswer::default();
        for node in request.eligible_nodes {
            let here = request
                .peers
                .iter()
                .filter(|p| p.node.as_deref() == Some(&node))
                .count();
            answer.usable(node, here as i64, format!("{here} peers there"));
        }
        Ok(answer)
    }

    async fn evaluate(&self, _: EvaluationRequest) -> Result<Evaluation, ProviderError> {
        Ok(Evaluation::compliant(
            "spread is a preference: every placement complies",
        ))
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let config = Config::default();
    println!("listening on {}", config.listen);
    tautline_sdk::serve(Spread, config).await
}
