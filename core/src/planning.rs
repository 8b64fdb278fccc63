//! Costs in, usable nodes with scores and reason codes out.
//!
//! All arithmetic is on integers, so neither the order of rules and nodes nor
//! the unit of a rule changes a result: costs become fixed-point fractions
//! `floor((cost - lowest) x 2^62 / (highest - lowest))`, which a common factor
//! leaves as they are.

use crate::nodes::NodeSet;

/// The fixed-point 1.
const ONE: u64 = 1 << 62;
/// No provider of this kind of cost: not named in the answer.
const NO_COST: i64 = i64::MIN;
/// kube-scheduler's `MaxExtenderPriority`.
pub const MAX_SCORE: u8 = 10;

/// Reason codes that planning and its callers give; a provider adds its own.
pub mod code {
    /// The provider did not name the node.
    pub const NO_COST: &str = "NoCost";
    /// The provider gave a negative cost and no code of its own.
    pub const UNUSABLE: &str = "Unusable";
    pub const NO_PROVIDER: &str = "NoProvider";
    /// A provider is chosen and none of its addresses is ready.
    pub const NO_ADDRESS: &str = "ProviderNotReady";
    pub const TIMEOUT: &str = "ProviderTimeout";
    pub const FAILED: &str = "ProviderFailed";
    /// Not called: it has failed too often just now.
    pub const BREAKER: &str = "ProviderBreakerOpen";
    /// It answered something that is no answer (too large, malformed).
    pub const BAD_ANSWER: &str = "ProviderBadAnswer";
    pub const POLICY_MISSING: &str = "PolicyMissing";
}

/// One provider's answer for the nodes of a question, by their positions; in a few
/// allocations, whatever the number of nodes.
#[derive(Clone, Debug, Default)]
pub struct Costs {
    cost: Vec<i64>,
    /// By position; empty as long as there is none.
    notes: Vec<Kept>,
    /// The texts of all notes.
    text: String,
    /// The code that was written last: most lines have the one before.
    code: Span,
    /// Named in the answer and not in the question; left out.
    pub unknown_nodes: usize,
    /// Named more than once; the worst counts.
    pub duplicate_nodes: usize,
    /// Where the next line's node is if the answer keeps the question's order.
    next: usize,
}

/// What a provider says of a node besides the cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Note<'a> {
    /// A short stable code, "" if none was given or it is not fit to be one.
    pub code: &'a str,
    pub detail: &'a str,
    /// Usable once pods on the node had gone.
    pub freeable: bool,
}

/// A part of the text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Span {
    start: u32,
    end: u32,
}

/// A note whose texts are elsewhere.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Kept {
    code: Span,
    detail: Span,
    freeable: bool,
}

impl Costs {
    /// No costs yet for `nodes` nodes.
    pub fn new(nodes: usize) -> Self {
        Self {
            cost: vec![NO_COST; nodes],
            ..Self::default()
        }
    }

    /// Takes one line of a provider's answer. Several for a node: the worst
    /// counts, whatever their order.
    pub fn add(&mut self, nodes: &NodeSet, node: &str, cost: i64, note: Note<'_>) {
        let at = nodes.position_from(self.next, node);
        let Some(at) = at.filter(|at| *at < self.cost.len()) else {
            self.unknown_nodes += 1;
            return;
        };
        self.next = at + 1;
        let cost = cost.max(NO_COST + 1);
        let note = Note {
            code: clean_code(note.code),
            ..note
        };
        let old = self.cost[at];
        if old != NO_COST {
            self.duplicate_nodes += 1;
            let worse = match (old < 0, cost < 0) {
                (false, false) => cost > old,
                (true, true) => (cost, note) < (old, self.note(at).unwrap_or_default()),
                (_, new_is_negative) => new_is_negative,
            };
            if !worse {
                return;
            }
        }
        self.cost[at] = cost;
        self.keep(at, note);
    }

    fn keep(&mut self, at: usize, note: Note<'_>) {
        if self.notes.is_empty() {
            if note == Note::default() {
                return;
            }
            self.notes = vec![Kept::default(); self.cost.len()];
        }
        if !note.code.is_empty() && self.slice(self.code) != note.code {
            self.code = self.write(note.code);
        }
        self.notes[at] = Kept {
            code: match note.code {
                "" => Span::default(),
                _ => self.code,
            },
            detail: self.write(note.detail),
            freeable: note.freeable,
        };
    }

