//! Reads the tables of round-trip times and bandwidths from a file or from labelled ConfigMaps, and
//! follows their changes.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use futures::{Stream, StreamExt};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client};
use kube_runtime::{WatchStreamExt, watcher};
use tautline_core::TrustedNamespaces;
use tautline_runtime::{
    admin::Readiness,
    backoff::WatchBackoff,
    tasks::Tasks,
    tls::FileChanges,
    watch_changes::{Change, Changes},
};
use tokio_util::sync::CancellationToken;

use super::{
    Tables,
    config_maps::ConfigMapTables,
    table::{Table, Unit},
};
use crate::provider::Latency;

/// The label (value `enabled`) of ConfigMaps with tables of round-trip times.
pub const TABLE_LABEL: &str = "constraint.ciena.com/latency-table";
/// The label (value `enabled`) of ConfigMaps with tables of bandwidth.
pub const BANDWIDTH_TABLE_LABEL: &str = "constraint.ciena.com/bandwidth-table";

/// The number of ConfigMaps in a page of a list, which has at most 16 MiB.
const PAGE_SIZE: u32 = 16;

pub(crate) fn follow_file(provider: &Latency, path: PathBuf, tasks: &mut Tasks) -> Result<()> {
    provider.set_table(read(&path)?);
    let follow = reload(provider.clone(), path, tasks.stop_token());
    tasks.spawn("table", follow);
    Ok(())
}

fn read(path: &Path) -> Result<Table> {
    let name = || path.display().to_string();
    let text = std::fs::read_to_string(path).with_context(name)?;
    let mut table = Table::default();
    table.add(&text).with_context(name)?;
    Ok(table)
}

async fn reload(provider: Latency, path: PathBuf, stop: CancellationToken) -> Result<()> {
    let mut changes = FileChanges::new(vec![path.clone()]);
    while changes.next(&stop).await {
        match read(&path) {
            Ok(table) => provider.set_table(table),
            Err(error) => tracing::warn!("{error:#}; keeping the old table"),
        }
    }
    Ok(())
}

pub(crate) fn follow_config_maps(
    client: &Client,
    provider: &Latency,
    trusted: TrustedNamespaces,
    readiness: &Readiness,
    tasks: &mut Tasks,
) {
    let (latency, bandwidth) = (provider.clone(), provider.clone());
    let maps = ConfigMapTables::new(trusted.clone());
    follow_labelled(client, TABLE_LABEL, maps, readiness, tasks, move |tables| {
        latency.set_table(tables);
    });
    let maps = ConfigMapTables::new(trusted);
    let label = BANDWIDTH_TABLE_LABEL;
    follow_labelled(client, label, maps, readiness, tasks, move |tables| {
        bandwidth.set_bandwidth_table(tables);
    });
}

/// Watches the ConfigMaps with a label. It stores no texts, as there may be many of 1 MiB each.
fn follow_labelled<U: Unit>(
    client: &Client,
    label: &str,
    empty: ConfigMapTables<U>,
    readiness: &Readiness,
    tasks: &mut Tasks,
    set: impl Fn(Tables<U>) + Send + 'static,
) {
    let name = format!("configmaps ({label})");
    let config = watcher::Config::default()
        .labels(&format!("{label}=enabled"))
        .page_size(PAGE_SIZE);
    let events =
        watcher(Api::<ConfigMap>::all(client.clone()), config).backoff(WatchBackoff::default());
    readiness.expect(&name);
    let (readiness, stop) = (readiness.clone(), tasks.stop_token());
    tasks.spawn(&format!("watch {name}"), async move {
        let events = events.take_until(stop.cancelled_owned());
        let set = move |tables| {
            set(tables);
            readiness.done(&name);
        };
        apply_events(events, empty, set).await;
        Ok(())
    });
}

