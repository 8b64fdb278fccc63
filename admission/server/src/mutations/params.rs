//! Watches the parameter kinds of active policies that the API server serves.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use kube::{
    Api, Client,
    api::TypeMeta,
    core::GroupVersionKind,
    discovery::{Scope, pinned_kind},
    error::DiscoveryError,
};
use parking_lot::RwLock;
use tautline_mutating_policy::{ResourceScope, model::ParamKind};
use tautline_runtime::error_text::error_text;
use tokio::{sync::watch, time::timeout};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{objects::ObjectCache, store::ActivePolicies};

/// The delay before a kind whose watch failed is discovered again.
const RETRY_DELAY: Duration = Duration::from_secs(3);
/// The interval of checks whether all parameters are listed.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// The longest time for the discovery of a kind.
const DISCOVERY_DEADLINE: Duration = Duration::from_secs(5);

#[derive(Default)]
pub(crate) struct WatchedKind {
    pub objects: ObjectCache,
    scope: RwLock<Option<ResourceScope>>,
    /// True if the kind is not served, or if the server may not read it. Both may change.
    unavailable: AtomicBool,
}

#[derive(Default)]
pub(crate) struct ParamWatches(RwLock<HashMap<ParamKind, Arc<WatchedKind>>>);

impl ParamWatches {
    pub(crate) fn get(&self, kind: &ParamKind) -> Option<Arc<WatchedKind>> {
        self.0.read().get(kind).cloned()
    }

    /// Returns the scope of a kind; `None` if the kind is unknown, or its list is incomplete.
    pub(crate) fn resource_scope(&self, kind: &ParamKind) -> Option<ResourceScope> {
        let watched = self.get(kind)?;
        let scope = *watched.scope.read();
        scope.filter(|_| watched.objects.listed())
    }

    /// Returns the available kinds that are not listed yet; `None` if the policies are not listed
    /// yet.
    fn missing(&self, active: &ActivePolicies) -> Option<Vec<String>> {
        let unavailable = |of: Arc<WatchedKind>| of.unavailable.load(Ordering::Acquire);
        let unknown = |kind: &&ParamKind| {
            self.resource_scope(kind).is_none() && !self.get(kind).is_some_and(unavailable)
        };
        let names = active.params.iter().filter(unknown);
        let names = names.map(|k| format!("{} {}", k.api_version, k.kind));
        active.complete.then(|| names.collect())
    }

    /// Waits for the parameters of all active policies, for at most `timeout_after`.
    pub(crate) async fn wait_until_listed(
        &self,
        active: &watch::Receiver<Arc<ActivePolicies>>,
        timeout_after: Duration,
    ) {
        let all = async {
            while self.missing(&active.borrow()) != Some(Vec::new()) {
                tokio::time::sleep(POLL_INTERVAL).await;
            }
        };
        if timeout(timeout_after, all).await.is_err() {
            let missing = self.missing(&active.borrow()).unwrap_or_default();
            tracing::warn!(
                ?missing,
                ?timeout_after,
                "parameters of mutation policies are not listed in time; the policies that use them \
                 fail by their failurePolicy"
            );
        }
    }

    /// Watches the kinds of parameters for as long as the future is polled.
    pub(crate) async fn watch_kinds(
        &self,
        client: Client,
        mut active: watch::Receiver<Arc<ActivePolicies>>,
    ) {
        let mut running: HashMap<ParamKind, DropGuard> = HashMap::new();
        loop {
            let kinds = active.borrow_and_update().params.clone();
            running.retain(|kind, _| kinds.contains(kind));
            self.0.write().retain(|kind, _| kinds.contains(kind));
            for kind in kinds {
                if running.contains_key(&kind) {
                    continue;
                }
                let watched = Arc::new(WatchedKind::default());
                self.0.write().insert(kind.clone(), Arc::clone(&watched));
                let end = CancellationToken::new();
                running.insert(kind.clone(), end.clone().drop_guard());
                let client = client.clone();
                let watch = async move { watch_kind(&client, &kind, &watched).await };
                tokio::spawn(end.run_until_cancelled_owned(watch));
            }
            if active.changed().await.is_err() {
                return;
            }
        }
    }
}

/// Watches the objects of a kind for as long as the future is polled.
pub(super) async fn watch_kind(client: &Client, kind: &ParamKind, watched: &WatchedKind) {
    let types = TypeMeta {
        api_version: kind.api_version.clone(),
        kind: kind.kind.clone(),
    };
    let mut logged = String::new();
    loop {
        let (why, unavailable) = match timeout(DISCOVERY_DEADLINE, discover(client, &types)).await {
            Ok(Ok((api, scope))) => {
                watched.unavailable.store(false, Ordering::Release);
                *watched.scope.write() = Some(scope);
                // The watch returns when the API server refuses it.
                (watched.objects.watch(api, &types).await, true)
            }
            Ok(Err(failed)) => failed,
            Err(_) => (
                format!("the API server did not answer within {DISCOVERY_DEADLINE:?}"),
                false,
            ),
        };
        watched.unavailable.store(unavailable, Ordering::Release);
        if logged != why {
            tracing::warn!(kind = %kind.kind, %why, "cannot watch objects for mutation policies; allow tautline-admission to list and watch them");
            logged = why;
        }
        tokio::time::sleep(RETRY_DELAY).await;
    }
}

/// Finds the API and the scope of a kind. The error holds the reason, and whether the kind is
/// unavailable.
async fn discover(
    client: &Client,
    types: &TypeMeta,
) -> Result<(Api<kube::api::DynamicObject>, ResourceScope), (String, bool)> {
    let gvk = GroupVersionKind::try_from(types).map_err(|e| (e.to_string(), true))?;
    let found = pinned_kind(client, &gvk).await;
    let (resource, capabilities) = found.map_err(|error| {
        let unserved = match &error {
            kube::Error::Api(status) => status.code == 404,
            kube::Error::Discovery(error) => matches!(error, DiscoveryError::MissingKind(_)),
            _ => false,
        };
        (error_text(&error), unserved)
    })?;
    let scope = match capabilities.scope {
        Scope::Namespaced => ResourceScope::Namespaced,
        Scope::Cluster => ResourceScope::Cluster,
    };
    Ok((Api::all_with(client.clone(), &resource), scope))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn start_waits_for_parameters_with_a_timeout() {
        let kind = ParamKind {
            api_version: "v1".into(),
            kind: "ConfigMap".into(),
        };
        let (params, start) = (ParamWatches::default(), tokio::time::Instant::now());
        let (sender, active) = watch::channel(Arc::new(ActivePolicies::default()));
        let timeout_after = Duration::from_secs(30);
        params.wait_until_listed(&active, timeout_after).await;
        assert!(
            start.elapsed() >= timeout_after,
            "the policies are not known"
        );
        sender.send_replace(Arc::new(ActivePolicies {
            params: [kind.clone()].into(),
            complete: true,
            ..ActivePolicies::default()
        }));
        let watched = Arc::new(WatchedKind::default());
        *watched.scope.write() = Some(ResourceScope::Namespaced);
        params.0.write().insert(kind, Arc::clone(&watched));
        params.wait_until_listed(&active, timeout_after).await;
        assert!(start.elapsed() >= 2 * timeout_after, "nothing is listed");
        watched.unavailable.store(true, Ordering::Release);
        params.wait_until_listed(&active, timeout_after).await;
        watched.unavailable.store(false, Ordering::Release);
        watched.objects.listed.store(true, Ordering::Release);
        params.wait_until_listed(&active, timeout_after).await;
        assert!(start.elapsed() < 3 * timeout_after);
    }
}
