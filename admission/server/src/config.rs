use std::{
    collections::BTreeSet,
    net::{Ipv6Addr, SocketAddr},
    time::Duration,
};

use tautline_core::trust::TrustedNamespaces;
use tautline_gpu_sharing::Names;
use tautline_runtime::{http::Limits, tls::ServerFiles};

use crate::certificates::Times;

#[derive(Clone, Debug)]
pub enum Certificate {
    Own {
        secret: String,
        names: BTreeSet<String>,
        times: Times,
    },
    /// Files. The operator who renews them also writes the `caBundle`.
    Files(ServerFiles),
}

#[derive(Clone, Debug)]
pub struct Config {
    pub listen: SocketAddr,
    pub admin: SocketAddr,
    pub certificate: Certificate,
    pub namespace: String,
    pub trusted: TrustedNamespaces,
    /// Largest body. A review holds the object twice, each of up to 3 MiB.
    pub max_body_bytes: usize,
    pub limits: Limits,
    pub concurrency: usize,
    /// Deadline of a review, below the webhooks' `timeoutSeconds`.
    pub deadline: Duration,
    pub governed: bool,
    /// Namespaces whose pods are never changed, whatever a webhook's selector says.
    pub exempt: BTreeSet<String>,
    pub policy_namespace: String,
    pub gpus: Names,
    pub authorizer: bool,
}

impl Config {
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