    fn write(&mut self, text: &str) -> Span {
        // Answers are bounded far below 4 GiB, so offsets fit.
        let at = |text: &String| u32::try_from(text.len()).unwrap_or(u32::MAX);
        let start = at(&self.text);
        self.text.push_str(text);
        Span {
            start,
            end: at(&self.text),
        }
    }

    fn slice(&self, span: Span) -> &str {
        let range = span.start as usize..span.end as usize;
        self.text.get(range).unwrap_or_default()
    }

    /// The cost at a position; `None` if the answer did not name the node.
    pub fn get(&self, at: usize) -> Option<i64> {
        self.cost.get(at).copied().filter(|c| *c != NO_COST)
    }

    pub fn note(&self, at: usize) -> Option<Note<'_>> {
        let kept = self.notes.get(at)?;
        let note = Note {
            code: self.slice(kept.code),
            detail: self.slice(kept.detail),
            freeable: kept.freeable,
        };
        (note != Note::default()).then_some(note)
    }

    /// Bytes held, roughly.
    pub fn weight(&self) -> usize {
        self.cost.len() * 8 + self.notes.len() * size_of::<Kept>() + self.text.len()
    }

    fn usable(&self, at: usize) -> bool {
        self.cost.get(at).is_some_and(|c| *c >= 0)
    }
}

/// Codes end up in events that are counted by their exact text: letters only, so
/// that no figure makes each node's reason a new one.
fn clean_code(code: &str) -> &str {
    let fit = code.len() <= 40
        && code.starts_with(|c: char| c.is_ascii_uppercase())
        && code.chars().all(|c| c.is_ascii_alphabetic());
    if fit { code } else { "" }
}

/// What came of asking one rule.
#[derive(Clone, Debug)]
pub enum Outcome {
    Costs(Costs),
    /// No answer. `reject`: then no node is usable; else the rule does not count.
    Unavailable {
        code: &'static str,
        reject: bool,
    },
}

/// One rule of one offer, answered.
#[derive(Clone, Copy, Debug)]
pub struct Answer<'a> {
    /// Groups the rules of one offer; any number that is its own.
    pub offer: usize,
    pub rule: &'a str,
    pub weight: u32,
    pub outcome: &'a Outcome,
}

/// What is decided of one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    Usable {
        /// The weighted mean of the scaled costs, 0 (best) to 2^62.
        badness: u64,
        /// 10 for the best alone, else `round(9 x (1 - mean))`.
        score: u8,
    },
    Unusable {
        /// `rule/Code`: short, stable, without figures.
        reason: String,
        /// Removing pods from the node could help.
        freeable: bool,
    },
}

impl Verdict {
    pub fn is_usable(&self) -> bool {
        matches!(self, Self::Usable { .. })
    }

    /// The score for kube-scheduler; 0 for a node that cannot be used.
    pub fn score(&self) -> u8 {
        match self {
            Self::Usable { score, .. } => *score,
            Self::Unusable { .. } => 0,
        }
    }
}

/// The decision on every node of a question, by position.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    pub verdicts: Vec<Verdict>,
}

impl Plan {
    /// Decides on `nodes` nodes from the answers of all rules of all offers.
    pub fn make(nodes: usize, answers: &[Answer<'_>]) -> Self {
        let usable: Vec<bool> = (0..nodes)
            .map(|at| answers.iter().all(|a| a.admits(at)))
            .collect();
        let badness = badness(&usable, answers);
        let best = (0..nodes)
            .filter(|at| usable[*at])
            .map(|at| badness[at])
            .min();
        let verdicts = (0..nodes)
            .map(|at| match usable[at] {
                true => {
                    let badness = badness[at];
                    Verdict::Usable {
                        badness,
                        score: score(badness, best.unwrap_or(0)),
                    }
                }
                false => refusal(at, answers),
            })
            .collect();
        Self { verdicts }
    }

    pub fn usable(&self) -> impl Iterator<Item = usize> {
        self.verdicts
            .iter()
            .enumerate()
            .filter(|(_, v)| v.is_usable())
            .map(|(at, _)| at)
    }

    /// The positions of the `most` best usable nodes, ascending; 0 means all.
    /// Among equals at the cut, `seed` (the pod's UID) decides, so that pods
    /// spread and the order of the question does not matter.
    pub fn shortlist(&self, nodes: &NodeSet, most: usize, seed: &str) -> Vec<usize> {
        let mut list: Vec<usize> = self.usable().collect();
        if most == 0 || list.len() <= most {
            return list;
        }
        let badness = |at: &usize| match self.verdicts[*at] {
            Verdict::Usable { badness, .. } => badness,
            Verdict::Unusable { .. } => u64::MAX,
        };
        // Only ties are worth a hash: this runs for every pod.
        let turn = |at: &usize| (fnv1a_64(&[seed, nodes.name(*at)]), nodes.name(*at));
        list.select_nth_unstable_by(most - 1, |a, b| {
            badness(a)
                .cmp(&badness(b))
                .then_with(|| turn(a).cmp(&turn(b)))
        });
        list.truncate(most);
        list.sort_unstable();
        list
    }
}

impl Answer<'_> {
    fn admits(&self, at: usize) -> bool {
        match self.outcome {
            Outcome::Costs(costs) => costs.usable(at),
            Outcome::Unavailable { reject, .. } => !reject,
        }
    }
}

