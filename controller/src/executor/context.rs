//! The configuration, clients and state that the executor's tasks share.

use std::sync::Arc;

use kube::Client;
use parking_lot::Mutex;
use tautline_core::TrustedNamespaces;
use tautline_provider_client::ProviderClient;
use tautline_runtime::{
    admin::Readiness, cluster_store::ClusterStore, dynamic_watch::WatchedKinds, events::Events,
};
use tokio::sync::Notify;

use super::evaluate::Evaluator;
use crate::{config::Config, decisions::Decisions, metrics::Metrics, violations::Inbox};

pub(crate) struct Context {
    pub config: Config,
    pub store: ClusterStore,
    pub client: Client,
    pub provider_client: ProviderClient,
    pub metrics: Metrics,
    pub events: Arc<Events>,
    pub kinds: WatchedKinds,
    pub decisions: Decisions,
    pub readiness: Readiness,
    pub violations: SharedInbox,
}

impl Context {
    pub(crate) fn trusted(&self) -> &TrustedNamespaces {
        &self.provider_client.config().trusted
    }

    pub(crate) fn evaluator(&self) -> Evaluator<'_> {
        Evaluator {
            providers: &self.provider_client,
            metrics: &self.metrics,
        }
    }
}

#[derive(Default)]
pub(crate) struct SharedInbox {
    pub inbox: Mutex<Inbox>,
    pub filled: Notify,
}
