//! Requeues rejected pods while no controller does it.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, Client};
use prometheus_client::registry::Registry;
use tautline_core::names::CONTROLLER;
use tautline_pod_requeue::PodRequeue;
use tautline_runtime::{lease, tasks::Tasks};
use tokio::{sync::watch::Sender, time::sleep};

use crate::state::State;

const LEASE_INTERVAL: Duration = Duration::from_secs(5);

/// Starts the requeue of rejected pods. The controller's requeue takes precedence, since it serves
/// all replicas of the extender.
pub(crate) fn spawn(state: &State, client: &Client, registry: &mut Registry, tasks: &mut Tasks) {
    let requeue = PodRequeue {
        store: state.store.clone(),
        providers: state.providers.clone(),
        client: client.clone(),
        metrics: tautline_pod_requeue::Metrics::default(),
    };
    requeue.metrics.register("", registry);
    let is_active = Sender::new(false);
    let (active, stop) = (is_active.subscribe(), tasks.stop_token());
    tasks.spawn("requeue", async move {
        requeue.run(move || *active.borrow(), stop).await;
        Ok(())
    });
    let leases: Api<Lease> = Api::namespaced(client.clone(), &state.config.controller_namespace);
    let stop = tasks.stop_token();
    tasks.spawn("controller's lease", async move {
        let mut warned = false;
        loop {
            let has_controller = lease::is_held(&leases, CONTROLLER).await;
            if let (Err(error), false) = (&has_controller, warned) {
                warned = true;
                tracing::warn!(%error, "the controller's Lease cannot be read; requeuing pods here");
            }
            is_active.send_replace(!has_controller.unwrap_or(false));
            tokio::select! {
                () = stop.cancelled() => return Ok(()),
                () = sleep(LEASE_INTERVAL) => {}
            }
        }
    });
}
