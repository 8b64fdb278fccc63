use std::sync::Arc;

use arc_swap::ArcSwap;
use tautline_api::{ConstraintPolicy, ConstraintPolicyBinding, ConstraintPolicyOffer};
use tautline_core::trust::{OWN_NAMESPACE, TrustedNamespaces};
use tautline_runtime::{admin::Readiness, cluster_store::ClusterStore};
use tokio::sync::watch;

use crate::{inspections::Inspections, pages::latency::Answers, source::Source};

/// The data behind the pages. Clones of its parts share them.
pub struct Console {
    /// For the title: the kubeconfig's context, or the manifests.
    pub title: String,
    /// How a command names the same data, as ` --context prod` or ` -f DIR`; empty for the default.
    pub command_args: String,
    /// The data is of manifests, which few commands read.
    pub of_manifests: bool,
    /// Nodes, pods, policies, offers and Services as Tautline's servers keep them.
    pub store: ClusterStore,
    /// Bindings as the API has them, sorted by namespace and name.
    pub bindings: Objects<ConstraintPolicyBinding>,
    /// Offers, likewise.
    pub offers: Objects<ConstraintPolicyOffer>,
    /// Policies, likewise.
    pub policies: Objects<ConstraintPolicy>,
    /// The lists that are not complete yet.
    pub readiness: Readiness,
    /// The lists that cannot be read, and why. Every page shows them.
    pub problems: ArcSwap<Vec<String>>,
    /// Namespaces whose providers count for all others.
    pub trusted: TrustedNamespaces,
    /// What is read on demand.
    pub source: Arc<dyn Source>,
    pub(crate) inspections: Inspections,
    /// Reports of the latency provider.
    pub(crate) latency: Answers,
}

impl Console {
    /// A console without objects yet.
    pub fn new(title: String, command_args: String, source: Arc<dyn Source>) -> Self {
        Self {
            title,
            command_args,
            of_manifests: false,
            store: ClusterStore::default(),
            bindings: Objects::default(),
            offers: Objects::default(),
            policies: Objects::default(),
            readiness: Readiness::default(),
            problems: ArcSwap::default(),
            trusted: TrustedNamespaces::new([OWN_NAMESPACE]),
            source,
            inspections: Inspections::default(),
            latency: Answers::default(),
        }
    }
}

/// Names of [`Console::readiness`].
pub(crate) mod lists {
    pub(crate) const NODES: &str = "nodes";
    pub(crate) const PODS: &str = "pods";
    pub(crate) const POLICIES: &str = "constraintpolicies";
    pub(crate) const OFFERS: &str = "constraintpolicyoffers";
    pub(crate) const BINDINGS: &str = "constraintpolicybindings";
}

/// Commands with the option `-f`.
const OF_MANIFESTS: [&str; 3] = ["plan", "gpu", "simulate"];

impl Console {
    /// Whether some of these lists are not complete, so that what they lack may exist.
    pub(crate) fn lacks(&self, lists: &[&str]) -> bool {
        let missing = self.readiness.missing();
        missing.iter().any(|list| lists.contains(&&**list))
    }

    /// The command line of a page's command, and what it is.
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

/// All objects of a kind: one writer, many readers.
#[derive(Debug)]
pub struct Objects<K> {
    now: ArcSwap<Vec<Arc<K>>>,
    version: watch::Sender<u64>,
}

impl<K> Default for Objects<K> {
    fn default() -> Self {
        Self {
            now: ArcSwap::default(),
            version: watch::Sender::new(0),
        }
    }
}

impl<K> Objects<K> {
    /// The objects now.
    pub fn list(&self) -> Arc<Vec<Arc<K>>> {
        self.now.load_full()
    }

    /// Replaces all.
    pub fn reset(&self, all: Vec<Arc<K>>) {
        self.now.store(Arc::new(all));
        self.version.send_modify(|version| *version += 1);
    }

    /// Notifies of every change.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.version.subscribe()
    }
}
