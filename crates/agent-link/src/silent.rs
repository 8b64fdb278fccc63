//! Lists the nodes whose agents are silent, for the admin ports of their providers.

use std::{cmp::Reverse, time::Duration};

use serde::{Deserialize, Serialize};

/// The maximum number of nodes that a list names.
const MAX_NAMED_NODES: usize = 20;

/// The nodes from whose agents a replica hears nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SilentAgents {
    /// The number of all these nodes.
    pub total: usize,
    /// At most 20 of the nodes, those that fell silent first before those that were never heard.
    pub nodes: Vec<SilentAgent>,
}

/// A node from whose agent a replica hears nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SilentAgent {
    /// The node's name.
    pub node: String,
    /// The seconds since the agent's last message; `None`: the replica knows of no message.
    pub silent_seconds: Option<u64>,
}

impl SilentAgents {
    /// Makes the list of nodes, each with the time since its agent's last message.
    pub fn new<'a>(nodes: impl IntoIterator<Item = (&'a str, Option<Duration>)>) -> Self {
        let nodes = nodes.into_iter().map(|(node, silent)| SilentAgent {
            node: node.to_owned(),
            silent_seconds: silent.map(|time| time.as_secs()),
        });
        let mut nodes: Vec<SilentAgent> = nodes.collect();
        nodes.sort_by_cached_key(|agent| (Reverse(agent.silent_seconds), agent.node.clone()));
        let total = nodes.len();
        nodes.truncate(MAX_NAMED_NODES);
        Self { total, nodes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn list_names_the_longest_silent_first_and_is_short() {
        let names: Vec<String> = (0..40).map(|i| format!("n{i:02}")).collect();
        let never = names.iter().map(|name| (&**name, None));
        let known = [("b", 9), ("c", 70), ("a", 9)];
        let known = known.map(|(name, seconds)| (name, Some(Duration::from_secs(seconds))));
        let list = SilentAgents::new(never.chain(known));
        let first = list.nodes.iter().take(4);
        let first: Vec<_> = first.map(|a| (&*a.node, a.silent_seconds)).collect();
        let expected = [
            ("c", Some(70)),
            ("a", Some(9)),
            ("b", Some(9)),
            ("n00", None),
        ];
        assert_eq!(first, expected);
        assert_eq!((list.total, list.nodes.len()), (43, 20));
    }
}
