//! What the underlay holds, and what was asked of it.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    io::Write,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use tautline_proto::underlay::{DiscoverRequest, MitigateRequest, Offer};
use tonic::Status;

/// The calls of the contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verb {
    Discover,
    Allocate,
    Release,
    Mitigate,
}

/// One call that was answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    pub verb: Verb,
    /// Ids that were offered, asked for or given; with a Discover all of them.
    pub ids: Vec<String>,
    /// Whether it did what was asked.
    pub ok: bool,
}

/// What it holds and what was asked of it; tests read and change it.
#[derive(Debug, Default)]
pub struct State {
    /// What making each node usable costs; others are not offered.
    pub costs: BTreeMap<String, i64>,
    /// For how long an offer may be taken up.
    pub ttl: Duration,
    /// Offered and not yet taken up, with the end of the offer.
    pub offered: BTreeMap<String, (String, SystemTime)>,
    /// Allocated now: ids with their nodes.
    pub allocated: BTreeMap<String, String>,
    pub calls: Vec<Call>,
    /// Questions as they came.
    pub discovered: Vec<DiscoverRequest>,
    pub mitigated: Vec<MitigateRequest>,
    /// Answered with these offers instead, whatever they are.
    pub instead: Option<Vec<Offer>>,
    /// Waits so long *after* doing what was asked: the answer is late or lost.
    pub late: BTreeMap<Verb, Duration>,
    /// These are answered with UNAVAILABLE, and not done.
    pub down: BTreeSet<Verb>,
    pub(crate) journal: Option<File>,
    pub(crate) made: u64,
}

impl State {
    /// How often `verb` did what was asked with this id.
    pub fn count(&self, verb: Verb, id: &str) -> usize {
        let of = |c: &&Call| c.verb == verb && c.ok && c.ids.iter().any(|i| i == id);
        self.calls.iter().filter(of).count()
    }

    /// How often `verb` was asked, with whatever outcome.
    pub fn asked(&self, verb: Verb) -> usize {
        self.calls.iter().filter(|c| c.verb == verb).count()
    }

    /// Unique beyond a restart: ids of two lives must not be taken for each other.
    pub(crate) fn fresh_id(&mut self) -> String {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        self.made += 1;
        format!(
            "path-{:x}-{}",
            now.unwrap_or_default().as_micros(),
            self.made
        )
    }

    /// On disk before it is answered, so that a restart changes nothing.
    pub(crate) fn write(&mut self, line: &str) -> Result<(), Status> {
        let Some(file) = &mut self.journal else {
            return Ok(());
        };
        writeln!(file, "{line}")
            .map_err(|e| Status::internal(format!("the journal cannot be written: {e}")))
    }

    pub(crate) fn allocate(&mut self, id: &str) -> Result<(), Status> {
        if self.allocated.contains_key(id) {
            return Ok(());
        }
        let node = match self.offered.get(id) {
            Some((node, end)) if *end > SystemTime::now() => node.clone(),
            _ => return Err(Status::not_found(format!("no offer {id}, or it expired"))),
        };
        self.write(&format!("allocate {id} {node}"))?;
        self.offered.remove(id);
        self.allocated.insert(id.to_owned(), node);
        Ok(())
    }

    pub(crate) fn release(&mut self, id: &str) -> Result<(), Status> {
        // An Allocate that was overtaken must find nothing to take up.
        self.offered.remove(id);
        if !self.allocated.contains_key(id) {
            return Err(Status::not_found(format!("{id} is not allocated")));
        }
        self.write(&format!("release {id}"))?;
        self.allocated.remove(id);
        Ok(())
    }
}
