//! The use of the cards, as the agents on the nodes report it to the provider. The provider shows it
//! at `/gpu/use`, and the reports read it there.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tautline_core::model;
use tautline_gpu_placement::{
    CARD_MILLI,
    inventory::{Card, CardPool, Holder},
};

/// The memory use below which a pod is idle, in percent of the card memory that the pod has.
pub const IDLE_MEMORY_PERCENT: i64 = 5;
/// The use of a card's time below which a pod is idle, in thousandths.
pub const IDLE_BUSY_MILLI: i64 = 10;

/// The memory, in bytes, that monitoring, or a process outside of pods such as a display server,
/// may use of any card.
pub(crate) const STRAY_BYTES: u32 = 64 << 20;

/// The last report of each node.
#[derive(Debug, Default)]
pub struct Uses(BTreeMap<String, NodeUse>);

/// The page `/gpu/use` of a replica.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Page {
    pub(crate) nodes: Vec<NodeUse>,
}

/// The use of a node's cards.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeUse {
    pub(crate) node: String,
    pub(crate) age_seconds: u64,
    pub(crate) cards: Vec<CardUse>,
    pub(crate) containers: Vec<ContainerUse>,
}

/// The use of a card by all containers and processes.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CardUse {
    pub(crate) card: String,
    pub(crate) memory_bytes: i64,
    pub(crate) busy_milli: i64,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ContainerUse {
    pub(crate) namespace: String,
    /// The pod's name; empty for a process outside of pods, whose command is `container`.
    pub(crate) pod: String,
    pub(crate) container: String,
    pub(crate) card: String,
    pub(crate) memory_bytes: i64,
    pub(crate) sm_milli: i64,
}

/// The use of a card, by all or by one pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct UsedTop {
    /// The used memory of the card, in bytes.
    pub used_bytes: i64,
    /// The thousandths of the time that the card is in use.
    pub busy_milli: i64,
}

/// One replica's answer to a GET of `/gpu/use`: the replica's name, the HTTP status and the body.
pub type UseAnswer<'a> = (&'a str, u16, &'a [u8]);

/// Reasons why the replicas' answers cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum UsesError {
    /// A replica answers with a status other than 200.
    #[error("{from} answered {status}")]
    Status {
        /// The replica.
        from: String,
        /// The HTTP status of the answer.
        status: u16,
    },
    /// The body of an answer is not a report.
    #[error("{from} returned no report of this version")]
    Body {
        /// The replica.
        from: String,
        /// The error that parsing the body returned.
        #[source]
        source: serde_json::Error,
    },
}

impl Uses {
    /// Keeps the freshest report of each node. Fails if an answer cannot be used.
    pub fn merge<'a>(answers: impl IntoIterator<Item = UseAnswer<'a>>) -> Result<Self, UsesError> {
        let mut uses = BTreeMap::<String, NodeUse>::new();
        for (from, status, body) in answers {
            let from = from.to_owned();
            if status != 200 {
                return Err(UsesError::Status { from, status });
            }
            let page: Page =
                serde_json::from_slice(body).map_err(|source| UsesError::Body { from, source })?;
            for node in page.nodes {
                let known = uses.get(&node.node);
                if known.is_none_or(|known| node.age_seconds < known.age_seconds) {
                    uses.insert(node.node.clone(), node);
                }
            }
        }
        Ok(Self(uses))
    }

    /// Returns the use of a node's cards; `None`: the node's agent does not report.
    pub fn node(&self, name: &str) -> Option<&NodeUse> {
        self.0.get(name)
    }
}

impl ContainerUse {
    /// Returns whether it is a container of the pod `NAMESPACE/NAME`.
    fn is_of(&self, pod: &str) -> bool {
        !self.pod.is_empty() && pod.split_once('/') == Some((&*self.namespace, &*self.pod))
    }
}

impl NodeUse {
    /// Returns the use of a card; `None`: the agent does not report the card.
    pub(crate) fn card(&self, card: &Card) -> Option<UsedTop> {
        let used = self.cards.iter().find(|c| card.is(&c.card))?;
        Some(UsedTop {
            used_bytes: used.memory_bytes,
            busy_milli: used.busy_milli,
        })
    }

    /// Returns the use of a card by all containers of the pod `NAMESPACE/NAME`.
    pub(crate) fn pod(&self, card: &Card, pod: &str) -> UsedTop {
        let mut sum = UsedTop::default();
        let containers = self.containers.iter();
        for of in containers.filter(|of| card.is(&of.card) && of.is_of(pod)) {
            sum.used_bytes = sum.used_bytes.saturating_add(of.memory_bytes);
            sum.busy_milli = sum.busy_milli.saturating_add(of.sm_milli);
        }
        sum
    }

    /// Returns the containers and processes that use more than a little memory of a card without
    /// having it, each as a text with its used memory in bytes.
    pub(crate) fn strays<'a>(&'a self, card: &'a Card) -> impl Iterator<Item = (String, i64)> + 'a {
        let of_card = self.containers.iter().filter(|of| card.is(&of.card));
        of_card.filter_map(|of| {
            if of.memory_bytes <= i64::from(STRAY_BYTES) {
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

    /// Returns whether the holder hardly uses its part of the card at this moment.
    pub(crate) fn is_idle(&self, pool: &CardPool, card: &Card, holder: &Holder) -> bool {
        let used = self.pod(card, &holder.pod);
        let memory = pool.card_memory_bytes.unwrap_or(0) / i64::from(CARD_MILLI);
        let part = memory.saturating_mul(holder.milli.into());
        used.busy_milli < IDLE_BUSY_MILLI
            && used.used_bytes.saturating_mul(100) < part.saturating_mul(IDLE_MEMORY_PERCENT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: u16, body: &str) -> UseAnswer<'_> {
        ("pod p /gpu/use", status, body.as_bytes())
    }

    #[test]
    fn the_freshest_report_of_a_node_counts() {
        let node = |age: u64, bytes: u64| {
            format!(
                r#"{{"nodes":[{{"node":"n","ageSeconds":{age},"containers":[],"cards":
                [{{"card":"GPU-a","memoryBytes":{bytes},"busyMilli":7}}]}}]}}"#
            )
        };
        let all = [node(5, 1), node(1, 2), node(9, 3)];
        let uses = Uses::merge(all.iter().map(|body| answer(200, body))).unwrap();
        assert_eq!(uses.node("n").unwrap().cards[0].memory_bytes, 2);
        assert!(uses.node("m").is_none());
        for bad in [answer(404, ""), answer(500, ""), answer(200, "{}")] {
            assert!(Uses::merge([bad]).is_err());
        }
    }

    #[test]
    fn a_container_belongs_to_one_pod() {
        let of = |namespace: &str, pod: &str| ContainerUse {
            namespace: namespace.to_owned(),
            pod: pod.to_owned(),
            container: "main".to_owned(),
            card: "GPU-a".to_owned(),
            memory_bytes: 0,
            sm_milli: 0,
        };
        assert!(of("ml", "a").is_of("ml/a"));
        for (namespace, pod) in [("ml", "b"), ("m", "l/a"), ("", "ml/a"), ("ml", "")] {
            assert!(!of(namespace, pod).is_of("ml/a"), "{namespace} {pod}");
        }
        assert!(!of("", "").is_of("/"));
    }
}
