//! Watches of a scripted API server.

use std::{collections::VecDeque, convert::Infallible};

use bytes::Bytes;
use futures::{StreamExt, stream};
use http_body_util::StreamBody;
use hyper::body::Frame;
use k8s_openapi::api::core::v1::Pod;
use kube::client::Body;
use parking_lot::Mutex;

use super::*;

const LONG: Duration = Duration::from_secs(900);

/// A scripted response of the API server.
enum Play {
    Never,
    Fails,
    /// Changes since the requested version are lost.
    Gone,
    /// Events, and then the end of the watch.
    Ends(Vec<Vec<u8>>),
    Page(&'static str, Vec<Vec<u8>>),
    /// A page of more bytes than a watch takes at once.
    HugePage,
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

/// Plays `plays` in order until the record has `enough`.
async fn record_of(plays: Vec<Play>, enough: &str) -> Vec<String> {
    let record = Record::default();
    let plays = Arc::new(Mutex::new(VecDeque::from(plays)));
    let requests = Arc::clone(&record);
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let query = request.uri().query().unwrap_or_default().to_owned();
        let version = query
            .split('&')
            .find_map(|p| p.strip_prefix("resourceVersion="));
        requests.lock().push(match query.contains("watch=true") {
            true => format!("watch from {}", version.unwrap_or_default()),
            false => match query.split('&').find_map(|p| p.strip_prefix("limit=")) {
                Some("500") | None => "list".to_owned(),
                Some(limit) => format!("list of {limit}"),
            },
        });
        let play = plays.lock().pop_front().unwrap_or(Play::Never);
        async move {
            let (code, frames, open) = match play {
                Play::Never => std::future::pending().await,
                Play::Fails => (500, vec![b"broken".to_vec()], false),
                Play::Gone => (410, vec![b"too old".to_vec()], false),
                Play::Ends(events) => (200, events, false),
                Play::Page(version, items) => {
                    let items = items.into_iter().flat_map(|item| field(2, item));
                    let page = field(1, field(2, version)).into_iter().chain(items);
                    (200, vec![object(page.collect())], false)
                }
                Play::HugePage => (200, vec![vec![0; 1 << 20]; 17], true),
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
    let signal = move |signal| match signal {
        WatchSignal::WatchStarted => noted.lock().push("watches".to_owned()),
        WatchSignal::WatchEnded | WatchSignal::Pause(_) => {}
    };
    let watching = AtomicBool::new(false);
    let done = async {
        while !record.lock().iter().any(|what| what == enough) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::select! {
        () = list_and_watch(&client, &watching, &mut on, &signal) => {}
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
        record_of(plays, "brings a n1").await,
        [
            "begins",
            "list",
            silent,
            "begins",
            "list",
            "has a n1",
            "is complete",
            "watch from 5",
            silent,
            "watch from 5",
            "watches",
            "brings a n1",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn watch_continues_from_the_last_event_after_an_error() {
    let plays = vec![
        Play::Page("5", vec![]),
        Play::Ends(vec![event("ADDED", pod("a", "a", "6", ""))]),
        Play::Ends(vec![]),
        Play::Fails,
        Play::Watch(vec![event("DELETED", pod("a", "a", "7", "n1"))]),
    ];
    assert_eq!(
        record_of(plays, "takes a n1").await,
        [
            "begins",
            "list",
            "is complete",
            "watch from 5",
            "watches",
            "brings a ",
            "watch from 6",
            "watches",
            "fails: the watch ended at once",
            "watch from 6",
            "fails: broken (500 )",
            "watch from 6",
            "watches",
            "takes a n1",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn lost_changes_are_listed_again() {
    let plays = vec![
        Play::Page("5", vec![]),
        Play::Gone,
        Play::Page("9", vec![pod("b", "b", "8", "n2")]),
        Play::Watch(vec![event("MODIFIED", pod("b", "b", "10", "n3"))]),
    ];
    assert_eq!(
        record_of(plays, "brings b n3").await,
        [
            "begins",
            "list",
            "is complete",
            "watch from 5",
            "fails: too old (410 )",
            "begins",
            "list",
            "has b n2",
            "is complete",
            "watch from 9",
            "watches",
            "brings b n3",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn pages_of_large_objects_are_read_in_parts() {
    let plays = vec![
        Play::HugePage,
        Play::HugePage,
        Play::Page("5", vec![pod("a", "a", "3", "n1")]),
        Play::Watch(vec![event("ADDED", pod("b", "b", "6", ""))]),
    ];
    assert_eq!(
        record_of(plays, "brings b ").await,
        [
            "begins",
            "list",
            "list of 62",
            "list of 7",
            "has a n1",
            "is complete",
            "watch from 5",
            "watches",
            "brings b ",
        ]
    );
}
