//! `/events` sends the browser the kinds of objects that have changed, at most once a second.

use std::{convert::Infallible, sync::Arc, time::Duration};

use futures::{
    StreamExt,
    stream::{self, BoxStream},
};
use http_body_util::StreamBody;
use hyper::{
    Response,
    body::{Bytes, Frame},
    header::{CONTENT_TYPE, HeaderValue},
};
use tautline_api::{ConstraintPolicy, ConstraintPolicyBinding, ConstraintPolicyOffer};
use tautline_core::index::Kind;
use tautline_runtime::cluster_store::Versions;
use tokio::time::sleep;

use crate::Console;

/// The time between two checks for changes.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// The number of checks after which pages with data of servers instead of the API are refreshed.
const CHECKS_PER_TICK: u64 = 5;

/// The names of the events; a page of pods is refreshed by [`TICKS`].
pub(crate) const NODES: &str = "nodes";
pub(crate) const POLICIES: &str = "policies";
pub(crate) const BINDINGS: &str = "bindings";
pub(crate) const TICKS: &str = "tick";

/// A stream of events.
pub(crate) type Body = StreamBody<BoxStream<'static, Result<Frame<Bytes>, Infallible>>>;

type List<K> = Arc<Vec<Arc<K>>>;

/// The versions of all objects that a browser knows.
struct Seen {
    store: Versions,
    bindings: List<ConstraintPolicyBinding>,
    offers: List<ConstraintPolicyOffer>,
    policies: List<ConstraintPolicy>,
}

impl Seen {
    fn new(console: &Console) -> Self {
        Self {
            store: *console.store.changes().borrow(),
            bindings: console.bindings.list(),
            offers: console.offers.list(),
            policies: console.policies.list(),
        }
    }

    /// Returns the names of the kinds that have changed since `before`.
    fn changed(&self, before: &Self) -> Vec<&'static str> {
        let changed = |kinds: &[Kind]| self.store.changed(&before.store, kinds);
        let services = [
            Kind::Policy,
            Kind::Offer,
            Kind::Service,
            Kind::EndpointSlice,
        ];
        let lists = !Arc::ptr_eq(&self.offers, &before.offers)
            || !Arc::ptr_eq(&self.policies, &before.policies);
        let kinds = [
            (NODES, changed(&[Kind::Node])),
            (POLICIES, lists || changed(&services)),
            (BINDINGS, !Arc::ptr_eq(&self.bindings, &before.bindings)),
        ];
        let changed = kinds.into_iter().filter(|(_, changed)| *changed);
        changed.map(|(name, _)| name).collect()
    }
}

/// Returns the stream of events as a response.
pub(crate) fn answer(console: Arc<Console>) -> Response<Body> {
    // Changes before this connection are not known, so every kind is sent at first.
    let first = stream::iter([NODES, POLICIES, BINDINGS]);
    let checks = stream::unfold((Seen::new(&console), 1), move |(before, check)| {
        let console = Arc::clone(&console);
        async move {
            sleep(CHECK_INTERVAL).await;
            let now = Seen::new(&console);
            let mut names = now.changed(&before);
            names.extend((check % CHECKS_PER_TICK == 0).then_some(TICKS));
            Some((stream::iter(names), (now, check + 1)))
        }
    });
    // htmx ignores events without data.
    let event = |name| format!("event: {name}\ndata: 1\n\n");
    let frames = first.chain(checks.flatten()).map(event);
    let frames = frames.map(|text| Ok(Frame::data(Bytes::from(text))));
    let mut answer = Response::new(StreamBody::new(frames.boxed()));
    let kind = HeaderValue::from_static("text/event-stream");
    answer.headers_mut().insert(CONTENT_TYPE, kind);
    answer
}
