//! The task that writes Reports of OpenReports.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use kube::{
    Api,
    api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams},
};
use tautline_core::{index::Kind, names::CONTROLLER};
use tautline_runtime::{
    api_call::{self, ApiCallError},
    lease::Term,
};
use tokio::sync::mpsc;

use super::{Context, DEADLINE, MAX_BATCH_EVENTS};
use crate::{
    open_reports::{GROUP, KIND, PLURAL, Reports, VERSION, Write, is_kind_missing},
    reconciler::BindingEvent,
};

/// The wait between two writes.
const WRITE_INTERVAL: Duration = Duration::from_millis(200);
/// The longest wait for the next report, if no event arrives.
const MAX_IDLE: Duration = Duration::from_secs(60);

pub(crate) async fn run(context: Arc<Context>, mut bindings: mpsc::Receiver<BindingEvent>) {
    let mut changes = context.store.changes_except_pods();
    let mut leader = context.leader.subscribe();
    let (mut reports, mut batch) = (Reports::default(), Vec::new());
    let mut versions = *changes.borrow_and_update();
    // True if the log already says that the kind is not installed.
    let mut is_missing = false;
    reports.set_offers(&context.store.snapshot(), Instant::now());
    loop {
        let idle = Instant::now() + MAX_IDLE;
        let is_leader = leader.borrow().is_some();
        let next = reports.next_time().filter(|_| is_leader);
        let next = next.map_or(idle, |next| next.min(idle));
        tokio::select! {
            n = bindings.recv_many(&mut batch, MAX_BATCH_EVENTS) => {
                // The watch has ended, and with it the process.
                if n == 0 { return }
                let now = Instant::now();
                batch.drain(..).for_each(|event| reports.apply(event, now));
            }
            _ = changes.changed() => {
                let now = *changes.borrow_and_update();
                if now.changed(&versions, &[Kind::Offer]) {
                    reports.set_offers(&context.store.snapshot(), Instant::now());
                }
                versions = now;
            }
            _ = leader.changed() => {}
            () = tokio::time::sleep_until(next.into()) => {
                if !leader.borrow().as_ref().is_some_and(Term::is_active) {
                    // A suspended term may become active again without a notification.
                    tokio::time::sleep(WRITE_INTERVAL).await;
                    continue;
                }
                let Some(write) = reports.next_write(Instant::now()) else { continue };
                if write_report(&context, &write, &mut is_missing).await {
                    reports.written(&write, Instant::now());
                } else {
                    reports.failed(&write, Instant::now());
                }
                tokio::time::sleep(WRITE_INTERVAL).await;
            }
        }
    }
}

/// Writes a report, and returns whether it was written.
async fn write_report(context: &Context, write: &Write, is_missing: &mut bool) -> bool {
    let kind = GroupVersionKind::gvk(GROUP, VERSION, KIND);
    let resource = ApiResource::from_gvk_with_plural(&kind, PLURAL);
    let api: Api<DynamicObject> =
        Api::namespaced_with(context.client.clone(), &write.namespace, &resource);
    let params = PatchParams::apply(CONTROLLER).force();
    let patch = Patch::Apply(&write.content);
    let call = api.patch_metadata(&write.name, &params, &patch);
    let answer = api_call::within(DEADLINE, call).await;
    let metrics = &context.metrics;
    metrics.wrote("open-report", answer.is_ok());
    let was_missing = std::mem::take(is_missing);
    let Err(error) = answer else {
        metrics.open_reports.set(1);
        return true;
    };
    match &error {
        ApiCallError::Failed(kube::Error::Api(status))
            if is_kind_missing(status.code, &status.message) =>
        {
            metrics.open_reports.set(0);
            *is_missing = true;
            if !was_missing {
                tracing::warn!(
                    kind = KIND,
                    api_version = resource.api_version,
                    "no reports are written: the API server does not have the kind; install the CRDs of \
                     OpenReports, or turn --open-reports off"
                );
            }
        }
        error => {
            *is_missing = was_missing;
            tracing::warn!(
                namespace = %write.namespace, report = %write.name, %error,
                "the report is not written; with --open-reports the controller needs the right to create and \
                 patch reports of openreports.io (deploy/with-open-reports)"
            );
        }
    }
    false
}
