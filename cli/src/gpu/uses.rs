//! What is used of the cards, as the agents on the nodes report it to the provider.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use tautline_core::{model, trust::OWN_NAMESPACE};
use tautline_gpu_placement::{
    CARD,
    inventory::{Card, CardPool, Holder},
};
use tautline_gpu_slice::Inspection;
use tautline_runtime::error_text::error_text;

use super::source::SourceArgs;
use crate::{
    replicas::{self, Answer},
    scope,
};

const PATH: &str = "/gpu/use";
const PROVIDER: &str = "tautline-gpu-slice";
/// Less than these parts of what a pod has is idle: percent of memory, thousandths of time.
pub(crate) const IDLE_MEMORY_PERCENT: i64 = 5;
pub(crate) const IDLE_BUSY_MILLI: i64 = 10;
/// What monitoring, or a process outside of pods such as a display server, may use of any card.
const STRAY_BYTES: i64 = 64 << 20;

#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct UseArgs {
    /// Admin port of one gpu-slice provider, for what is used, instead of all replicas
    #[arg(long, env = "TAUTLINE_GPU_SLICE")]
    url: Option<String>,
    /// Tautline's namespace, where the provider runs
    #[arg(long, value_name = "NS", default_value = OWN_NAMESPACE, value_parser = scope::name)]
    tautline_namespace: String,
}

/// The last report of each node.
#[derive(Debug, Default)]
pub(crate) struct Uses(BTreeMap<String, NodeUse>);

