//! Watches on the kinds of parameters that policies in force name. A watch begins
//! when a policy names its kind, and when the API server serves it.

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
use tokio::{sync::watch, time::timeout};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{objects::ObjectCache, store::ActivePolicies};

/// Between two looks whether a kind is served by now.
const LOOK: Duration = Duration::from_secs(3);
/// Between two looks whether all is listed, at start.
const POLL: Duration = Duration::from_millis(20);
/// The most that a look may take.
const DEADLINE: Duration = Duration::from_secs(5);

/// One kind.
#[derive(Default)]
pub(crate) struct WatchedKind {
    pub objects: ObjectCache,
    scope: RwLock<Option<ResourceScope>>,
    /// The API server has said that there is nothing for us: it does not serve the
    /// kind, or we may not read it. That may change.
    unavailable: AtomicBool,
}

/// Every kind that is followed.
#[derive(Default)]
pub(crate) struct ParamWatches(RwLock<HashMap<ParamKind, Arc<WatchedKind>>>);

impl ParamWatches {
    pub(crate) fn get(&self, kind: &ParamKind) -> Option<Arc<WatchedKind>> {
        self.0.read().get(kind).cloned()
    }

    /// `None`: the kind is not known, or not all of its objects are.
    pub(crate) fn resource_scope(&self, kind: &ParamKind) -> Option<ResourceScope> {
        let followed = self.get(kind)?;
        let lies = *followed.scope.read();
        lies.filter(|_| followed.objects.listed())
    }

    /// Kinds that `in_force` needs of which not all objects are known, and may be in
    /// a moment; `None`: nobody knows yet what it needs.
    fn missing(&self, in_force: &ActivePolicies) -> Option<Vec<String>> {
        let withheld = |f: Arc<WatchedKind>| f.unavailable.load(Ordering::Acquire);
        let unknown = |kind: &&ParamKind| {
            self.resource_scope(kind).is_none() && !self.get(kind).is_some_and(withheld)
        };
        let names = in_force.params.iter().filter(unknown);
        let names = names.map(|k| format!("{} {}", k.api_version, k.kind));
        in_force.complete.then(|| names.collect())
    }

    /// Waits until every policy in force finds its parameters, or there are none for
    /// us to find; for `patience` at most.
    pub(crate) async fn wait_until_listed(
        &self,
        in_force: &watch::Receiver<Arc<ActivePolicies>>,
        patience: Duration,
    ) {
        let all = async {
            while self.missing(&in_force.borrow()) != Some(Vec::new()) {
                tokio::time::sleep(POLL).await;
            }
        };
        if timeout(patience, all).await.is_err() {
            let missing = self.missing(&in_force.borrow()).unwrap_or_default();
            tracing::warn!(
                ?missing,
                ?patience,
                "parameters of mutation policies are not listed in time; what needs them follows \
                 the policies' failurePolicy"
            );
        }
    }

    /// Follows what `in_force` needs until told to stop.
    pub(crate) async fn watch_kinds(
        &self,
        client: Client,
        mut in_force: watch::Receiver<Arc<ActivePolicies>>,
        stop: CancellationToken,
    ) {
        let mut running: HashMap<ParamKind, DropGuard> = HashMap::new();
        loop {
            let wanted = in_force.borrow_and_update().params.clone();
            running.retain(|kind, _| wanted.contains(kind));
            self.0.write().retain(|kind, _| wanted.contains(kind));
            for kind in wanted {
                if running.contains_key(&kind) {
                    continue;
                }
                let followed = Arc::new(WatchedKind::default());
                self.0.write().insert(kind.clone(), Arc::clone(&followed));
                let end = stop.child_token();
                running.insert(kind.clone(), end.clone().drop_guard());
                let client = client.clone();
                tokio::spawn(async move {
                    tokio::select! {
                        () = end.cancelled() => {}
                        () = watch_kind(&client, &kind, &followed) => {}
                    }
                });
            }
            tokio::select! {
                () = stop.cancelled() => return,
                changed = in_force.changed() => if changed.is_err() { return },
            }
        }
    }
}

async fn watch_kind(client: &Client, kind: &ParamKind, followed: &WatchedKind) {
    let types = TypeMeta {
        api_version: kind.api_version.clone(),
        kind: kind.kind.clone(),
    };
    let mut said = String::new();
    loop {
        let (why, withheld) = match timeout(DEADLINE, discover(client, &types)).await {
            Ok(Ok((api, lies))) => {
                followed.unavailable.store(false, Ordering::Release);
                *followed.scope.write() = Some(lies);
                // It comes back when the API server refuses.
                (followed.objects.watch(api, &types).await, true)
            }
            Ok(Err((why, withheld))) => (why, withheld),
            Err(_) => (
                format!("the API server did not answer within {DEADLINE:?}"),
                false,
            ),
        };
        followed.unavailable.store(withheld, Ordering::Release);
        if said != why {
            tracing::warn!(kind = %kind.kind, %why, "parameters cannot be watched; may tautline-admission list and watch them?");
            said = why;
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// The error says whether there is nothing for us to find.
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
        (error.to_string(), unserved)
    })?;
    let lies = match capabilities.scope {
        Scope::Namespaced => ResourceScope::Namespaced,
        Scope::Cluster => ResourceScope::Cluster,
    };
    Ok((Api::all_with(client.clone(), &resource), lies))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_start_waits_for_parameters_but_not_for_ever() {
        let kind = ParamKind {
            api_version: "v1".into(),
            kind: "ConfigMap".into(),
        };
        let (params, start) = (ParamWatches::default(), tokio::time::Instant::now());
        let (sender, in_force) = watch::channel(Arc::new(ActivePolicies::default()));
        let patience = Duration::from_secs(30);
        params.wait_until_listed(&in_force, patience).await;
        assert!(start.elapsed() >= patience, "the policies are not known");
        sender.send_replace(Arc::new(ActivePolicies {
            params: [kind.clone()].into(),
            complete: true,
            ..ActivePolicies::default()
        }));
        let followed = Arc::new(WatchedKind::default());
        *followed.scope.write() = Some(ResourceScope::Namespaced);
        params.0.write().insert(kind, Arc::clone(&followed));
        params.wait_until_listed(&in_force, patience).await;
        assert!(start.elapsed() >= 2 * patience, "nothing is listed");
        followed.unavailable.store(true, Ordering::Release);
        params.wait_until_listed(&in_force, patience).await;
        followed.unavailable.store(false, Ordering::Release);
        followed.objects.set_listed();
        params.wait_until_listed(&in_force, patience).await;
        assert!(start.elapsed() < 3 * patience);
    }
}
