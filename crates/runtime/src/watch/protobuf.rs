//! Lists and watches in protobuf, as kube's watcher does in JSON: a list page by
//! page, then a watch from there, again and again from where it ended, and a new
//! list where the API server no longer knows what changed since. Who follows a part of
//! a kind may later follow all of it.

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
use requests::{Gone, in_time, pages, refused, send};

/// What a watch tells of itself, beside what it brings.
#[derive(Clone, Copy, Debug)]
pub(super) enum WatchSignal<'a> {
    /// It begins to list these.
    ListStarted(&'a Scope),
    /// All of these are known, and all that changes of them will be.
    InSync(&'a Scope),
    /// From here on it brings each change.
    WatchStarted,
    /// It brings none any more.
    WatchEnded,
    /// It takes nothing until then.
    QuietUntil(Instant),
}

/// The API server ends a watch after 290 s, which is kube's default; a connection
/// that has been silent for longer is dead.
const SILENCE: Duration = Duration::from_secs(295);
/// A watch that ends sooner than this has failed.
const SHORTEST: Duration = Duration::from_secs(1);
/// Once it has taken what there was, a watch rests for so long: in a busy cluster a
/// few events then cost one wake instead of one each, here and for the API server,
/// which is not asked to wake us while we rest. After a quiet time an event is taken
/// at once. For the few pods that are bound meanwhile, a provider that hands something
/// out holds a reservation. What is known cannot change while the watch rests, so
/// answers made of it hold for as long.
const QUIET: Duration = Duration::from_millis(20);
/// Once it follows more, a watch goes on for so long before it looks for what more is
/// wanted since.
const GATHER: Duration = Duration::from_millis(100);
/// The most objects that are held until all of a list are there.
const MOST_HELD: usize = 10_000;

/// Follows a kind until told to stop. It has a thread of its own: there an event wakes no
/// other thread, and that is most of what an event costs. The thread may sleep, as
/// nothing else lives on it: `tells` is told before it does.
pub(super) async fn run_on_own_thread<K: Watchable>(
    cluster: Cluster,
    mut wanted: Receiver<Scope>,
    stop: CancellationToken,
    mut on: impl FnMut(Result<Event<Decoded<K>>>) + Send + 'static,
    tells: impl Fn(WatchSignal<'_>) + Send + Sync + 'static,
) -> Result<()> {
    // A thread that is never told to stop would keep the process from ending.
    let stop = stop.child_token();
    let _told = stop.clone().drop_guard();
    let watching = Arc::new(AtomicBool::new(false));
    let tells = Arc::new(tells);
    let following = move || {
        let (resting, told) = (Arc::clone(&watching), Arc::clone(&tells));
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .on_thread_park(move || {
                if resting.load(Ordering::Relaxed) {
                    told(WatchSignal::QuietUntil(Instant::now() + QUIET));
                    std::thread::sleep(QUIET);
                }
            })
            .build()?;
        runtime.block_on(async {
            let client = cluster.client_here()?;
            tokio::select! {
                () = stop.cancelled() => {}
                () = list_and_watch(&client, &mut wanted, &watching, &mut on, &*tells) => {}
            }
            Ok(())
        })
    };
    tokio::task::spawn_blocking(following).await?
}

/// Never ends; `on` gets every event, and why the watch had to start again.
async fn list_and_watch<K: Watchable>(
    client: &Client,
    wanted: &mut Receiver<Scope>,
    watching: &AtomicBool,
    on: &mut impl FnMut(Result<Event<Decoded<K>>>),
    tells: &impl Fn(WatchSignal<'_>),
) {
    let mut backoff = DefaultBackoff::default();
    let (mut scope, mut version) = (wanted.borrow().clone(), None);
    let mut beside = RelistFilter::default();
    // When more is listed again, that having failed: what is known is followed until then.
    let mut again = tokio::time::Instant::now();
    loop {
        let mut next = scope.clone();
        if version.is_none() {
            next.clone_from(&wanted.borrow());
            scope.clone_from(&next);
        } else if again <= tokio::time::Instant::now() {
            next = scope.next_step_to(&wanted.borrow());
        }
        let widens = scope != next;
        // A list goes on to its end: however often more is wanted, it comes to one.
        let waits = !widens && (version.is_some() || scope.is_empty());
        let followed = scope.clone();
        let step = async {
            match &mut version {
                Some(known) if widens => {
                    if let Some((version, others)) = list_remainder(client, &scope, &next).await? {
                        // All that is wanted is watched from where the part was, so what
                        // changes of the rest while that is listed is told then.
                        beside.add(&version, others.iter().map(key));
                        others.into_iter().for_each(|o| on(Ok(Event::Apply(o))));
                        tells(WatchSignal::InSync(&next));
                    } else {
                        *known = list(client, &next, on, tells).await?;
                        beside = RelistFilter::default();
                    }
                    scope = next;
                }
                Some(version) => {
                    watching.store(true, Ordering::Relaxed);
                    watch(client, scope.selectors(), version, &mut beside, on, tells).await?;
                }
                None => {
                    beside = RelistFilter::default();
                    version = Some(list(client, &scope, on, tells).await?);
                }
            }
            Ok(())
        };
        let done = tokio::select! {
            done = step => Some(done),
            () = scope_expanded(wanted, &followed, again), if waits => None,
        };
        watching.store(false, Ordering::Relaxed);
        tells(WatchSignal::WatchEnded);
        match done {
            None => {}
            Some(Ok(())) => {
                backoff.reset();
                if widens {
                    again = tokio::time::Instant::now() + GATHER;
                }
            }
            Some(Err(error)) => {
                let error: anyhow::Error = error;
                if error.downcast_ref::<Gone>().is_some() && !widens {
                    version = None;
                }
                on(Err(error));
                let wait = backoff.next().unwrap_or(SHORTEST);
                again = tokio::time::Instant::now() + wait;
                if !widens {
                    tokio::time::sleep(wait).await;
                }
            }
        }
    }
}

/// Ends once more than `scope` is to be followed, and not before `again`.
async fn scope_expanded(wanted: &mut Receiver<Scope>, scope: &Scope, again: tokio::time::Instant) {
    if wanted.wait_for(|wanted| wanted != scope).await.is_err() {
        return pending().await;
    }
    tokio::time::sleep_until(again).await;
}

/// What a wider scope has beside one that is followed, and its version; `None`: it has to
/// be listed with what is followed, or is too much to be held at once.
async fn list_remainder<K: Watchable>(
    client: &Client,
    scope: &Scope,
    wider: &Scope,
) -> Result<Option<(String, Vec<Decoded<K>>)>> {
    let Some(missing) = scope.remainder(wider) else {
        return Ok(None);
    };
    let (mut others, mut count) = (Vec::new(), 0);
    let each = |object| {
        count += 1;
        match count > MOST_HELD {
            true => others = Vec::new(),
            false => others.push(object),
        }
    };
    let version = pages(client, missing, each).await?;
    Ok((count <= MOST_HELD).then_some((version, others)))
}

/// All there is of what is followed, each object counting as it comes; gives its version.
/// Of nothing there is none, and nothing to be asked: then this does not end.
async fn list<K: Watchable>(
    client: &Client,
    scope: &Scope,
    on: &mut impl FnMut(Result<Event<Decoded<K>>>),
    tells: &impl Fn(WatchSignal<'_>),
) -> Result<String> {
    on(Ok(Event::Init));
    tells(WatchSignal::ListStarted(scope));
    let mut version = None;
    if !scope.is_empty() {
        let each = |o| on(Ok(Event::InitApply(o)));
        version = Some(pages(client, scope.selectors(), each).await?);
    }
    // Who waits for it is there before the list counts as complete.
    tells(WatchSignal::InSync(scope));
    on(Ok(Event::InitDone));
    match version {
        Some(version) => Ok(version),
        None => pending().await,
    }
}

/// What changes after `version`, which is kept in step, until the watch ends, but for what
/// was listed `beside`.
async fn watch<K: Watchable>(
    client: &Client,
    selectors: Selectors,
    version: &mut String,
    beside: &mut RelistFilter,
    on: &mut impl FnMut(Result<Event<Decoded<K>>>),
    tells: &impl Fn(WatchSignal<'_>),
) -> Result<()> {
    let params = WatchParams {
        field_selector: selectors.fields.map(str::to_owned),
        label_selector: selectors.labels,
        ..WatchParams::default()
    };
    let request = Request::new(K::url_path(&(), None)).watch(&params, version)?;
    let began = Instant::now();
    let mut body = in_time(send(client, request, watched::PROTOBUF_WATCH)).await?;
    tells(WatchSignal::WatchStarted);
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
                watched::Event::Error(status) => return Err(refused(status)),
            };
            let object = watched::object::<K>(raw);
            let now = match &object {
                Ok(object) => object.resource_version(),
                Err(malformed) => malformed.metadata.resource_version.clone(),
            };
            *version = now.unwrap_or_else(|| version.clone());
            if beside.covers(version, || key(&object)) {
                continue;
            }
            match deleted {
                Some(false) => on(Ok(Event::Apply(object))),
                Some(true) => on(Ok(Event::Delete(object))),
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
