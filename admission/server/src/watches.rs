//! What keeps the jobs in step with the cluster, as tasks.

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client, core::DeserializeGuard};
use tautline_api::{MutationPolicy, MutationPolicyBinding};
use tautline_runtime::{
    admin::Readiness, events::Events, single_watch, tasks::Tasks, watch::watch_list,
};

use crate::{
    config::Config,
    gpu_sharing,
    mutations::{self, MutationHandler, RawObject},
};

/// What readiness waits for beside the watches.
pub(crate) const SLICE_POLICY: &str = "slice policy";
/// Likewise.
pub(crate) const PARAMS: &str = "parameters of mutation policies";
/// After so long without a word of the slice policy pods are judged without it:
/// it never keeps pods from being created.
const PATIENCE: Duration = Duration::from_secs(10);
/// The same for parameters: a kind that nobody serves keeps no replica from serving.
const PARAMS_PATIENCE: Duration = Duration::from_secs(30);

/// Keeps the slice policy in step with its ConfigMap.
pub(crate) fn slice_policy(
    config: &Config,
    client: &Client,
    policy: &Arc<gpu_sharing::PolicyStore>,
    readiness: &Readiness,
    tasks: &mut Tasks,
) {
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), &config.policy_namespace);
    let (policy, ready, stop) = (Arc::clone(policy), readiness.clone(), tasks.stop_token());
    tasks.spawn("slice policy", async move {
        let patience = async {
            tokio::time::sleep(PATIENCE).await;
            ready.done(SLICE_POLICY);
            std::future::pending::<()>().await;
        };
        let see = |map| {
            policy.update(map);
            ready.done(SLICE_POLICY);
        };
        tokio::select! {
            () = single_watch::watch_single(api, gpu_sharing::MAP, stop, see) => {}
            () = patience => {}
        }
        Ok(())
    });
}

/// Keeps the mutation policies in step, and what they need of the cluster.
pub(crate) fn mutation_policies(
    config: &Config,
    client: &Client,
    counters: mutations::Counters,
    events: &Arc<Events>,
    readiness: &Readiness,
    tasks: &mut Tasks,
) -> Arc<MutationHandler> {
    let store = Arc::new(mutations::PolicyStore::new(
        Arc::clone(events),
        counters.clone(),
    ));
    let cluster = Arc::new(mutations::Cluster::new(client.clone(), config.authorizer));
    let (policies, bindings) = (Arc::clone(&store), Arc::clone(&store));
    let api: Api<DeserializeGuard<RawObject<MutationPolicy>>> = Api::all(client.clone());
    watch_list(api, None, readiness, tasks, move |all| {
        policies.update_policies(&all)
    });
    let api: Api<DeserializeGuard<RawObject<MutationPolicyBinding>>> = Api::all(client.clone());
    watch_list(api, None, readiness, tasks, move |all| {
        bindings.update_bindings(&all)
    });
    let stop = tasks.stop_token();
    let (namespaces, end) = (Arc::clone(&cluster), stop.clone());
    tasks.spawn("watch namespaces", async move {
        namespaces.watch_namespaces(end).await;
        Ok(())
    });
    let (schemas, end) = (Arc::clone(&cluster), stop.clone());
    tasks.spawn("types", async move {
        schemas.schemas.keep_fresh(end).await;
        Ok(())
    });
    let (params, client, in_force) = (Arc::clone(&cluster), client.clone(), store.changes());
    tasks.spawn("parameters", async move {
        params.params.watch_kinds(client, in_force, stop).await;
        Ok(())
    });
    let (params, in_force, ready) = (Arc::clone(&cluster), store.changes(), readiness.clone());
    let end = tasks.stop_token();
    tasks.spawn("parameters at start", async move {
        // Before they are listed, policies with failurePolicy Fail would refuse.
        tokio::select! {
            () = params.params.wait_until_listed(&in_force, PARAMS_PATIENCE) => ready.done(PARAMS),
            () = end.cancelled() => {}
        }
        // A task that ends stops the server.
        end.cancelled().await;
        Ok(())
    });
    Arc::new(MutationHandler {
        store,
        cluster,
        exempt: config.exempt.clone(),
        counters,
        // What is left is for the answer.
        deadline: config.deadline.mul_f64(0.75),
        executor: mutations::Executor::default(),
    })
}
