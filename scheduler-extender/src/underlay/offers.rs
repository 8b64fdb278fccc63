//! Which of the underlay's offers can be taken.

use std::{
    collections::HashSet,
    time::{SystemTime, UNIX_EPOCH},
};

use tautline_api::convert::UNDERLAY_FINALIZER;
use tautline_core::{
    nodes::NodeSet,
    planning::{CostDetail, Costs},
    text,
};
use tautline_proto::underlay::Offer;

/// Refused offers kept for explanations.
const MOST_REFUSED: usize = 32;
/// Longer texts of refused offers are cut.
const LONGEST_CHARS: usize = 64;
/// Kubernetes allows a finalizer's name so many characters behind its prefix.
const NAME: usize = 63;

/// Why an offer is not taken, as a stable code.
pub(crate) mod code {
    /// The id does not fit a finalizer.
    pub(crate) const BAD_ID: &str = "BadId";
    /// Another pod holds an allocation of this id.
    pub(crate) const ID_IN_USE: &str = "IdInUse";
    /// It was not asked about this node.
    pub(crate) const UNKNOWN_NODE: &str = "UnknownNode";
    pub(crate) const NEGATIVE_COST: &str = "NegativeCost";
    pub(crate) const BAD_EXPIRY: &str = "BadExpiry";
    pub(crate) const EXPIRED: &str = "Expired";
    /// Another for the same node is cheaper.
    pub(crate) const DEARER: &str = "Dearer";
}

/// One offer of the underlay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Offered {
    pub id: String,
    pub node: String,
    pub cost: i64,
    /// Milliseconds since 1970; `None`: the underlay names no end.
    pub expires: Option<u64>,
    /// Why it is not taken; `None`: it makes the node usable.
    pub refused: Option<&'static str>,
}

impl Offered {
    pub(crate) fn expired(&self, now: SystemTime) -> bool {
        self.expires.is_some_and(|end| end <= millis(now))
    }
}

/// Offers, judged.
#[derive(Debug)]
pub(super) struct Judged {
    /// Those that are taken by position of their nodes, then refused ones.
    pub offers: Vec<Offered>,
    pub left_out: usize,
    /// Of the offers that are taken.
    pub costs: Costs,
}

/// Sorts out what cannot be taken; of several for a node the cheapest stays, among
/// equals the first by id. `asked` are positions in `nodes`; `held` says of an id
/// whether another pod has it.
pub(super) fn judge(
    offers: Vec<Offer>,
    nodes: &NodeSet,
    asked: &[usize],
    now: SystemTime,
    held: impl Fn(&str) -> bool,
) -> Judged {
    let asked: HashSet<usize> = asked.iter().copied().collect();
    let (mut good, mut refused) = (Vec::new(), Vec::new());
    for offer in offers {
        let (offered, at) = judge_one(offer, nodes, &asked, now, &held);
        match (at, offered.refused) {
            (Some(at), None) => good.push((at, offered)),
            _ => refused.push(offered),
        }
    }
    good.sort_by(|(a, x), (b, y)| (a, x.cost, &x.id).cmp(&(b, y.cost, &y.id)));
    let mut costs = Costs::new(nodes.len());
    let mut taken: Vec<Offered> = Vec::new();
    for (_, mut offered) in good {
        if taken.last().is_some_and(|last| last.node == offered.node) {
            offered.refused = Some(code::DEARER);
            refused.push(offered);
        } else {
            costs.add(nodes, &offered.node, offered.cost, CostDetail::default());
            taken.push(offered);
        }
    }
    let left_out = refused.len().saturating_sub(MOST_REFUSED);
    refused.truncate(MOST_REFUSED);
    for offered in &mut refused {
        offered.id = shown(&offered.id);
        offered.node = shown(&offered.node);
    }
    taken.append(&mut refused);
    Judged {
        offers: taken,
        left_out,
        costs,
    }
}

/// One offer with the position of its node, if that was asked about.
fn judge_one(
    offer: Offer,
    nodes: &NodeSet,
    asked: &HashSet<usize>,
    now: SystemTime,
    held: impl Fn(&str) -> bool,
) -> (Offered, Option<usize>) {
    let node = offer.node.unwrap_or_default().name;
    let at = nodes.position(&node).filter(|at| asked.contains(at));
    // Before 1970, or with more than a second of nanoseconds, it says nothing.
    let expires = offer.expires.map(|end| {
        let (seconds, nanos) = (u64::try_from(end.seconds), u64::try_from(end.nanos));
        match (seconds, nanos) {
            (Ok(s), Ok(n)) if n < 1_000_000_000 => s
                .checked_mul(1000)
                .map(|ms| ms.saturating_add(n / 1_000_000)),
            _ => None,
        }
    });
    let mut offered = Offered {
        id: offer.id,
        node,
        cost: offer.cost,
        expires: expires.flatten(),
        refused: None,
    };
    offered.refused = if !fits(&offered.id) {
        Some(code::BAD_ID)
    } else if at.is_none() {
        Some(code::UNKNOWN_NODE)
    } else if offered.cost < 0 {
        Some(code::NEGATIVE_COST)
    } else if expires == Some(None) {
        Some(code::BAD_EXPIRY)
    } else if offered.expired(now) {
        Some(code::EXPIRED)
    } else if held(&offered.id) {
        Some(code::ID_IN_USE)
    } else {
        None
    };
    (offered, at)
}

