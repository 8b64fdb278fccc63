//! Reads the targets that the provider's replicas request, and merges their lists.

use std::{collections::BTreeMap, fmt, net::SocketAddr, sync::Arc, time::Duration};

use hashbrown::HashMap;
use ring::hmac;
use tautline_latency_protocol::signing_key;
use tautline_proto::latency;

use crate::outside::MIN_OUTSIDE_INTERVAL;

/// The greatest number of base targets, which are visited in turn. The provider knows this number
/// and chooses the targets.
pub const MAX_BASE_TARGETS: usize = 32;
/// The greatest number of rows of one list, and of targets in demand. Further rows are left out.
const MAX_TARGET_ROWS: usize = 1_024;
/// The greatest number of targets outside the cluster.
const MAX_OUTSIDE_TARGETS: usize = 256;
/// The greatest number of responder keys.
const MAX_RESPONDER_KEYS: usize = 8;
/// The minimum length of a key in bytes; a shorter key protects nothing.
const MIN_KEY_BYTES: usize = 16;
/// The maximum length of a name in bytes, as in Kubernetes.
const MAX_NAME_BYTES: usize = 253;

/// The identity of a target: a machine under the name of a node.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    pub node: Arc<str>,
    pub instance: Arc<str>,
}

#[derive(Clone)]
pub struct Target {
    pub key: Key,
    pub address: SocketAddr,
    /// The key of the packets that this agent exchanges with the target; `None`: the target is
    /// outside the cluster, where no agent answers.
    pub secret: Option<Arc<hmac::Key>>,
    /// The interval between visits of a target outside the cluster.
    pub outside_interval: Duration,
    pub demand: bool,
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}", self.key.node, self.address)
    }
}

impl Target {
    pub fn is_outside(&self) -> bool {
        self.secret.is_none()
    }

