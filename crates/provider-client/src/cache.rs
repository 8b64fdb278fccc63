//! A cache of providers' answers, shared by pods: valid for a time, or updated by changes only.

mod entry;
mod refresh_at;

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use dashmap::DashMap;
use entry::{CacheEntry, EntryValidity};
use refresh_at::RefreshAt;
use tautline_core::{
    nodes::NodeSet,
    planning::{Costs, fnv1a_64},
    providers::Address,
};
use tautline_proto::endpoint_cost::{MalformedMessage, Validity};
use tokio::time::Instant;

use crate::codec::{Answer, RawAnswer};

/// Maximum age of an entry. Relabelling a Service acts at once: the key holds the provider.
const MAX_AGE: Duration = Duration::from_secs(60);
/// Maximum number of entries: 300 KB to 1 MB each at 5,000 nodes.
const MAX_ENTRIES: usize = 128;
/// The maximum size of a question whose answer is kept: labels, annotations and rules that are longer
/// are few pods'.
const MAX_QUESTION_BYTES: usize = 64 << 10;
/// Maximum number of nodes per refresh request, as many as kube-scheduler requests of 5,000: more
/// would take a provider longer, or reduce its precision.
const REFRESH_CHUNK_NODES: usize = 500;

/// The provider, and the question without its nodes and the pod's identity.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Key {
    hash: u64,
    pub provider: Arc<str>,
    pub question: Bytes,
}

impl Key {
    pub(crate) fn new(provider: Arc<str>, question: Bytes) -> Self {
        // Keys are compared too, so a hash collision is a miss.
        let hash = question.iter().fold(0xcbf2_9ce4_8422_2325, |h: u64, b| {
            (h ^ u64::from(*b)).wrapping_mul(0x0100_0000_01b3)
        });
        Self {
            hash: hash ^ fnv1a_64(&[&provider]),
            provider,
            question,
        }
    }
}

#[derive(Debug)]
pub(crate) enum Lookup {
    Miss,
    /// Valid lines of all nodes, and when to refresh them.
    Hit {
        costs: Costs,
        refresh_at: Option<Instant>,
    },
    Partial(PartialCosts),
    /// Versioned lines: valid except for the changes since.
    Versioned(CachedVersion),
}

#[derive(Debug)]
pub(crate) enum RefreshPlan {
    /// All lines of these nodes, one request per set.
    Lines(Vec<NodeSet>),
    Changes(CachedVersion),
}

#[derive(Debug)]
pub(crate) struct PartialCosts {
    costs: Costs,
    pub missing: NodeSet,
}

#[derive(Debug)]
pub(crate) struct CachedVersion {
    pub version: u64,
    pub endpoint: Arc<Address>,
    pub missing: NodeSet,
    at: Vec<Option<usize>>,
    serial: u64,
}

impl PartialCosts {
    pub(crate) fn merge(mut self, costs: &Costs, nodes: &NodeSet) -> Costs {
        self.costs.resolution = costs.resolution;
        self.costs.request_cost = costs.request_cost;
        for (from, name) in self.missing.iter().enumerate() {
            if let Some(to) = nodes.position(name) {
                self.costs.copy_from(to, costs, from);
            }
        }
        self.costs
    }
}

#[derive(Debug, Default)]
pub(crate) struct Cache {
    entries: DashMap<u64, CacheEntry>,
    serial: AtomicU64,
}

impl Cache {
    /// Looks up `nodes`; often partial, since kube-scheduler requests other nodes for each pod. A
    /// provider may answer differently for a placed pod: then versioned lines are never a hit.
    pub(crate) fn find(&self, key: &Key, nodes: &NodeSet, placed: bool) -> Lookup {
        let Some(entry) = self
            .entries
            .get(&key.hash)
            .filter(|entry| entry.key == *key)
        else {
            return Lookup::Miss;
        };
        let now = Instant::now();
        let holds = |at: &usize| match &entry.validity {
            EntryValidity::Until(until) => until[*at] > now,
            EntryValidity::Versioned { until, .. } => *until > now,
        };
        let (mut next, mut missing) = (0, NodeSet::default());
        let line = |name| {
            let at = entry.nodes.position_from(next, name);
            next = at.map_or(next, |at| at + 1);
            let at = at.filter(holds);
            if at.is_none() {
                missing.insert(name);
            }
            at
        };
        let at: Vec<Option<usize>> = nodes.iter().map(line).collect();
        match &entry.validity {
            EntryValidity::Versioned {
                version,
                endpoint: by,
                fresh_until: fresh,
                until,
                serial,
            } if *until > now && (placed || *fresh <= now || !missing.is_empty()) => {
                Lookup::Versioned(CachedVersion {
                    version: *version,
                    endpoint: Arc::clone(by),
                    missing,
                    at,
                    serial: *serial,
                })
            }
            _ if missing.len() == nodes.len() => Lookup::Miss,
            _ => {
                let costs = entry.costs.select(at.into_iter());
                match missing.is_empty() {
                    true => Lookup::Hit {
                        costs,
                        refresh_at: entry.refresh_at.take(),
                    },
                    false => Lookup::Partial(PartialCosts { costs, missing }),
                }
            }
        }
    }

