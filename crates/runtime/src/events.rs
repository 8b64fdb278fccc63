//! Kubernetes events, written beside the work: whoever has something to say never
//! waits for the API server.

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

/// Events that wait to be written; more are dropped and counted.
const QUEUE: usize = 1024;
/// Keys remembered before old ones are looked for.
const MANY: usize = 1024;
/// An event that the API server does not take within so long is dropped.
const DEADLINE: Duration = Duration::from_secs(5);
/// The API server refuses notes above 1 kB.
const LONGEST_CHARS: usize = 900;

/// Something to say of an object.
#[derive(Clone, Debug)]
pub struct EventNote {
    pub regarding: ObjectReference,
    /// What else it is about. Notes that differ in this are not counted together.
    pub secondary: Option<ObjectReference>,
    pub warning: bool,
    /// A stable code.
    pub reason: String,
    /// What was done, or was to be done.
    pub action: &'static str,
    pub text: String,
}

/// Takes notes without waiting.
#[derive(Debug)]
pub struct Events {
    queue: Sender<EventNote>,
    quiet_until: DashMap<String, Instant>,
    dropped: Counter,
}

impl Events {
    pub fn new() -> (Arc<Self>, Queue) {
        let (queue, receiver) = mpsc::channel(QUEUE);
        let events = Self {
            queue,
            quiet_until: DashMap::new(),
            dropped: Counter::default(),
        };
        (Arc::new(events), Queue(receiver))
    }

    pub fn register(&self, registry: &mut Registry) {
        registry.register(
            "events_dropped",
            "Kubernetes events not written because too many were waiting",
            self.dropped.clone(),
        );
    }

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

    /// Says it unless the same was said within `quiet`; `key` tells what is same.
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

/// The writer's end.
pub struct Queue(Receiver<EventNote>);

impl Queue {
    /// Writes events until told to stop, and then what is still waiting, for a
    /// moment. One that cannot be written is dropped: it must not hold up others.
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

/// A reference to one of our own kinds.
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
    async fn quoted_texts_are_cleaned_before_they_are_written() {
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