/// The mean over offers of the weighted mean over rules, for each usable node.
fn badness(usable: &[bool], answers: &[Answer<'_>]) -> Vec<u64> {
    // By offer: the sum of the weights, and each node's weighted sum.
    let mut offers: Vec<(usize, u128, Vec<u128>)> = Vec::new();
    for answer in answers {
        let Outcome::Costs(costs) = answer.outcome else {
            continue;
        };
        let in_use = || {
            costs
                .cost
                .iter()
                .zip(usable)
                .filter(|(_, u)| **u)
                .map(|(c, _)| *c)
        };
        let (Some(low), Some(high)) = (in_use().min(), in_use().max()) else {
            continue;
        };
        let at = offers
            .iter()
            .position(|(o, ..)| *o == answer.offer)
            .unwrap_or_else(|| {
                offers.push((answer.offer, 0, vec![0; usable.len()]));
                offers.len() - 1
            });
        let (_, weights, sums) = &mut offers[at];
        let weight = u128::from(answer.weight);
        *weights += weight;
        let span = high.abs_diff(low);
        if span == 0 {
            continue;
        }
        for ((sum, cost), usable) in sums.iter_mut().zip(&costs.cost).zip(usable) {
            if *usable {
                let above = u128::from(cost.abs_diff(low));
                *sum += weight * (above * u128::from(ONE) / u128::from(span));
            }
        }
    }
    // An offer of weight 0 only keeps nodes out: it has no say in the mean.
    offers.retain(|(_, weights, _)| *weights > 0);
    let count = offers.len().max(1) as u128;
    let mean = |at: usize| -> u64 {
        let total: u128 = offers
            .iter()
            .map(|(_, weights, sums)| sums[at] / *weights)
            .sum();
        u64::try_from(total / count).unwrap_or(ONE)
    };
    (0..usable.len())
        .map(|at| if usable[at] { mean(at) } else { ONE })
        .collect()
}

fn score(badness: u64, best: u64) -> u8 {
    if badness == best {
        return MAX_SCORE;
    }
    let good = u128::from(ONE - badness.min(ONE)) * 9 + u128::from(ONE / 2);
    (good / u128::from(ONE)) as u8
}

/// Of several rules that refuse a node, the one that preemption cannot help
/// speaks, then the first by name: independent of their order.
fn refusal(at: usize, answers: &[Answer<'_>]) -> Verdict {
    let refusals = answers.iter().filter(|a| !a.admits(at)).map(|a| {
        let (freeable, code) = match a.outcome {
            Outcome::Unavailable { code, .. } => (false, *code),
            Outcome::Costs(costs) => match (costs.get(at), costs.note(at)) {
                (None, _) => (false, code::NO_COST),
                (_, Some(note)) if note.code.is_empty() => (note.freeable, code::UNUSABLE),
                (_, Some(note)) => (note.freeable, note.code),
                (_, None) => (false, code::UNUSABLE),
            },
        };
        (freeable, a.rule, code)
    });
    match refusals.min() {
        Some((freeable, rule, code)) => Verdict::Unusable {
            reason: [rule, "/", code].concat(),
            freeable,
        },
        None => Verdict::Unusable {
            reason: code::UNUSABLE.to_owned(),
            freeable: false,
        },
    }
}

/// FNV-1a, 64 bits, over parts with a separator between them.
pub fn fnv1a_64(parts: &[&str]) -> u64 {
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for part in parts {
        for byte in part.bytes().chain([0xff]) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
    hash
}

#[cfg(test)]
#[path = "planning_tests.rs"]
mod tests;
