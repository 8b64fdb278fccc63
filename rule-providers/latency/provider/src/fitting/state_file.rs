//! The state file keeps the model over a restart: a header line, a line for each instance
//! (node, UID, boot ID), an empty line, and the model's snapshot.

use std::{
    fs,
    io::{self, Write},
    path::Path,
};

use tautline_rtt_model::{Model, Options};

use super::context::FitContext;
use crate::network::measured_pairs::MeasuredPairs;

const HEADER: &str = "tautline-latency-state 1";
/// 10,000 nodes take some 10 MB.
const MAX_BYTES: u64 = 256 << 20;

struct Line<'a> {
    node: &'a str,
    uid: &'a str,
    boot: &'a str,
}

/// Writes the file whole or not at all.
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
        Ok(found) if found.len() <= MAX_BYTES => {}
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

/// The model without instances that are gone; the others enter the pair store.
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
    let now = context.pairs.now();
    for line in lines.filter_map(instance) {
        let same = nodes.node(line.node).is_some_and(|n| *n.uid == *line.uid);
        let name = format!("{}/{}", line.uid, line.boot);
        let mut store = context.pairs.lock();
        // A connected agent knows better.
        if same && store.id(line.node).is_none() {
            store.instance(line.node, line.uid, line.boot, now);
        }
        let id = store.id(line.node);
        let present = id
            .and_then(|id| store.get(id))
            .is_some_and(|i| *i.name == *name);
        if let Some(gone) = model.node(&name).filter(|_| !present) {
            model.remove(gone);
        }
    }
    Ok(model)
}

fn instance(line: &str) -> Option<Line<'_>> {
    let mut parts = line.split(' ');
    let line = Line {
        node: parts.next()?,
        uid: parts.next()?,
        boot: parts.next()?,
    };
    parts.next().is_none().then_some(line)
}
