//! Defines the configuration of the scheduler extender, with its default values.

use std::{
    collections::BTreeSet,
    net::{Ipv6Addr, SocketAddr},
    time::Duration,
};

use tautline_certificates::Times;
use tautline_core::{answer::AnswerMode, names::EXEMPT_NAMESPACES, trust::OWN_NAMESPACE};
use tautline_provider_client::ClientConfig;
use tautline_runtime::{http, tls::ServerFiles};
use tautline_traces::Traces;

/// The source of the certificate for kube-scheduler.
#[derive(Clone, Debug)]
pub enum Certificate {
    /// Files, always with ALPN `http/1.1`.
    Files(ServerFiles),
    /// A generated certificate, which the replicas share in a Secret. It needs a cluster.
    Generated {
        /// The namespace of the Secret.
        namespace: String,
        /// The name of the Secret. Its `ca.crt`, `client.crt` and `client.key` are for
        /// kube-scheduler.
        secret: String,
        /// The DNS names and IP addresses that the certificate is for.
        names: BTreeSet<String>,
        /// The times of the certificate: its lifetime, and how kube-scheduler learns the CA.
        times: Times,
        /// True to accept only clients with the Secret's `client.crt`.
        client_auth: bool,
    },
}

/// The configuration of the extender.
#[derive(Clone, Debug)]
pub struct Config {
    /// The address for kube-scheduler.
    pub listen: SocketAddr,
    /// The address of `/livez`, `/readyz`, `/metrics`, `/status`, `/explain`, `/what-if` and
    /// `/history`, without TLS.
    pub admin: SocketAddr,
    /// The certificate of `listen`; `None` for plain HTTP.
    pub certificate: Option<Certificate>,
    /// The choice of usable nodes that filter returns.
    pub answer: AnswerMode,
    /// The namespaces whose pods are always ungoverned.
    pub exempt_namespaces: BTreeSet<String>,
    /// The maximum size of one request's body; a larger one gets the status 413.
    pub max_body_bytes: usize,
    /// The limits of connections, and of the memory of all requests together.
    pub limits: http::Limits,
    /// The maximum number of nodes in a request, and of victims on one node; more get the status
    /// 413.
    pub max_nodes: usize,
    /// The maximum number of concurrent requests; more are refused.
    pub concurrency: usize,
    /// The deadline of a request; it must be below kube-scheduler's httpTimeout, which is 5 s by
    /// default.
    pub deadline: Duration,
    /// The approximate memory for the rounds of `/explain`; the oldest rounds are dropped first.
    pub explain_bytes: usize,
    /// True to serve the verb `bind`. Its clients can then bind any pod to any node.
    pub bind: bool,
    /// The longest time for which the places of a group are held until all of its pods are bound.
    /// With `bind`, a member's bind waits as long for the binds of the other members.
    pub group_timeout: Duration,
    /// True to count pods between filter's answer and the watch. False if the caller of filter
    /// writes its placements into the same store.
    pub tracks_in_flight: bool,
    /// The namespace of the controller's Lease.
    pub controller_namespace: String,
    /// The namespace of the Secrets with the kubeconfigs of other clusters; `None`: no other cluster
    /// is read.
    pub cluster_secrets: Option<String>,
    /// The configuration of calls to rule providers and underlay controllers.
    pub providers: ClientConfig,
    /// The destination of spans of governed pods' rounds.
    pub traces: Traces,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: (Ipv6Addr::UNSPECIFIED, 8888).into(),
            admin: (Ipv6Addr::UNSPECIFIED, 9090).into(),
            certificate: None,
            answer: AnswerMode::Ties,
            exempt_namespaces: EXEMPT_NAMESPACES.map(str::to_owned).into(),
            max_body_bytes: 32 << 20,
            limits: http::Limits::default(),
            max_nodes: 100_000,
            concurrency: 64,
            deadline: Duration::from_secs(4),
            explain_bytes: 32 << 20,
            bind: false,
            group_timeout: Duration::from_secs(30),
            tracks_in_flight: true,
            controller_namespace: OWN_NAMESPACE.to_owned(),
            cluster_secrets: None,
            providers: ClientConfig {
                scheduler_share_percent: Some(5),
                streams: true,
                ..ClientConfig::default()
            },
            traces: Traces::default(),
        }
    }
}

impl Config {
    pub(crate) fn authenticates_clients(&self) -> bool {
        match &self.certificate {
            Some(Certificate::Files(files)) => files.client_ca.is_some(),
            Some(Certificate::Generated { client_auth, .. }) => *client_auth,
            None => false,
        }
    }
}
