//! Lists and watches in protobuf, like kube's watcher in JSON: a paged list, then watches in a row,
//! and a new list when changes are lost. The scope may grow from a part of a kind to all of it.

mod relist_filter;
mod requests;

use std::{
    future::pending,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Result, bail};
use bytes::BytesMut;
use http_body_util::BodyExt;
use kube::{
    Client, ResourceExt,
    api::{Request, WatchParams},
};
use kube_runtime::{
    utils::Backoff,
    watcher::{DefaultBackoff, Event},
};
use tautline_api::watched::{self, Watchable};
use tokio::sync::watch::Receiver;
use tokio_util::sync::CancellationToken;

use super::{
    Decoded, key,
    scope::{Scope, Selectors},
};
use crate::cluster::Cluster;
use relist_filter::RelistFilter;
use requests::{Gone, error_from, pages, send, within_deadline};

#[derive(Clone, Copy, Debug)]
pub(super) enum WatchSignal<'a> {
    ListStarted(&'a Scope),
    /// All objects of this scope are known, and their changes will be.
    InSync(&'a Scope),
    /// From now on it reports every change.
    WatchStarted,
    WatchEnded,
    /// It pauses until then.
    QuietUntil(Instant),
}

/// The API server ends a watch after 290 s (kube's default); later the connection is dead.
const SILENCE: Duration = Duration::from_secs(295);
/// A watch that ends sooner than this has failed.
const SHORTEST: Duration = Duration::from_secs(1);
/// The pause of a watch after it has handled all events: in a busy cluster several events then
/// cost one wake-up, here and in the API server. After a longer quiet time an event is handled at
/// once. Allocators hold reservations for pods bound during the pause.
const QUIET: Duration = Duration::from_millis(20);
/// Time between two expansions of the scope.
const GATHER: Duration = Duration::from_millis(100);
/// Maximum number of objects held until a list is complete.
const MAX_HELD: usize = 10_000;

/// Lists and watches a kind until `stop`, on its own thread: waking another one is most of an
/// event's cost. The thread may sleep; `on_signal` is called before it does.
pub(super) async fn run_on_own_thread<K: Watchable>(
    cluster: Cluster,
    mut wanted: Receiver<Scope>,
    stop: CancellationToken,
    mut on_event: impl FnMut(Result<Event<Decoded<K>>>) + Send + 'static,
    on_signal: impl Fn(WatchSignal<'_>) + Send + Sync + 'static,
) -> Result<()> {
    // A thread that does not stop would keep the process from exiting.
    let stop = stop.child_token();
    let _stop_guard = stop.clone().drop_guard();
    let watching = Arc::new(AtomicBool::new(false));
    let on_signal = Arc::new(on_signal);
    let run = move || {
        let (pausing, signal) = (Arc::clone(&watching), Arc::clone(&on_signal));
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .on_thread_park(move || {
                if pausing.load(Ordering::Relaxed) {
                    signal(WatchSignal::QuietUntil(Instant::now() + QUIET));
                    std::thread::sleep(QUIET);
                }
            })
            .build()?;
        runtime.block_on(async {
            let client = cluster.client_here()?;
            tokio::select! {
                () = stop.cancelled() => {}
                () = list_and_watch(&client, &mut wanted, &watching, &mut on_event, &*on_signal) => {}
            }
            Ok(())
        })
    };
    tokio::task::spawn_blocking(run).await?
}

/// Never ends; `on_event` also gets the errors that restart the watch.
async fn list_and_watch<K: Watchable>(
    client: &Client,
    wanted: &mut Receiver<Scope>,
    watching: &AtomicBool,
    on_event: &mut impl FnMut(Result<Event<Decoded<K>>>),
    on_signal: &impl Fn(WatchSignal<'_>),
) {
    let mut backoff = DefaultBackoff::default();
    let (mut scope, mut version) = (wanted.borrow().clone(), None);
    let mut relisted = RelistFilter::default();
    // Until then the current scope is watched after a failed expansion.
    let mut again = tokio::time::Instant::now();
    loop {
        let mut next = scope.clone();
        if version.is_none() {
            next.clone_from(&wanted.borrow());
            scope.clone_from(&next);
        } else if again <= tokio::time::Instant::now() {
            next = scope.next_step_to(&wanted.borrow());
        }
        let expands = scope != next;
        // A list runs to its end, so that frequent expansions cannot delay it forever.
        let waits = !expands && (version.is_some() || scope.is_empty());
        let current = scope.clone();
        let step = async {
            match &mut version {
                Some(known) if expands => {
                    if let Some((version, remainder)) =
                        list_remainder(client, &scope, &next).await?
                    {
                        // The whole scope is watched from the version of the part, so changes
                        // of the remainder during its list are reported then.
                        relisted.add(&version, remainder.iter().map(key));
                        remainder
                            .into_iter()
                            .for_each(|o| on_event(Ok(Event::Apply(o))));
                        on_signal(WatchSignal::InSync(&next));
                    } else {
                        *known = list(client, &next, on_event, on_signal).await?;
                        relisted = RelistFilter::default();
                    }
                    scope = next;
                }
                Some(version) => {
                    watching.store(true, Ordering::Relaxed);
                    watch(
                        client,
                        scope.selectors(),
                        version,
                        &mut relisted,
                        on_event,
                        on_signal,
                    )
                    .await?;
                }
                None => {
                    relisted = RelistFilter::default();
                    version = Some(list(client, &scope, on_event, on_signal).await?);
                }
            }
            Ok(())
        };
        let done = tokio::select! {
            done = step => Some(done),
            () = scope_expanded(wanted, &current, again), if waits => None,
        };
        watching.store(false, Ordering::Relaxed);
        on_signal(WatchSignal::WatchEnded);
        match done {
            None => {}
            Some(Ok(())) => {
                backoff.reset();
                if expands {
                    again = tokio::time::Instant::now() + GATHER;
                }
            }
            Some(Err(error)) => {
                let error: anyhow::Error = error;
                if error.downcast_ref::<Gone>().is_some() && !expands {
                    version = None;
                }
                on_event(Err(error));
                let wait = backoff.next().unwrap_or(SHORTEST);
                again = tokio::time::Instant::now() + wait;
                if !expands {
                    tokio::time::sleep(wait).await;
                }
            }
        }
    }
}

/// Completes once the wanted scope exceeds `scope`, not before `again`.
async fn scope_expanded(wanted: &mut Receiver<Scope>, scope: &Scope, again: tokio::time::Instant) {
    if wanted.wait_for(|wanted| wanted != scope).await.is_err() {
        return pending().await;
    }
    tokio::time::sleep_until(again).await;
}

/// The objects that the current scope lacks, and the list's version; `None` if no selector
/// describes them, or they are too many to hold.
async fn list_remainder<K: Watchable>(
    client: &Client,
    scope: &Scope,
    wider: &Scope,
) -> Result<Option<(String, Vec<Decoded<K>>)>> {
    let Some(missing) = scope.remainder(wider) else {
        return Ok(None);
    };
    let (mut remainder, mut count) = (Vec::new(), 0);
    let each = |object| {
        count += 1;
        match count > MAX_HELD {
            true => remainder = Vec::new(),
            false => remainder.push(object),
        }
    };
    let version = pages(client, missing, each).await?;
    Ok((count <= MAX_HELD).then_some((version, remainder)))
}

/// Lists the scope, each object taking effect at once; returns the list's version. Never ends for
/// an empty scope.
async fn list<K: Watchable>(
    client: &Client,
    scope: &Scope,
    on_event: &mut impl FnMut(Result<Event<Decoded<K>>>),
    on_signal: &impl Fn(WatchSignal<'_>),
) -> Result<String> {
    on_event(Ok(Event::Init));
    on_signal(WatchSignal::ListStarted(scope));
    let mut version = None;
    if !scope.is_empty() {
        let each = |o| on_event(Ok(Event::InitApply(o)));
        version = Some(pages(client, scope.selectors(), each).await?);
    }
    // Pending offers become active before the list counts as complete.
    on_signal(WatchSignal::InSync(scope));
    on_event(Ok(Event::InitDone));
    match version {
        Some(version) => Ok(version),
        None => pending().await,
    }
}

/// Reports the changes after `version`, which it advances, except those that `relisted` covers.
async fn watch<K: Watchable>(
    client: &Client,
    selectors: Selectors,
    version: &mut String,
    relisted: &mut RelistFilter,
    on_event: &mut impl FnMut(Result<Event<Decoded<K>>>),
    on_signal: &impl Fn(WatchSignal<'_>),
) -> Result<()> {
    let params = WatchParams {
        field_selector: selectors.fields.map(str::to_owned),
        label_selector: selectors.labels,
        ..WatchParams::default()
    };
    let request = Request::new(K::url_path(&(), None)).watch(&params, version)?;
    let began = Instant::now();
    let mut body = within_deadline(send(client, request, watched::PROTOBUF_WATCH)).await?;
    on_signal(WatchSignal::WatchStarted);
    let mut buffer = BytesMut::new();
    while let Ok(Some(frame)) = tokio::time::timeout(SILENCE, body.frame()).await {
        let Ok(data) = frame?.into_data() else {
            continue;
        };
        buffer.extend_from_slice(&data);
        while let Some(event) = watched::event(&mut buffer)? {
            let (raw, deleted) = match event {
                watched::Event::Applied(raw) => (raw, Some(false)),
                watched::Event::Deleted(raw) => (raw, Some(true)),
                watched::Event::Bookmark(raw) => (raw, None),
                watched::Event::Error(status) => return Err(error_from(status)),
            };
            let object = watched::object::<K>(raw);
            let now = match &object {
                Ok(object) => object.resource_version(),
                Err(malformed) => malformed.metadata.resource_version.clone(),
            };
            *version = now.unwrap_or_else(|| version.clone());
            if relisted.covers(version, || key(&object)) {
                continue;
            }
            match deleted {
                Some(false) => on_event(Ok(Event::Apply(object))),
                Some(true) => on_event(Ok(Event::Delete(object))),
                None => {}
            }
        }
    }
    if began.elapsed() < SHORTEST {
        bail!("the watch ended at once");
    }
    Ok(())
}

#[cfg(test)]
mod tests;
