//! Waking rejected pods for as long as no controller does. Pods that wait, and those that
//! no offer selects, are followed only where there may be one to wake: they are most pods,
//! and each event costs the API server and us.

use std::{future::pending, time::Duration};

use anyhow::Result;
use k8s_openapi::api::{coordination::v1::Lease, core::v1::Pod};
use kube::{Api, Client, api::ListParams};
use prometheus_client::registry::Registry;
use tautline_api::convert;
use tautline_core::names::CONTROLLER;
use tautline_pod_requeue::PodRequeue;
use tautline_runtime::{lease, tasks::Tasks, watch::Watch};
use tokio::{
    sync::watch::{Receiver, Sender},
    time::{sleep, timeout},
};

use crate::app::State;

/// How often it is looked at.
const LOOK_FOR_CONTROLLER: Duration = Duration::from_secs(5);
/// How often pods are looked for that another replica rejected, or this one before it
/// began anew.
const LOOK_FOR_REJECTED: Duration = Duration::from_secs(60);
/// The most that such a look may take.
const DEADLINE: Duration = Duration::from_secs(10);
const PAGE: u32 = 500;

/// Wakes rejected pods while no controller does, as one place for all replicas is better
/// than each for itself, and follows pods.
pub(crate) fn spawn(
    state: &State,
    client: &Client,
    watch: &Watch<'_>,
    registry: &mut Registry,
    tasks: &mut Tasks,
) {
    let ours = Sender::new(false);
    let wanted = wanted(client.clone(), ours.subscribe(), state.rejects.subscribe());
    if state.config.bind {
        // It needs the labels of each pod that it binds, and what is allocated to it.
        watch.rules(tasks);
        watch.pods(tasks);
    } else {
        watch.rules_and_their_pods_until(wanted, tasks);
    }
    if !state.config.wake {
        return;
    }
    let waking = PodRequeue {
        store: state.feed.clone(),
        providers: state.discovery.clone(),
        client: client.clone(),
        metrics: tautline_pod_requeue::Metrics::default(),
    };
    waking.metrics.register(registry);
    let (here, stop) = (ours.subscribe(), tasks.stop_token());
    tasks.spawn("wake", async move {
        waking.run(move || *here.borrow(), stop).await;
        Ok(())
    });
    let leases: Api<Lease> = Api::namespaced(client.clone(), &state.config.controller_namespace);
    let stop = tasks.stop_token();
    tasks.spawn("controller's lease", async move {
        let mut said = false;
        loop {
            let held = lease::is_held(&leases, CONTROLLER).await;
            if let (Err(error), false) = (&held, said) {
                said = true;
                tracing::warn!(%error, "whether a controller runs is not known; waking pods here");
            }
            ours.send_replace(!held.unwrap_or(false));
            tokio::select! {
                () = stop.cancelled() => return Ok(()),
                () = sleep(LOOK_FOR_CONTROLLER) => {}
            }
        }
    });
}

/// Ends once pods that wait have to be known: it is for us to wake them, and one was
/// rejected. Never, where this process wakes none.
async fn wanted(client: Client, mut ours: Receiver<bool>, mut rejects: Receiver<bool>) {
    loop {
        if ours.wait_for(|ours| *ours).await.is_err() {
            return pending().await;
        }
        tokio::select! {
            Ok(_) = rejects.wait_for(|rejects| *rejects) => return,
            () = rejected_elsewhere(&client) => return,
            _ = ours.wait_for(|ours| !*ours) => {}
        }
    }
}

/// Ends once a pod waits that some replica rejected, or may wait: an API server that
/// takes long to find those without a node among all pods is not asked again and again.
async fn rejected_elsewhere(client: &Client) {
    loop {
        match timeout(DEADLINE, is_one_rejected(client)).await {
            Ok(Ok(true)) => return,
            Ok(Ok(false)) => {}
            Ok(Err(error)) => {
                let error = format!("{error:#}");
                tracing::warn!(error, "whether rejected pods wait is not known");
            }
            Err(_) => {
                tracing::warn!(
                    "the API server lists the pods without a node too slowly; all pods are followed"
                );
                return;
            }
        }
        sleep(LOOK_FOR_REJECTED).await;
    }
}

async fn is_one_rejected(client: &Client) -> Result<bool> {
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
