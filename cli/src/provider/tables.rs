//! The tables of the latency provider: a file, or ConfigMaps by their label.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client, core::DeserializeGuard};
use tautline_latency::{
    BANDWIDTH_TABLE_LABEL, BandwidthTable, Latency, TABLE_LABEL, Table, TableError,
};
use tautline_runtime::{admin::Readiness, tasks::Tasks, tls::FileChanges, watch::list_of};
use tokio_util::sync::CancellationToken;

/// Takes the table of latencies from a file, and follows it.
///
/// # Errors
/// It cannot be read, or a line is malformed.
pub(super) fn of_file(provider: &Latency, path: PathBuf, tasks: &mut Tasks) -> Result<()> {
    provider.set_table(read(&path)?);
    let follow = follow(provider.clone(), path, tasks.stop_token());
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

async fn follow(provider: Latency, path: PathBuf, stop: CancellationToken) -> Result<()> {
    let mut changes = FileChanges::new(vec![path.clone()]);
    while changes.next(&stop).await {
        match read(&path) {
            Ok(table) => provider.set_table(table),
            Err(error) => tracing::warn!("{error:#}; keeping the old table"),
        }
    }
    Ok(())
}

/// Takes the table of latencies from the cluster's ConfigMaps.
pub(super) fn of_latency(
    client: &Client,
    provider: &Latency,
    readiness: &Readiness,
    tasks: &mut Tasks,
) {
    let to = provider.clone();
    labelled(client, TABLE_LABEL, readiness, tasks, move |maps| {
        to.set_table(latency_of(maps.iter().map(Arc::as_ref)));
    });
}

/// The same for the table of bandwidths.
pub(super) fn of_bandwidth(
    client: &Client,
    provider: &Latency,
    readiness: &Readiness,
    tasks: &mut Tasks,
) {
    let to = provider.clone();
    labelled(
        client,
        BANDWIDTH_TABLE_LABEL,
        readiness,
        tasks,
        move |maps| {
            to.set_bandwidth_table(bandwidth_of(maps.iter().map(Arc::as_ref)));
        },
    );
}

fn labelled(
    client: &Client,
    label: &str,
    readiness: &Readiness,
    tasks: &mut Tasks,
    set: impl Fn(Vec<Arc<ConfigMap>>) + Send + 'static,
) {
    let api: Api<DeserializeGuard<ConfigMap>> = Api::all(client.clone());
    let selector = format!("{label}=enabled");
    list_of(api, Some(&selector), readiness, tasks, set);
}

/// The table of latencies that ConfigMaps hold together. A malformed one is left
/// out from the line on, and named in the log.
pub(crate) fn latency_of<'a>(maps: impl Iterator<Item = &'a ConfigMap>) -> Table {
    let mut table = Table::default();
    together(maps, |text| table.add(text));
    table
}

/// The same of bandwidths.
pub(crate) fn bandwidth_of<'a>(maps: impl Iterator<Item = &'a ConfigMap>) -> BandwidthTable {
    let mut table = BandwidthTable::default();
    together(maps, |text| table.add(text));
    table
}

fn together<'a>(
    maps: impl Iterator<Item = &'a ConfigMap>,
    mut add: impl FnMut(&str) -> Result<(), TableError>,
) {
    for map in maps {
        for (key, text) in map.data.iter().flatten() {
            if let Err(error) = add(text) {
                let meta = &map.metadata;
                let namespace = meta.namespace.as_deref().unwrap_or_default();
                let name = meta.name.as_deref().unwrap_or_default();
                tracing::warn!(
                    "ConfigMap {namespace}/{name}, {key}: {error}; the rest of it is left out"
                );
            }
        }
    }
}
