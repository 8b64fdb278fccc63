//! The pods of other clusters that targets of offers name, and the contact with these clusters. No
//! clock of another cluster is read.

mod table;

use std::{collections::BTreeMap, sync::Arc};

pub use self::table::RemoteTable;
use crate::{
    model::key,
    reference::Reference,
    selector::{Labels, Selector},
};

/// The maximum number of usable pods of one namespace of another cluster.
pub const MAX_REMOTE_PODS: usize = 10_000;
/// The maximum number of watched namespaces of other clusters, which tenants choose.
pub const MAX_SCOPES: usize = 64;

/// A target of an offer that selects pods of another cluster, in the offer's namespace there.
#[derive(Clone, Debug, PartialEq)]
pub struct RemoteTarget {
    /// The target's name, which is the role of the selected pods.
    pub name: Arc<str>,
    /// The name of the other cluster.
    pub cluster: Arc<str>,
    /// The selector of the pods; an empty one selects every pod.
    pub selector: Selector,
}

/// A pod of another cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RemotePod {
    /// The name of the pod's cluster.
    pub cluster: Arc<str>,
    /// The pod's namespace.
    pub namespace: Arc<str>,
    /// The pod's name.
    pub name: Arc<str>,
    /// The pod's UID.
    pub uid: Box<str>,
    /// The pod's labels.
    pub labels: Labels,
    /// `HOST:PORT` of the pod's node; `None` while the pod has no node.
    pub place: Option<Arc<str>>,
}

impl RemotePod {
    /// Returns the reference that bindings and providers use.
    pub fn reference(&self) -> Reference {
        Reference {
            cluster: self.cluster.to_string(),
            ..Reference::pod(&self.namespace, &self.name)
        }
    }
}

/// A namespace of another cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Scope {
    /// The name of the cluster.
    pub cluster: Arc<str>,
    /// The namespace, there and here.
    pub namespace: Arc<str>,
}

impl Scope {
    /// Returns the key of the scope's pods in the index: `cluster/namespace`.
    pub fn key(&self) -> String {
        key(&self.cluster, &self.namespace)
    }
}

/// The reason why the current pods of another cluster are unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// This process reads no other clusters.
    Off,
    /// The first list is not complete yet.
    Connecting,
    /// No Secret has the cluster's name.
    NoSecret,
    /// Several Secrets have the cluster's name.
    SeveralSecrets,
    /// The Secret's kubeconfig or an annotation of the Secret cannot be used.
    BadSecret,
    /// There is no connection, or no answer in time.
    Unreachable,
    /// The API server does not accept the credentials.
    Unauthorized,
    /// The account may not list and watch the pods of the namespace.
    Forbidden,
    /// The namespace has more than [`MAX_REMOTE_PODS`] pods, or their labels take too much memory.
    TooManyPods,
    /// Offers name more than [`MAX_SCOPES`] namespaces of other clusters.
    TooManyNamespaces,
}

impl Fault {
    /// Returns the code, the problem and the fix, which has `NAME` for the name of the cluster.
    fn parts(self) -> [&'static str; 3] {
        match self {
            Self::Off => [
                "Off",
                "this process reads no other clusters",
                "set its flag --cluster-secrets",
            ],
            Self::Connecting => [
                "Connecting",
                "its pods are being listed",
                "wait some seconds",
            ],
            Self::NoSecret => [
                "NoSecret",
                "it has no kubeconfig",
                "label a Secret tautline.io/cluster: NAME, or correct the target's cluster",
            ],
            Self::SeveralSecrets => [
                "SeveralSecrets",
                "several Secrets have its name",
                "leave one Secret with the label tautline.io/cluster: NAME",
            ],
            Self::BadSecret => [
                "BadSecret",
                "its Secret cannot be used",
                "correct the Secret with the label tautline.io/cluster: NAME; the log has the \
                 error",
            ],
            Self::Unreachable => [
                "Unreachable",
                "its API server does not answer",
                "check the network, and the server and the CA in the kubeconfig of the Secret with \
                 the label tautline.io/cluster: NAME; the log has the error",
            ],
            Self::Unauthorized => [
                "Unauthorized",
                "its API server does not accept the credentials",
                "put new ones into the Secret with the label tautline.io/cluster: NAME; if they \
                 are new, compare the clocks of both clusters",
            ],
            Self::Forbidden => [
                "Forbidden",
                "the account of its kubeconfig may not list and watch the pods of this namespace",
                "bind the role tautline-peer-reader there",
            ],
            Self::TooManyPods => [
                "TooManyPods",
                "this namespace has more than 10000 pods there, or too many labels",
                "use a namespace with fewer pods",
            ],
            Self::TooManyNamespaces => [
                "TooManyNamespaces",
                "offers name more than 64 namespaces of other clusters",
                "name fewer",
            ],
        }
    }

    /// Returns the stable code, for texts and metrics.
    pub fn code(self) -> &'static str {
        self.parts()[0]
    }

    /// Returns the problem of a cluster and the fix. Tenants read it, so it has no addresses.
    pub fn text(self, cluster: &str) -> String {
        let [code, problem, fix] = self.parts();
        let fix = fix.replace("NAME", cluster);
        format!("cluster {cluster}: {code}: {problem}; {fix}")
    }
}

/// The age of the pods of a [`Scope`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RemoteState {
    /// The pods are as the cluster has them.
    Current,
    /// The pods are those of the last contact, and the cluster's grace lasts.
    LastKnown(Fault),
    /// No pods are known, or the cluster's grace has ended.
    Unavailable(Fault),
}

/// The pods of one namespace of another cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct RemotePods {
    /// The cluster and the namespace.
    pub scope: Scope,
    /// The age of the pods.
    pub state: RemoteState,
    /// The unfinished pods by name.
    pub pods: BTreeMap<Arc<str>, Arc<RemotePod>>,
}

impl RemotePods {
    /// Returns the fault if the pods must not be used.
    pub fn fault(&self) -> Option<Fault> {
        match self.state {
            RemoteState::Unavailable(fault) => Some(fault),
            RemoteState::Current | RemoteState::LastKnown(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Fault; 10] = [
        Fault::Off,
        Fault::Connecting,
        Fault::NoSecret,
        Fault::SeveralSecrets,
        Fault::BadSecret,
        Fault::Unreachable,
        Fault::Unauthorized,
        Fault::Forbidden,
        Fault::TooManyPods,
        Fault::TooManyNamespaces,
    ];

    #[test]
    fn text_of_a_fault_has_cluster_code_and_fix() {
        for fault in ALL {
            let text = fault.text("east");
            assert_eq!(fault.code(), format!("{fault:?}"));
            let start = format!("cluster east: {}: ", fault.code());
            assert!(text.starts_with(&start) && text.contains("; "), "{text}");
            assert!(!text.contains("NAME"), "{text}");
            let names_secret = text.contains("Secret");
            assert_eq!(
                names_secret,
                text.contains("tautline.io/cluster: east"),
                "{text}"
            );
        }
        let has = |fault: Fault, number: usize| fault.text("east").contains(&number.to_string());
        assert!(has(Fault::TooManyPods, MAX_REMOTE_PODS));
        assert!(has(Fault::TooManyNamespaces, MAX_SCOPES));
    }

    #[test]
    fn reference_of_a_pod_names_its_cluster() {
        let pod = RemotePod {
            cluster: "east".into(),
            namespace: "shop".into(),
            name: "db-0".into(),
            ..RemotePod::default()
        };
        let reference = pod.reference();
        assert_eq!(reference.to_string(), "east:shop:v1:Pod:db-0");
        assert!(!reference.is_local_pod());
    }
}
