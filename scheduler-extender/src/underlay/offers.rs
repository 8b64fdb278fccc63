//! Checks the allocations that the underlay offers for nodes: refuses invalid offers with a code,
//! and accepts the cheapest one for each node.

use std::{collections::HashSet, time::SystemTime};

use tautline_api::convert::UNDERLAY_FINALIZER;
use tautline_core::{
    nodes::NodeSet,
    planning::{CostDetail, Costs},
    text,
};
use tautline_proto::underlay::Offer;
use tautline_provider_client::status::unix_millis;

/// The maximum number of refused offers that explanations show.
const MAX_REFUSED: usize = 32;
const MAX_CHARS: usize = 64;
/// Kubernetes' limit on a finalizer's name after its prefix.
const MAX_FINALIZER_NAME_BYTES: usize = 63;

/// The stable codes of refused offers.
pub(crate) mod code {
    /// The id does not fit a finalizer.
    pub(crate) const BAD_ID: &str = "BadId";
    pub(crate) const ID_IN_USE: &str = "IdInUse";
    pub(crate) const UNKNOWN_NODE: &str = "UnknownNode";
    pub(crate) const NEGATIVE_COST: &str = "NegativeCost";
    pub(crate) const BAD_EXPIRY: &str = "BadExpiry";
    pub(crate) const EXPIRED: &str = "Expired";
    pub(crate) const DEARER: &str = "Dearer";
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CheckedOffer {
    pub id: String,
    pub node: String,
    pub cost: i64,
    /// The expiry, in milliseconds since 1970; `None` if the offer does not expire.
    pub expires: Option<u64>,
    /// The code of the refusal; `None` if the offer makes the node usable.
    pub refused: Option<&'static str>,
}

impl CheckedOffer {
    pub fn is_expired(&self, now: SystemTime) -> bool {
        self.expires.is_some_and(|end| end <= unix_millis(now))
    }
}

#[derive(Debug)]
pub(super) struct CheckedOffers {
    /// The accepted offers by the position of their nodes, then the refused offers.
    pub offers: Vec<CheckedOffer>,
    pub left_out: usize,
    pub costs: Costs,
}

/// Refuses invalid offers, and accepts the cheapest offer for each node, among equals the first by
/// id. `eligible` has positions in `nodes`; `in_use` is true for ids that another pod holds.
pub(super) fn check(
    offers: Vec<Offer>,
    nodes: &NodeSet,
    eligible: &[usize],
    now: SystemTime,
    in_use: impl Fn(&str) -> bool,
) -> CheckedOffers {
    let eligible: HashSet<usize> = eligible.iter().copied().collect();
    let (mut valid, mut refused) = (Vec::new(), Vec::new());
    for offer in offers {
        let (checked, at) = check_offer(offer, nodes, &eligible, now, &in_use);
        match (at, checked.refused) {
            (Some(at), None) => valid.push((at, checked)),
            _ => refused.push(checked),
        }
    }
    valid.sort_by(|(a, x), (b, y)| (a, x.cost, &x.id).cmp(&(b, y.cost, &y.id)));
    let mut costs = Costs::new(nodes.len());
    let mut accepted: Vec<CheckedOffer> = Vec::new();
    for (_, mut offer) in valid {
        if accepted.last().is_some_and(|last| last.node == offer.node) {
            offer.refused = Some(code::DEARER);
            refused.push(offer);
        } else {
            costs.add(nodes, &offer.node, offer.cost, CostDetail::default());
            accepted.push(offer);
        }
    }
    let left_out = refused.len().saturating_sub(MAX_REFUSED);
    refused.truncate(MAX_REFUSED);
    for offer in &mut refused {
        offer.id = text::sanitize(&offer.id, MAX_CHARS).into_owned();
        offer.node = text::sanitize(&offer.node, MAX_CHARS).into_owned();
    }
    accepted.append(&mut refused);
    CheckedOffers {
        offers: accepted,
        left_out,
        costs,
    }
}

/// The checked offer with the position of its node, if that is eligible.
fn check_offer(
    offer: Offer,
    nodes: &NodeSet,
    eligible: &HashSet<usize>,
    now: SystemTime,
    in_use: impl Fn(&str) -> bool,
) -> (CheckedOffer, Option<usize>) {
    let node = offer.node.unwrap_or_default().name;
    let at = nodes.position(&node).filter(|at| eligible.contains(at));
    // `Some(None)` is invalid: it is before 1970, or has a second or more of nanoseconds.
    let expires = offer.expires.map(|end| {
        let (seconds, nanos) = (u64::try_from(end.seconds), u64::try_from(end.nanos));
        match (seconds, nanos) {
            (Ok(s), Ok(n)) if n < 1_000_000_000 => s
                .checked_mul(1000)
                .map(|ms| ms.saturating_add(n / 1_000_000)),
            _ => None,
        }
    });
    let mut checked = CheckedOffer {
        id: offer.id,
        node,
        cost: offer.cost,
        expires: expires.flatten(),
        refused: None,
    };
    checked.refused = if !fits_finalizer(&checked.id) {
        Some(code::BAD_ID)
    } else if at.is_none() {
        Some(code::UNKNOWN_NODE)
    } else if checked.cost < 0 {
        Some(code::NEGATIVE_COST)
    } else if expires == Some(None) {
        Some(code::BAD_EXPIRY)
    } else if checked.is_expired(now) {
        Some(code::EXPIRED)
    } else if in_use(&checked.id) {
        Some(code::ID_IN_USE)
    } else {
        None
    };
    (checked, at)
}

/// Returns whether Kubernetes accepts the id in a finalizer's name: 1 to 47 letters, digits, `.`,
/// `_` and `-`, the last a letter or digit.
fn fits_finalizer(id: &str) -> bool {
    let before = UNDERLAY_FINALIZER.rsplit('/').next().unwrap_or_default();
    let allowed = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
    id.bytes().last().is_some_and(|b| b.is_ascii_alphanumeric())
        && id.bytes().all(allowed)
        && before.len() + id.len() <= MAX_FINALIZER_NAME_BYTES
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

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

    fn checked(offers: Vec<Offer>) -> CheckedOffers {
        let nodes: NodeSet = ["n0", "n1", "n2"].into_iter().collect();
        let now = UNIX_EPOCH + Duration::from_secs(NOW);
        check(offers, &nodes, &[1, 2], now, |id| id == "in-use")
    }

    fn codes(checked: &CheckedOffers) -> Vec<(&str, Option<&str>)> {
        let offers = checked.offers.iter();
        offers.map(|o| (o.id.as_str(), o.refused)).collect()
    }

    #[test]
    fn fits_finalizer_accepts_kubernetes_names() {
        for good in ["a", "7", "A.b_c-9", "-x", "..9", &"a".repeat(47)] {
            assert!(fits_finalizer(good), "{good}");
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
            assert!(!fits_finalizer(bad), "{bad}");
        }
    }

    #[test]
    fn check_refuses_invalid_offers_with_codes() {
        let mut undated = offer("undated", "n1", 3, 0);
        undated.expires = None;
        let mut before = offer("before", "n1", 3, 0);
        before.expires = before.expires.map(|mut e| {
            e.seconds = -5;
            e
        });
        let mut nowhere = offer("nowhere", "", 3, 9);
        nowhere.node = None;
        let checked = checked(vec![
            offer("late", "n1", 1, 0),
            offer("gone", "n1", 1, -5),
            offer("free", "n2", -1, 9),
            offer("unasked", "n0", 1, 9),
            offer("elsewhere", "n9", 1, 9),
            offer("a/b", "n1", 1, 9),
            offer("in-use", "n1", 1, 9),
            before,
            nowhere,
            undated,
        ]);
        assert_eq!(
            codes(&checked),
            [
                ("undated", None),
                ("late", Some(code::EXPIRED)),
                ("gone", Some(code::EXPIRED)),
                ("free", Some(code::NEGATIVE_COST)),
                ("unasked", Some(code::UNKNOWN_NODE)),
                ("elsewhere", Some(code::UNKNOWN_NODE)),
                ("a/b", Some(code::BAD_ID)),
                ("in-use", Some(code::ID_IN_USE)),
                ("before", Some(code::BAD_EXPIRY)),
                ("nowhere", Some(code::UNKNOWN_NODE)),
            ]
        );
        assert_eq!(
            (checked.costs.get(1), checked.costs.get(2)),
            (Some(3), None)
        );
    }

    #[test]
    fn check_accepts_the_cheapest_then_the_first_by_id() {
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
        assert_eq!(codes(&checked(offers.clone())), want);
        offers.reverse();
        assert_eq!(codes(&checked(offers)), want);
    }

    #[test]
    fn check_bounds_refused_offers() {
        let long = "x".repeat(100_000);
        let checked = checked((0..100).map(|_| offer(&long, &long, 1, 9)).collect());
        assert_eq!((checked.offers.len(), checked.left_out), (32, 68));
        assert!(checked.offers.iter().all(|o| o.id.len() == MAX_CHARS));
    }
}
