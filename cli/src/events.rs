use k8s_openapi::{api::core::v1::Event, jiff::Timestamp};
use kube::{Api, Client, api::ListParams};
use tautline_api::display::EventSummary;

use crate::{
    age, fetch,
    table::{field, section},
};

/// Lists the events of an object, the newest last.
pub(crate) async fn list(
    client: &Client,
    namespace: &str,
    kind: &str,
    name: &str,
) -> Result<Vec<EventSummary>, String> {
    let api: Api<Event> = Api::namespaced(client.clone(), namespace);
    let fields = format!("involvedObject.name={name},involvedObject.kind={kind}");
    let list = fetch::pages(&api, ListParams::default().fields(&fields)).await;
    let list = list.map_err(|e| fetch::cause(&e))?.into_iter();
    let mut all: Vec<EventSummary> = list.map(EventSummary::from).collect();
    all.sort_by_key(|h| h.time);
    Ok(all)
}

pub(crate) fn history(events: &Result<Vec<EventSummary>, String>, now: Timestamp) -> String {
    let events = match events {
        Ok(events) => events,
        Err(why) => return field("History", &format!("cannot be read: {why}")),
    };
    let when = |event: &EventSummary| {
        let age = event.time.map_or("-".into(), |time| age::since(time, now));
        match event.count {
            ..=1 => age,
            count => format!("{age} (x{count})"),
        }
    };
    section(
        "History",
        events,
        &[
            ("AGE", &when),
            ("TYPE", &|event| event.type_.clone()),
            ("REASON", &|event| event.reason.clone()),
            ("NOTE", &|event| event.note.clone()),
        ],
    )
}
