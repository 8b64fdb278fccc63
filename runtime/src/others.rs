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
use tokio::{
    sync::watch,
    task::JoinHandle,
    time::{Instant, timeout},
};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::feed::Feed;

/// Between two looks whether a kind is served by now.
const LOOK: Duration = Duration::from_secs(3);
/// The most that a look may take.
const DEADLINE: Duration = Duration::from_secs(5);
/// How long changes of offers are gathered.
const SETTLE: Duration = Duration::from_millis(100);

type Gvk = (String, String);
/// An object without its contents.
type Named = PartialObjectMeta<DynamicObject>;

/// A kind that was not there for so long is gone with all its objects; before that
/// the API server may only have lost it for a moment.
const GONE: Duration = Duration::from_secs(60);

/// How it stands with a kind.
#[derive(Clone, Debug, Default)]
struct State {
    /// All its objects are in the feed, or it is known to have none.
    listed: bool,
    /// Why they cannot be watched.
    missing: Option<String>,
}

/// Which kinds are known, and which are not there and why. Clones are one.
#[derive(Clone, Debug)]
pub struct Kinds(Arc<DashMap<Gvk, State>>, watch::Sender<()>);

impl Default for Kinds {
    fn default() -> Self {
        Self(Arc::default(), watch::Sender::new(()))
    }
}

impl Kinds {
    /// Why objects of a kind cannot be watched, if they cannot.
    pub fn missing(&self, api_version: &str, kind: &str) -> Option<String> {
        let key = (api_version.to_owned(), kind.to_owned());
        self.0.get(&key)?.missing.clone()
    }

    /// Whether all objects of a kind are known: what is not selected is not there.
    pub fn listed(&self, api_version: &str, kind: &str) -> bool {
        let key = (api_version.to_owned(), kind.to_owned());
        self.0.get(&key).is_some_and(|s| s.listed)
    }

    /// Wakes when an answer has changed.
    pub fn changes(&self) -> watch::Receiver<()> {
        self.1.subscribe()
    }

    fn set(&self, gvk: &Gvk, listed: bool, missing: Option<String>) {
        let before = self.0.insert(
            gvk.clone(),
            State {
                listed,
                missing: missing.clone(),
            },
        );
        let before = before.unwrap_or_default();
        if (before.listed, before.missing) != (listed, missing) {
            self.1.send_replace(());
        }
    }
}

/// Follows every kind that an offer names, until told to stop.
pub async fn follow(client: Client, feed: Feed, kinds: Kinds, stop: CancellationToken) {
    let mut running: HashMap<Gvk, (DropGuard, JoinHandle<()>)> = HashMap::new();
    let mut changes = feed.changes_but_pods();
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
                let (client, feed, kinds) = (client.clone(), feed.clone(), kinds.clone());
                let task = tokio::spawn(async move {
                    tokio::select! {
                        () = end.cancelled() => {}
                        () = one(&client, &feed, &kinds, &gvk) => {}
                    }
                    feed.reset_others(&gvk.0, &gvk.1, Vec::new());
                    kinds.0.remove(&gvk);
                });
                running.insert(key, (guard, task));
            }
            last = Some(now);
        }
        tokio::select! {
            () = stop.cancelled() => return,
            changed = changes.changed() => if changed.is_err() { return },
        }
        // Offers that come together are looked at once.
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(SETTLE) => {}
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
async fn one(client: &Client, feed: &Feed, kinds: &Kinds, gvk: &Gvk) {
    let (api_version, kind) = gvk;
    let types = TypeMeta {
        api_version: api_version.clone(),
        kind: kind.clone(),
    };
    let mut lost_at = Instant::now();
    loop {
        let why = match timeout(DEADLINE, found(client, &types)).await {
            Ok(Ok(api)) => {
                let (listed, why) = watch(api, feed, kinds, gvk).await;
                if listed {
                    lost_at = Instant::now();
                }
                why
            }
            Ok(Err(why)) => why,
            Err(_) => format!("the API server did not answer within {DEADLINE:?}"),
        };
        let gone = lost_at.elapsed() >= GONE;
        if gone {
            feed.reset_others(api_version, kind, Vec::new());
        }
        kinds.set(gvk, gone, Some(why));
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

/// Follows until the kind is not served any more; says whether it was, and why it
/// is not.
async fn watch(api: Api<Named>, feed: &Feed, kinds: &Kinds, gvk: &Gvk) -> (bool, String) {
    let mut listed = false;
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
                kinds.set(gvk, true, None);
                listed = true;
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
                    let why = format!("{api_version} {kind} cannot be watched: {}", status.message);
                    return (listed, why);
                }
                tracing::warn!(%kind, %error, "watch starts again");
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        }
    }
    (listed, "the watch has ended".to_owned())
}
