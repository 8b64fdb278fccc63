//! Kubernetes events on offers whose rules do not count because no provider
//! answers, and the like: once for each offer, rule and code in a while.

use std::{sync::Arc, time::Duration};

use dashmap::DashMap;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube_runtime::events::{Event, EventType, Recorder, Reporter};
use tautline_core::Snapshot;
use tautline_discovery::{Discovery, Round};
use tokio::{
    sync::mpsc::{self, Receiver, Sender},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use crate::{metrics::Metrics, plans::Planned, underlay::code::NEEDS_BIND};

/// The same is not said again for so long.
const QUIET: Duration = Duration::from_secs(300);
const QUEUE: usize = 128;

#[derive(Debug)]
struct Note {
    offer: ObjectReference,
    reason: String,
    text: String,
}

/// Takes notes without waiting; what does not fit the queue is counted.
#[derive(Debug)]
pub(crate) struct Events {
    queue: Sender<Note>,
    said: DashMap<String, Instant>,
    metrics: Metrics,
}

impl Events {
    pub(crate) fn new(metrics: Metrics) -> (Arc<Self>, Queue) {
        let (queue, receiver) = mpsc::channel(QUEUE);
        (
            Arc::new(Self {
                queue,
                said: DashMap::new(),
                metrics,
            }),
            Queue(receiver),
        )
    }

    /// Notes what an operator should know of a round: rules that were ignored,
    /// and providers of which only age or name decided.
    pub(crate) fn round(&self, snapshot: &Snapshot, discovery: &Discovery, round: &Round) {
        let namespace = round.subject.namespace.as_str();
        for (record, code) in round.ignored() {
            self.say(
                snapshot,
                namespace,
                &record.offer,
                &record.rule.name,
                code,
                || {
                    let why = record.error.as_deref().unwrap_or(code);
                    format!(
                        "rule {} does not count while pods are placed: {why}",
                        record.rule.name
                    )
                },
            );
        }
        for record in &round.rules {
            let Some(chosen) = &record.provider else {
                continue;
            };
            let rule = &record.rule.name;
            if let Some(rival) = discovery.rival(snapshot, rule, namespace) {
                self.say(
                    snapshot,
                    namespace,
                    &record.offer,
                    rule,
                    "ProviderAmbiguous",
                    || {
                        format!(
                            "rule {rule} is answered by {chosen}; {}/{} ties with it: unlabel one, \
                         or set the annotation constraint.ciena.com/priority",
                            rival.namespace, rival.name
                        )
                    },
                );
            }
        }
    }

    /// Notes that an underlay could not be asked because nobody would allocate.
    pub(crate) fn underlay(&self, snapshot: &Snapshot, plan: &Planned) {
        let Some(asked) = plan.underlay.as_ref().filter(|u| u.code == NEEDS_BIND) else {
            return;
        };
        let namespace = plan.subject.namespace.as_str();
        for record in &plan.rules {
            self.say(snapshot, namespace, &record.offer, "", NEEDS_BIND, || {
                format!(
                    "no node keeps to the rules, and the underlay {} is not asked: what it \
                     offers is allocated at bind; start the extender with --bind",
                    asked.service
                )
            });
        }
    }

    fn say(
        &self,
        snapshot: &Snapshot,
        namespace: &str,
        offer: &str,
        rule: &str,
        code: &'static str,
        text: impl FnOnce() -> String,
    ) {
        let key = format!("{namespace}/{offer}/{rule}/{code}");
        let now = Instant::now();
        if self
            .said
            .get(&key)
            .is_some_and(|at| now.duration_since(*at) < QUIET)
        {
            return;
        }
        let entries = snapshot.offers_in(namespace);
        let Some(entry) = entries.iter().find(|e| *e.offer.name == *offer) else {
            return;
        };
        self.said.retain(|_, at| now.duration_since(*at) < QUIET);
        self.said.insert(key, now);
        let offer = ObjectReference {
            api_version: Some("constraint.ciena.com/v1alpha1".into()),
            kind: Some("ConstraintPolicyOffer".into()),
            namespace: Some(namespace.to_owned()),
            name: Some(offer.to_owned()),
            uid: Some(entry.offer.uid.to_string()),
            ..ObjectReference::default()
        };
        // The API server refuses notes above 1 kB.
        let text: String = text().chars().take(900).collect();
        if self
            .queue
            .try_send(Note {
                offer,
                reason: code.to_owned(),
                text,
            })
            .is_err()
        {
            self.metrics.events_dropped.inc();
        }
    }
}

/// The writer's end.
pub(crate) struct Queue(Receiver<Note>);

impl Queue {
    /// Writes events until told to stop. An event that cannot be written is
    /// dropped: it must never hold up anything.
    pub(crate) async fn write(mut self, client: Client, stop: CancellationToken) {
        let recorder = Recorder::new(client, Reporter::from("tautline-extender"));
        loop {
            let note = tokio::select! {
                () = stop.cancelled() => return,
                note = self.0.recv() => match note { Some(note) => note, None => return },
            };
            let event = Event {
                type_: EventType::Warning,
                reason: note.reason,
                note: Some(note.text),
                action: "Schedule".into(),
                secondary: None,
            };
            if let Err(error) = recorder.publish(&event, &note.offer).await {
                tracing::debug!(%error, "an event was not written");
            }
        }
    }
}
