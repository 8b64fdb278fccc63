//! Holds the cluster's data that all pages of the console share, and starts the watches that keep
//! it current.

use std::{fmt::Debug, sync::Arc};

use arc_swap::ArcSwap;
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceSlice};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use tautline_api::{ConstraintPolicy, ConstraintPolicyBinding, ConstraintPolicyOffer};
use tautline_core::trust::{OWN_NAMESPACE, TrustedNamespaces};
use tautline_runtime::{
    admin::Readiness,
    cluster::Cluster,
    cluster_store::ClusterStore,
    tasks::Tasks,
    watch::{Watch, WatchMetrics, watch_list},
};

use crate::{history::LastHistory, inspections::Inspections, source::Source};

/// The data behind the pages. Clones of its fields share their data.
pub struct Console {
    /// The title of the pages: the kubeconfig's context, or the manifests.
    pub title: String,
    /// The arguments by which a command selects the same data, such as ` --context prod` or
    /// ` -f DIR`; empty for the default.
    pub command_args: String,
    /// True if the data comes from manifests, which only few commands read.
    pub of_manifests: bool,
    /// The nodes, pods, policies, offers and Services in the form that Tautline's servers use.
    pub store: ClusterStore,
    /// The bindings as the API has them, sorted by namespace and name.
    pub bindings: Objects<ConstraintPolicyBinding>,
    /// The offers as the API has them, sorted by namespace and name.
    pub offers: Objects<ConstraintPolicyOffer>,
    /// The policies as the API has them, sorted by namespace and name.
    pub policies: Objects<ConstraintPolicy>,
    /// The slices of DRA drivers.
    pub slices: Objects<ResourceSlice>,
    /// The claims on devices of DRA drivers.
    pub claims: Objects<ResourceClaim>,
    /// The lists that are not complete yet.
    pub readiness: Readiness,
    /// The lists that cannot be read, with the errors. Every page shows them.
    pub problems: ArcSwap<Vec<String>>,
    /// The namespaces whose providers serve all namespaces.
    pub trusted: TrustedNamespaces,
    /// The source of the data that is read on demand.
    pub source: Arc<dyn Source>,
    pub(crate) inspections: Inspections,
    pub(crate) history: LastHistory,
}

impl Console {
    /// Creates a console without objects.
    pub fn new(title: String, command_args: String, source: Arc<dyn Source>) -> Self {
        Self {
            title,
            command_args,
            of_manifests: false,
            store: ClusterStore::default(),
            bindings: Objects::default(),
            offers: Objects::default(),
            policies: Objects::default(),
            slices: Objects::default(),
            claims: Objects::default(),
            readiness: Readiness::default(),
            problems: ArcSwap::default(),
            trusted: TrustedNamespaces::new([OWN_NAMESPACE]),
            source,
            inspections: Inspections::default(),
            history: LastHistory::default(),
        }
    }
}

/// The names of the lists in [`Console::readiness`].
pub(crate) mod lists {
    pub(crate) const NODES: &str = "nodes";
    pub(crate) const PODS: &str = "pods";
    pub(crate) const POLICIES: &str = "constraintpolicies";
    pub(crate) const OFFERS: &str = "constraintpolicyoffers";
    pub(crate) const BINDINGS: &str = "constraintpolicybindings";
}

/// The commands with the option `-f`.
const OF_MANIFESTS: [&str; 3] = ["plan", "gpu", "simulate"];

impl Console {
    /// Returns whether one of `lists` is not complete, so that objects it lacks may exist.
    pub(crate) fn lacks(&self, lists: &[&str]) -> bool {
        let missing = self.readiness.missing();
        missing.iter().any(|list| lists.contains(&&**list))
    }

    /// Returns the command line of a page's command, after the text that introduces it.
    pub(crate) fn command(&self, command: &str) -> (&'static str, String) {
        let first = command.split(' ').next().unwrap_or_default();
        if self.of_manifests && !OF_MANIFESTS.contains(&first) {
            return (
                "Of a cluster, in a terminal: ",
                format!("tautline {command}"),
            );
        }
        let args = &self.command_args;
        (
            "The same in a terminal: ",
            format!("tautline {command}{args}"),
        )
    }
}

/// The current objects of a kind, for one writer and many readers.
#[derive(Debug)]
pub struct Objects<K>(ArcSwap<Vec<Arc<K>>>);

impl<K> Default for Objects<K> {
    fn default() -> Self {
        Self(ArcSwap::default())
    }
}

impl<K> Objects<K> {
    /// Returns the current objects.
    pub fn list(&self) -> Arc<Vec<Arc<K>>> {
        self.0.load_full()
    }

    /// Returns an object.
    pub(crate) fn find(&self, namespace: &str, name: &str) -> Option<Arc<K>>
    where
        K: Resource,
    {
        let wanted = (Some(namespace), Some(name));
        let key = |k: &K| (k.meta().namespace.as_deref(), k.meta().name.as_deref()) == wanted;
        self.0.load().iter().find(|object| key(object)).cloned()
    }

    /// Replaces all objects.
    pub fn reset(&self, all: Vec<Arc<K>>) {
        self.0.store(Arc::new(all));
    }
}

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
    keep(console, cluster, tasks, |console| &console.bindings);
    keep(console, cluster, tasks, |console| &console.offers);
    keep(console, cluster, tasks, |console| &console.policies);
}

/// Starts the watches of DRA's slices and claims, if the cluster has their API (Kubernetes 1.34).
pub async fn watch_devices(console: &Arc<Console>, cluster: &Cluster, tasks: &mut Tasks) {
    let version = ResourceSlice::api_version(&());
    let served = cluster.client().list_api_group_resources(&version).await;
    if served.is_ok() {
        keep(console, cluster, tasks, |console| &console.slices);
        keep(console, cluster, tasks, |console| &console.claims);
    }
}

/// Starts the watch of one kind, as the API has its objects.
fn keep<K>(
    console: &Arc<Console>,
    cluster: &Cluster,
    tasks: &mut Tasks,
    objects: fn(&Console) -> &Objects<K>,
) where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
{
    let (api, kept) = (Api::all(cluster.client().clone()), Arc::clone(console));
    let reset = move |all| objects(&kept).reset(all);
    watch_list(api, None, &console.readiness, tasks, reset);
}

/// Quotes an argument of a command line for a shell, if necessary: users copy these command lines,
/// and other people choose the names in them.
pub fn quote(argument: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=@,+".contains(c);
    if !argument.is_empty() && argument.chars().all(plain) {
        return argument.to_owned();
    }
    format!("'{}'", argument.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_arguments_are_quoted() {
        assert_eq!(quote("examples/edge-inference"), "examples/edge-inference");
        assert_eq!(quote("a b"), "'a b'");
        assert_eq!(quote("it's"), r"'it'\''s'");
        assert_eq!(quote(""), "''");
    }
}
