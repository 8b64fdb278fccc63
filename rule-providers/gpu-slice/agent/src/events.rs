//! Publishes events on pods whose containers are refused.

use std::time::Duration;

use tautline_runtime::events::{EventNote, Events, reference_to_pod};

use crate::{device_plugin::Refusal, pods::PodEntry};

const REASON: &str = "GpuRefused";
const ACTION: &str = "GiveGpu";
/// The shortest time between two equal events; the kubelet tries a container again every few
/// seconds.
const EVENT_QUIET: Duration = Duration::from_secs(60);

/// Publishes the reason why a container of the pod gets no cards, at most once a minute.
pub(crate) fn refused(events: &Events, pod: &PodEntry, container: &str, refusal: &Refusal) {
    let key = format!("{}/{container}/{}", pod.uid, refusal.reason);
    events.publish_once(key, EVENT_QUIET, || {
        Some(EventNote {
            regarding: reference_to_pod(&pod.namespace, &pod.name, &pod.api_uid),
            secondary: None,
            warning: true,
            reason: REASON.to_owned(),
            action: ACTION,
            text: text(refusal),
        })
    });
}

fn text(refusal: &Refusal) -> String {
    format!("{}: {}", refusal.reason, refusal.text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_begins_with_the_code() {
        let refusal = Refusal {
            reason: "NoRecord",
            text: "container app of pod shop/a gets no card".to_owned(),
        };
        let expected = "NoRecord: container app of pod shop/a gets no card";
        assert_eq!(text(&refusal), expected);
    }
}
