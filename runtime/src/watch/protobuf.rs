//! Lists and watches in protobuf, as kube's watcher does in JSON: a list page by
//! page, then a watch from there, again and again from where it ended, and a new
//! list where the API server no longer knows what changed since. Who follows a part of
//! a kind may later follow all of it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Result, bail};
use bytes::BytesMut;
use http::{StatusCode, header};
use http_body_util::BodyExt;
use kube::{
    Client, ResourceExt,
    api::{ListParams, Request, WatchParams},
    client::Body,
};
use kube_runtime::{
    utils::Backoff,
    watcher::{DefaultBackoff, Event},
};
use tautline_api::watched::{self, Status, Watchable};
use tokio_util::sync::CancellationToken;

use super::Brought;
use crate::cluster::Cluster;

/// A part of the objects of a kind, by field selectors.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    pub(super) fields: &'static str,
    /// Selects all others.
    pub(super) others: &'static str,
}

/// Which objects of a kind are followed: a part, if there is one, until `all` is
/// cancelled.
#[derive(Debug, Default)]
pub(super) struct Which {
    pub(super) part: Option<Part>,
    pub(super) all: CancellationToken,
}

const PAGE: u32 = 500;
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
const REST: Duration = Duration::from_millis(20);

/// Follows a kind until told to stop. It has a thread of its own: there an event wakes no
/// other thread, and that is most of what an event costs. The thread may sleep, as
/// nothing else lives on it: `rests` is told until when, before it does.
pub(super) async fn on_thread<K: Watchable>(
    cluster: Cluster,
    which: Which,
    stop: CancellationToken,
    mut on: impl FnMut(Result<Event<Brought<K>>>) + Send + 'static,
    rests: impl Fn(Instant) + Send + Sync + 'static,
) -> Result<()> {
    // A thread that is never told to stop would keep the process from ending.
    let stop = stop.child_token();
    let _told = stop.clone().drop_guard();
    let watching = Arc::new(AtomicBool::new(false));
    let following = move || {
        let resting = Arc::clone(&watching);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .on_thread_park(move || {
                if resting.load(Ordering::Relaxed) {
                    rests(Instant::now() + REST);
                    std::thread::sleep(REST);
                }
            })
            .build()?;
        runtime.block_on(async {
            let client = cluster.client_here()?;
            tokio::select! {
                () = stop.cancelled() => {}
                () = follow(&client, &which, &watching, &mut on) => {}
            }
            Ok(())
        })
    };
    tokio::task::spawn_blocking(following).await?
}

/// Never ends; `on` gets every event, and why the watch had to start again.
async fn follow<K: Watchable>(
    client: &Client,
    which: &Which,
    watching: &AtomicBool,
    on: &mut impl FnMut(Result<Event<Brought<K>>>),
) {
    let mut backoff = DefaultBackoff::default();
    let (mut part, mut version) = (which.part, None);
    loop {
        let widens = which.all.is_cancelled();
        let narrow = part.is_some() && !widens;
        let step = async {
            match (&mut version, part) {
                // All is watched from where the part was, so what changes among the
                // others while they are listed is told then.
                (Some(_), Some(known)) if widens => {
                    let each = |object| on(Ok(Event::Apply(object)));
                    pages(client, Some(known.others), each).await?;
                    part = None;
                }
                (Some(version), _) => {
                    watching.store(true, Ordering::Relaxed);
                    watch(client, part, version, on).await?;
                }
                (None, _) => {
                    part = part.filter(|_| !widens);
                    version = Some(list(client, part, on).await?);
                }
            }
            Ok(())
        };
        let done = tokio::select! {
            done = step => done,
            () = which.all.cancelled(), if narrow => Ok(()),
        };
        watching.store(false, Ordering::Relaxed);
        match done {
            Ok(()) => backoff.reset(),
            Err(error) => {
                let error: anyhow::Error = error;
                if error.downcast_ref::<Gone>().is_some() {
                    version = None;
                }
                on(Err(error));
                tokio::time::sleep(backoff.next().unwrap_or(SHORTEST)).await;
            }
        }
    }
}

/// The API server no longer knows what changed since the version asked for.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Gone(String);

/// All there is of a part; gives its version.
async fn list<K: Watchable>(
    client: &Client,
    part: Option<Part>,
    on: &mut impl FnMut(Result<Event<Brought<K>>>),
) -> Result<String> {
    on(Ok(Event::Init));
    let fields = part.map(|part| part.fields);
    let version = pages(client, fields, |o| on(Ok(Event::InitApply(o)))).await?;
    on(Ok(Event::InitDone));
    Ok(version)
}

/// Each object that a field selector selects; gives their version.
async fn pages<K: Watchable>(
    client: &Client,
    fields: Option<&str>,
    mut each: impl FnMut(Brought<K>),
) -> Result<String> {
    let mut params = ListParams::default().limit(PAGE);
    params.field_selector = fields.map(str::to_owned);
    loop {
        let request = Request::new(K::url_path(&(), None)).list(&params)?;
        let body = send(client, request, watched::OBJECT).await?;
        let page = watched::list(body.collect().await?.to_bytes())?;
        for item in page.items {
            each(watched::object(item));
        }
        if page.metadata.continue_.is_empty() {
            return Ok(page.metadata.resource_version);
        }
        params.continue_token = Some(page.metadata.continue_);
    }
}

/// What changes after `version`, which is kept in step, until the watch ends.
async fn watch<K: Watchable>(
    client: &Client,
    part: Option<Part>,
    version: &mut String,
    on: &mut impl FnMut(Result<Event<Brought<K>>>),
) -> Result<()> {
    let params = WatchParams {
        field_selector: part.map(|part| part.fields.to_owned()),
        ..WatchParams::default()
    };
    let request = Request::new(K::url_path(&(), None)).watch(&params, version)?;
    let began = Instant::now();
    let mut body = send(client, request, watched::STREAM).await?;
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

async fn send(
    client: &Client,
    request: http::Request<Vec<u8>>,
    accept: &'static str,
) -> Result<Body> {
    let mut request = request.map(Body::from);
    let headers = request.headers_mut();
    headers.insert(header::ACCEPT, header::HeaderValue::from_static(accept));
    let response = client.send(request).await?;
    let code = response.status();
    if code == StatusCode::OK {
        return Ok(response.into_body());
    }
    let body = response.into_body().collect().await?.to_bytes();
    // Before it knows who asks, the API server answers in JSON or text.
    let status = watched::status(body.clone()).unwrap_or_else(|_| Status {
        code: code.as_u16().into(),
        message: String::from_utf8_lossy(&body).trim().to_owned(),
        ..Status::default()
    });
    Err(refused(status))
}

fn refused(status: Status) -> anyhow::Error {
    let said = format!("{} ({} {})", status.message, status.code, status.reason);
    match status.code {
        410 => Gone(said).into(),
        _ => anyhow::anyhow!(said),
    }
}
