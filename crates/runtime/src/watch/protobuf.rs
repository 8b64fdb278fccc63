//! Lists and watches a kind in protobuf, like kube's watcher in JSON: a paged list, then one watch
//! after another, and a new list when changes are lost. With protobuf, of which only the fields in
//! use are decoded, and one thread, ungoverned pods cost a process a third of the CPU time of before
//! (`tests/bench/watch`).

mod requests;

use std::{
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
use kube_runtime::{utils::Backoff, watcher::Event};
use tautline_api::watched::{self, Watchable};
use tokio_util::sync::CancellationToken;

use super::Decoded;
use crate::{backoff::WatchBackoff, cluster::Cluster};
use requests::{Gone, error_from, pages, send, within_deadline};

#[derive(Clone, Copy, Debug)]
pub(super) enum WatchSignal {
    /// The watch reports every change from now on.
    WatchStarted,
    WatchEnded,
    /// The watch pauses for this time if the receiver blocks.
    Pause(Duration),
}

/// The time without data after which a watch's connection is dead. The API server ends a watch
/// after 290 s (kube's default).
const WATCH_TIMEOUT: Duration = Duration::from_secs(295);
/// The minimum time of a watch that reports no change; one that ends sooner has failed. The API server
/// also ends a watch whose changes it cannot send in time: what follows is asked for at once then.
const MIN_WATCH_TIME: Duration = Duration::from_secs(1);
/// The pause of a watch after it has handled all events: in a busy cluster several events then
/// cost one wake-up, here and in the API server. After a longer quiet time an event is handled at
/// once. Allocators hold reservations for pods bound during the pause, and a reader can end it.
const QUIET_PAUSE: Duration = Duration::from_millis(20);

/// Lists and watches a kind until `stop`, on a thread of its own, since waking another thread is
/// most of an event's cost. `on_signal` may block the thread for a pause.
pub(super) async fn run_on_own_thread<K: Watchable>(
    cluster: Cluster,
    stop: CancellationToken,
    mut on_event: impl FnMut(Result<Event<Decoded<K>>>) + Send + 'static,
    on_signal: impl Fn(WatchSignal) + Send + Sync + 'static,
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
                    signal(WatchSignal::Pause(QUIET_PAUSE));
                }
            })
            .build()?;
        runtime.block_on(async {
            let client = cluster.client_here()?;
            tokio::select! {
                () = stop.cancelled() => {}
                () = list_and_watch(&client, &watching, &mut on_event, &*on_signal) => {}
            }
            Ok(())
        })
    };
    tokio::task::spawn_blocking(run).await?
}

/// Lists and watches a kind for ever; `on_event` also receives the errors that restart the watch.
async fn list_and_watch<K: Watchable>(
    client: &Client,
    watching: &AtomicBool,
    on_event: &mut impl FnMut(Result<Event<Decoded<K>>>),
    on_signal: &impl Fn(WatchSignal),
) {
    let mut backoff = WatchBackoff::default();
    let mut version = None;
    loop {
        let done = match &mut version {
            None => list(client, on_event)
                .await
                .map(|listed| version = Some(listed)),
            Some(version) => {
                watching.store(true, Ordering::Relaxed);
                watch(client, version, on_event, on_signal).await
            }
        };
        watching.store(false, Ordering::Relaxed);
        on_signal(WatchSignal::WatchEnded);
        match done {
            Ok(()) => backoff.reset(),
            Err(error) => {
                if error.downcast_ref::<Gone>().is_some() {
                    version = None;
                }
                on_event(Err(error));
                tokio::time::sleep(backoff.next().unwrap_or(MIN_WATCH_TIME)).await;
            }
        }
    }
}

/// Lists all objects, each taking effect at once; returns the list's version.
async fn list<K: Watchable>(
    client: &Client,
    on_event: &mut impl FnMut(Result<Event<Decoded<K>>>),
) -> Result<String> {
    on_event(Ok(Event::Init));
    let version = pages(client, |o| on_event(Ok(Event::InitApply(o)))).await?;
    on_event(Ok(Event::InitDone));
    Ok(version)
}

/// Reports the changes after `version`, which it advances.
async fn watch<K: Watchable>(
    client: &Client,
    version: &mut String,
    on_event: &mut impl FnMut(Result<Event<Decoded<K>>>),
    on_signal: &impl Fn(WatchSignal),
) -> Result<()> {
    let request = Request::new(K::url_path(&(), None)).watch(&WatchParams::default(), version)?;
    let began = Instant::now();
    let mut body = within_deadline(send(client, request, watched::PROTOBUF_WATCH)).await?;
    on_signal(WatchSignal::WatchStarted);
    let (mut buffer, mut has_changes) = (BytesMut::new(), false);
    while let Ok(Some(frame)) = tokio::time::timeout(WATCH_TIMEOUT, body.frame()).await {
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
            has_changes |= deleted.is_some();
            match deleted {
                Some(false) => on_event(Ok(Event::Apply(object))),
                Some(true) => on_event(Ok(Event::Delete(object))),
                None => {}
            }
        }
    }
    if !has_changes && began.elapsed() < MIN_WATCH_TIME {
        bail!("the watch ended at once");
    }
    Ok(())
}

#[cfg(test)]
mod tests;
