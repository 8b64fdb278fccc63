//! Groups of pods that share no topology domain with another group, as the controllers of
//! LeaderWorkerSets and JobSets place them.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::{PodAffinityTerm, PodSpec},
    apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement},
};

use super::table::ExclusiveRule;

/// A group's exclusive topology.
#[derive(Clone, Debug)]
pub(super) struct Exclusive {
    pub rule: ExclusiveRule,
    /// The key of the node label whose values are the domains.
    pub topology_key: String,
}

impl Exclusive {
    /// Adds the affinity terms of a pod with these labels: the leader chooses a domain in which no
    /// other group has pods, and the other pods of its group must be in the leader's domain. The
    /// controllers themselves write a node selector for the latter once the leader has a node.
    pub(super) fn add_terms(&self, labels: &BTreeMap<String, String>, spec: &mut PodSpec) {
        let ExclusiveRule { label, leader, .. } = &self.rule;
        let Some(group) = labels.get(label) else {
            return;
        };
        let affinity = spec.affinity.get_or_insert_default();
        let together = affinity.pod_affinity.get_or_insert_default();
        let together = &mut together.required_during_scheduling_ignored_during_execution;
        let mut chosen = vec![requirement(label, "In", Some(group.as_str()))];
        if labels.get(leader).is_some_and(|index| index == "0") {
            let apart = affinity.pod_anti_affinity.get_or_insert_default();
            let apart = &mut apart.required_during_scheduling_ignored_during_execution;
            apart.get_or_insert_default().push(self.term(vec![
                requirement(label, "Exists", None),
                requirement(label, "NotIn", Some(group.as_str())),
            ]));
        } else {
            chosen.push(requirement(leader, "In", Some("0")));
        }
        together.get_or_insert_default().push(self.term(chosen));
    }

    fn term(&self, expressions: Vec<LabelSelectorRequirement>) -> PodAffinityTerm {
        PodAffinityTerm {
            label_selector: Some(LabelSelector {
                match_expressions: Some(expressions),
                ..LabelSelector::default()
            }),
            namespace_selector: self.rule.all_namespaces.then(LabelSelector::default),
            topology_key: self.topology_key.clone(),
            ..PodAffinityTerm::default()
        }
    }
}

fn requirement(key: &str, operator: &str, value: Option<&str>) -> LabelSelectorRequirement {
    LabelSelectorRequirement {
        key: key.to_owned(),
        operator: operator.to_owned(),
        values: value.map(|value| vec![value.to_owned()]),
    }
}
