//! The components' accounts have the rights that they need most.

use std::collections::BTreeMap;

use super::or_ok;
use crate::doctor::{
    cluster::State,
    finding::{Finding, counted, first_of},
};

const MAX_RIGHTS: usize = 4;

pub(super) fn check(state: &State<'_>) -> Vec<Finding> {
    let Some(rights) = &state.cluster.rights else {
        return Vec::new();
    };
    let mut refused = BTreeMap::<&str, Vec<String>>::new();
    for (right, _) in rights.iter().filter(|(_, allowed)| !allowed) {
        refused
            .entry(&right.account)
            .or_default()
            .push(right.to_string());
    }
    let namespace = &state.cluster.namespace;
    let findings = refused.iter().map(|(account, rights)| {
        let text = format!("may not {}", first_of(rights, MAX_RIGHTS));
        let fix = format!(
            "restore its roles and their bindings: {}; kubectl get \
             clusterrolebinding/{account} and kubectl -n {namespace} get rolebinding/{account}",
            state.reapply()
        );
        let object = format!("ServiceAccount {namespace}/{account}");
        Finding::problem("RightMissing", object, text, fix)
    });
    let passed = Finding::ok(
        "RightsGranted",
        counted(rights.len(), "right"),
        "the components' accounts have the rights that they need most",
    );
    or_ok(findings.collect(), passed)
}
