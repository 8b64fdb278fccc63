//! Checks of the state that was read. Pure: the gatherer passes objects and the time.

mod agents;
mod bindings;
mod certificates;
mod components;
mod crds;
mod leases;
mod offers;
mod providers;
mod rights;
mod scheduler;
mod versions;
mod webhooks;

pub(super) use scheduler::filter_requests;
pub(crate) use versions::tag as version_of;

use super::{
    cluster::{Cluster, State},
    finding::Finding,
};

/// Days before its end at which a certificate must be renewed.
const EXPIRY_DAYS: i64 = 14;

/// All findings, unsorted.
pub(crate) fn run(cluster: &Cluster) -> Vec<Finding> {
    let mut findings: Vec<Finding> = cluster
        .unread
        .iter()
        .map(|u| {
            let text = format!("could not be checked: {}", u.why);
            Finding::warning("NotChecked", &u.what, text, &u.fix)
        })
        .collect();
    let state = State::new(cluster);
    findings.extend(crds::check(&state));
    if cluster.namespace_exists == Some(false) {
        findings.push(components::no_namespace(&state));
        return findings;
    }
    for check in [
        components::check,
        rights::check,
        certificates::check,
        webhooks::check,
        leases::check,
        offers::check,
        bindings::check,
        providers::check,
        agents::check,
        scheduler::check,
        versions::check,
    ] {
        findings.extend(check(&state));
    }
    findings
}

/// The findings, or that the check passed.
fn or_ok(findings: Vec<Finding>, passed: Finding) -> Vec<Finding> {
    if findings.is_empty() {
        vec![passed]
    } else {
        findings
    }
}

#[cfg(test)]
mod tests;