    /// `None` if the entry due at `due` was refreshed or has ended.
    pub(crate) fn refresh_plan(&self, key: &Key, due: Instant) -> Option<RefreshPlan> {
        let entry = self
            .entries
            .get(&key.hash)
            .filter(|entry| entry.key == *key)?;
        let now = Instant::now();
        if entry.refresh_at.at() != Some(due) || entry.first_requested_at + MAX_AGE <= now {
            return None;
        }
        Some(match &entry.validity {
            EntryValidity::Until(until) => {
                let lines = entry.nodes.iter().zip(until);
                let valid = lines.filter(|(_, until)| **until > now);
                let names: Vec<&str> = valid.map(|(name, _)| name).collect();
                if names.is_empty() {
                    return None;
                }
                let questions = names.chunks(REFRESH_CHUNK_NODES);
                let questions = questions.map(|names| names.iter().copied().collect());
                RefreshPlan::Lines(questions.collect())
            }
            EntryValidity::Versioned {
                version,
                endpoint: by,
                serial,
                ..
            } => RefreshPlan::Changes(CachedVersion {
                version: *version,
                endpoint: Arc::clone(by),
                missing: NodeSet::default(),
                at: Vec::new(),
                serial: *serial,
            }),
        })
    }

    /// Applies an answer with changes and the missing nodes; returns the costs of `nodes`, or
    /// `None` if it does not continue the cached version. The request started at `requested_at`.
    pub(crate) fn apply_changes(
        &self,
        key: &Key,
        known: &CachedVersion,
        answer: &RawAnswer,
        nodes: &NodeSet,
        requested_at: Instant,
    ) -> Result<Option<Costs>, MalformedMessage> {
        let valid = answer.validity()?;
        if valid.changed_since != known.version || valid.version == 0 {
            return Ok(None);
        }
        let Some(mut entry) = self.entries.get_mut(&key.hash) else {
            return Ok(None);
        };
        let CacheEntry {
            nodes: all,
            costs,
            validity: holds,
            refresh_at: due,
            ..
        } = entry.value_mut();
        let (version, fresh) = match holds {
            EntryValidity::Versioned {
                version,
                fresh_until: fresh,
                serial,
                ..
            } if *serial == known.serial => (version, fresh),
            _ => return Ok(None),
        };
        if valid.version >= *version {
            *version = valid.version;
            *fresh = valid_until(valid, requested_at);
            *due = RefreshAt::new(requested_at, *fresh);
            for name in known.missing.iter() {
                all.insert(name);
            }
            answer.lines(|name, cost, note| costs.replace(all, name, cost, note))?;
            costs.resolution = valid.resolution;
            costs.request_cost = valid.request_cost;
        } else if !known.missing.is_empty() {
            // An answer of a later version arrived first, without the missing nodes.
            return Ok(None);
        }
        let at = known.at.iter().zip(nodes.iter());
        Ok(Some(costs.select(
            at.map(|(at, name)| at.or_else(|| all.position(name))),
        )))
    }

    pub(crate) fn remove(&self, key: &Key, known: &CachedVersion) {
        self.entries.remove_if(
            &key.hash,
            |_, entry| matches!(entry.validity, EntryValidity::Versioned { serial, .. } if serial == known.serial),
        );
    }

    /// Caches an answer, next to lines of other nodes, for its validity or by its version.
    pub(crate) fn insert(
        &self,
        key: Key,
        nodes: &NodeSet,
        answer: &Answer,
        by: &Address,
        requested_at: Instant,
    ) {
        if key.question.len() > MAX_QUESTION_BYTES {
            return;
        }
        let (now, Answer { costs, valid }) = (Instant::now(), answer);
        let until = valid_until(*valid, requested_at);
        let holds = match *valid {
            Validity {
                version: 0,
                millis: 1..,
                ..
            } => {
                if self.add(&key, nodes, costs, requested_at, until) {
                    return;
                }
                EntryValidity::Until(vec![until; nodes.len()])
            }
            // For this pod only: the shared entry stays.
            Validity { version: 0, .. } => return,
            Validity { version, .. } => EntryValidity::Versioned {
                version,
                endpoint: Arc::new(by.clone()),
                fresh_until: until,
                until: now + MAX_AGE,
                serial: self.serial.fetch_add(1, Ordering::Relaxed),
            },
        };
        if self.entries.len() >= MAX_ENTRIES && !self.entries.contains_key(&key.hash) {
            self.entries.retain(|_, entry| match &entry.validity {
                EntryValidity::Until(until) => until.iter().any(|u| *u > now),
                EntryValidity::Versioned { until, .. } => *until > now,
            });
            if self.entries.len() >= MAX_ENTRIES {
                self.entries.clear();
            }
        }
        let mut entry = CacheEntry {
            key,
            nodes: nodes.clone(),
            costs: costs.clone(),
            validity: holds,
            refresh_at: RefreshAt::new(requested_at, until),
            first_requested_at: requested_at,
        };
        match self.entries.entry(entry.key.hash) {
            dashmap::Entry::Occupied(mut occupied) => {
                let before = occupied.get();
                if before.key == entry.key {
                    entry.keep_valid_from(before, now);
                }
                occupied.insert(entry);
            }
            dashmap::Entry::Vacant(vacant) => _ = vacant.insert(entry),
        }
    }

    /// Merges an answer into a mostly valid entry, so that deleted nodes do not accumulate.
    fn add(
        &self,
        key: &Key,
        nodes: &NodeSet,
        costs: &Costs,
        requested_at: Instant,
        until: Instant,
    ) -> bool {
        let Some(mut entry) = self.entries.get_mut(&key.hash) else {
            return false;
        };
        let merges = entry.key == *key && entry.mostly_valid();
        if merges {
            entry.add(nodes, costs, until);
            entry
                .refresh_at
                .or_else(RefreshAt::new(requested_at, until));
        }
        merges
    }
}

/// Counted from the request: a slow answer is not new.
fn valid_until(valid: Validity, requested_at: Instant) -> Instant {
    let millis = u64::try_from(valid.millis).unwrap_or(0);
    requested_at + Duration::from_millis(millis).min(MAX_AGE)
}

#[cfg(test)]
mod tests;
