//! Requeues rejected pods while no controller does. Pending and unselected pods, most of a
//! cluster's, are watched only once a pod may need a requeue: their events are a cost.

use std::{future::pending, time::Duration};

use anyhow::Result;
use k8s_openapi::api::{coordination::v1::Lease, core::v1::Pod};
use kube::{Api, Client, api::ListParams};
use prometheus_client::registry::Registry;
use tautline_api::convert;
use tautline_pod_requeue::PodRequeue;
use tautline_runtime::{lease, tasks::Tasks, watch::Watch};
use tokio::{
    sync::watch::{Receiver, Sender},
    time::{sleep, timeout},
};

use crate::state::State;

const CONTROLLER_LEASE: &str = "tautline-controller";
const LEASE_INTERVAL: Duration = Duration::from_secs(5);
/// Interval of the search for pods that another replica rejected, or this one before a restart.
const SEARCH_INTERVAL: Duration = Duration::from_secs(60);
const SEARCH_TIMEOUT: Duration = Duration::from_secs(10);
const PAGE: u32 = 500;

/// Starts the pods' watch and the requeue of rejected pods. The controller's requeue takes
/// precedence: it is one for all replicas of the extender.
pub(crate) fn spawn(
    state: &State,
    client: &Client,
    watch: &Watch<'_>,
    registry: &mut Registry,
    tasks: &mut Tasks,
) {
    let is_active = Sender::new(false);
    let needs_all_pods = needs_all_pods(
        client.clone(),
        is_active.subscribe(),
        state.has_rejected.subscribe(),
    );
    if state.config.bind {
        // Bind needs the labels and the underlay allocations of each pod.
        watch.rules(tasks);
        watch.pods(tasks);
    } else {
        watch.rules_and_their_pods_until(needs_all_pods, tasks);
    }
    if !state.config.requeue {
        return;
    }
    let requeue = PodRequeue {
        store: state.store.clone(),
        providers: state.providers.clone(),
        client: client.clone(),
        metrics: tautline_pod_requeue::Metrics::default(),
    };
    requeue.metrics.register(registry);
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
            let has_controller = lease::is_held(&leases, CONTROLLER_LEASE).await;
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

/// Ends once this process requeues and a pod was rejected, so that all pods must be watched.
async fn needs_all_pods(
    client: Client,
    mut is_active: Receiver<bool>,
    mut has_rejected: Receiver<bool>,
) {
    loop {
        if is_active.wait_for(|active| *active).await.is_err() {
            return pending().await;
        }
        tokio::select! {
            Ok(_) = has_rejected.wait_for(|rejected| *rejected) => return,
            () = find_rejected(&client) => return,
            _ = is_active.wait_for(|active| !*active) => {}
        }
    }
}

/// Ends once a rejected pod exists, or may exist: a slow API server is not searched again.
async fn find_rejected(client: &Client) {
    loop {
        match timeout(SEARCH_TIMEOUT, has_rejected_pod(client)).await {
            Ok(Ok(true)) => return,
            Ok(Ok(false)) => {}
            Ok(Err(error)) => {
                let error = format!("{error:#}");
                tracing::warn!(error, "rejected pods cannot be listed");
            }
            Err(_) => {
                tracing::warn!(
                    "the API server lists the pods without a node too slowly; all pods are watched"
                );
                return;
            }
        }
        sleep(SEARCH_INTERVAL).await;
    }
}

async fn has_rejected_pod(client: &Client) -> Result<bool> {
    let pods: Api<Pod> = Api::all(client.clone());
    let mut params = ListParams::default().fields("spec.nodeName=").limit(PAGE);
    loop {
        let page = pods.list(&params).await?;
        if page.items.iter().any(|pod| convert::pod(pod).is_rejected()) {
            return Ok(true);
        }
        params.continue_token = page.metadata.continue_.filter(|token| !token.is_empty());
        if params.continue_token.is_none() {
            return Ok(false);
        }
    }
}
