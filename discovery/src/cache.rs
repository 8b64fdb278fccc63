//! What providers said, used again for the same question from another pod: for as long
//! as it is valid, or after only the changes were asked for.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use dashmap::DashMap;
use tautline_core::{
    nodes::NodeSet,
    planning::{Costs, fnv1a_64},
    providers::Address,
};
use tautline_proto::endpoint_cost::{Malformed, Validity};
use tokio::time::Instant;

use crate::codec::{Answer, RawAnswer};

/// However long a provider says, and however well it tells of changes: then all is asked
/// anew. Relabeling must act within a second, and does because the key holds the provider.
const LONGEST: Duration = Duration::from_secs(60);
/// Questions of so many shapes are kept: some 300 KB to 1 MB each at 5,000 nodes.
const MOST: usize = 128;

/// What makes two questions the same: the provider and all of the question but
/// its nodes and the asking pod's name and UID.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Key {
    hash: u64,
    provider: Arc<str>,
    question: Vec<u8>,
}

impl Key {
    pub(crate) fn new(provider: Arc<str>, question: Vec<u8>) -> Self {
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

/// What the provider said of nodes, in one answer or several.
#[derive(Clone, Debug)]
struct Kept {
    nodes: NodeSet,
    costs: Costs,
    holds: Holds,
}

/// What lines hold by.
#[derive(Clone, Debug)]
enum Holds {
    /// Until then, by position.
    Until(Vec<Instant>),
    /// As of a version of who answers at this address.
    AsOf {
        version: u64,
        by: Arc<Address>,
        /// Until then there is no later version.
        fresh: Instant,
        /// Then all is asked anew.
        until: Instant,
        /// Which answer's nodes these are: another's have other positions.
        serial: u64,
    },
}

/// What is known of the nodes of a question.
#[derive(Debug)]
pub(crate) enum Found {
    Nothing,
    All(Costs),
    /// Of some nodes valid lines.
    Part(Part),
    /// Lines that hold but for what has changed since.
    AsOf(AsOf),
}

#[derive(Debug)]
pub(crate) struct Part {
    costs: Costs,
    pub missing: NodeSet,
}

#[derive(Debug)]
pub(crate) struct AsOf {
    pub version: u64,
    pub by: Arc<Address>,
    /// Of these there is no line.
    pub missing: NodeSet,
    /// Where the lines of the question's nodes are.
    at: Vec<Option<usize>>,
    serial: u64,
}

impl Part {
    /// The costs of all nodes of the question, `said` being about those missing.
    pub(crate) fn with(mut self, said: &Costs, nodes: &NodeSet) -> Costs {
        for (from, name) in self.missing.iter().enumerate() {
            if let Some(to) = nodes.position(name) {
                self.costs.copy(to, said, from);
            }
        }
        self.costs
    }
}

#[derive(Debug, Default)]
pub(crate) struct Cache {
    kept: DashMap<u64, (Key, Arc<Kept>)>,
    serial: AtomicU64,
}

impl Cache {
    /// What is known of `nodes`. kube-scheduler looks at other nodes of a large cluster
    /// for each pod, so often it is a part. To a pod that is placed a provider may say
    /// something else: numbered lines are never all that is to be known.
    pub(crate) fn find(&self, key: &Key, nodes: &NodeSet, placed: bool) -> Found {
        let kept = match self.kept.get(&key.hash) {
            Some(entry) if entry.value().0 == *key => Arc::clone(&entry.value().1),
            _ => return Found::Nothing,
        };
        let now = Instant::now();
        let holds = |at: &usize| match &kept.holds {
            Holds::Until(until) => until[*at] > now,
            Holds::AsOf { until, .. } => *until > now,
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
        match &kept.holds {
            Holds::AsOf {
                version,
                by,
                fresh,
                until,
                serial,
            } if *until > now && (placed || *fresh <= now || !missing.is_empty()) => {
                Found::AsOf(AsOf {
                    version: *version,
                    by: Arc::clone(by),
                    missing,
                    at,
                    serial: *serial,
                })
            }
            _ if missing.len() == nodes.len() => Found::Nothing,
            _ => {
                let costs = kept.costs.pick(at.into_iter());
                match missing.is_empty() {
                    true => Found::All(costs),
                    false => Found::Part(Part { costs, missing }),
                }
            }
        }
    }

    /// Takes over what has changed since, and of the nodes that were missing all. Gives
    /// the costs of `nodes`; `None`: it is not about the lines that are kept (any more).
    /// The question was begun at `asked`, so its answer cannot be of before.
    ///
    /// # Errors
    /// An answer that is none.
    pub(crate) fn advance(
        &self,
        key: &Key,
        known: &AsOf,
        answer: &RawAnswer,
        nodes: &NodeSet,
        asked: Instant,
    ) -> Result<Option<Costs>, Malformed> {
        let valid = answer.validity()?;
        if valid.changed_since != known.version || valid.version == 0 {
            return Ok(None);
        }
        let Some(mut entry) = self.kept.get_mut(&key.hash) else {
            return Ok(None);
        };
        let (_, kept) = entry.value_mut();
        let Kept {
            nodes: all,
            costs,
            holds,
        } = Arc::make_mut(kept);
        let (version, fresh) = match holds {
            Holds::AsOf {
                version,
                fresh,
                serial,
                ..
            } if *serial == known.serial => (version, fresh),
            _ => return Ok(None),
        };
        if valid.version >= *version {
            *version = valid.version;
            *fresh = holds_until(valid, asked);
            for name in known.missing.iter() {
                all.insert(name);
            }
            answer.lines(|name, cost, note| costs.replace(all, name, cost, note))?;
        } else if !known.missing.is_empty() {
            // Another answer, of a later version, was here first, and did not say what
            // is missing.
            return Ok(None);
        }
        let at = known.at.iter().zip(nodes.iter());
        Ok(Some(costs.pick(
            at.map(|(at, name)| at.or_else(|| all.position(name))),
        )))
    }

    /// Keeps an answer for as long as its provider says, beside those about other
    /// nodes, or until the provider tells of changes. The question was begun at `asked`.
    pub(crate) fn put(
        &self,
        key: Key,
        nodes: &NodeSet,
        answer: &Answer,
        by: &Address,
        asked: Instant,
    ) {
        let (now, Answer { costs, valid }) = (Instant::now(), answer);
        let holds = match *valid {
            Validity {
                version: 0,
                millis: 1..,
                ..
            } => {
                let until = holds_until(*valid, asked);
                if self.add(&key, nodes, costs, until) {
                    return;
                }
                Holds::Until(vec![until; nodes.len()])
            }
            Validity { version: 0, .. } => {
                // Who numbered its answers does so no longer.
                let held = |(_, kept): &(Key, Arc<Kept>)| matches!(kept.holds, Holds::AsOf { .. });
                self.kept.remove_if(&key.hash, |_, value| held(value));
                return;
            }
            Validity { version, .. } => Holds::AsOf {
                version,
                by: Arc::new(by.clone()),
                fresh: holds_until(*valid, asked),
                until: now + LONGEST,
                serial: self.serial.fetch_add(1, Ordering::Relaxed),
            },
        };
        if self.kept.len() >= MOST {
            self.kept.retain(|_, (_, kept)| match &kept.holds {
                Holds::Until(until) => until.iter().any(|u| *u > now),
                Holds::AsOf { until, .. } => *until > now,
            });
            if self.kept.len() >= MOST {
                self.kept.clear();
            }
        }
        let mut kept = Kept {
            nodes: nodes.clone(),
            costs: costs.clone(),
            holds,
        };
        match self.kept.entry(key.hash) {
            dashmap::Entry::Occupied(mut entry) => {
                let (stored, before) = entry.get();
                if *stored == key {
                    kept.add_valid(before, now);
                }
                entry.insert((key, Arc::new(kept)));
            }
            dashmap::Entry::Vacant(entry) => _ = entry.insert((key, Arc::new(kept))),
        }
    }

    /// Writes an answer among the lines that are kept, unless most of them are over:
    /// so nodes that have gone do not pile up.
    fn add(&self, key: &Key, nodes: &NodeSet, said: &Costs, until: Instant) -> bool {
        let Some(mut entry) = self.kept.get_mut(&key.hash) else {
            return false;
        };
        let (stored, kept) = entry.value_mut();
        let fit = stored == key && kept.mostly_valid();
        if fit {
            Arc::make_mut(kept).add(nodes, said, until);
        }
        fit
    }
}

/// Until when an answer is valid, by its provider, who counts from a later moment than
/// that of the question: an answer that was long under way is not taken for a new one.
fn holds_until(valid: Validity, asked: Instant) -> Instant {
    let millis = u64::try_from(valid.millis).unwrap_or(0);
    asked + Duration::from_millis(millis).min(LONGEST)
}

impl Kept {
    fn mostly_valid(&self) -> bool {
        let now = Instant::now();
        match &self.holds {
            Holds::Until(until) => {
                2 * until.iter().filter(|then| **then > now).count() > until.len()
            }
            Holds::AsOf { .. } => false,
        }
    }

    fn add(&mut self, nodes: &NodeSet, said: &Costs, then: Instant) {
        let Holds::Until(until) = &mut self.holds else {
            return;
        };
        let mut next = 0;
        for (from, name) in nodes.iter().enumerate() {
            let at = self.nodes.position_from(next, name);
            let to = at.unwrap_or_else(|| self.nodes.insert(name));
            next = to + 1;
            self.costs.copy(to, said, from);
            until.resize(self.nodes.len(), then);
            until[to] = then;
        }
        self.costs.repack();
    }

    /// Takes over lines about other nodes that are valid still.
    fn add_valid(&mut self, before: &Self, now: Instant) {
        let (Holds::Until(until), Holds::Until(then)) = (&mut self.holds, &before.holds) else {
            return;
        };
        for (from, name) in before.nodes.iter().enumerate() {
            if then[from] > now && self.nodes.position(name).is_none() {
                let to = self.nodes.insert(name);
                self.costs.copy(to, &before.costs, from);
                until.push(then[from]);
            }
        }
    }
}

#[cfg(test)]
mod tests;
