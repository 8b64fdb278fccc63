//! `/events` sends the browser the kinds of objects that have changed, each at most once a second.

use std::{convert::Infallible, sync::Arc, time::Duration};

use axum::{
    extract::State,
    response::sse::{Event, KeepAlive, Sse},
};
use futures::{Stream, stream};
use tautline_core::index::Kind;
use tautline_runtime::cluster_store::Versions;
use tokio::{
    sync::watch,
    time::{Instant, sleep_until, timeout_at},
};

use crate::Console;

/// The shortest time between two collections of changes.
const CHANGE_INTERVAL: Duration = Duration::from_secs(1);
/// The interval of the event `tick`, which refreshes pages with data of servers instead of the API.
const TICK_INTERVAL: Duration = Duration::from_secs(5);

/// The names of the events, as in `hx-trigger="sse:pods"`.
pub(crate) const NODES: &str = "nodes";
pub(crate) const PODS: &str = "pods";
pub(crate) const POLICIES: &str = "policies";
pub(crate) const BINDINGS: &str = "bindings";
pub(crate) const TICKS: &str = "tick";

struct Changes {
    objects: Watched<Versions>,
    bindings: Watched<u64>,
    offers: Watched<u64>,
    policies: Watched<u64>,
    next: Instant,
    tick: Instant,
    queue: Vec<&'static str>,
}

/// A channel, and the last value that the browser knows.
struct Watched<T> {
    channel: watch::Receiver<T>,
    seen: T,
}

impl<T: Copy + PartialEq> Watched<T> {
    fn new(channel: watch::Receiver<T>) -> Self {
        let seen = *channel.borrow();
        Self { channel, seen }
    }

    /// Returns the last value that the browser knows and the current one, which it knows from now
    /// on.
    fn take(&mut self) -> (T, T) {
        let now = *self.channel.borrow_and_update();
        (std::mem::replace(&mut self.seen, now), now)
    }

    fn take_changed(&mut self) -> bool {
        let (before, now) = self.take();
        before != now
    }
}

impl Changes {
    fn new(console: &Console) -> Self {
        Self {
            objects: Watched::new(console.store.changes()),
            bindings: Watched::new(console.bindings.changes()),
            offers: Watched::new(console.offers.changes()),
            policies: Watched::new(console.policies.changes()),
            next: Instant::now(),
            tick: Instant::now() + TICK_INTERVAL,
            // Changes before this connection are not known, so every kind is sent at first.
            queue: vec![NODES, PODS, POLICIES, BINDINGS],
        }
    }

    async fn next(&mut self) -> &'static str {
        loop {
            if let Some(name) = self.queue.pop() {
                return name;
            }
            let change = async {
                tokio::select! {
                    Ok(()) = self.objects.channel.changed() => {}
                    Ok(()) = self.bindings.channel.changed() => {}
                    Ok(()) = self.offers.channel.changed() => {}
                    Ok(()) = self.policies.channel.changed() => {}
                    else => std::future::pending().await,
                }
            };
            _ = timeout_at(self.tick, change).await;
            // A change is sent at once; changes that follow within the interval are sent together.
            sleep_until(self.next).await;
            self.next = Instant::now() + CHANGE_INTERVAL;
            self.collect();
        }
    }

    fn collect(&mut self) {
        let (before, now) = self.objects.take();
        let changed = |kinds: &[Kind]| now.changed(&before, kinds);
        let services = [
            Kind::Policy,
            Kind::Offer,
            Kind::Service,
            Kind::EndpointSlice,
        ];
        let of_lists = self.offers.take_changed() | self.policies.take_changed();
        let tick = Instant::now() >= self.tick;
        if tick {
            self.tick = Instant::now() + TICK_INTERVAL;
        }
        let names = [
            (NODES, changed(&[Kind::Node])),
            (PODS, changed(&[Kind::Pod])),
            (POLICIES, of_lists || changed(&services)),
            (BINDINGS, self.bindings.take_changed()),
            (TICKS, tick),
        ];
        let names = names.into_iter().filter(|(_, changed)| *changed);
        self.queue.extend(names.map(|(name, _)| name));
    }
}

pub(crate) async fn serve(
    State(console): State<Arc<Console>>,
) -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    let changes = Changes::new(&console);
    let events = stream::unfold(changes, |mut changes| async {
        let name = changes.next().await;
        // htmx ignores events without data.
        Some((Ok(Event::default().event(name).data("1")), changes))
    });
    Sse::new(events).keep_alive(KeepAlive::default())
}
