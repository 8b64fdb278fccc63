//! Watches on the kinds that offers name and that are known by name and labels
//! alone: Cluster, NetworkService, and legacy Endpoints. A watch begins when an
//! offer names its kind, and when the API server serves it.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use dashmap::DashMap;
use futures::StreamExt;
use hashbrown::HashMap;
use kube::{
    Api, Client, ResourceExt,
    api::DynamicObject,
    core::{GroupVersionKind, PartialObjectMeta, TypeMeta},
    discovery::pinned_kind,
};
use kube_runtime::watcher::{self, watcher};
use tautline_api::convert;
use tautline_core::{
    index::{Kind, Object},
    model::{Other, TargetKind},
};
use tokio::{sync::watch, task::JoinHandle};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::feed::Feed;

/// Between two looks whether a kind is served by now.
const LOOK: Duration = Duration::from_secs(3);

type Gvk = (String, String);
/// An object without its contents.
type Named = PartialObjectMeta<DynamicObject>;

/// Which kinds are not there, and why. Clones are one.
#[derive(Clone, Debug)]
pub struct Missing(Arc<DashMap<Gvk, String>>, watch::Sender<()>);

impl Default for Missing {
    fn default() -> Self {
        Self(Arc::default(), watch::Sender::new(()))
    }
}

impl Missing {
    /// Why objects of a kind cannot be watched, if they cannot.
    pub fn why(&self, api_version: &str, kind: &str) -> Option<String> {
        let key = (api_version.to_owned(), kind.to_owned());
        self.0.get(&key).map(|why| why.clone())
    }

    /// Wakes when an answer has changed.
    pub fn changes(&self) -> watch::Receiver<()> {
        self.1.subscribe()
    }

    fn set(&self, gvk: &Gvk, why: Option<String>) {
        let before = match &why {
            Some(why) => self.0.insert(gvk.clone(), why.clone()),
            None => self.0.remove(gvk).map(|(_, why)| why),
        };
        if before != why {
            self.1.send_replace(());
        }
    }
}

/// Follows every kind that an offer names, until told to stop.
pub async fn follow(client: Client, feed: Feed, missing: Missing, stop: CancellationToken) {
    let mut running: HashMap<Gvk, (DropGuard, JoinHandle<()>)> = HashMap::new();
    let mut changes = feed.changes();
    let mut last = None;
    loop {
        let now = *changes.borrow_and_update();
        if last.is_none_or(|last| now.changed(&last, &[Kind::Offer])) {
            let wanted = wanted(&feed);
            let over: Vec<Gvk> = running
                .keys()
                .filter(|k| !wanted.contains(*k))
                .cloned()
                .collect();
            for gvk in over {
                if let Some((end, task)) = running.remove(&gvk) {
                    drop(end);
                    _ = task.await;
                }
            }
            for gvk in wanted {
                if running.contains_key(&gvk) {
                    continue;
                }
                let end = stop.child_token();
                let (guard, key) = (end.clone().drop_guard(), gvk.clone());
                let (client, feed, missing) = (client.clone(), feed.clone(), missing.clone());
                let task = tokio::spawn(async move {
                    tokio::select! {
                        () = end.cancelled() => {}
                        () = one(&client, &feed, &missing, &gvk) => {}
                    }
                    feed.reset_others(&gvk.0, &gvk.1, Vec::new());
                    missing.set(&gvk, None);
                });
                running.insert(key, (guard, task));
            }
            last = Some(now);
        }
        tokio::select! {
            () = stop.cancelled() => return,
            changed = changes.changed() => if changed.is_err() { return },
        }
    }
}

fn wanted(feed: &Feed) -> BTreeSet<Gvk> {
    let snapshot = feed.snapshot();
    snapshot
        .offers()
        .flat_map(|e| &e.offer.targets)
        .filter(|t| t.kind != TargetKind::Pod)
        .map(|t| {
            let (api_version, kind) = t.selects();
            (api_version.to_owned(), kind.to_owned())
        })
        .collect()
}

/// Follows one kind, from when it is served, and again after it was not.
async fn one(client: &Client, feed: &Feed, missing: &Missing, gvk: &Gvk) {
    let (api_version, kind) = gvk;
    let types = TypeMeta {
        api_version: api_version.clone(),
        kind: kind.clone(),
    };
    loop {
        match found(client, &types).await {
            Ok(api) => {
                let why = watch(api, feed, missing, gvk).await;
                feed.reset_others(api_version, kind, Vec::new());
                missing.set(gvk, Some(why));
            }
            Err(why) => missing.set(gvk, Some(why)),
        }
        tokio::time::sleep(LOOK).await;
    }
}

async fn found(client: &Client, types: &TypeMeta) -> Result<Api<Named>, String> {
    if types.api_version.is_empty() {
        return Err(format!(
            "a target of kind {} needs its apiVersion",
            types.kind
        ));
    }
    let gvk = GroupVersionKind::try_from(types).map_err(|e| e.to_string())?;
    match pinned_kind(client, &gvk).await {
        Ok((resource, _)) => Ok(Api::all_with(client.clone(), &resource)),
        Err(error) => Err(format!(
            "the API server does not serve {} {}: {error}",
            types.api_version, types.kind
        )),
    }
}

/// Follows until the kind is not served any more; says why.
async fn watch(api: Api<Named>, feed: &Feed, missing: &Missing, gvk: &Gvk) -> String {
    let (api_version, kind): (Arc<str>, Arc<str>) = (gvk.0.as_str().into(), gvk.1.as_str().into());
    let other = |o: &Named| Other {
        api_version: Arc::clone(&api_version),
        kind: Arc::clone(&kind),
        namespace: o.namespace().unwrap_or_default().into(),
        name: o.name_any().into(),
        labels: convert::labels_of(o.metadata.labels.as_ref()),
    };
    let mut listing = Vec::new();
    let mut events = std::pin::pin!(watcher(api, watcher::Config::default()));
    while let Some(event) = events.next().await {
        match event {
            Ok(watcher::Event::Init) => listing.clear(),
            Ok(watcher::Event::InitApply(o)) => listing.push(other(&o)),
            Ok(watcher::Event::InitDone) => {
                feed.reset_others(&api_version, &kind, std::mem::take(&mut listing));
                missing.set(gvk, None);
            }
            Ok(watcher::Event::Apply(o)) => feed.apply(Object::Other(other(&o))),
            Ok(watcher::Event::Delete(o)) => {
                feed.delete(Kind::Other, &Object::Other(other(&o)).key());
            }
            Err(error) => {
                if let watcher::Error::InitialListFailed(kube::Error::Api(status))
                | watcher::Error::WatchStartFailed(kube::Error::Api(status)) = &error
                    && matches!(status.code, 403 | 404)
                {
                    return format!("{api_version} {kind} cannot be watched: {}", status.message);
                }
                tracing::warn!(%kind, %error, "watch starts again");
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        }
    }
    "the watch has ended".to_owned()
}
