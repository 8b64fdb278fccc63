//! Writes Kubernetes events in the background. Namespaces take turns, so that a flood of events in
//! one namespace neither delays nor drops those of another.

use std::{borrow::Cow, sync::Arc, time::Duration};

use dashmap::DashMap;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube_runtime::events::{Event, EventType, Recorder, Reporter};
use parking_lot::Mutex;
use prometheus_client::{metrics::counter::Counter, registry::Registry};
use tautline_core::{fair_queue::FairQueue, names::API_VERSION, text};
use tokio::{sync::Notify, time::Instant};
use tokio_util::sync::CancellationToken;

use crate::api_call::within;

const MAX_QUEUED_EVENTS: usize = 1024;
/// The number of keys from which expired keys are removed.
const KEYS_BEFORE_PURGE: usize = 1024;
const DEADLINE: Duration = Duration::from_secs(5);
/// The maximum length of an event's text; the API server rejects notes above 1 kB.
const LONGEST_CHARS: usize = 900;

/// An event on an object.
#[derive(Clone, Debug)]
pub struct EventNote {
    /// The object that the event is about.
    pub regarding: ObjectReference,
    /// A related object. Events that differ in it are counted separately.
    pub secondary: Option<ObjectReference>,
    /// True for the type Warning, false for Normal.
    pub warning: bool,
    /// The reason, a stable code.
    pub reason: String,
    /// The action taken or attempted.
    pub action: &'static str,
    /// The message; it is sanitized and cut to 900 characters.
    pub text: String,
}

/// An event to write; true if it is none of a series of events with other texts.
type Queued = (EventNote, bool);

#[derive(Debug, Default)]
struct Waiting {
    notes: Mutex<FairQueue<Queued>>,
    filled: Notify,
}

/// Publishes events without waiting.
#[derive(Debug)]
pub struct Events {
    waiting: Arc<Waiting>,
    quiet_until: DashMap<String, Instant>,
    dropped: Counter,
}

impl Events {
    /// Makes a publisher, and the queue that [`Queue::write`] empties.
    pub fn new() -> (Arc<Self>, Queue) {
        let waiting = Arc::new(Waiting::default());
        let events = Self {
            waiting: Arc::clone(&waiting),
            quiet_until: DashMap::new(),
            dropped: Counter::default(),
        };
        (Arc::new(events), Queue(waiting))
    }

    /// Registers the counter of dropped events.
    pub fn register(&self, registry: &mut Registry) {
        registry.register(
            "events_dropped",
            "Kubernetes events not written because too many were waiting",
            self.dropped.clone(),
        );
    }

    /// Queues an event. If the queue is full, the newest event of the namespace with the most
    /// events is dropped and counted.
    pub fn publish(&self, note: EventNote) {
        self.enqueue(note, false);
    }

    fn enqueue(&self, mut note: EventNote, is_apart: bool) -> bool {
        if let Cow::Owned(text) = text::sanitize(&note.text, LONGEST_CHARS) {
            note.text = text;
        }
        let namespace = note.regarding.namespace.clone().unwrap_or_default();
        let mut notes = self.waiting.notes.lock();
        let dropped = notes.push_bounded(&namespace, (note, is_apart), MAX_QUEUED_EVENTS);
        drop(notes);
        self.waiting.filled.notify_one();
        if dropped.is_some() {
            self.dropped.inc();
        }
        dropped.is_none_or(|of| *of != *namespace)
    }

    /// Publishes the event unless one with the same `key` was published within `quiet`.
    pub fn publish_once(
        &self,
        key: String,
        quiet: Duration,
        note: impl FnOnce() -> Option<EventNote>,
    ) {
        self.publish_unless_quiet(key, quiet, false, note);
    }

    /// Publishes the event unless one with the same text on the object was published within `quiet`.
    /// Events with the same reason but other texts are events of their own, not a series, which
    /// would keep the first text.
    pub fn publish_text(&self, quiet: Duration, mut note: EventNote) {
        note.text = text::sanitize(&note.text, LONGEST_CHARS).into_owned();
        let uid = note.regarding.uid.as_deref().unwrap_or_default();
        let key = format!("{uid} {}", note.text);
        self.publish_unless_quiet(key, quiet, true, || Some(note));
    }

    fn publish_unless_quiet(
        &self,
        key: String,
        quiet: Duration,
        is_apart: bool,
        note: impl FnOnce() -> Option<EventNote>,
    ) {
        let now = Instant::now();
        if self.quiet_until.get(&key).is_some_and(|until| now < *until) {
            return;
        }
        let Some(note) = note() else { return };
        if self.quiet_until.len() >= KEYS_BEFORE_PURGE {
            self.quiet_until.retain(|_, until| now < *until);
        }
        if self.enqueue(note, is_apart) {
            self.quiet_until.insert(key, now + quiet);
        }
    }
}

