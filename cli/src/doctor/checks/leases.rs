//! A replica of the controller and of allocators leads.

use k8s_openapi::{api::coordination::v1::Lease, jiff::SignedDuration};
use kube::ResourceExt;
use tautline_core::names::CONTROLLER;

use crate::{
    age,
    doctor::{
        cluster::State,
        finding::Finding,
        workload::{Role, Workload},
    },
};

/// Durations without renewal after which no replica leads; clocks differ.
const TERMS: i64 = 3;

pub(super) fn check(state: &State<'_>) -> Vec<Finding> {
    let Some(leases) = &state.cluster.leases else {
        return Vec::new();
    };
    let own = &state.cluster.namespace;
    let controllers = state
        .of(Role::Controller)
        .map(|w| (w, CONTROLLER, "no controller works"));
    let allocators = state.of(Role::GpuSlice).filter_map(|w| {
        let (namespace, name) = w.flag("--lease")?.split_once('/')?;
        (namespace == own).then_some((w, name, "no replica reserves cards"))
    });
    let judge = |(workload, name, effect): (&Workload<'_>, &str, &str)| {
        let lease = leases.iter().find(|l| l.name_any() == name);
        judge(state, workload, name, lease, effect)
    };
    controllers.chain(allocators).map(judge).collect()
}

fn judge(
    state: &State<'_>,
    workload: &Workload<'_>,
    name: &str,
    lease: Option<&Lease>,
    effect: &str,
) -> Finding {
    let namespace = &state.cluster.namespace;
    let object = format!("Lease {namespace}/{name}");
    let fix = format!(
        "kubectl -n {namespace} logs {}; its Role must let it create and update the Lease",
        workload.kubectl()
    );
    let Some(lease) = lease else {
        let text = format!("does not exist: {effect}");
        return Finding::problem("LeaseMissing", object, text, fix);
    };
    let spec = lease.spec.clone().unwrap_or_default();
    let holder = spec.holder_identity.filter(|h| !h.is_empty());
    let Some((holder, renewed)) = holder.zip(spec.renew_time) else {
        let text = format!("has no holder: {effect}");
        return Finding::problem("LeaseExpired", object, text, fix);
    };
    let term = i64::from(spec.lease_duration_seconds.unwrap_or(0).max(1));
    let now = state.cluster.now;
    if now.duration_since(renewed.0) > SignedDuration::from_secs(TERMS * term) {
        let text = format!(
            "{holder} renewed it {}, more than {TERMS} times its duration of {term} s: {effect}",
            age::ago(renewed.0, now)
        );
        return Finding::problem("LeaseExpired", object, text, fix);
    }
    Finding::ok("LeaseHeld", object, format!("held by {holder}"))
}