    pub fn same_endpoint(&self, other: &Self) -> bool {
        let mark = |target: &Self| {
            let secret = target.secret.as_ref();
            secret.map(|secret| hmac::sign(secret, b"same").as_ref().to_vec())
        };
        self.address == other.address && mark(self) == mark(other)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unusable {
    #[error("a target without a name of 1 to 253 bytes")]
    Name,
    #[error("target {0:?}: address {1:?} is not IP:PORT")]
    Address(String, String),
    #[error("target {0:?}: its key has {1} bytes, below 16")]
    Key(String, usize),
}

impl TryFrom<&latency::Target> for Target {
    type Error = Unusable;

    fn try_from(row: &latency::Target) -> Result<Self, Unusable> {
        let name = &row.node;
        if name.is_empty() || name.len() > MAX_NAME_BYTES || row.instance.len() > MAX_NAME_BYTES {
            return Err(Unusable::Name);
        }
        let address: Option<SocketAddr> = row.address.parse().ok();
        let Some(address) = address.filter(|a| a.port() != 0 && !a.ip().is_unspecified()) else {
            let address = row.address.chars().take(64).collect();
            return Err(Unusable::Address(name.clone(), address));
        };
        if !row.outside && row.key.len() < MIN_KEY_BYTES {
            return Err(Unusable::Key(name.clone(), row.key.len()));
        }
        Ok(Self {
            key: Key {
                node: name.as_str().into(),
                instance: row.instance.as_str().into(),
            },
            address,
            secret: (!row.outside).then(|| Arc::new(signing_key(&row.key))),
            outside_interval: Duration::from_millis(row.outside_millis.into())
                .max(MIN_OUTSIDE_INTERVAL),
            demand: row.demand,
        })
    }
}

pub fn usable(rows: &[latency::Target]) -> (Vec<Target>, usize) {
    let rows_in = &rows[..rows.len().min(MAX_TARGET_ROWS)];
    let mut targets = Vec::with_capacity(rows_in.len());
    let mut first = None;
    for row in rows_in {
        match Target::try_from(row) {
            Ok(target) => targets.push(target),
            Err(error) => _ = first.get_or_insert(error),
        }
    }
    let refused = rows.len() - targets.len();
    if let Some(error) = first {
        tracing::warn!(%error, refused, "targets of the provider that cannot be used");
    }
    (targets, refused)
}

#[derive(Debug, Default)]
pub struct TargetList {
    pub targets: Vec<Target>,
    pub refused: usize,
    pub echo_id: u64,
    pub keys: Vec<Vec<u8>>,
}

impl From<latency::Targets> for TargetList {
    fn from(message: latency::Targets) -> Self {
        let (targets, refused) = usable(&message.targets);
        let mut keys = message.responder_keys;
        keys.retain(|key| key.len() >= MIN_KEY_BYTES);
        keys.truncate(MAX_RESPONDER_KEYS);
        Self {
            targets,
            refused,
            echo_id: message.echo_id,
            keys,
        }
    }
}

/// A replica of a provider: the index of its `--provider` flag, and its address.
pub type Replica = (usize, SocketAddr);

#[derive(Debug, Default)]
pub struct ReplicaLists {
    of: BTreeMap<Replica, TargetList>,
    gone: Option<Replica>,
}

#[derive(Debug, Default)]
pub struct MergedTargets {
    pub targets: Vec<Target>,
    /// The number of rows that are not measured, because they exceed a bound or are not usable.
    pub refused: usize,
    pub keys: Vec<Vec<u8>>,
}

impl ReplicaLists {
    pub fn set(&mut self, replica: Replica, list: TargetList) {
        if let Some(gone) = self.gone.take() {
            self.of.remove(&gone);
        }
        self.of.insert(replica, list);
    }

    /// Removes the list of a disconnected replica. The last list stays, so that the agent continues
    /// to measure.
    pub fn forget(&mut self, replica: Replica) {
        if self.of.len() > 1 {
            self.of.remove(&replica);
        } else {
            self.gone = Some(replica);
        }
    }

    /// Returns the targets to measure. A target is in demand if any replica says so. The first
    /// targets of all lists come before the second targets, and so on.
    pub fn merge(&self) -> MergedTargets {
        let mut all: HashMap<Key, Target> = HashMap::new();
        let mut order = Vec::new();
        let mut union = MergedTargets::default();
        let longest = self.of.values().map(|l| l.targets.len().max(l.keys.len()));
        for row in 0..longest.max().unwrap_or(0) {
            for list in self.of.values() {
                if let Some(key) = list.keys.get(row)
                    && union.keys.len() < MAX_RESPONDER_KEYS
                    && !union.keys.contains(key)
                {
                    union.keys.push(key.clone());
                }
                let Some(target) = list.targets.get(row) else {
                    continue;
                };
                match all.get_mut(&target.key) {
                    Some(known) => {
                        known.demand |= target.demand;
                        known.outside_interval =
                            known.outside_interval.max(target.outside_interval);
                    }
                    None => {
                        order.push(target.key.clone());
                        all.insert(target.key.clone(), target.clone());
                    }
                }
            }
        }
        let (mut base, mut demand, mut outside) = (0, 0, 0);
        for target in order.iter().filter_map(|key| all.remove(key)) {
            let (count, most) = if target.is_outside() {
                (&mut outside, MAX_OUTSIDE_TARGETS)
            } else if target.demand {
                (&mut demand, MAX_TARGET_ROWS)
            } else {
                (&mut base, MAX_BASE_TARGETS)
            };
            if *count < most {
                *count += 1;
                union.targets.push(target);
            } else {
                union.refused += 1;
            }
        }
        union.refused += self.of.values().map(|list| list.refused).sum::<usize>();
        union
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(node: &str, demand: bool) -> latency::Target {
        latency::Target {
            node: node.to_owned(),
            instance: "i".to_owned(),
            address: "10.0.0.1:5310".to_owned(),
            key: vec![1; 32],
            demand,
            ..latency::Target::default()
        }
    }

    fn list(rows: &[latency::Target], keys: &[u8]) -> TargetList {
        TargetList::from(latency::Targets {
            targets: rows.to_vec(),
            echo_id: 1,
            responder_keys: keys.iter().map(|k| vec![*k; 16]).collect(),
        })
    }

    fn replica(index: usize) -> Replica {
        (index, SocketAddr::from(([10, 0, 0, 1], 5309)))
    }

    fn names(union: &MergedTargets) -> Vec<(&str, bool)> {
        let targets = union.targets.iter();
        targets.map(|t| (&*t.key.node, t.demand)).collect()
    }

    #[test]
    fn replicas_are_heard_alike_and_demand_of_any_counts() {
        let mut lists = ReplicaLists::default();
        lists.set(
            replica(1),
            list(&[row("a", false), row("b", false)], &[1, 2]),
        );
        lists.set(
            replica(2),
            list(&[row("c", false), row("a", true)], &[3, 1]),
        );
        let union = lists.merge();
        assert_eq!(names(&union), [("a", true), ("c", false), ("b", false)]);
        assert_eq!(
            union.keys.iter().map(|k| k[0]).collect::<Vec<_>>(),
            [1, 3, 2]
        );
        lists.set(replica(2), list(&[], &[]));
        assert_eq!(names(&lists.merge()), [("a", false), ("b", false)]);
        lists.forget(replica(2));
        lists.forget(replica(1));
        assert_eq!(names(&lists.merge()), [("a", false), ("b", false)]);
        lists.set(replica(3), list(&[row("d", true)], &[]));
        assert_eq!(names(&lists.merge()), [("d", true)]);
    }

    #[test]
    fn no_more_than_32_are_in_turn_and_the_rest_is_counted() {
        let rows: Vec<_> = (0..40).map(|n| row(&format!("n{n}"), n >= 36)).collect();
        let mut lists = ReplicaLists::default();
        lists.set(replica(1), list(&rows, &[]));
        let union = lists.merge();
        assert_eq!((union.targets.len(), union.refused), (36, 4));
        let many: Vec<_> = (0..2_000).map(|n| row(&format!("n{n}"), true)).collect();
        lists.set(replica(1), list(&many, &[]));
        let union = lists.merge();
        assert_eq!(
            (union.targets.len(), union.refused),
            (MAX_TARGET_ROWS, 2_000 - MAX_TARGET_ROWS)
        );
    }

    #[test]
    fn outside_targets_need_no_key_and_have_a_bound_of_their_own() {
        let outside = |n: usize| latency::Target {
            key: Vec::new(),
            outside: true,
            ..row(&format!("o{n}"), n.is_multiple_of(2))
        };
        let mut rows: Vec<_> = (0..300).map(outside).collect();
        rows.extend((0..40).map(|n| row(&format!("n{n}"), n >= 32)));
        let mut lists = ReplicaLists::default();
        lists.set(replica(1), list(&rows, &[]));
        lists.set(replica(2), list(&rows, &[]));
        let union = lists.merge();
        let outside = union.targets.iter().filter(|t| t.is_outside()).count();
        assert_eq!(outside, MAX_OUTSIDE_TARGETS);
        assert_eq!(union.targets.len(), MAX_OUTSIDE_TARGETS + 40);
        assert_eq!(union.refused, 300 - MAX_OUTSIDE_TARGETS);
    }

    #[test]
    fn another_address_or_key_is_another_way() {
        let target = |change: fn(&mut latency::Target)| {
            let mut row = row("n", false);
            change(&mut row);
            Target::try_from(&row).unwrap()
        };
        let known = target(|_| {});
        assert!(known.same_endpoint(&target(|r| r.demand = true)));
        assert!(!known.same_endpoint(&target(|r| r.address = "10.0.0.2:5310".into())));
        assert!(!known.same_endpoint(&target(|r| r.key = vec![2; 32])));
        let outside = target(|r| r.outside = true);
        assert!(!known.same_endpoint(&outside) && !outside.same_endpoint(&known));
        assert!(outside.same_endpoint(&target(|r| (r.outside, r.key) = (true, Vec::new()))));
    }

    #[test]
    fn of_two_long_lists_half_of_each_is_measured() {
        let of = |name: &str| {
            let rows = (0..MAX_BASE_TARGETS).map(|n| row(&format!("{name}{n}"), false));
            list(&rows.collect::<Vec<_>>(), &[])
        };
        let mut lists = ReplicaLists::default();
        lists.set(replica(1), of("a"));
        lists.set(replica(2), of("b"));
        let union = lists.merge();
        let count = |name| {
            names(&union)
                .iter()
                .filter(|t| t.0.starts_with(name))
                .count()
        };
        assert_eq!(
            (count("a"), count("b")),
            (MAX_BASE_TARGETS / 2, MAX_BASE_TARGETS / 2)
        );
    }

    #[test]
    fn rows_that_cannot_be_used_are_named_and_left_out() {
        let error = |change: fn(&mut latency::Target)| {
            let mut row = row("n", false);
            change(&mut row);
            Target::try_from(&row).unwrap_err().to_string()
        };
        assert!(error(|r| r.node.clear()).contains("without a name"));
        assert!(error(|r| r.node = "x".repeat(300)).contains("without a name"));
        let port = error(|r| r.address = "10.0.0.1:0".into());
        assert_eq!(port, "target \"n\": address \"10.0.0.1:0\" is not IP:PORT");
        assert!(error(|r| r.address = "host:1".into()).contains("not IP:PORT"));
        assert!(error(|r| r.key.truncate(3)).contains("3 bytes, below 16"));
        let mut bad = row("bad", true);
        bad.key.clear();
        let (targets, refused) = usable(&[bad, row("good", true)]);
        assert_eq!((targets.len(), refused), (1, 1));
    }
}
