//! The state file, which preserves the model over a restart. It has a header line, a line for each
//! instance (node, UID, boot ID), an empty line, and the model's snapshot.

use std::{
    fs,
    io::{self, Write},
    path::Path,
};

use tautline_rtt_model::{Model, Options};

use super::context::FitContext;
use crate::network::measured_pairs::MeasuredPairs;

const HEADER: &str = "tautline-latency-state 1";
/// The largest state file that is read, in bytes; 10,000 nodes take some 10 MB.
const MAX_FILE_BYTES: u64 = 256 << 20;

/// Writes the state file, whole or not at all.
pub(super) fn write(path: &Path, pairs: &MeasuredPairs, model: &Model) -> io::Result<()> {
    let mut out = format!("{HEADER}\n");
    {
        let store = pairs.lock();
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

pub(super) fn restore(context: &FitContext) -> Option<Model> {
    let path = context.settings.state_file.as_deref()?;
    match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
        Ok(found) if found.len() <= MAX_FILE_BYTES => {}
        _ => {
            tracing::warn!(path = %path.display(), "the state file cannot be read, or is too large");
            return None;
        }
    }
    let read = fs::read(path).map_err(|e| e.to_string());
    match read.and_then(|bytes| parse(&bytes, context)) {
        Ok(model) => {
            tracing::info!(path = %path.display(), nodes = model.len(), "state restored");
            Some(model)
        }
        Err(error) => {
            tracing::warn!(path = %path.display(), %error, "the state file cannot be used; starting from nothing");
            None
        }
    }
}

/// Restores the model without instances that no longer exist; the others enter the pair store.
fn parse(bytes: &[u8], context: &FitContext) -> Result<Model, String> {
    let end = bytes.windows(2).position(|w| w == b"\n\n");
    let (head, snapshot) = end
        .map(|at| bytes.split_at(at + 2))
        .ok_or("it has no header")?;
    let head = std::str::from_utf8(head).map_err(|e| e.to_string())?;
    let mut lines = head.lines();
    if lines.next() != Some(HEADER) {
        return Err(format!("it does not begin with {HEADER:?}"));
    }
    let mut model = Model::restore(Options::default(), snapshot).map_err(|e| e.to_string())?;
    let nodes = context.store.snapshot();
    let pairs = &context.network.pairs;
    let now = pairs.now();
    for line in lines {
        let parts: Vec<&str> = line.split(' ').collect();
        let [node, uid, boot] = parts[..] else {
            continue;
        };
        let same = nodes.node(node).is_some_and(|n| *n.uid == *uid);
        let name = format!("{uid}/{boot}");
        let mut store = pairs.lock();
        // The instance of a connected agent is newer.
        if same && store.id(node).is_none() {
            store.instance(node, uid, boot, now);
        }
        let instance = store.id(node).and_then(|id| store.get(id));
        let present = instance.is_some_and(|i| *i.name == *name);
        if let Some(gone) = model.node(&name).filter(|_| !present) {
            model.remove(gone);
        }
    }
    Ok(model)
}