#[derive(Debug, Deserialize)]
struct Page {
    nodes: Vec<NodeUse>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct NodeUse {
    node: String,
    age_seconds: u64,
    cards: Vec<CardUse>,
    containers: Vec<ContainerUse>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CardUse {
    card: String,
    pub(crate) memory_bytes: i64,
    pub(crate) busy_milli: i64,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ContainerUse {
    namespace: String,
    /// Empty: a process outside of pods, and `container` is its command.
    pod: String,
    container: String,
    card: String,
    memory_bytes: i64,
    sm_milli: i64,
}

/// A pod's use of one card.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PodUse {
    pub(crate) memory_bytes: i64,
    pub(crate) sm_milli: i64,
}

impl UseArgs {
    /// Empty, with a warning, if the provider cannot be read; without agents it is not asked.
    pub(crate) async fn read(&self, source: &SourceArgs, inspection: &Inspection) -> Uses {
        let nodes = inspection.nodes();
        let mut pools = nodes.iter().flat_map(|n| &n.inventory.pools);
        let url = self.url.as_deref().filter(|url| !url.is_empty());
        if url.is_none() && (source.is_manifests() || !pools.any(CardPool::has_agent)) {
            return Uses::default();
        }
        let answers = self.answers(source, url).await;
        let uses = answers.and_then(|all| Uses::merge(&all));
        uses.unwrap_or_else(|error| {
            let error = error_text(error.as_ref());
            note!("warning: {error}; how much of the cards is used is not known");
            Uses::default()
        })
    }

    async fn answers(&self, source: &SourceArgs, url: Option<&str>) -> Result<Vec<Answer>> {
        match url {
            Some(url) => Ok(vec![replicas::of_url(url, PATH).await?]),
            None => {
                let client = source.client().await?;
                let namespace = &self.tautline_namespace;
                replicas::of_pods(client, namespace, &[PROVIDER], PATH).await
            }
        }
    }
}

impl Uses {
    /// The freshest report of each node. Err if no replica has an answer.
    fn merge(answers: &[Answer]) -> Result<Self> {
        let mut uses = BTreeMap::<String, NodeUse>::new();
        let mut read = false;
        for Answer { from, status, body } in answers {
            match status.as_u16() {
                200 => {}
                404 => {
                    note!("warning: {from} does not exist; is it a provider of this version?");
                    continue;
                }
                other => bail!("{from} answered {other}"),
            }
            let page: Page = serde_json::from_slice(body)
                .with_context(|| format!("{from} returned no report of this version"))?;
            read = true;
            for node in page.nodes {
                let known = uses.get(&node.node);
                if known.is_none_or(|known| node.age_seconds < known.age_seconds) {
                    uses.insert(node.node.clone(), node);
                }
            }
        }
        if !read && !answers.is_empty() {
            bail!("no provider has a report");
        }
        Ok(Self(uses))
    }

    /// `None`: the node's agent does not report.
    pub(crate) fn node(&self, name: &str) -> Option<&NodeUse> {
        self.0.get(name)
    }

    #[cfg(test)]
    pub(crate) fn of(json: &str) -> Self {
        let answer = Answer {
            from: "test".into(),
            status: hyper::StatusCode::OK,
            body: json.to_owned().into(),
        };
        Self::merge(&[answer]).unwrap()
    }
}

impl NodeUse {
    pub(crate) fn card(&self, card: &Card) -> Option<&CardUse> {
        self.cards.iter().find(|c| card.is(&c.card))
    }

    /// The sum over the pod's containers; `pod` is `NAMESPACE/NAME`.
    pub(crate) fn pod(&self, card: &Card, pod: &str) -> PodUse {
        let mut sum = PodUse::default();
        for of in self.containers.iter().filter(|of| card.is(&of.card)) {
            if !of.pod.is_empty() && model::key(&of.namespace, &of.pod) == pod {
                sum.memory_bytes = sum.memory_bytes.saturating_add(of.memory_bytes);
                sum.sm_milli = sum.sm_milli.saturating_add(of.sm_milli);
            }
        }
        sum
    }

    /// Containers and processes that use a card without having it: a text, and their memory.
    pub(crate) fn strays<'a>(&'a self, card: &'a Card) -> impl Iterator<Item = (String, i64)> + 'a {
        let of_card = self.containers.iter().filter(|of| card.is(&of.card));
        of_card.filter_map(|of| {
            if of.memory_bytes <= STRAY_BYTES {
                return None;
            }
            if of.pod.is_empty() {
                let text = format!("process {:?} outside of pods", of.container);
                return Some((text, of.memory_bytes));
            }
            let pod = model::key(&of.namespace, &of.pod);
            let has = card.holders.iter().any(|h| *h.pod == *pod);
            let text = format!("container {} of pod {pod}", of.container);
            (!has).then_some((text, of.memory_bytes))
        })
    }

    /// Whether the pod has the part of the card, and hardly uses it at this moment.
    pub(crate) fn is_idle(&self, pool: &CardPool, card: &Card, holder: &Holder) -> bool {
        let used = self.pod(card, &holder.pod);
        let memory = pool.card_memory_bytes.unwrap_or(0) / i64::from(CARD);
        let part = memory.saturating_mul(holder.milli.into());
        used.sm_milli < IDLE_BUSY_MILLI
            && used.memory_bytes.saturating_mul(100) < part.saturating_mul(IDLE_MEMORY_PERCENT)
    }
}

#[cfg(test)]
mod tests {
    use hyper::StatusCode;

    use super::*;

    fn answer(status: u16, body: &str) -> Answer {
        Answer {
            from: "pod p /gpu/use".into(),
            status: StatusCode::from_u16(status).unwrap(),
            body: body.to_owned().into(),
        }
    }

    #[test]
    fn the_freshest_report_of_a_node_counts() {
        let node = |age: u64, bytes: u64| {
            format!(
                r#"{{"nodes":[{{"node":"n","ageSeconds":{age},"containers":[],"cards":
                [{{"card":"GPU-a","memoryBytes":{bytes},"busyMilli":7}}]}}]}}"#
            )
        };
        let all = [
            answer(200, &node(5, 1)),
            answer(200, &node(1, 2)),
            answer(200, &node(9, 3)),
        ];
        let uses = Uses::merge(&all).unwrap();
        assert_eq!(uses.node("n").unwrap().cards[0].memory_bytes, 2);
        assert!(uses.node("m").is_none());
        let error = Uses::merge(&[answer(404, "")]).unwrap_err().to_string();
        assert_eq!(error, "no provider has a report");
        assert!(Uses::merge(&[answer(500, "")]).is_err());
        assert!(Uses::merge(&[answer(200, "{}")]).is_err());
        let one = [answer(404, ""), answer(200, &node(1, 2))];
        assert!(Uses::merge(&one).unwrap().node("n").is_some());
    }
}
