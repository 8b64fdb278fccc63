//! The task that writes Reports of OpenReports.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use kube::{
    Api,
    api::{ApiResource, DynamicObject, Patch, PatchParams},
};
use tautline_core::{index::Kind, names::CONTROLLER};
use tautline_runtime::{
    api_call::{self, ApiCallError},
    lease::Term,
};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::context::Context;
use crate::{
    open_reports::{API_VERSION, GROUP, KIND, PLURAL, Reports, VERSION, Write, is_kind_missing},
    reconciler::BindingEvent,
};

/// The maximum number of binding events that are applied together.
const MAX_BATCH_EVENTS: usize = 256;
/// The wait between two writes.
const WRITE_INTERVAL: Duration = Duration::from_millis(200);
const DEADLINE: Duration = Duration::from_secs(10);
/// The longest wait for the next report, if no event arrives.
const MAX_IDLE: Duration = Duration::from_secs(60);

pub(crate) async fn run(
    context: Arc<Context>,
    mut bindings: mpsc::Receiver<BindingEvent>,
    mut leader: watch::Receiver<Option<Term>>,
    stop: CancellationToken,
) {
    let mut changes = context.store.changes_except_pods();
    let (mut reports, mut batch) = (Reports::default(), Vec::new());
    let mut versions = *changes.borrow_and_update();
    let mut term = leader.borrow_and_update().clone();
    let mut task = Task {
        context: &context,
        missing: false,
    };
    reports.set_offers(&context.store.snapshot(), Instant::now());
    loop {
        let idle = Instant::now() + MAX_IDLE;
        let next = match &term {
            Some(_) => reports.next_time().unwrap_or(idle).min(idle),
            None => idle,
        };
        tokio::select! {
            () = stop.cancelled() => return,
            n = bindings.recv_many(&mut batch, MAX_BATCH_EVENTS) => {
                if n == 0 { break }
                let now = Instant::now();
                batch.drain(..).for_each(|event| reports.apply(event, now));
            }
            changed = changes.changed() => {
                if changed.is_err() { break }
                let now = *changes.borrow_and_update();
                if now.changed(&versions, &[Kind::Offer]) {
                    reports.set_offers(&context.store.snapshot(), Instant::now());
                }
                versions = now;
            }
            changed = leader.changed() => {
                if changed.is_err() { break }
                term = leader.borrow_and_update().clone();
                context.metrics.open_reports.set(0);
                reports.restart(Instant::now());
            }
            () = tokio::time::sleep_until(next.into()) => {
                if !term.as_ref().is_some_and(Term::is_active) {
                    // A suspended term may become active again without a notification.
                    tokio::time::sleep(WRITE_INTERVAL).await;
                    continue;
                }
                let Some(write) = reports.next_write(Instant::now()) else { continue };
                if task.write(&write).await {
                    reports.written(&write, Instant::now());
                } else {
                    reports.failed(&write, Instant::now());
                }
                tokio::time::sleep(WRITE_INTERVAL).await;
            }
        }
    }
    // The process itself reports an error of the leader election or the watch.
    stop.cancelled().await;
}

struct Task<'a> {
    context: &'a Context,
    /// True if the log already says that the kind is not installed.
    missing: bool,
}

impl Task<'_> {
    async fn write(&mut self, write: &Write) -> bool {
        let resource = ApiResource {
            group: GROUP.to_owned(),
            version: VERSION.to_owned(),
            api_version: API_VERSION.to_owned(),
            kind: KIND.to_owned(),
            plural: PLURAL.to_owned(),
        };
        let api: Api<DynamicObject> =
            Api::namespaced_with(self.context.client.clone(), &write.namespace, &resource);
        let params = PatchParams::apply(CONTROLLER).force();
        let patch = Patch::Apply(&write.content);
        let answer =
            api_call::within(DEADLINE, api.patch_metadata(&write.name, &params, &patch)).await;
        let metrics = &self.context.metrics;
        metrics.wrote("open-report", answer.is_ok());
        let Err(error) = answer else {
            metrics.open_reports.set(1);
            self.missing = false;
            return true;
        };
        if missing(&error) {
            metrics.open_reports.set(0);
            if !self.missing {
                tracing::warn!(
                    kind = KIND,
                    api_version = API_VERSION,
                    "no reports are written: the API server does not have the kind; install the CRDs of \
                     OpenReports, or turn --open-reports off"
                );
            }
            self.missing = true;
        } else {
            tracing::warn!(
                namespace = %write.namespace, report = %write.name, %error,
                "the report is not written; with --open-reports the controller needs the right to create and \
                 patch reports of openreports.io (deploy/with-open-reports)"
            );
        }
        false
    }
}

fn missing(error: &ApiCallError) -> bool {
    match error {
        ApiCallError::Failed(kube::Error::Api(status)) => {
            is_kind_missing(status.code, &status.message)
        }
        _ => false,
    }
}
