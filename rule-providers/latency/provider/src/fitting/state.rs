//! What was learned, over a restart: a line that says what the file is, a line for
//! each instance (node, UID, boot ID), an empty line, and the model's snapshot.

use std::{
    fs,
    io::{self, Write},
    path::Path,
    time::Instant,
};

use tautline_rtt_model::{Model, Options};

use super::fitter::Fitter;
use crate::network::Network;

const HEAD: &str = "tautline-latency-state 1";
/// 10,000 nodes take some 10 MB.
const MOST_BYTES: u64 = 256 << 20;

/// An instance as a line of the file has it.
struct Line<'a> {
    node: &'a str,
    uid: &'a str,
    boot: &'a str,
}

/// Writes the file whole or not at all.
pub(super) fn write(path: &Path, network: &Network, model: &Model) -> io::Result<()> {
    let mut out = format!("{HEAD}\n");
    {
        let ledger = network.0.ledger.lock();
        for id in ledger.ids() {
            if let Some(i) = ledger.get(id) {
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

/// Goes on from the file, if there is one that fits the cluster's nodes.
pub(super) fn restore(network: &Network) -> Option<Fitter> {
    let path = network.0.settings.state.as_deref()?;
    match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
        Ok(found) if found.len() <= MOST_BYTES => {}
        _ => {
            tracing::warn!(path = %path.display(), "state cannot be read, or is too large");
            return None;
        }
    }
    let read = fs::read(path).map_err(|e| e.to_string());
    match read.and_then(|bytes| parse(&bytes, network)) {
        Ok(model) => {
            tracing::info!(path = %path.display(), nodes = model.len(), "state restored");
            Some(Fitter::with(network.clone(), model).restored(Instant::now()))
        }
        Err(error) => {
            tracing::warn!(path = %path.display(), %error, "state is of no use; starting anew");
            None
        }
    }
}

/// The model, without the instances that are no more; the ledger knows the others.
fn parse(bytes: &[u8], network: &Network) -> Result<Model, String> {
    let end = bytes.windows(2).position(|w| w == b"\n\n");
    let (head, snapshot) = end
        .map(|at| bytes.split_at(at + 2))
        .ok_or("it has no head")?;
    let head = std::str::from_utf8(head).map_err(|e| e.to_string())?;
    let mut lines = head.lines();
    if lines.next() != Some(HEAD) {
        return Err(format!("it does not begin with {HEAD:?}"));
    }
    let mut model = Model::restore(Options::default(), snapshot).map_err(|e| e.to_string())?;
    let nodes = network.0.feed.snapshot();
    let now = network.now();
    for line in lines.filter_map(instance) {
        let same = nodes.node(line.node).is_some_and(|n| *n.uid == *line.uid);
        let name = format!("{}/{}", line.uid, line.boot);
        let mut ledger = network.0.ledger.lock();
        // An agent that has come already knows best.
        if same && ledger.id(line.node).is_none() {
            ledger.instance(line.node, line.uid, line.boot, now);
        }
        let id = ledger.id(line.node);
        let present = id
            .and_then(|id| ledger.get(id))
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
