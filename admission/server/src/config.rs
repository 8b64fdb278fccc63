//! The configuration of the server.

use std::{
    collections::BTreeSet,
    net::{Ipv6Addr, SocketAddr},
    time::Duration,
};

use tautline_certificates::{Ca, Times};
use tautline_core::trust::TrustedNamespaces;
use tautline_gpu_sharing::Names;
use tautline_runtime::{http::Limits, tls::ServerFiles};

/// Source of the serving certificate.
#[derive(Clone, Debug)]
pub enum Certificate {
    /// Generated, and shared by the replicas in a Secret.
    Own {
        /// Name of the Secret, in the server's namespace.
        secret: String,
        /// DNS names and IP addresses that the certificate is for.
        names: BTreeSet<String>,
        /// Its lifetime, and how clients learn the CA.
        times: Times,
    },
    /// Files. The operator who renews them also writes the `caBundle`.
    Files(ServerFiles),
}

/// The configuration, with a field for most options of `tautline admission`.
#[derive(Clone, Debug)]
pub struct Config {
    /// Address of the webhooks (HTTPS).
    pub listen: SocketAddr,
    /// Address of `/livez`, `/readyz` and `/metrics` (HTTP).
    pub admin: SocketAddr,
    /// The serving certificate.
    pub certificate: Certificate,
    /// Tautline's own namespace, which has the Secret of the certificates.
    pub namespace: String,
    /// Namespaces whose providers serve the rules of every namespace.
    pub trusted: TrustedNamespaces,
    /// Largest body. A review holds the object twice, each of up to 3 MiB.
    pub max_body_bytes: usize,
    /// Limits of the webhooks' port.
    pub limits: Limits,
    /// Maximum number of concurrent reviews, at least 1; more wait.
    pub concurrency: usize,
    /// Deadline of a review, below the webhooks' `timeoutSeconds`.
    pub deadline: Duration,
    /// Whether pods that an offer selects get the resource `constraint.ciena.com/governed`.
    pub governed: bool,
    /// `schedulerName` for pods that an offer selects, unless they name a scheduler.
    pub scheduler_name: Option<String>,
    /// Namespaces whose pods are never changed, whatever a webhook's selector says.
    pub exempt: BTreeSet<String>,
    /// Namespace of the ConfigMap `cast-slice-policy`.
    pub policy_namespace: String,
    /// Resources of whole and of shared cards.
    pub gpus: Names,
    /// Whether mutation policies may use the authorizer, which asks the API server.
    pub authorizer: bool,
}

impl Config {
    /// The defaults, for a server behind `service` in `namespace`.
    pub fn new(namespace: &str, service: &str) -> Self {
        let host = format!("{service}.{namespace}.svc");
        Self {
            listen: (Ipv6Addr::UNSPECIFIED, 8443).into(),
            admin: (Ipv6Addr::UNSPECIFIED, 9090).into(),
            certificate: Certificate::Own {
                secret: "tautline-admission-tls".to_owned(),
                names: [host.clone(), format!("{host}.cluster.local")].into(),
                times: Times::new(Ca::Published {
                    overlap: Duration::from_secs(300),
                }),
            },
            namespace: namespace.to_owned(),
            trusted: TrustedNamespaces::new([namespace]),
            max_body_bytes: 8 << 20,
            limits: Limits::default(),
            concurrency: 64,
            deadline: Duration::from_secs(8),
            governed: false,
            scheduler_name: None,
            exempt: ["kube-system".to_owned(), namespace.to_owned()].into(),
            policy_namespace: namespace.to_owned(),
            gpus: Names::default(),
            authorizer: false,
        }
    }
}
