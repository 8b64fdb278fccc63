//! Checks the state that was read. The checks do no I/O: the gatherer passes objects and the time.

mod certificates;
mod crds;
mod gpu;
mod installation;
mod rules;
mod scheduler;
mod webhooks;

pub(super) use gpu::{DRIVER, is_dra};
pub(crate) use installation::version_of;
pub(super) use scheduler::filter_requests;

use super::{
    cluster::{Cluster, State},
    finding::{Finding, problem},
};

/// A check adds the findings about its objects. It returns the finding that stands if it added
/// none; `None` if there is nothing to report, or the objects were not read.
type Check = fn(&State<'_>, &mut Vec<Finding>) -> Option<Finding>;

/// The checks of an installation whose namespace exists, in the order of their findings.
const CHECKS: [Check; 14] = [
    installation::components,
    installation::rights,
    certificates::check,
    webhooks::check,
    installation::leases,
    rules::offers,
    rules::bindings,
    rules::providers,
    installation::agents,
    gpu::delivery,
    gpu::cards,
    scheduler::calls,
    scheduler::pending,
    installation::versions,
];

/// Returns all findings, unsorted.
pub(crate) fn run(cluster: &Cluster) -> Vec<Finding> {
    let mut findings = cluster.unread.clone();
    let state = State::new(cluster);
    add(&mut findings, |out| crds::check(&state, out));
    if cluster.namespace_exists == Some(false) {
        let object = format!("Namespace {}", cluster.namespace);
        let text = "does not exist: Tautline is not installed there";
        let reapply = state.reapply();
        let fix = format!("{reapply}; or name Tautline's namespace with --namespace");
        findings.push(problem("NamespaceMissing", object, text, fix));
        return findings;
    }
    for check in CHECKS {
        add(&mut findings, |out| check(&state, out));
    }
    findings
}

/// Adds the findings of a check, or that it passed.
fn add(out: &mut Vec<Finding>, check: impl FnOnce(&mut Vec<Finding>) -> Option<Finding>) {
    let before = out.len();
    let passed = check(out);
    if out.len() == before {
        out.extend(passed);
    }
}

#[cfg(test)]
mod tests;
