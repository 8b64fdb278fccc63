//! The configuration of the calls to providers.

use std::time::Duration;

use tautline_core::{
    model::ProviderUnavailable,
    providers::ExternalNames,
    trust::{AllocatorKeys, KeyPattern, TrustedNamespaces},
};
use tautline_runtime::tls::ClientFiles;

/// The configuration of a [`ProviderClient`](crate::ProviderClient).
#[derive(Clone, Debug)]
pub struct ClientConfig {
    /// The deadline of one call, including a retry.
    pub deadline: Duration,
    /// The deadline of one call to an underlay controller.
    pub underlay_deadline: Duration,
    /// The maximum size of one answer, in bytes.
    pub max_answer_bytes: usize,
    /// The namespaces whose providers serve all namespaces.
    pub trusted: TrustedNamespaces,
    /// The allowed hosts of providers of type ExternalName.
    pub external_names: ExternalNames,
    /// The pod annotations that providers of other namespaces may read.
    pub shared_annotations: Vec<KeyPattern>,
    /// The annotations that allocators may write on pods.
    pub allocator_annotations: Vec<AllocatorKeys>,
    /// The maximum percentage of kube-scheduler's time for one namespace's untrusted providers;
    /// `None` for callers that kube-scheduler does not wait for.
    pub scheduler_share_percent: Option<u8>,
    /// The effect of a rule without a provider, for offers that do not set it. With `None` a rule
    /// with a limit rejects, and other rules are ignored.
    pub provider_unavailable: Option<ProviderUnavailable>,
    /// True if the client opens streams of costs to the providers of trusted namespaces, for pods
    /// that kube-scheduler waits for.
    pub streams: bool,
    /// True if errors of untrusted providers have their details, for a person who runs the
    /// providers' only client.
    pub shows_details: bool,
    /// The TLS files for providers that require TLS.
    pub tls: ClientFiles,
}

impl Default for ClientConfig {
    fn default() -> Self {
        Self {
            deadline: Duration::from_millis(500),
            underlay_deadline: Duration::from_secs(3),
            max_answer_bytes: 8 << 20,
            trusted: TrustedNamespaces::default(),
            external_names: ExternalNames::Off,
            shared_annotations: SHARED_ANNOTATIONS.map(KeyPattern::from).into(),
            allocator_annotations: ALLOCATOR_ANNOTATIONS.map(AllocatorKeys::from).into(),
            scheduler_share_percent: None,
            provider_unavailable: None,
            streams: false,
            shows_details: false,
            tls: ClientFiles::default(),
        }
    }
}

impl ClientConfig {
    /// The configuration for a single tenant, which trusts every Service and allows every host.
    pub fn single_tenant() -> Self {
        Self {
            trusted: TrustedNamespaces::all(),
            external_names: ExternalNames::Any,
            allocator_annotations: vec!["*".into()],
            ..Self::default()
        }
    }
}

/// The default of [`ClientConfig::shared_annotations`]: the annotations of Tautline's groups, and
/// those that gpu-slice reads.
pub const SHARED_ANNOTATIONS: [&str; 4] = [
    "tautline.io/*",
    "constraint.ciena.com/*",
    "nvidia.com/*",
    "alibabacloud.com/gpu-*",
];
/// The default of [`ClientConfig::allocator_annotations`].
pub const ALLOCATOR_ANNOTATIONS: [&str; 1] = ["tautline.io/gpu-*"];
