//! Computes the number of further pods that fit on a cluster, now and after a change.

use std::{collections::BTreeMap, fmt, num::NonZeroUsize, str::FromStr};

use serde::Serialize;
use tautline_core::quantity;
use tautline_gpu_placement::{
    CARD_MILLI, CardKind, CostCache, NodeCapacity, RequestDistribution, Shape, SharingMode,
};

use crate::{
    contender::Contender,
    curve::round2,
    files::Error,
    ties::{TieBreaker, Ties},
};

/// The CPU or memory of a node for which a change gives no amount: practically unlimited.
const UNLIMITED_AMOUNT: i64 = i64::MAX / 4;

/// A node's free cards of one kind.
#[derive(Clone, Debug)]
pub struct NodePool {
    /// Product and sharing mode of the cards.
    pub kind: CardKind,
    /// Free CPU in thousandths of a core.
    pub cpu_milli: i64,
    /// Free main memory in bytes.
    pub memory_bytes: i64,
    /// Thousandths left of each card.
    pub cards: Vec<u16>,
}

/// A cluster's free capacity, and the requests to fill it with.
#[derive(Clone, Debug, Default)]
pub struct OwnCluster {
    /// Pools of cards: one for each node and kind of its cards.
    pub pools: Vec<NodePool>,
    /// Requests of known pods; all are equally likely.
    pub mix: Vec<Shape>,
}

/// A change to a cluster: `slices=250m`, or `add=10xh200x8,cpu=192,memory=2Ti`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Gives every requested share the same size, and cuts shared cards into units of this size.
    Slices {
        /// Thousandths of a card, 1 to 999.
        milli: u16,
    },
    /// Adds nodes with free cards, of the sharing mode that most cards have.
    Add {
        /// Number of nodes, 1 to 100,000.
        nodes: usize,
        /// Product name of the cards.
        product: String,
        /// Cards of each node, 1 to 64.
        cards: u16,
        /// CPU of each node in thousandths of a core.
        cpu_milli: i64,
        /// Main memory of each node in bytes.
        memory_bytes: i64,
    },
}

impl FromStr for Change {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let how =
            "write slices=250m, or add=10xh200x8 with ,cpu=192 and ,memory=2Ti if they matter";
        let wrong = |what: String| Error::Invalid(format!("{what}; {how}"));
        let mut parts = text.split(',');
        match parts.next().and_then(|p| p.split_once('=')) {
            Some(("slices", milli)) if parts.next().is_none() => {
                match quantity::parse_milli(milli) {
                    Ok(milli @ 1..1000) => Ok(Self::Slices {
                        milli: milli as u16,
                    }),
                    _ => Err(wrong("a slice is 1m to 999m of a card".into())),
                }
            }
            Some(("add", nodes)) => {
                let (count, rest) = nodes.split_once('x').unwrap_or_default();
                let (product, cards) = rest.rsplit_once('x').unwrap_or_default();
                let (mut cpu_milli, mut memory_bytes) = (UNLIMITED_AMOUNT, UNLIMITED_AMOUNT);
                for part in parts {
                    let amount = |text: &str| {
                        let amount = quantity::parse_milli(text);
                        amount.map_err(|e| wrong(format!("{part:?}: {e}")))
                    };
                    match part.split_once('=') {
                        Some(("cpu", cpu)) => cpu_milli = amount(cpu)?,
                        Some(("memory", memory)) => memory_bytes = amount(memory)? / 1000,
                        _ => return Err(wrong(format!("{part:?} is no amount of a node"))),
                    }
                }
                let count = count.parse().ok().filter(|c| (1..=100_000).contains(c));
                let cards = cards.parse().ok().filter(|c| (1..=64).contains(c));
                match (count, cards) {
                    (Some(nodes), Some(cards)) if !product.is_empty() => Ok(Self::Add {
                        nodes,
                        product: product.to_owned(),
                        cards,
                        cpu_milli,
                        memory_bytes,
                    }),
                    _ => Err(wrong(format!("{nodes:?} is not COUNTxPRODUCTxCARDS"))),
                }
            }
            _ => Err(wrong(format!("{text:?} is no change"))),
        }
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Slices { milli } => write!(f, "slices={milli}m"),
            Self::Add {
                nodes,
                product,
                cards,
                ..
            } => write!(f, "add={nodes}x{product}x{cards}"),
        }
    }
}

