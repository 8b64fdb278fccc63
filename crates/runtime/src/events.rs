//! Kubernetes events, written in the background.

use std::{borrow::Cow, sync::Arc, time::Duration};

use dashmap::DashMap;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube_runtime::events::{Event, EventType, Recorder, Reporter};
use prometheus_client::{metrics::counter::Counter, registry::Registry};
use tautline_core::{names::API_VERSION, text};
use tokio::{
    sync::mpsc::{self, Receiver, Sender},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use crate::api_call::within;

const QUEUE: usize = 1024;
const MANY: usize = 1024;
const DEADLINE: Duration = Duration::from_secs(5);
/// The API server rejects notes above 1 kB.
const LONGEST_CHARS: usize = 900;

/// An event on an object.
#[derive(Clone, Debug)]
pub struct EventNote {
    /// The object.
    pub regarding: ObjectReference,
    /// A related object. Events that differ in it are counted separately.
    pub secondary: Option<ObjectReference>,
    /// Type Warning instead of Normal.
    pub warning: bool,
    /// A stable code.
    pub reason: String,
    /// The action taken or attempted.
    pub action: &'static str,
    /// The message; sanitized and cut to 900 characters.
    pub text: String,
}

/// Publishes events without waiting.
#[derive(Debug)]
pub struct Events {
    queue: Sender<EventNote>,
    quiet_until: DashMap<String, Instant>,
    dropped: Counter,
}

impl Events {
    /// A publisher, and the queue that [`Queue::write`] empties.
    pub fn new() -> (Arc<Self>, Queue) {
        let (queue, receiver) = mpsc::channel(QUEUE);
        let events = Self {
            queue,
            quiet_until: DashMap::new(),
            dropped: Counter::default(),
        };
        (Arc::new(events), Queue(receiver))
    }

    /// Registers the counter of dropped events.
    pub fn register(&self, registry: &mut Registry) {
        registry.register(
            "events_dropped",
            "Kubernetes events not written because too many were waiting",
            self.dropped.clone(),
        );
    }

    /// Queues an event; drops and counts it if the queue is full.
    pub fn publish(&self, note: EventNote) {
        self.enqueue(note);
    }

    fn enqueue(&self, mut note: EventNote) -> bool {
        if let Cow::Owned(text) = text::sanitize(&note.text, LONGEST_CHARS) {
            note.text = text;
        }
        let queued = self.queue.try_send(note).is_ok();
        if !queued {
            self.dropped.inc();
        }
        queued
    }

    /// Publishes the event unless one with the same `key` was published within `quiet`.
    pub fn publish_once(
        &self,
        key: String,
        quiet: Duration,
        note: impl FnOnce() -> Option<EventNote>,
    ) {
        let now = Instant::now();
        if self.quiet_until.get(&key).is_some_and(|until| now < *until) {
            return;
        }
        let Some(note) = note() else { return };
        if self.quiet_until.len() >= MANY {
            self.quiet_until.retain(|_, until| now < *until);
        }
        if self.enqueue(note) {
            self.quiet_until.insert(key, now + quiet);
        }
    }
}

/// The queue of events to write.
pub struct Queue(Receiver<EventNote>);

impl Queue {
    /// Writes events until `stop`, then the queue's rest. Drops an event that cannot be written.
    pub async fn write(mut self, client: Client, reporter: &str, stop: CancellationToken) {
        let recorder = Recorder::new(client, Reporter::from(reporter));
        loop {
            let note = tokio::select! {
                biased;
                note = self.0.recv() => match note { Some(note) => note, None => return },
                () = stop.cancelled() => return,
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
            let published = within(DEADLINE, recorder.publish(&event, &note.regarding)).await;
            if let Err(error) = published {
                tracing::debug!(%error, "an event was not written");
            }
        }
    }
}

/// A reference to an object of a kind of [`API_VERSION`].
pub fn reference_to_own(kind: &str, namespace: &str, name: &str, uid: &str) -> ObjectReference {
    ObjectReference {
        api_version: Some(API_VERSION.into()),
        kind: Some(kind.into()),
        namespace: Some(namespace.into()),
        name: Some(name.into()),
        uid: Some(uid.into()),
        ..ObjectReference::default()
    }
}

/// A reference to a pod.
pub fn reference_to_pod(namespace: &str, name: &str, uid: &str) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".into()),
        kind: Some("Pod".into()),
        namespace: Some(namespace.into()),
        name: Some(name.into()),
        uid: Some(uid.into()),
        ..ObjectReference::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn publish_sanitizes_texts() {
        let (events, mut queue) = Events::new();
        events.publish(EventNote {
            regarding: reference_to_pod("shop", "web-0", "u"),
            secondary: None,
            warning: true,
            reason: "Failed".to_owned(),
            action: "Evict",
            text: "it said \u{1b}[2Jall is well\nforged".to_owned(),
        });
        let note = queue.0.recv().await.unwrap();
        assert_eq!(note.text, "it said \u{fffd}[2Jall is well forged");
    }
}