/// The queue of events to write.
pub struct Queue(Arc<Waiting>);

impl Queue {
    /// Writes events until `stop`, then the rest of the queue. It drops an event that cannot be
    /// written. The future is boxed, so that it is compiled here, not in each server.
    pub fn write(
        self,
        client: Client,
        reporter: &str,
        stop: CancellationToken,
    ) -> BoxFuture<'static, ()> {
        let reporter = Reporter::from(reporter);
        let recorder = move || Recorder::new(client.clone(), reporter.clone());
        Box::pin(self.write_with(recorder, stop))
    }

    async fn write_with(self, new: impl Fn() -> Recorder, stop: CancellationToken) {
        let series = new();
        loop {
            let next = self.0.notes.lock().pop();
            let Some((note, is_apart)) = next else {
                tokio::select! {
                    () = self.0.filled.notified() => continue,
                    () = stop.cancelled() => return,
                }
            };
            let event = Event {
                type_: if note.warning {
                    EventType::Warning
                } else {
                    EventType::Normal
                },
                reason: note.reason,
                note: Some(note.text),
                action: note.action.into(),
                secondary: note.secondary,
            };
            // A recorder remembers the series of its events.
            let recorder = if is_apart { new() } else { series.clone() };
            let published = within(DEADLINE, recorder.publish(&event, &note.regarding)).await;
            if let Err(error) = published {
                tracing::debug!(%error, "an event was not written");
            }
        }
    }
}

/// A reference to an object of a kind of [`API_VERSION`].
pub fn reference_to_own(kind: &str, namespace: &str, name: &str, uid: &str) -> ObjectReference {
    reference((API_VERSION, kind), namespace, name, uid)
}

/// A reference to a pod.
pub fn reference_to_pod(namespace: &str, name: &str, uid: &str) -> ObjectReference {
    reference(("v1", "Pod"), namespace, name, uid)
}

/// A reference to an object of this API version and kind.
pub fn reference(
    (api_version, kind): (&str, &str),
    namespace: &str,
    name: &str,
    uid: &str,
) -> ObjectReference {
    ObjectReference {
        api_version: Some(api_version.into()),
        kind: Some(kind.into()),
        namespace: Some(namespace.into()),
        name: Some(name.into()),
        uid: Some(uid.into()),
        ..ObjectReference::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(namespace: &str, name: &str, text: &str) -> EventNote {
        EventNote {
            regarding: reference_to_pod(namespace, name, "u"),
            secondary: None,
            warning: true,
            reason: "Failed".to_owned(),
            action: "Evict",
            text: text.to_owned(),
        }
    }

    #[test]
    fn publish_sanitizes_texts() {
        let (events, queue) = Events::new();
        let text = "it said \u{1b}[2Jall is well\nforged";
        events.publish(note("shop", "web-0", text));
        let (note, _) = queue.0.notes.lock().pop().unwrap();
        assert_eq!(note.text, "it said \u{fffd}[2Jall is well forged");
    }

    #[test]
    fn a_flood_of_one_namespace_drops_and_delays_no_event_of_another() {
        let (events, queue) = Events::new();
        let flood = |count: usize| {
            for i in 0..count {
                events.publish(note("loud", &format!("web-{i}"), ""));
            }
        };
        flood(2 * MAX_QUEUED_EVENTS);
        events.publish_once("quiet".to_owned(), Duration::from_secs(300), || {
            Some(note("quiet", "web-0", ""))
        });
        flood(2 * MAX_QUEUED_EVENTS);
        assert_eq!(queue.0.notes.lock().len(), MAX_QUEUED_EVENTS);
        assert_eq!(events.dropped.get(), 3 * MAX_QUEUED_EVENTS as u64 + 1);
        let first: Vec<_> = (0..2).filter_map(|_| queue.0.notes.lock().pop()).collect();
        let quiet = |(n, _): &Queued| n.regarding.namespace.as_deref() == Some("quiet");
        assert!(first.iter().any(quiet), "{first:?}");
    }

    #[test]
    fn publish_once_repeats_an_event_that_was_dropped() {
        let (events, queue) = Events::new();
        let mut count = 0;
        let mut publish = |name: String| {
            let key = name.clone();
            events.publish_once(key, Duration::from_secs(300), || {
                count += 1;
                Some(note("loud", &name, ""))
            });
        };
        for i in 0..MAX_QUEUED_EVENTS {
            publish(format!("web-{i}"));
        }
        publish("late".to_owned());
        queue.0.notes.lock().pop();
        publish("late".to_owned());
        publish("late".to_owned());
        assert_eq!(count, MAX_QUEUED_EVENTS + 2);
    }
}