/// The figures of one case and policy, means over seeds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figures {
    /// The name of the case: `now`, or the change as the user wrote it.
    pub case: String,
    /// The policy's name.
    pub policy: &'static str,
    /// Number of nodes with cards; a node with cards of two kinds counts twice.
    pub nodes: usize,
    /// Number of cards.
    pub cards: usize,
    /// Number of further pods that fit.
    pub fit: f64,
    /// Difference of `fit` from the case `now`; `None` until the caller sets it.
    pub difference: Option<f64>,
    /// Used GPU in percent of the cluster's GPU, before the fill.
    pub allocation_now: f64,
    /// Used GPU in percent of the cluster's GPU, after the fill.
    pub allocation_full: f64,
}

impl OwnCluster {
    /// Returns a copy of the cluster with the change.
    pub fn with_change(&self, change: &Change) -> Self {
        let mut changed = self.clone();
        match change {
            Change::Slices { milli } => {
                let cut = |mode: &mut SharingMode| {
                    if let SharingMode::Shared { unit_milli } = mode {
                        *unit_milli = *milli;
                    }
                };
                for shape in &mut changed.mix {
                    let (whole, units) = match shape.mode {
                        SharingMode::Shared { unit_milli } => {
                            (0, shape.milli() / i64::from(unit_milli.max(1)))
                        }
                        _ if shape.share == 0 => continue,
                        _ => (shape.whole, 1),
                    };
                    let requested = units.max(1) * i64::from(*milli);
                    shape.whole = whole + (requested / i64::from(CARD_MILLI)) as u16;
                    shape.share = (requested % i64::from(CARD_MILLI)) as u16;
                    cut(&mut shape.mode);
                }
                changed.pools.iter_mut().for_each(|p| cut(&mut p.kind.mode));
            }
            Change::Add {
                nodes,
                product,
                cards,
                cpu_milli,
                memory_bytes,
            } => {
                let pool = NodePool {
                    kind: CardKind {
                        product: product.as_str().into(),
                        mode: self.main_mode(),
                    },
                    cpu_milli: *cpu_milli,
                    memory_bytes: *memory_bytes,
                    cards: vec![CARD_MILLI; usize::from(*cards)],
                };
                changed.pools.extend(std::iter::repeat_n(pool, *nodes));
            }
        }
        changed
    }

    /// The sharing mode of most cards; without pools, the sharing mode of most requests.
    fn main_mode(&self) -> SharingMode {
        let mut counts = BTreeMap::<SharingMode, usize>::new();
        for pool in &self.pools {
            *counts.entry(pool.kind.mode).or_default() += pool.cards.len();
        }
        for shape in self.mix.iter().filter(|_| self.pools.is_empty()) {
            *counts.entry(shape.mode).or_default() += 1;
        }
        let most = counts.into_iter().max_by_key(|(_, count)| *count);
        most.map(|(mode, _)| mode).unwrap_or_default()
    }

    /// Places random pods of the mix, for each seed, until `misses` pods in a row do not fit.
    pub fn fill(
        &self,
        case: &str,
        policy: Contender,
        seeds: &[u64],
        ties: Ties,
        misses: NonZeroUsize,
    ) -> Figures {
        let cards: usize = self.pools.iter().map(|p| p.cards.len()).sum();
        let idle = self.pools.iter().flat_map(|p| &p.cards);
        let idle: i64 = idle.map(|c| i64::from(*c)).sum();
        let percent = |idle: f64| match cards {
            0 => 0.0,
            cards => round2(100.0 - idle / cards as f64 / 10.0),
        };
        let (mut fit, mut left) = (0, 0);
        for seed in seeds {
            let (more, idle) = self.fill_once(policy, *seed, ties, misses);
            fit += more;
            left += idle;
        }
        let seeds = seeds.len().max(1) as f64;
        Figures {
            case: case.to_owned(),
            policy: policy.as_str(),
            nodes: self.pools.len(),
            cards,
            fit: round2(fit as f64 / seeds),
            difference: None,
            allocation_now: percent(idle as f64),
            allocation_full: percent(left as f64 / seeds),
        }
    }

