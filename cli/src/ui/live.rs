//! Runs the console of a cluster.

use std::{sync::Arc, time::Duration};

use anyhow::{Context, Result, anyhow};
use k8s_openapi::api::{
    core::v1::{Event, Node, Pod, Service},
    discovery::v1::EndpointSlice,
    resource::v1::{ResourceClaim, ResourceSlice},
};
use kube::{Api, Client, Resource, api::ListParams};
use serde::de::DeserializeOwned;
use tautline_api::{ConstraintPolicy, ConstraintPolicyBinding, ConstraintPolicyOffer};
use tautline_console::{
    Console, quote,
    source::{AdminAnswer, Component, Read, Source},
};
use tautline_core::trust::TrustedNamespaces;
use tautline_runtime::{
    api_call::within,
    cluster::Cluster,
    tasks::{self, Tasks},
};
use tokio::{net::TcpListener, time::timeout};

use super::serve;
use crate::{
    cluster_fault, fetch,
    replicas::{self, ReplicaArgs},
    scope::Scope,
};

const WITHOUT_CLUSTER: &str =
    "the console of a cluster needs one; `tautline ui -f DIR` and `tautline demo --ui` need none";
const DEADLINE: Duration = Duration::from_secs(10);
/// The deadline of a replica's answer. It is shorter than the pages' own deadlines, since a replica
/// that hangs must not hide the rest.
const REPLICA_DEADLINE: Duration = Duration::from_secs(2);
const MAX_EVENTS: u32 = 500;
/// The time between two checks of the lists and of the API server.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);

pub(super) async fn run(
    listener: TcpListener,
    args: &ReplicaArgs,
    trusted: TrustedNamespaces,
) -> Result<()> {
    let cluster = args.cluster.with_retries().await.context(WITHOUT_CLUSTER)?;
    reach(&args.cluster.client().await?)
        .await
        .context(WITHOUT_CLUSTER)?;
    let source = ClusterSource {
        client: cluster.client().clone(),
        namespace: args.tautline_namespace.clone(),
    };
    let title = args.cluster.title()?;
    let mut console = Console::new(title, command_args(args), Arc::new(source));
    console.trusted = trusted;
    let console = Arc::new(console);
    let mut tasks = Tasks::default();
    tautline_console::watch(&console, &cluster, &mut tasks);
    tautline_console::watch_devices(&console, &cluster, &mut tasks).await;
    serve(listener, Arc::clone(&console), &mut tasks)?;
    let stop = tasks.stop_token();
    let lists = Arc::clone(&console);
    tasks.spawn("lists", async move {
        tokio::select! {
            () = watch_connection(&lists, &cluster) => {}
            () = stop.cancelled() => {}
        }
        Ok(())
    });
    tasks.run(tasks::shutdown_signal()).await
}

/// Fails if there is no API server, or it does not accept the user.
async fn reach(client: &Client) -> Result<()> {
    let answer = timeout(DEADLINE, client.apiserver_version()).await;
    match answer.map_err(|_| anyhow!("no answer within {DEADLINE:?}")) {
        Ok(Err(kube::Error::Api(status))) if !matches!(status.code, 401 | 404) => Ok(()),
        answer => answer.and_then(|version| Ok(version?)).map(drop),
    }
}

/// The arguments that make other commands read the same cluster.
fn command_args(args: &ReplicaArgs) -> String {
    let mut text = String::new();
    if let Some(file) = &args.cluster.kubeconfig {
        text += &format!(" --kubeconfig {}", quote(&file.display().to_string()));
    }
    if let Some(context) = &args.cluster.context {
        text += &format!(" --context {}", quote(context));
    }
    text
}

/// Updates [`Console::problems`]: first lists that cannot be read, later an API server that does
/// not answer.
async fn watch_connection(console: &Console, cluster: &Cluster) {
    loop {
        tokio::time::sleep(CHECK_INTERVAL).await;
        let missing = console.readiness.missing();
        let problems = match missing.as_slice() {
            [] => lost(cluster.client()).await.into_iter().collect(),
            missing => problems(cluster.client(), missing).await,
        };
        if problems != **console.problems.load() {
            problems
                .iter()
                .for_each(|problem| note!("warning: {problem}"));
            console.problems.store(Arc::new(problems));
        }
    }
}

/// Returns the reason why the API server does not answer, if so.
async fn lost(client: &Client) -> Option<String> {
    let error = cluster_fault::text(&reach(client).await.err()?);
    Some(format!("the pages may be out of date: {error}"))
}

async fn problems(client: &Client, missing: &[String]) -> Vec<String> {
    let mut all = Vec::new();
    all.extend(problem::<Node>(client, missing).await);
    all.extend(problem::<Pod>(client, missing).await);
    all.extend(problem::<Service>(client, missing).await);
    all.extend(problem::<EndpointSlice>(client, missing).await);
    all.extend(problem::<ConstraintPolicy>(client, missing).await);
    all.extend(problem::<ConstraintPolicyOffer>(client, missing).await);
    all.extend(problem::<ConstraintPolicyBinding>(client, missing).await);
    all.extend(problem::<ResourceSlice>(client, missing).await);
    all.extend(problem::<ResourceClaim>(client, missing).await);
    all
}

/// Returns the reason why all objects of a kind cannot be listed, if so.
async fn problem<K>(client: &Client, missing: &[String]) -> Option<String>
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + DeserializeOwned,
{
    if !missing.contains(&K::plural(&()).into_owned()) {
        return None;
    }
    let error = fetch::check(&Api::<K>::all(client.clone()), &Scope::All)
        .await
        .err()?;
    Some(format!("{error:#}"))
}

struct ClusterSource {
    client: Client,
    namespace: String,
}

impl ClusterSource {
    /// Shortens an error, since kube's errors have the whole status.
    fn in_short(&self, error: anyhow::Error) -> anyhow::Error {
        let Some(cause) = error.downcast_ref::<kube::Error>().map(fetch::cause) else {
            return error;
        };
        anyhow!(
            "pods of namespace {} cannot be listed: {cause}",
            self.namespace
        )
    }
}

impl Source for ClusterSource {
    fn admin<'a>(&'a self, component: Component, path: &'a str) -> Read<'a, Vec<AdminAnswer>> {
        Box::pin(async move {
            let (client, apps) = (self.client.clone(), component.app_names());
            let call = replicas::each_pod(client, &self.namespace, apps, (path, REPLICA_DEADLINE));
            let called = timeout(DEADLINE * 2, call).await?;
            let (answers, failed) = called.map_err(|e| self.in_short(e))?;
            for error in failed {
                tracing::debug!(?component, path, error, "a replica does not answer");
            }
            Ok(answers)
        })
    }

    fn pod<'a>(&'a self, namespace: &'a str, name: &'a str) -> Read<'a, Option<Pod>> {
        Box::pin(async move {
            let api: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
            let pod = within(DEADLINE, api.get_opt(name)).await;
            pod.with_context(|| format!("pod {namespace}/{name}"))
        })
    }

    fn events<'a>(&'a self, namespace: &'a str, binding: &'a str) -> Read<'a, Vec<Event>> {
        Box::pin(async move {
            let api: Api<Event> = Api::namespaced(self.client.clone(), namespace);
            let kind = ConstraintPolicyBinding::kind(&());
            let fields = format!("involvedObject.name={binding},involvedObject.kind={kind}");
            let params = ListParams::default().fields(&fields).limit(MAX_EVENTS);
            let list = within(DEADLINE, api.list(&params)).await;
            Ok(list
                .with_context(|| format!("events in namespace {namespace}"))?
                .items)
        })
    }
}
