//! What providers said, used again for the same question from another pod: for as long
//! as it is valid, or after only the changes were asked for.

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

/// However long a provider says, and however well it tells of changes: then all is asked
/// anew. Relabeling must act within a second, and does because the key holds the provider.
const MAX_AGE: Duration = Duration::from_secs(60);
/// Questions of so many shapes are kept: some 300 KB to 1 MB each at 5,000 nodes.
const MAX_ENTRIES: usize = 128;
/// So many nodes at the most one question is about that renews an answer: as many as
/// kube-scheduler names of 5,000. A provider may take the longer, or look the less
/// closely, the more there are.
const REFRESH_CHUNK_NODES: usize = 500;

/// What makes two questions the same: the provider and all of the question but
/// its nodes and the asking pod's name and UID.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Key {
    hash: u64,
    pub provider: Arc<str>,
    pub question: Bytes,
}

impl Key {
    pub(crate) fn new(provider: Arc<str>, question: Bytes) -> Self {
        // The key itself is compared as well, so a collision is a miss, not a lie.
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

/// What is known of the nodes of a question.
#[derive(Debug)]
pub(crate) enum Lookup {
    Miss,
    /// Valid lines of all nodes; `ahead`: the provider is to be asked again then, before
    /// they end.
    Hit {
        costs: Costs,
        refresh_at: Option<Instant>,
    },
    /// Of some nodes valid lines.
    Partial(PartialCosts),
    /// Lines that hold but for what has changed since.
    Versioned(CachedVersion),
}

/// What a provider is asked again before its lines end.
#[derive(Debug)]
pub(crate) enum RefreshPlan {
    /// All lines of these nodes, in so many questions.
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
    /// Of these there is no line.
    pub missing: NodeSet,
    /// Where the lines of the question's nodes are.
    at: Vec<Option<usize>>,
    serial: u64,
}

impl PartialCosts {
    /// The costs of all nodes of the question, `said` being about those missing.
    pub(crate) fn merge(mut self, said: &Costs, nodes: &NodeSet) -> Costs {
        self.costs.resolution = said.resolution;
        for (from, name) in self.missing.iter().enumerate() {
            if let Some(to) = nodes.position(name) {
                self.costs.copy_from(to, said, from);
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
    /// What is known of `nodes`. kube-scheduler looks at other nodes of a large cluster
    /// for each pod, so often it is a part. To a pod that is placed a provider may say
    /// something else: numbered lines are never all that is to be known.
    pub(crate) fn find(&self, key: &Key, nodes: &NodeSet, placed: bool) -> Lookup {
        let Some(kept) = self.entries.get(&key.hash).filter(|kept| kept.key == *key) else {
            return Lookup::Miss;
        };
        let now = Instant::now();
        let holds = |at: &usize| match &kept.validity {
            EntryValidity::Until(until) => until[*at] > now,
            EntryValidity::Versioned { until, .. } => *until > now,
        };
        let (mut next, mut missing) = (0, NodeSet::default());
        let line = |name| {
            let at = kept.nodes.position_from(next, name);
            next = at.map_or(next, |at| at + 1);
            let at = at.filter(holds);
            if at.is_none() {
                missing.insert(name);
            }
            at
        };
        let at: Vec<Option<usize>> = nodes.iter().map(line).collect();
        match &kept.validity {
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
                let costs = kept.costs.select(at.into_iter());
                match missing.is_empty() {
                    true => Lookup::Hit {
                        costs,
                        refresh_at: kept.refresh_at.take(),
                    },
                    false => Lookup::Partial(PartialCosts { costs, missing }),
                }
            }
        }
    }

    /// What to ask again for, an answer being due to be renewed; `None`: it has been, or
    /// has ended.
    pub(crate) fn refresh_plan(&self, key: &Key, due: Instant) -> Option<RefreshPlan> {
        let kept = self
            .entries
            .get(&key.hash)
            .filter(|kept| kept.key == *key)?;
        let now = Instant::now();
        if kept.refresh_at.at() != Some(due) || kept.first_requested_at + MAX_AGE <= now {
            return None;
        }
        Some(match &kept.validity {
            EntryValidity::Until(until) => {
                let lines = kept.nodes.iter().zip(until);
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

    /// Takes over what has changed since, and of the nodes that were missing all. Gives
    /// the costs of `nodes`; `None`: it is not about the lines that are kept (any more).
    /// The question was begun at `asked`, so its answer cannot be of before.
    ///
    /// # Errors
    /// An answer that is none.
    pub(crate) fn apply_changes(
        &self,
        key: &Key,
        known: &CachedVersion,
        answer: &RawAnswer,
        nodes: &NodeSet,
        asked: Instant,
    ) -> Result<Option<Costs>, MalformedMessage> {
        let valid = answer.validity()?;
        if valid.changed_since != known.version || valid.version == 0 {
            return Ok(None);
        }
        let Some(mut kept) = self.entries.get_mut(&key.hash) else {
            return Ok(None);
        };
        let CacheEntry {
            nodes: all,
            costs,
            validity: holds,
            refresh_at: due,
            ..
        } = kept.value_mut();
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
            *fresh = valid_until(valid, asked);
            *due = RefreshAt::new(asked, *fresh);
            for name in known.missing.iter() {
                all.insert(name);
            }
            answer.lines(|name, cost, note| costs.replace(all, name, cost, note))?;
            costs.resolution = valid.resolution;
        } else if !known.missing.is_empty() {
            // Another answer, of a later version, was here first, and did not say what
            // is missing.
            return Ok(None);
        }
        let at = known.at.iter().zip(nodes.iter());
        Ok(Some(costs.select(
            at.map(|(at, name)| at.or_else(|| all.position(name))),
        )))
    }

    /// Nobody tells any more what changes of these lines.
    pub(crate) fn remove(&self, key: &Key, known: &CachedVersion) {
        self.entries.remove_if(
            &key.hash,
            |_, kept| matches!(kept.validity, EntryValidity::Versioned { serial, .. } if serial == known.serial),
        );
    }

    /// Keeps an answer for as long as its provider says, beside those about other
    /// nodes, or until the provider tells of changes. The question was begun at `asked`.
    pub(crate) fn insert(
        &self,
        key: Key,
        nodes: &NodeSet,
        answer: &Answer,
        by: &Address,
        asked: Instant,
    ) {
        let (now, Answer { costs, valid }) = (Instant::now(), answer);
        let until = valid_until(*valid, asked);
        let holds = match *valid {
            Validity {
                version: 0,
                millis: 1..,
                ..
            } => {
                if self.add(&key, nodes, costs, asked, until) {
                    return;
                }
                EntryValidity::Until(vec![until; nodes.len()])
            }
            // For this pod: to others what is kept holds.
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
            self.entries.retain(|_, kept| match &kept.validity {
                EntryValidity::Until(until) => until.iter().any(|u| *u > now),
                EntryValidity::Versioned { until, .. } => *until > now,
            });
            if self.entries.len() >= MAX_ENTRIES {
                self.entries.clear();
            }
        }
        let mut kept = CacheEntry {
            key,
            nodes: nodes.clone(),
            costs: costs.clone(),
            validity: holds,
            refresh_at: RefreshAt::new(asked, until),
            first_requested_at: asked,
        };
        match self.entries.entry(kept.key.hash) {
            dashmap::Entry::Occupied(mut entry) => {
                let before = entry.get();
                if before.key == kept.key {
                    kept.keep_valid_from(before, now);
                }
                entry.insert(kept);
            }
            dashmap::Entry::Vacant(entry) => _ = entry.insert(kept),
        }
    }

    /// Writes an answer among the lines that are kept, unless most of them are over:
    /// so nodes that have gone do not pile up.
    fn add(
        &self,
        key: &Key,
        nodes: &NodeSet,
        said: &Costs,
        asked: Instant,
        until: Instant,
    ) -> bool {
        let Some(mut kept) = self.entries.get_mut(&key.hash) else {
            return false;
        };
        let fit = kept.key == *key && kept.mostly_valid();
        if fit {
            kept.add(nodes, said, until);
            kept.refresh_at.or_else(RefreshAt::new(asked, until));
        }
        fit
    }
}

/// Until when an answer is valid, by its provider, who counts from a later moment than
/// that of the question: an answer that was long under way is not taken for a new one.
fn valid_until(valid: Validity, asked: Instant) -> Instant {
    let millis = u64::try_from(valid.millis).unwrap_or(0);
    asked + Duration::from_millis(millis).min(MAX_AGE)
}

#[cfg(test)]
mod tests;
