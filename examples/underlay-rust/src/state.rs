//! The underlay's allocations, and the calls to it.

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
    /// Asks for offers: one for each node that has a cost.
    Discover,
    /// Makes an open offer an allocation.
    Allocate,
    /// Ends an allocation.
    Release,
    /// Strengthens or adds a path of a pod whose rule is broken.
    Mitigate,
}

/// A call and its outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// The called method.
    pub verb: Verb,
    /// Ids of the request or the answer; of a Discover all offered ids.
    pub ids: Vec<String>,
    /// False: it returned an error.
    pub ok: bool,
}

/// The underlay's state; tests read and change it.
#[derive(Debug, Default)]
pub struct State {
    /// Offered nodes and their costs.
    pub costs: BTreeMap<String, i64>,
    /// Lifetime of an offer.
    pub ttl: Duration,
    /// Open offers by id: the node and the expiry.
    pub offered: BTreeMap<String, (String, SystemTime)>,
    /// Nodes of allocations by id.
    pub allocated: BTreeMap<String, String>,
    /// All calls so far, the oldest first.
    pub calls: Vec<Call>,
    /// Requests of Discover.
    pub discovered: Vec<DiscoverRequest>,
    /// Requests of Mitigate.
    pub mitigated: Vec<MitigateRequest>,
    /// Discover returns these offers instead.
    pub offers_override: Option<Vec<Offer>>,
    /// Delays of answers, *after* the call has taken effect.
    pub delays: BTreeMap<Verb, Duration>,
    /// These calls have no effect and return UNAVAILABLE.
    pub unavailable: BTreeSet<Verb>,
    pub(crate) journal: Option<File>,
    pub(crate) last_id: u64,
}

impl State {
    /// Number of successful calls of `verb` with this id.
    pub fn successes(&self, verb: Verb, id: &str) -> usize {
        let matches = |c: &&Call| c.verb == verb && c.ok && c.ids.iter().any(|i| i == id);
        self.calls.iter().filter(matches).count()
    }

    /// Number of calls of `verb`.
    pub fn calls_of(&self, verb: Verb) -> usize {
        self.calls.iter().filter(|c| c.verb == verb).count()
    }

    pub(crate) fn new_id(&mut self) -> String {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        self.last_id += 1;
        format!(
            "path-{:x}-{}",
            now.unwrap_or_default().as_micros(),
            self.last_id
        )
    }

    /// Writes a line to the journal. Called before the answer, so that a restart loses nothing.
    pub(crate) fn log(&mut self, line: &str) -> Result<(), Status> {
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
        self.log(&format!("allocate {id} {node}"))?;
        self.offered.remove(id);
        self.allocated.insert(id.to_owned(), node);
        Ok(())
    }

    pub(crate) fn release(&mut self, id: &str) -> Result<(), Status> {
        self.offered.remove(id);
        if !self.allocated.contains_key(id) {
            return Err(Status::not_found(format!("{id} is not allocated")));
        }
        self.log(&format!("release {id}"))?;
        self.allocated.remove(id);
        Ok(())
    }
}
