use anyhow::{Result, bail};
use serde::Serialize;

use crate::{
    admin::admin,
    source::{AdminAnswer, Component, Source},
};

const METRIC: &str = "tautline_latency_agents";

/// The number of nodes, and of those whose agent measures the network.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Agents {
    /// The number of agents; `None` for manifests, which have no agents.
    pub agents: Option<u64>,
    pub nodes: usize,
}

/// Returns the number of agents that the replica with the fewest knows, as each agent reports to
/// all replicas.
pub(super) async fn read(source: &dyn Source) -> Result<Option<u64>> {
    let answers = admin(source, Component::Latency, "/metrics").await?;
    fewest(&answers)
}

fn fewest(answers: &[AdminAnswer]) -> Result<Option<u64>> {
    let known: Vec<&AdminAnswer> = answers.iter().filter(|a| a.status != 404).collect();
    let counts: Option<Vec<u64>> = known.iter().map(|a| agents(a)).collect();
    let Some(counts) = counts else {
        bail!("a replica of the latency provider has no metric {METRIC}");
    };
    Ok(counts.into_iter().min())
}

fn agents(answer: &AdminAnswer) -> Option<u64> {
    let text = std::str::from_utf8(&answer.body).ok()?;
    let mut lines = text.lines();
    let value = lines.find_map(|line| line.strip_prefix(METRIC)?.strip_prefix(' '))?;
    value.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: u16, body: &str) -> AdminAnswer {
        AdminAnswer {
            from: "pod l-1".into(),
            status,
            body: body.as_bytes().to_vec().into(),
        }
    }

    #[test]
    fn agents_are_those_of_the_replica_with_the_fewest() {
        let text = "# HELP tautline_latency_agents Connected agents.\n\
                    tautline_latency_agents_refused_total 9\ntautline_latency_agents 7\n";
        let other = "tautline_latency_agents 3\n";
        let both = [answer(200, text), answer(200, other)];
        assert_eq!(fewest(&both).unwrap(), Some(3));
        assert_eq!(fewest(&[answer(404, "no page")]).unwrap(), None);
        assert!(fewest(&[answer(200, "x 1")]).is_err());
    }
}
