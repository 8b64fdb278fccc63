//! Watches of a scripted API server.

use std::{collections::VecDeque, convert::Infallible};

use bytes::Bytes;
use futures::{StreamExt, stream};
use http_body_util::StreamBody;
use hyper::body::Frame;
use k8s_openapi::api::core::v1::Pod;
use kube::client::Body;
use parking_lot::Mutex;
use tautline_core::{selector::Selector, selector_union::SelectorUnion};
use tokio::sync::watch::channel;

use super::*;

const LONG: Duration = Duration::from_secs(900);

/// A scripted response of the API server.
enum Play {
    Never,
    Fails,
    Page(&'static str, Vec<Vec<u8>>),
    /// Events, and then none for ever.
    Watch(Vec<Vec<u8>>),
}

/// The signals and the requests of a watch, in order.
type Record = Arc<Mutex<Vec<String>>>;

fn field(tag: u8, bytes: impl AsRef<[u8]>) -> Vec<u8> {
    let bytes = bytes.as_ref();
    let (low, high) = (bytes.len() as u8 | 0x80, (bytes.len() >> 7) as u8);
    [&[tag << 3 | 2, low, high], bytes].concat()
}

fn object(raw: Vec<u8>) -> Vec<u8> {
    [b"k8s\0".to_vec(), field(2, raw)].concat()
}

fn pod(name: &str, uid: &str, version: &str, node: &str) -> Vec<u8> {
    let metadata = [(1, name), (3, "ns"), (5, uid), (6, version)];
    let metadata: Vec<u8> = metadata
        .iter()
        .flat_map(|(tag, text)| field(*tag, text))
        .collect();
    [field(1, metadata), field(2, field(10, node))].concat()
}

fn event(what: &str, pod: Vec<u8>) -> Vec<u8> {
    let event = [field(1, what), field(2, field(1, object(pod)))].concat();
    [&(event.len() as u32).to_be_bytes()[..], &event].concat()
}

/// Plays `plays` in order until the signal `enough`; then all pods are wanted, if it `widens`.
async fn followed_by(plays: Vec<Play>, widens: bool, enough: &str) -> Vec<String> {
    let to = if widens { Scope::All } else { Scope::Placed };
    followed(plays, Scope::Placed, to, enough).await
}

async fn followed(plays: Vec<Play>, from: Scope, to: Scope, enough: &str) -> Vec<String> {
    let wide_at = match from.is_empty() {
        true => "is complete",
        false => "watches",
    };
    let (record, (all, mut wanted)) = (Record::default(), channel(from));
    let plays = Arc::new(Mutex::new(VecDeque::from(plays)));
    let requests = Arc::clone(&record);
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let query = request.uri().query().unwrap_or_default().to_owned();
        let labels = query.split('&').find(|p| p.starts_with("labelSelector="));
        let labels = labels.map(|l| {
            l.replace("%28", "(")
                .replace("%29", ")")
                .replace("%2C", ",")
        });
        let labels = labels.map_or_else(String::new, |l| format!(" {l}"));
        let which = match (
            query.contains("nodeName%21%3D"),
            query.contains("nodeName%3D"),
        ) {
            (true, _) => "placed",
            (_, true) => "waiting",
            _ => "all",
        };
        let version = query
            .split('&')
            .find_map(|p| p.strip_prefix("resourceVersion="));
        requests.lock().push(match query.contains("watch=true") {
            true => format!("watch {which}{labels} from {}", version.unwrap_or_default()),
            false => format!("list {which}{labels}"),
        });
        let play = plays.lock().pop_front().unwrap_or(Play::Never);
        async move {
            let (code, frames, open) = match play {
                Play::Never => std::future::pending().await,
                Play::Fails => (500, vec![b"broken".to_vec()], false),
                Play::Page(version, items) => {
                    let items = items.into_iter().flat_map(|item| field(2, item));
                    let page = field(1, field(2, version)).into_iter().chain(items);
                    (200, vec![object(page.collect())], false)
                }
                Play::Watch(events) => (200, events, true),
            };
            let frame = |bytes| Ok::<_, Infallible>(Frame::data(Bytes::from(bytes)));
            let frames = stream::iter(frames.into_iter().map(frame));
            let body = match open {
                true => frames.chain(stream::pending()).boxed(),
                false => frames.boxed(),
            };
            let answer = http::Response::builder().status(code);
            Ok::<_, Infallible>(answer.body(StreamBody::new(body)).unwrap())
        }
    });
    let client = Client::new(service, "default");
    let recorded = Arc::clone(&record);
    let mut on = move |event: Result<Event<Decoded<Pod>>>| {
        let named = |pod: Decoded<Pod>| {
            let pod = pod.unwrap();
            let node = pod.spec.as_ref().and_then(|s| s.node_name.clone());
            format!("{} {}", pod.uid().unwrap(), node.unwrap_or_default())
        };
        recorded.lock().push(match event {
            Ok(Event::Init) => "begins".to_owned(),
            Ok(Event::InitApply(pod)) => format!("has {}", named(pod)),
            Ok(Event::InitDone) => "is complete".to_owned(),
            Ok(Event::Apply(pod)) => format!("brings {}", named(pod)),
            Ok(Event::Delete(pod)) => format!("takes {}", named(pod)),
            Err(error) => format!("fails: {error}"),
        });
    };
    let noted = Arc::clone(&record);
    let signal = move |signal: WatchSignal<'_>| match signal {
        WatchSignal::WatchStarted => noted.lock().push("watches".to_owned()),
        WatchSignal::InSync(Scope::Selected(union)) => {
            noted.lock().push(format!("follows {:?}", union.to_query()));
        }
        WatchSignal::ListStarted(_)
        | WatchSignal::InSync(_)
        | WatchSignal::WatchEnded
        | WatchSignal::QuietUntil(_) => {}
    };
    let watching = AtomicBool::new(false);
    let done = async {
        while !record.lock().iter().any(|what| what == enough) {
            if record.lock().iter().any(|what| what == wide_at) {
                all.send_replace(to.clone());
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::select! {
        () = list_and_watch(&client, &mut wanted, &watching, &mut on, &signal) => {}
        () = done => {}
        () = tokio::time::sleep(LONG) => panic!("no {enough:?} in {:?}", record.lock()),
    }
    std::mem::take(&mut *record.lock())
}

#[tokio::test(start_paused = true)]
async fn list_and_watch_retries_a_silent_api_server() {
    let plays = vec![
        Play::Never,
        Play::Page("5", vec![pod("a", "a", "3", "n1")]),
        Play::Never,
        Play::Watch(vec![event("MODIFIED", pod("a", "a", "6", "n1"))]),
    ];
    let silent = "fails: the API server did not answer within 60s";
    assert_eq!(
        followed_by(plays, false, "brings a n1").await,
        [
            "begins",
            "list placed",
            silent,
            "begins",
            "list placed",
            "has a n1",
            "is complete",
            "watch placed from 5",
            silent,
            "watch placed from 5",
            "watches",
            "brings a n1",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn relist_filter_skips_outdated_events() {
    // Its namesake existed at version 5, and was gone when the others were listed.
    let plays = vec![
        Play::Page("5", vec![]),
        Play::Watch(vec![]),
        Play::Page("9", vec![pod("a", "new", "8", "")]),
        Play::Watch(vec![
            event("ADDED", pod("a", "old", "6", "")),
            event("DELETED", pod("a", "old", "7", "")),
            event("ADDED", pod("a", "new", "8", "")),
            event("MODIFIED", pod("b", "b", "9", "n1")),
            event("MODIFIED", pod("a", "new", "10", "n2")),
            event("DELETED", pod("a", "new", "11", "n2")),
        ]),
    ];
    assert_eq!(
        followed_by(plays, true, "takes new n2").await,
        [
            "begins",
            "list placed",
            "is complete",
            "watch placed from 5",
            "watches",
            "list waiting",
            "brings new ",
            "watch all from 5",
            "watches",
            "brings b n1",
            "brings new n2",
            "takes new n2",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn watch_continues_while_the_remainder_fails() {
    let plays = vec![
        Play::Page("5", vec![]),
        Play::Watch(vec![]),
        Play::Fails,
        Play::Watch(vec![event("ADDED", pod("a", "a", "6", "n1"))]),
        Play::Page("7", vec![]),
        Play::Watch(vec![event("ADDED", pod("b", "b", "8", ""))]),
    ];
    assert_eq!(
        followed_by(plays, true, "brings b ").await,
        [
            "begins",
            "list placed",
            "is complete",
            "watch placed from 5",
            "watches",
            "list waiting",
            "fails: broken (500 )",
            "watch placed from 5",
            "watches",
            "brings a n1",
            "list waiting",
            "watch all from 6",
            "watches",
            "brings b ",
        ]
    );
}

/// Selectors for applications of these names.
fn apps(names: &[&str]) -> Scope {
    let mut union = SelectorUnion::default();
    for name in names {
        union.add(&Selector {
            match_labels: vec![("app".to_owned(), (*name).to_owned())],
            ..Selector::default()
        });
    }
    Scope::selected(&union)
}

#[tokio::test(start_paused = true)]
async fn list_and_watch_waits_for_an_empty_scope() {
    let plays = vec![
        Play::Page("5", vec![pod("a", "a", "3", "n1")]),
        Play::Watch(vec![event("MODIFIED", pod("a", "a", "6", "n1"))]),
    ];
    assert_eq!(
        followed(plays, apps(&[]), apps(&["web"]), "brings a n1").await,
        [
            "begins",
            "follows \"\"",
            "is complete",
            "begins",
            "list placed labelSelector=app+in+(web)",
            "has a n1",
            "follows \"app in (web)\"",
            "is complete",
            "watch placed labelSelector=app+in+(web) from 5",
            "watches",
            "brings a n1",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn list_remainder_precedes_in_sync() {
    let plays = vec![
        Play::Page("5", vec![]),
        Play::Watch(vec![]),
        Play::Fails,
        Play::Watch(vec![event("ADDED", pod("a", "a", "6", "n1"))]),
        Play::Page("8", vec![pod("b", "b", "7", "n2")]),
        Play::Watch(vec![
            event("DELETED", pod("b", "old", "7", "n1")),
            event("DELETED", pod("a", "a", "8", "n1")),
            event("MODIFIED", pod("b", "b", "9", "n3")),
        ]),
    ];
    let to = apps(&["web", "db"]);
    assert_eq!(
        followed(plays, apps(&["web"]), to, "brings b n3").await[6..],
        [
            "list placed labelSelector=app+in+(db)",
            "fails: broken (500 )",
            "watch placed labelSelector=app+in+(web) from 5",
            "watches",
            "brings a n1",
            "list placed labelSelector=app+in+(db)",
            "brings b n2",
            "follows \"app in (db,web)\"",
            "watch placed labelSelector=app+in+(db,web) from 6",
            "watches",
            "takes a n1",
            "brings b n3",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn scope_without_remainder_is_listed_again() {
    let plays = vec![
        Play::Page("5", vec![]),
        Play::Watch(vec![]),
        Play::Fails,
        Play::Watch(vec![event("ADDED", pod("a", "a", "6", "n1"))]),
        Play::Page("8", vec![pod("b", "b", "7", "n2")]),
        Play::Watch(vec![event("MODIFIED", pod("b", "b", "9", "n3"))]),
        Play::Page("10", vec![pod("c", "c", "10", "")]),
        Play::Watch(vec![event("MODIFIED", pod("c", "c", "11", "n1"))]),
    ];
    assert_eq!(
        followed(plays, apps(&["web"]), Scope::All, "brings c n1").await[6..],
        [
            "begins",
            "list placed",
            "fails: broken (500 )",
            "watch placed labelSelector=app+in+(web) from 5",
            "watches",
            "brings a n1",
            "begins",
            "list placed",
            "has b n2",
            "is complete",
            "watch placed from 8",
            "watches",
            "brings b n3",
            "list waiting",
            "brings c ",
            "watch all from 9",
            "watches",
            "brings c n1",
        ]
    );
}
