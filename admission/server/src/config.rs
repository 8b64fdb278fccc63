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

/// The source of the serving certificate.
#[derive(Clone, Debug)]
pub enum Certificate {
    /// A generated certificate, which the replicas share in a Secret.
    Own {
        /// The name of the Secret, in the server's namespace.
        secret: String,
        /// The DNS names and IP addresses that the certificate is valid for.
        names: BTreeSet<String>,
        /// The lifetime of the certificate, and the way in which clients learn the CA.
        times: Times,
    },
    /// A certificate in files. The operator who renews them also writes the `caBundle`.
    Files(ServerFiles),
}

/// The configuration, with a field for most options of `tautline admission`.
#[derive(Clone, Debug)]
pub struct Config {
    /// The address of the webhooks (HTTPS).
    pub listen: SocketAddr,
    /// The address of `/livez`, `/readyz` and `/metrics` (HTTP).
    pub admin: SocketAddr,
    /// The serving certificate.
    pub certificate: Certificate,
    /// Tautline's own namespace, which contains the Secret of the certificates.
    pub namespace: String,
    /// The namespaces whose providers serve the rules of every namespace.
    pub trusted: TrustedNamespaces,
    /// The size of the largest body, in bytes. A review holds two versions of an object, each of up
    /// to 3 MiB.
    pub max_body_bytes: usize,
    /// The limits of the webhooks' port.
    pub limits: Limits,
    /// The maximum number of concurrent reviews, at least 1. Further reviews wait.
    pub concurrency: usize,
    /// The deadline of a review, which must be below the webhooks' `timeoutSeconds`.
    pub deadline: Duration,
    /// True if pods that an offer selects get the resource `constraint.ciena.com/governed`.
    pub governed: bool,
    /// The `schedulerName` for pods that an offer selects, unless they name a scheduler.
    pub scheduler_name: Option<String>,
    /// The namespaces whose pods are never changed, whatever a webhook's selector says.
    pub exempt: BTreeSet<String>,
    /// The namespace of the ConfigMap `cast-slice-policy`.
    pub policy_namespace: String,
    /// The names of the resources for whole and for shared cards.
    pub gpus: Names,
    /// True if mutation policies may use the authorizer, which asks the API server.
    pub authorizer: bool,
}

impl Config {
    /// Returns the defaults for a server behind the Service `service` in `namespace`.
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
