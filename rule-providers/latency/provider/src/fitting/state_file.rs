//! The state file, which preserves the model over a restart. It has a header line, a line for each
//! instance (node, UID, boot ID), an empty line, and the model's snapshot.

use std::{
    fs,
    io::{self, Write},
    path::Path,
};

use tautline_rtt_model::{Model, Options};

use crate::network::Network;

/// The first line, with the version of the format, also of the model's snapshot.
const HEADER: &str = "tautline-latency-state 2";

#[derive(Debug, thiserror::Error)]
enum StateError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("it has no header {HEADER:?}")]
    Foreign,
    #[error("it was cut short or changed")]
    Damaged,
}

/// Writes the state file, whole or not at all.
pub(super) fn write(path: &Path, network: &Network, model: &Model) -> io::Result<()> {
    let mut out = format!("{HEADER}\n");
    {
        let store = network.pairs.lock();
        for id in store.ids() {
            if let Some(i) = store.get(id) {
                out.push_str(&format!("{} {} {}\n", i.node, i.uid, i.boot));
            }
        }
    }
    out.push('\n');
    let new = path.with_extension("new");
    let mut file = fs::File::create(&new)?;
    file.write_all(out.as_bytes())?;
    file.write_all(&model.snapshot())?;
    file.sync_all()?;
    fs::rename(new, path)
}

/// Restores the model of the last run; logs why it cannot.
pub(super) fn restore(path: &Path, network: &Network) -> Option<Model> {
    match read(path, network) {
        Ok(model) => {
            tracing::info!(path = %path.display(), nodes = model.len(), "state restored");
            Some(model)
        }
        Err(StateError::Io(error)) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => {
            tracing::warn!(path = %path.display(), %error, "the state file cannot be used; starting from nothing");
            None
        }
    }
}

/// Restores the model without instances that no longer exist; the others enter the pair store.
fn read(path: &Path, network: &Network) -> Result<Model, StateError> {
    let bytes = fs::read(path)?;
    let end = bytes.windows(2).position(|w| w == b"\n\n");
    let (head, snapshot) = bytes.split_at(end.ok_or(StateError::Foreign)? + 2);
    let head = std::str::from_utf8(head).map_err(|_| StateError::Foreign)?;
    let mut lines = head.lines();
    if lines.next() != Some(HEADER) {
        return Err(StateError::Foreign);
    }
    let mut model = Model::restore(Options::default(), snapshot).ok_or(StateError::Damaged)?;
    let nodes = network.store.snapshot();
    for line in lines {
        let parts: Vec<&str> = line.split(' ').collect();
        let [node, uid, boot] = parts[..] else {
            continue;
        };
        let same = nodes.node(node).is_some_and(|n| *n.uid == *uid);
        let name = format!("{uid}/{boot}");
        let mut store = network.pairs.lock();
        // The instance of a connected agent is newer.
        if same && store.id(node).is_none() {
            store.instance(node, uid, boot, network.now());
        }
        let instance = store.id(node).and_then(|id| store.get(id));
        let present = instance.is_some_and(|i| *i.name == *name);
        if let Some(gone) = model.node(&name).filter(|_| !present) {
            model.remove(gone);
        }
    }
    Ok(model)
}
