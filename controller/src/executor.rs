//! The executor carries out the decisions of the pure modules: it watches the cluster, writes
//! objects and calls providers. Each task owns one state machine and returns the results to it.

pub(crate) mod api;
mod attempt;
#[cfg(test)]
mod attempt_tests;
pub(crate) mod bindings;
#[cfg(test)]
mod bindings_tests;
mod calls;
mod cluster_calls;
pub(crate) mod evaluate;
mod evict;
pub(crate) mod gate;
pub(crate) mod open_reports;
mod pod_storage;
pub(crate) mod release;
pub(crate) mod violations;
pub(crate) mod watch_bindings;

use std::{sync::Arc, time::Duration};

use kube::Client;
use parking_lot::Mutex;
use tautline_core::TrustedNamespaces;
use tautline_provider_client::ProviderClient;
use tautline_runtime::{
    admin::Readiness, cluster_store::ClusterStore, dynamic_watch::WatchedKinds, events::Events,
    history::FigureHistory, lease::Term,
};
use tokio::sync::{Semaphore, watch};

use crate::{config::Config, decisions::Decisions, metrics::Metrics, violations::ViolationTracker};

/// The longest time for one call to the API server.
const DEADLINE: Duration = Duration::from_secs(10);
/// The shortest time between two warnings as Kubernetes events of one reason on one object.
const WARNING_PERIOD: Duration = Duration::from_secs(300);
/// The maximum number of binding events that are applied together.
const MAX_BATCH_EVENTS: usize = 256;

/// The configuration, clients and state that the executor's tasks share.
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
    /// The number of bindings in violation, while this replica led.
    pub violation_history: FigureHistory,
    /// The violations, which the task of bindings reports and another task acts on.
    pub violations: Mutex<ViolationTracker>,
    /// One permit: there is one eviction at a time in the cluster.
    pub eviction_turn: Semaphore,
    /// The term of this replica while it leads.
    pub leader: watch::Sender<Option<Term>>,
}

impl Context {
    pub(crate) fn trusted(&self) -> &TrustedNamespaces {
        &self.config.provider_client.trusted
    }

    /// Returns the number of bindings in violation; `None` unless this replica leads.
    pub(crate) fn violations_of_leader(&self) -> Option<u64> {
        let leads = self.leader.borrow().as_ref().is_some_and(Term::is_active);
        leads.then(|| self.metrics.violations()).flatten()
    }
}
