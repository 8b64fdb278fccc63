//! The pods with records: the JSON of `/explain`.

use std::{cmp::Reverse, collections::HashSet, sync::Arc};

use serde::{Deserialize, Serialize};
use tautline_core::planning::NodeVerdict;
use tautline_provider_client::status::{micros, unix_millis};

use super::record::why_pending;
use crate::plans::{PodPlan, reason_counts};

/// The maximum number of pods in a list.
pub(super) const MAX_PODS: usize = 500;
/// The maximum number of rounds behind a list; many may be of one pod.
pub(super) const MAX_ROUNDS: usize = 4096;
/// The number of nodes after which no further pod gets a sentence, which looks at all its nodes:
/// requests of kube-scheduler wait meanwhile.
const MAX_NODES_IN_SENTENCES: usize = 20_000;
/// The maximum number of names of returned nodes in a summary.
const MAX_NODES: usize = 4;

/// The last round of one pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Summary {
    /// The pod's namespace.
    pub namespace: String,
    /// The pod's name.
    pub pod: String,
    /// The pod's UID.
    pub uid: String,
    /// The start of the round, in milliseconds since 1970.
    pub at_unix_millis: u64,
    /// The duration of the rules' calls and their evaluation, in microseconds.
    pub took_micros: u64,
    /// The number of nodes in the request.
    pub nodes: usize,
    /// The number of usable nodes.
    pub usable: usize,
    /// The number of nodes that filter returned to kube-scheduler.
    pub offered: usize,
    /// The names of the first four nodes that filter returned.
    pub offered_nodes: Vec<String>,
    /// The reason of most nodes, as `rule/Code`; absent if a node is usable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The reason as a sentence, of the newest pods without a usable node, until their requests
    /// have 20,000 nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why_pending: Option<String>,
}

/// Summarizes the newest round of each pod.
pub(super) fn summaries(newest_first: &[Arc<PodPlan>]) -> Vec<Summary> {
    let (mut seen, mut all, mut nodes) = (HashSet::new(), Vec::new(), 0);
    for plan in newest_first {
        let is_new = seen.insert((&*plan.subject.namespace, &*plan.subject.name));
        if is_new && all.len() < MAX_PODS {
            let mut summary = summary(plan);
            if summary.usable == 0 && nodes < MAX_NODES_IN_SENTENCES {
                summary.why_pending = why_pending(plan);
                nodes += summary.nodes;
            }
            all.push(summary);
        }
    }
    all
}

fn summary(plan: &PodPlan) -> Summary {
    let usable = plan.plan.usable().count();
    let returned = &plan.answer.nodes;
    let name = |at: &usize| plan.nodes.name(*at).to_owned();
    Summary {
        namespace: plan.subject.namespace.clone(),
        pod: plan.subject.name.clone(),
        uid: plan.subject.uid.clone(),
        at_unix_millis: unix_millis(plan.at),
        took_micros: micros(plan.took),
        nodes: plan.nodes.len(),
        usable,
        offered: returned.len(),
        offered_nodes: returned.iter().take(MAX_NODES).map(name).collect(),
        reason: (usable == 0)
            .then(|| main_reason(&plan.plan.verdicts))
            .flatten(),
        why_pending: None,
    }
}

/// Returns the reason of most unusable nodes.
fn main_reason(verdicts: &[NodeVerdict]) -> Option<String> {
    let most = reason_counts(verdicts)
        .into_iter()
        .max_by_key(|(reason, count)| (*count, Reverse(*reason)));
    most.map(|(reason, _)| reason.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn main_reason_is_that_of_most_nodes() {
        let far: Arc<str> = "latency/OverLimit".into();
        let unusable = |reason: &Arc<str>| NodeVerdict::Unusable {
            reason: Arc::clone(reason),
            freeable: false,
        };
        let full: Arc<str> = "gpu-slice/GpuFull".into();
        let verdicts = [unusable(&far), unusable(&full), unusable(&far)];
        assert_eq!(main_reason(&verdicts).as_deref(), Some(&*far));
        assert_eq!(
            main_reason(&verdicts[..2]).as_deref(),
            Some(&*full),
            "of equal ones the first by name"
        );
        assert_eq!(main_reason(&[]), None);
    }
}
