use std::sync::Arc;

use kube::Api;
use tautline_runtime::{
    cluster::Cluster,
    tasks::Tasks,
    watch::{Watch, WatchMetrics, watch_list},
};

use crate::Console;

/// Starts the watches that keep the console's objects in step with a cluster.
pub fn watch(console: &Arc<Console>, cluster: &Cluster, tasks: &mut Tasks) {
    let metrics = WatchMetrics::default();
    let watch = Watch {
        cluster,
        store: &console.store,
        metrics: &metrics,
        readiness: &console.readiness,
    };
    watch.pods(tasks);
    watch.all_except_pods(tasks);
    let (client, readiness) = (cluster.client(), &console.readiness);
    let kept = Arc::clone(console);
    let bindings = Api::all(client.clone());
    watch_list(bindings, None, readiness, tasks, move |all| {
        kept.bindings.reset(all);
    });
    let kept = Arc::clone(console);
    let offers = Api::all(client.clone());
    watch_list(offers, None, readiness, tasks, move |all| {
        kept.offers.reset(all);
    });
    let kept = Arc::clone(console);
    let policies = Api::all(client.clone());
    watch_list(policies, None, readiness, tasks, move |all| {
        kept.policies.reset(all);
    });
}