/// Whether the id makes a finalizer's name that Kubernetes takes: 1 to 47 of
/// letters, digits, `.`, `_` and `-`, the last a letter or digit.
fn fits(id: &str) -> bool {
    let before = UNDERLAY_FINALIZER.rsplit('/').next().unwrap_or_default();
    let allowed = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
    id.bytes().last().is_some_and(|b| b.is_ascii_alphanumeric())
        && id.bytes().all(allowed)
        && before.len() + id.len() <= NAME
}

fn millis(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

fn shown(text: &str) -> String {
    text::sanitize(text, LONGEST_CHARS).into_owned()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tautline_proto::underlay::NodeRef;

    use super::*;

    const NOW: u64 = 1_000_000;

    fn offer(id: &str, node: &str, cost: i64, expires_in: i64) -> Offer {
        let end = UNIX_EPOCH + Duration::from_secs((NOW as i64 + expires_in) as u64);
        Offer {
            id: id.into(),
            node: Some(NodeRef {
                cluster: String::new(),
                name: node.into(),
            }),
            cost,
            expires: Some(end.into()),
        }
    }

    fn judged(offers: Vec<Offer>) -> Judged {
        let nodes: NodeSet = ["n0", "n1", "n2"].into_iter().collect();
        let now = UNIX_EPOCH + Duration::from_secs(NOW);
        judge(offers, &nodes, &[1, 2], now, |id| id == "held")
    }

    fn short(judged: &Judged) -> Vec<(&str, Option<&str>)> {
        let offers = judged.offers.iter();
        offers.map(|o| (o.id.as_str(), o.refused)).collect()
    }

    #[test]
    fn ids_that_fit_a_finalizer() {
        for good in ["a", "7", "A.b_c-9", "-x", "..9", &"a".repeat(47)] {
            assert!(fits(good), "{good}");
        }
        for bad in [
            "",
            "a-",
            "a.",
            "_",
            "a/b",
            "a b",
            "ä",
            "a\u{0}b",
            "a\n",
            &"a".repeat(48),
        ] {
            assert!(!fits(bad), "{bad}");
        }
    }

    #[test]
    fn odd_offers_are_refused_each_with_its_code() {
        let mut undated = offer("undated", "n1", 3, 0);
        undated.expires = None;
        let mut before = offer("before", "n1", 3, 0);
        before.expires = before.expires.map(|mut e| {
            e.seconds = -5;
            e
        });
        let mut nowhere = offer("nowhere", "", 3, 9);
        nowhere.node = None;
        let judged = judged(vec![
            offer("late", "n1", 1, 0),
            offer("gone", "n1", 1, -5),
            offer("free", "n2", -1, 9),
            offer("unasked", "n0", 1, 9),
            offer("elsewhere", "n9", 1, 9),
            offer("a/b", "n1", 1, 9),
            offer("held", "n1", 1, 9),
            before,
            nowhere,
            undated,
        ]);
        assert_eq!(
            short(&judged),
            [
                ("undated", None),
                ("late", Some(code::EXPIRED)),
                ("gone", Some(code::EXPIRED)),
                ("free", Some(code::NEGATIVE_COST)),
                ("unasked", Some(code::UNKNOWN_NODE)),
                ("elsewhere", Some(code::UNKNOWN_NODE)),
                ("a/b", Some(code::BAD_ID)),
                ("held", Some(code::ID_IN_USE)),
                ("before", Some(code::BAD_EXPIRY)),
                ("nowhere", Some(code::UNKNOWN_NODE)),
            ]
        );
        assert_eq!((judged.costs.get(1), judged.costs.get(2)), (Some(3), None));
    }

    #[test]
    fn the_cheapest_for_a_node_then_the_first_by_id() {
        let mut offers = vec![
            offer("c", "n1", 5, 9),
            offer("b", "n1", 2, 9),
            offer("a", "n1", 2, 9),
            offer("d", "n2", 7, 9),
        ];
        let want = [
            ("a", None),
            ("d", None),
            ("b", Some(code::DEARER)),
            ("c", Some(code::DEARER)),
        ];
        assert_eq!(short(&judged(offers.clone())), want);
        offers.reverse();
        assert_eq!(short(&judged(offers)), want);
    }

    #[test]
    fn refused_ones_are_bounded() {
        let long = "x".repeat(100_000);
        let judged = judged((0..100).map(|_| offer(&long, &long, 1, 9)).collect());
        assert_eq!((judged.offers.len(), judged.left_out), (32, 68));
        assert!(judged.offers.iter().all(|o| o.id.len() == LONGEST_CHARS));
    }
}