    fn fill_once(
        &self,
        policy: Contender,
        seed: u64,
        ties: Ties,
        misses: NonZeroUsize,
    ) -> (u64, i64) {
        let mut costs =
            CostCache::new(policy.policy().build()).with_capacity_for(self.mix.len().min(4096));
        for (i, pool) in self.pools.iter().enumerate() {
            let kind = costs.kind_index(&pool.kind);
            let capacity =
                NodeCapacity::new(pool.cpu_milli, pool.memory_bytes, kind, pool.cards.clone());
            costs.set_position(i, i as f64 / self.pools.len() as f64);
            costs.set_capacity(i, Some(capacity));
        }
        costs.plan_for(RequestDistribution::from_shapes(&self.mix).classes());
        let mut random = fastrand::Rng::with_seed(seed);
        let mut chooser = TieBreaker::new(ties, seed);
        let (mut fit, mut missed) = (0, 0);
        while missed < misses.get() {
            let Some(shape) = random.choice(&self.mix) else {
                break;
            };
            let best = costs.cheapest_with_ties(shape, |nth| chooser.replaces(nth));
            let taken = best.and_then(|(node, place)| {
                let mut capacity = costs.capacity(node)?.clone();
                let card = policy.card(&capacity, shape, place.card);
                capacity.take(shape, card.map(usize::from)).ok()?;
                Some((node, capacity))
            });
            match taken {
                Some((node, capacity)) => {
                    costs.set_capacity(node, Some(capacity));
                    (fit, missed) = (fit + 1, 0);
                }
                None => missed += 1,
            }
        }
        (fit, costs.capacities().map(|(_, r)| r.idle_milli()).sum())
    }
}

#[cfg(test)]
mod tests {
    use tautline_gpu_placement::policy::PolicyName;

    use super::*;

    fn own(share: u16, mode: SharingMode) -> OwnCluster {
        OwnCluster {
            pools: vec![NodePool {
                kind: CardKind {
                    product: "T4".into(),
                    mode,
                },
                cpu_milli: 64_000,
                memory_bytes: UNLIMITED_AMOUNT,
                cards: vec![CARD_MILLI, 500],
            }],
            mix: vec![Shape {
                cpu_milli: 1000,
                share,
                mode,
                ..Shape::default()
            }],
        }
    }

    fn fill(own: &OwnCluster) -> Figures {
        let misses = NonZeroUsize::new(3).unwrap();
        own.fill("now", PolicyName::Fgd.into(), &[1, 2], Ties::First, misses)
    }

    #[test]
    fn fill_ends_when_nothing_fits() {
        let mode = SharingMode::Shared { unit_milli: 500 };
        let now = fill(&own(500, mode));
        assert_eq!(
            (now.fit, now.allocation_now, now.allocation_full),
            (3.0, 25.0, 100.0)
        );
        let cut = own(500, mode).with_change(&"slices=250m".parse().unwrap());
        assert_eq!(fill(&cut).fit, 6.0);
        let more = own(500, mode).with_change(&"add=2xh200x8,cpu=4".parse().unwrap());
        let more = fill(&more);
        assert_eq!((more.nodes, more.cards, more.fit), (3, 18, 11.0));
    }

    #[test]
    fn change_parses_and_displays() {
        for text in ["slices=250m", "add=10xh200x8"] {
            assert_eq!(text.parse::<Change>().unwrap().to_string(), text);
        }
        for text in [
            "slices=2",
            "add=10",
            "add=1xh200x8,disk=1",
            "cut=1",
            "add=0xh200x8",
        ] {
            let error = text.parse::<Change>().unwrap_err().to_string();
            assert!(error.contains("write slices=250m"), "{error}");
        }
    }
}
