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

/// Where the certificate for kube-scheduler comes from.
#[derive(Clone, Debug)]
pub enum Certificate {
    /// Files, always with ALPN `http/1.1`.
    Files(ServerFiles),
    /// Generated, and shared by the replicas in a Secret. Needs a cluster.
    Generated {
        /// Namespace of the Secret.
        namespace: String,
        /// Its name. `ca.crt`, `client.crt` and `client.key` are for kube-scheduler.
        secret: String,
        /// DNS names and IP addresses that the certificate is for.
        names: BTreeSet<String>,
        /// Its lifetime, and how kube-scheduler learns the CA.
        times: Times,
        /// Accept only clients with the Secret's `client.crt`.
        client_auth: bool,
    },
}

/// The configuration of the extender.
#[derive(Clone, Debug)]
pub struct Config {
    /// Address for kube-scheduler.
    pub listen: SocketAddr,
    /// Address of `/livez`, `/readyz`, `/metrics`, `/status` and `/explain`, without TLS.
    pub admin: SocketAddr,
    /// TLS of `listen`; `None`: plain HTTP.
    pub certificate: Option<Certificate>,
    /// Which of the usable nodes filter returns.
    pub answer: AnswerMode,
    /// Namespaces whose pods are always ungoverned.
    pub exempt_namespaces: BTreeSet<String>,
    /// Maximum size of one request's body; a larger one gets status 413.
    pub max_body_bytes: usize,
    /// Connections, and the memory of all requests together.
    pub limits: http::Limits,
    /// Maximum number of nodes in a request, and of victims on one node; beyond it status 413.
    pub max_nodes: usize,
    /// Maximum number of concurrent requests; more are refused.
    pub concurrency: usize,
    /// Below the scheduler's httpTimeout, 5 s unless configured.
    pub deadline: Duration,
    /// Approximate memory for the rounds of `/explain`; the oldest are dropped first.
    pub explain_bytes: usize,
    /// Serve the verb `bind`. Its clients can then bind any pod to any node.
    pub bind: bool,
    /// Count pods between filter's answer and the watch. Off where the caller of filter writes its
    /// placements into the same store.
    pub tracks_in_flight: bool,
    /// Requeue rejected pods while no controller runs (needs a cluster).
    pub requeue: bool,
    /// Namespace of the controller's Lease.
    pub controller_namespace: String,
    /// Calls of rule providers and underlay controllers.
    pub providers: ClientConfig,
    /// Where spans of the rounds of governed pods go.
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
            tracks_in_flight: true,
            requeue: true,
            controller_namespace: OWN_NAMESPACE.to_owned(),
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
