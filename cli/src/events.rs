use anyhow::Result;
use k8s_openapi::{
    api::{core::v1 as core, events::v1 as events},
    jiff::Timestamp,
};
use kube::{Api, Client, api::ListParams};
use serde::Serialize;

use crate::{age, fetch, table::section};

#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct EventSummary {
    /// The last time it happened.
    pub time: Option<Timestamp>,
    #[serde(rename = "type")]
    pub type_: String,
    pub reason: String,
    pub note: String,
    pub count: i32,
    pub reporter: String,
}

/// The events of an object, the newest last.
pub(crate) async fn list(
    client: &Client,
    namespace: &str,
    kind: &str,
    name: &str,
) -> Result<Vec<EventSummary>, String> {
    let api: Api<events::Event> = Api::namespaced(client.clone(), namespace);
    let params =
        ListParams::default().fields(&format!("regarding.name={name},regarding.kind={kind}"));
    let mut all: Vec<EventSummary> = match fetch::pages(&api, params).await {
        Ok(list) => list.into_iter().map(EventSummary::from).collect(),
        // Both APIs show the same events, but roles often allow only the older one.
        Err(kube::Error::Api(status)) if [403, 404].contains(&status.code) => {
            let api: Api<core::Event> = Api::namespaced(client.clone(), namespace);
            let params = ListParams::default().fields(&format!(
                "involvedObject.name={name},involvedObject.kind={kind}"
            ));
            let list = fetch::pages(&api, params).await;
            let list = list.map_err(|e| fetch::cause(&e))?;
            list.into_iter().map(EventSummary::from).collect()
        }
        Err(error) => return Err(fetch::cause(&error)),
    };
    all.sort_by_key(|h| h.time);
    Ok(all)
}

pub(crate) fn history(events: &Result<Vec<EventSummary>, String>, now: Timestamp) -> String {
    let events = match events {
        Ok(events) => events,
        Err(why) => return crate::table::field("History", &format!("cannot be read: {why}")),
    };
    let rows = events.iter().map(|event| {
        let mut when = match event.time {
            Some(time) => age::since(time, now),
            None => "-".into(),
        };
        if event.count > 1 {
            when.push_str(&format!(" (x{})", event.count));
        }
        vec![
            when,
            event.type_.clone(),
            event.reason.clone(),
            event.note.clone(),
        ]
    });
    section(
        "History",
        &["AGE", "TYPE", "REASON", "NOTE"],
        rows.collect(),
    )
}

impl From<events::Event> for EventSummary {
    fn from(event: events::Event) -> Self {
        let series = event.series.as_ref();
        let times = [
            series.map(|s| s.last_observed_time.0),
            event.deprecated_last_timestamp.map(|t| t.0),
            event.event_time.map(|t| t.0),
            event.metadata.creation_timestamp.map(|t| t.0),
        ];
        let source = event.deprecated_source.and_then(|s| s.component);
        Self {
            time: times.into_iter().flatten().next(),
            type_: event.type_.unwrap_or_default(),
            reason: event.reason.unwrap_or_default(),
            note: event.note.unwrap_or_default(),
            count: series
                .map(|s| s.count)
                .or(event.deprecated_count)
                .unwrap_or(1),
            reporter: event
                .reporting_controller
                .filter(|c| !c.is_empty())
                .or(source)
                .unwrap_or_default(),
        }
    }
}

impl From<core::Event> for EventSummary {
    fn from(event: core::Event) -> Self {
        let series = event.series.as_ref();
        let times = [
            series.and_then(|s| s.last_observed_time.as_ref().map(|t| t.0)),
            event.last_timestamp.map(|t| t.0),
            event.event_time.map(|t| t.0),
            event.metadata.creation_timestamp.map(|t| t.0),
        ];
        let source = event.source.and_then(|s| s.component);
        Self {
            time: times.into_iter().flatten().next(),
            type_: event.type_.unwrap_or_default(),
            reason: event.reason.unwrap_or_default(),
            note: event.message.unwrap_or_default(),
            count: series.and_then(|s| s.count).or(event.count).unwrap_or(1),
            reporter: event
                .reporting_component
                .filter(|c| !c.is_empty())
                .or(source)
                .unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn event_apis_give_equal_summaries() {
        let new: events::Event = serde_json::from_value(json!({
            "metadata": {"creationTimestamp": "2026-01-02T08:00:00Z"},
            "eventTime": "2026-01-02T09:00:00.000000Z",
            "series": {"count": 3, "lastObservedTime": "2026-01-02T11:00:00.000000Z"},
            "type": "Warning", "reason": "Violated", "note": "31ms > 20ms",
            "reportingController": "tautline-controller",
        }))
        .unwrap();
        let old: core::Event = serde_json::from_value(json!({
            "metadata": {"creationTimestamp": "2026-01-02T08:00:00Z"},
            "involvedObject": {},
            "lastTimestamp": "2026-01-02T11:00:00Z", "count": 3,
            "type": "Warning", "reason": "Violated", "message": "31ms > 20ms",
            "reportingComponent": "", "source": {"component": "tautline-controller"},
        }))
        .unwrap();
        let (new, old) = (EventSummary::from(new), EventSummary::from(old));
        assert_eq!(new, old);
        assert_eq!(new.count, 3);
        assert_eq!(new.time, Some("2026-01-02T11:00:00Z".parse().unwrap()));
    }
}
