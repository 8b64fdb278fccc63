//! Starts the admission server's watches of the GPU slice policy, mutation policies, their bindings
//! and parameters.

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

pub(crate) const SLICE_POLICY: &str = "slice policy";
pub(crate) const PARAMS: &str = "parameters of mutation policies";
/// The longest time that the start waits for the slice policy. Without the policy the server uses
/// annotations only.
const SLICE_POLICY_START_TIMEOUT: Duration = Duration::from_secs(10);
/// The longest time that the start waits for parameters. A kind that is not served must not block
/// the server.
const PARAMS_START_TIMEOUT: Duration = Duration::from_secs(30);

pub(crate) fn slice_policy(
    config: &Config,
    client: &Client,
    policy: &Arc<gpu_sharing::PolicyStore>,
    readiness: &Readiness,
    tasks: &mut Tasks,
) {
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), &config.policy_namespace);
    let (policy, ready, stop) = (Arc::clone(policy), readiness.clone(), tasks.stop_token());
    tasks.spawn_until_stop("slice policy", async move {
        let timeout = async {
            tokio::time::sleep(SLICE_POLICY_START_TIMEOUT).await;
            ready.done(SLICE_POLICY);
        };
        let see = |map| {
            policy.update(map);
            ready.done(SLICE_POLICY);
        };
        let watch = single_watch::watch_single(api, gpu_sharing::MAP, stop, see);
        tokio::join!(watch, timeout);
    });
}

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
    let of = Arc::clone(&cluster);
    let watch = async move { of.watch_namespaces().await };
    tasks.spawn_until_stop("watch namespaces", watch);
    let of = Arc::clone(&cluster);
    let refresh = async move { of.schemas.keep_fresh().await };
    tasks.spawn_until_stop("types", refresh);
    let (of, client, active) = (Arc::clone(&cluster), client.clone(), store.changes());
    let watch = async move { of.params.watch_kinds(client, active).await };
    tasks.spawn_until_stop("parameters", watch);
    let (of, active, ready) = (Arc::clone(&cluster), store.changes(), readiness.clone());
    tasks.spawn_until_stop("parameters at start", async move {
        // Before the parameters are listed, policies with failurePolicy Fail would refuse requests.
        let params = &of.params;
        params
            .wait_until_listed(&active, PARAMS_START_TIMEOUT)
            .await;
        ready.done(PARAMS);
        // A task that ends stops the process.
        std::future::pending::<()>().await;
    });
    Arc::new(MutationHandler {
        store,
        cluster,
        counters,
        deadline: config.deadline.mul_f64(0.75),
    })
}
