//! The example's manifests, and others, as the commands see them.

use std::{path::Path, sync::Arc};

use tautline_api::manifest;
use tautline_core::{Index, Snapshot};
use tautline_gpu_slice::{Config, Inspection};
use tautline_runtime::manifest_files;

pub(crate) fn example() -> Arc<Snapshot> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/gpu-slices");
    snapshot(manifest_files::read(&[dir]).unwrap().items)
}

pub(crate) fn of(text: &str) -> Arc<Snapshot> {
    snapshot(manifest::parse(text).unwrap())
}

pub(crate) fn inspection(snapshot: Arc<Snapshot>) -> Inspection {
    Inspection::new(snapshot, Config::default())
}

fn snapshot(items: Vec<manifest::Item>) -> Arc<Snapshot> {
    let mut index = Index::default();
    for item in &items {
        if let Some(object) = manifest_files::object(item).unwrap() {
            index.apply(object);
        }
    }
    Arc::new(index.snapshot())
}

/// A node with this number of cards in mode milli, and pods on it with their records.
pub(crate) fn slices(cards: &str, records: &[&str]) -> Arc<Snapshot> {
    let mut text = format!(
        "apiVersion: v1\nkind: Node\nmetadata:\n  name: n\n  annotations: {{tautline.io/gpu-cards: \"{cards}\"}}\n"
    );
    for (i, record) in records.iter().enumerate() {
        text += &format!(
            "---\napiVersion: v1\nkind: Pod\nmetadata:\n  name: p-{i}\n  namespace: ml\n  \
             annotations: {{tautline.io/gpu-devices: \"{record}\"}}\nspec: {{nodeName: n, containers: []}}\n"
        );
    }
    of(&text)
}