async fn apply_events<U: Unit>(
    events: impl Stream<Item = watcher::Result<watcher::Event<ConfigMap>>>,
    empty: ConfigMapTables<U>,
    set: impl Fn(Tables<U>),
) {
    let mut events = std::pin::pin!(events);
    let (mut maps, mut changes) = (empty.clone(), Changes::default());
    while let Some(event) = events.next().await {
        match event.map(|event| changes.next(event, |map| map)) {
            Ok(None) => continue,
            Ok(Some(Change::Replaced(list))) => {
                maps = empty.clone();
                list.iter().for_each(|map| put(&mut maps, map));
            }
            Ok(Some(Change::Applied(map))) => put(&mut maps, &map),
            Ok(Some(Change::Deleted(map))) => {
                let (namespace, name) = identity(&map);
                maps.remove(namespace, name);
            }
            Err(error) => {
                tracing::warn!(kind = "configmaps", %error, "the watch restarts");
                continue;
            }
        }
        set(maps.tables());
    }
}

/// Builds the tables of ConfigMaps; a table in an untrusted namespace applies only there. A
/// malformed row, the rows after it, and rows above the bounds are left out and logged. `U` is
/// [`crate::RoundTrip`] or [`crate::Bandwidth`].
pub fn tables_of<'a, U: Unit>(
    trusted: TrustedNamespaces,
    maps: impl Iterator<Item = &'a ConfigMap>,
) -> Tables<U> {
    let mut tables = ConfigMapTables::new(trusted);
    maps.for_each(|map| put(&mut tables, map));
    tables.tables()
}

fn put<U: Unit>(tables: &mut ConfigMapTables<U>, map: &ConfigMap) {
    let (namespace, name) = identity(map);
    let data = map.data.iter().flatten();
    let data = data.map(|(key, text)| (key.as_str(), text.as_str()));
    for error in tables.put(namespace, name, data) {
        tracing::warn!("{error}");
    }
}

/// Returns the namespace and the name; a manifest may omit the namespace.
fn identity(map: &ConfigMap) -> (&str, &str) {
    let meta = &map.metadata;
    let namespace = meta.namespace.as_deref().unwrap_or("default");
    (namespace, meta.name.as_deref().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use kube::core::ObjectMeta;
    use kube_runtime::watcher::Event;
    use tautline_sdk::{CostRequest, Reference, Rule, RuleProvider};

    use super::*;

    fn map(namespace: &str, name: &str, csv: &str) -> ConfigMap {
        ConfigMap {
            metadata: ObjectMeta {
                namespace: Some(namespace.to_owned()),
                name: Some(name.to_owned()),
                ..ObjectMeta::default()
            },
            data: Some([("t".to_owned(), csv.to_owned())].into()),
            ..ConfigMap::default()
        }
    }

    async fn cost(events: Vec<Event<ConfigMap>>, namespace: &str) -> i64 {
        let provider = Latency::new(tautline_runtime::cluster_store::ClusterStore::default());
        let trusted = TrustedNamespaces::from_iter(["system"]);
        let events = futures::stream::iter(events.into_iter().map(Ok));
        apply_events(events, ConfigMapTables::new(trusted), |t| {
            provider.set_table(t)
        })
        .await;
        let request = CostRequest {
            source: Reference::pod(namespace, "p"),
            rule: Rule {
                name: "latency".to_owned(),
                ..Rule::default()
            },
            peer_nodes: vec!["b".to_owned()],
            eligible_nodes: vec!["a".to_owned()],
            ..CostRequest::default()
        };
        provider.endpoint_cost(request).await.unwrap().nodes()[0].cost
    }

    #[tokio::test]
    async fn tables_follow_the_watch() {
        let listed = || {
            vec![
                Event::Init,
                Event::InitApply(map("system", "all", "a,b,5us")),
                Event::InitApply(map("tenant", "mine", "a,b,7us\nmalformed")),
                Event::InitDone,
            ]
        };
        let after = |more: Vec<Event<ConfigMap>>| listed().into_iter().chain(more).collect();
        assert_eq!(cost(listed(), "shop").await, 5);
        assert_eq!(cost(listed(), "tenant").await, 7);
        let changed = || after(vec![Event::Apply(map("system", "all", "a,b,6us"))]);
        assert_eq!(cost(changed(), "shop").await, 6);
        let deleted = || after(vec![Event::Delete(map("tenant", "mine", ""))]);
        assert_eq!(cost(deleted(), "tenant").await, 5);
        let again = || after(vec![Event::Init, Event::InitDone]);
        assert_eq!(cost(again(), "shop").await, -1);
        let unfinished = || after(vec![Event::Init]);
        assert_eq!(cost(unfinished(), "tenant").await, 7);
    }
}
