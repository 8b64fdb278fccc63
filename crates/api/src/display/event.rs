use k8s_openapi::{api::core::v1::Event, jiff::Timestamp};
use serde::Serialize;

/// A summary of an event.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct EventSummary {
    /// The last time at which the event happened.
    pub time: Option<Timestamp>,
    /// The type, `Normal` or `Warning`.
    #[serde(rename = "type")]
    pub type_: String,
    /// The reason code.
    pub reason: String,
    /// The text.
    pub note: String,
    /// The number of times that the event happened.
    pub count: i32,
    /// The component that reported the event.
    pub reporter: String,
}

impl From<Event> for EventSummary {
    fn from(event: Event) -> Self {
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
    fn events_of_both_apis_give_equal_summaries() {
        let new: Event = serde_json::from_value(json!({
            "metadata": {"creationTimestamp": "2026-01-02T08:00:00Z"},
            "eventTime": "2026-01-02T09:00:00.000000Z",
            "series": {"count": 3, "lastObservedTime": "2026-01-02T11:00:00.000000Z"},
            "involvedObject": {},
            "type": "Warning", "reason": "Violated", "message": "31ms > 20ms",
            "reportingComponent": "tautline-controller",
        }))
        .unwrap();
        let old: Event = serde_json::from_value(json!({
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
