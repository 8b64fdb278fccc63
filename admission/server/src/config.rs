//! How the server serves.

use std::{
    collections::BTreeSet,
    net::{Ipv6Addr, SocketAddr},
    time::Duration,
};

use tautline_core::trust::TrustedNamespaces;
use tautline_gpu_sharing::Names;
use tautline_runtime::{http::Limits, tls::ServerFiles};

use crate::certificates::Times;

/// Where the certificate comes from.
#[derive(Clone, Debug)]
pub enum Certificate {
    /// Made here, kept in a Secret of our namespace, for these names.
    Own {
        /// The Secret.
        secret: String,
        /// DNS names and IP addresses.
        names: BTreeSet<String>,
        /// How long things last.
        times: Times,
    },
    /// Files that somebody else renews, who also keeps the `caBundle`.
    Files(ServerFiles),
}

/// How the server serves.
#[derive(Clone, Debug)]
pub struct Config {
    /// HTTPS.
    pub listen: SocketAddr,
    /// Where operators look.
    pub admin: SocketAddr,
    /// The server's.
    pub certificate: Certificate,
    /// Ours.
    pub namespace: String,
    /// Namespaces whose providers count for all others: for warnings.
    pub trusted: TrustedNamespaces,
    /// A review holds the object twice, and the API server takes up to 3 MiB of each.
    pub max_body_bytes: usize,
    /// Connections, and the memory of all requests together.
    pub limits: Limits,
    /// Reviews under way; more wait.
    pub concurrency: usize,
    /// Below the webhooks' `timeoutSeconds`.
    pub deadline: Duration,
    /// Whether pods that an offer selects ask for the governed resource.
    pub governed: bool,
    /// Namespaces whose pods are never changed, also where a webhook's selector
    /// lets them through.
    pub exempt: BTreeSet<String>,
    /// Where the slice policy is.
    pub policy_namespace: String,
    /// Whole and shared cards.
    pub gpus: Names,
    /// Whether mutation policies may ask the authorizer.
    pub authorizer: bool,
}

impl Config {
    /// The defaults, in `namespace`, reached by the Service `service`.
    pub fn new(namespace: &str, service: &str) -> Self {
        let host = format!("{service}.{namespace}.svc");
        Self {
            listen: (Ipv6Addr::UNSPECIFIED, 8443).into(),
            admin: (Ipv6Addr::UNSPECIFIED, 9090).into(),
            certificate: Certificate::Own {
                secret: "tautline-admission-tls".to_owned(),
                names: [host.clone(), format!("{host}.cluster.local")].into(),
                times: Times::default(),
            },
            namespace: namespace.to_owned(),
            trusted: TrustedNamespaces::new([namespace]),
            max_body_bytes: 8 << 20,
            limits: Limits::default(),
            concurrency: 64,
            deadline: Duration::from_secs(8),
            governed: false,
            exempt: ["kube-system".to_owned(), namespace.to_owned()].into(),
            policy_namespace: namespace.to_owned(),
            gpus: Names::default(),
            authorizer: false,
        }
    }
}
