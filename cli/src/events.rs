use anyhow::Result;
use k8s_openapi::{
    api::{core::v1 as core, events::v1 as events},
    jiff::Timestamp,
};
use kube::{Api, Client, api::ListParams};
use tautline_api::display::EventSummary;

use crate::{age, fetch, table::section};

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
            let list = fetch::pages(&api, params)
                .await
                .map_err(|e| fetch::cause(&e))?;
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
