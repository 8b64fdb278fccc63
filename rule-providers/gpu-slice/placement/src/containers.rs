//! The part of its pod's cards that each container gets: whole cards, and a share on one card.

use tautline_core::ContainerKind;

use crate::{
    node_inventory::{MEMORY_RESOURCE, MILLI_RESOURCE},
    shape::{CARD_MILLI, memory_milli},
};

/// The thousandths by which a part of a card may fall short of the requested memory: the memory of
/// a pod is rounded up once, and here the memory of each container is rounded up.
const MAX_ROUNDING_MILLI: i64 = 8;

/// The cards that a pod or a container requests of a node's agent. The larger of the two amounts
/// counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AgentRequest {
    /// Thousandths of cards: a share of one card, or whole cards and a share of another.
    pub milli: i64,
    /// Memory of one card in GiB.
    pub memory_gib: i64,
}

/// The reasons why a container finds too little on its pod's cards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PartError<C> {
    /// Too little is left on one card.
    Short {
        /// Thousandths that the container needs.
        asks: i64,
        /// Thousandths that are left of each of the pod's cards.
        left: Vec<u16>,
    },
    /// The card has less memory than the container asks for, or its memory is not known.
    TooLarge(C),
}

impl AgentRequest {
    /// Creates the request of a pod or container. `units` returns its request for a resource, in
    /// whole units.
    pub fn new(units: impl Fn(&str) -> i64) -> Self {
        Self {
            milli: units(MILLI_RESOURCE).max(0),
            memory_gib: units(MEMORY_RESOURCE).max(0),
        }
    }

    pub(crate) fn of_milli(milli: i64) -> Self {
        Self {
            milli,
            memory_gib: 0,
        }
    }

    /// Returns whether no cards are requested.
    pub fn is_empty(self) -> bool {
        self == Self::default()
    }

    /// The requested memory of one card, in bytes.
    pub fn memory_bytes(self) -> i64 {
        self.memory_gib.saturating_mul(1 << 30)
    }

    /// The requested thousandths of cards with this memory: the larger of both requests. `None`:
    /// one card has less memory than requested, or its memory is not known.
    pub fn milli_on(self, card_memory_bytes: Option<i64>) -> Option<i64> {
        match self.memory_gib {
            0 => Some(self.milli),
            _ => Some(memory_milli(self.memory_bytes(), card_memory_bytes?)?.max(self.milli)),
        }
    }
}

/// Returns the parts of its pod's cards that the container with index `at` gets; empty if it asks
/// for no card. `cards` are the pod's cards with their thousandths; `memory_bytes` returns the
/// memory of a card, 0 if it is not known.
///
/// Sidecars and containers share the cards in the order of the spec. An init container gets what
/// the sidecars before it leave.
///
/// # Errors
/// [`PartError::Short`] if no card, or too few whole cards, have enough left;
/// [`PartError::TooLarge`] if a card has too little memory or its memory is not known.
pub fn parts_of<C: Clone>(
    containers: &[(ContainerKind, AgentRequest)],
    at: usize,
    cards: Vec<(C, u16)>,
    memory_bytes: impl Fn(&C) -> u64,
) -> Result<Vec<(C, u16)>, PartError<C>> {
    let Some((kind, meant)) = containers.get(at).filter(|(_, asks)| !asks.is_empty()) else {
        return Ok(Vec::new());
    };
    let needs = cards
        .iter()
        .filter_map(|(c, _)| needed(*meant, memory_bytes(c)));
    let need = needs.max().unwrap_or_default();
    let mut left = cards;
    for (earlier, asks) in containers.iter().take(at) {
        if !asks.is_empty() && lives_beside(*earlier, *kind) {
            // An earlier container that finds too little is refused itself, and takes nothing.
            _ = take(&mut left, *asks, &memory_bytes);
        }
    }
    take(&mut left, *meant, &memory_bytes).map_err(|error| match error {
        // If no card is left, only the original cards show how many thousandths the memory is.
        PartError::Short { asks, left } => PartError::Short {
            asks: asks.max(need),
            left,
        },
        too_large @ PartError::TooLarge(_) => too_large,
    })
}

/// Returns the thousandths of a card with this memory that a container needs.
fn needed(asks: AgentRequest, memory_bytes: u64) -> Option<i64> {
    asks.milli_on(i64::try_from(memory_bytes).ok())
}

/// Returns whether an earlier container still holds its cards when a later one starts.
fn lives_beside(earlier: ContainerKind, later: ContainerKind) -> bool {
    match earlier {
        ContainerKind::Init => false,
        ContainerKind::Sidecar => true,
        ContainerKind::Main => later == ContainerKind::Main,
    }
}

/// Takes whole cards first, then the share from the smallest part that has enough.
fn take<C: Clone>(
    left: &mut Vec<(C, u16)>,
    asks: AgentRequest,
    memory_bytes: impl Fn(&C) -> u64,
) -> Result<Vec<(C, u16)>, PartError<C>> {
    let mut needs: Vec<i64> = Vec::with_capacity(left.len());
    for (card, _) in left.iter() {
        let need = needed(asks, memory_bytes(card));
        needs.push(need.ok_or_else(|| PartError::TooLarge(card.clone()))?);
    }
    let most = needs.iter().copied().max().unwrap_or(asks.milli);
    let short = |left: &[(C, u16)]| PartError::Short {
        asks: most,
        left: left.iter().map(|(_, milli)| *milli).collect(),
    };
    let card = i64::from(CARD_MILLI);
    // Memory is requested of one card only, so more than one card is a request of thousandths.
    let (whole, share) = if most <= card {
        (0, None)
    } else {
        (most / card, Some(most % card).filter(|share| *share > 0))
    };
    let mut rest = left.clone();
    let mut taken = Vec::new();
    for _ in 0..whole {
        let full = rest.iter().position(|(_, milli)| *milli == CARD_MILLI);
        taken.push(rest.remove(full.ok_or_else(|| short(left))?));
    }
    if whole == 0 || share.is_some() {
        let need = |at: usize| share.or_else(|| needs.get(at).copied()).unwrap_or(most);
        let enough = |at: &usize| {
            // Only a request of memory is rounded.
            let by_memory = need(*at) > asks.milli;
            let slack = if by_memory { MAX_ROUNDING_MILLI } else { 0 };
            i64::from(rest[*at].1) + slack >= need(*at)
        };
        let fits = (0..rest.len()).filter(enough).min_by_key(|at| rest[*at].1);
        let at = fits.ok_or_else(|| short(left))?;
        let need = need(at);
        let (card, milli) = &mut rest[at];
        let part = u16::try_from(need).unwrap_or(CARD_MILLI).min(*milli);
        *milli -= part;
        taken.push((card.clone(), part));
        rest.retain(|(_, milli)| *milli > 0);
    }
    *left = rest;
    Ok(taken)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    /// The cards of 80 GiB by index, and what each container gets.
    fn given(cards: &[u16], asks: &[(ContainerKind, i64, i64)]) -> Vec<Option<Vec<(usize, u16)>>> {
        let asks = asks.iter().map(|(k, milli, gib)| {
            let (milli, memory_gib) = (*milli, *gib);
            (*k, AgentRequest { milli, memory_gib })
        });
        let asks: Vec<(ContainerKind, AgentRequest)> = asks.collect();
        let cards: Vec<(usize, u16)> = cards.iter().copied().enumerate().collect();
        let part = |at| parts_of(&asks, at, cards.clone(), |_| 80 * GIB).ok();
        (0..asks.len()).map(part).collect()
    }

    #[test]
    fn a_share_lies_on_one_card() {
        use ContainerKind::Main;
        let two = [(Main, 600, 0), (Main, 600, 0)];
        assert_eq!(given(&[1000, 200], &two), [Some(vec![(0, 600)]), None]);
        let both = given(&[600, 1000], &two);
        assert_eq!(both, [Some(vec![(0, 600)]), Some(vec![(1, 600)])]);
        let halves = [(Main, 200, 0), (Main, 500, 0), (Main, 500, 0)];
        let halves = given(&[1000, 200], &halves);
        let expected = [vec![(1, 200)], vec![(0, 500)], vec![(0, 500)]];
        assert_eq!(halves, expected.map(Some));
    }

    #[test]
    fn more_than_a_card_is_whole_cards_and_a_share() {
        use ContainerKind::Main;
        let one = [(Main, 1200, 0)];
        assert_eq!(given(&[200, 1000], &one), [Some(vec![(1, 1000), (0, 200)])]);
        assert_eq!(given(&[600, 600], &one), [None]);
        assert_eq!(given(&[1000, 100, 100], &one), [None]);
    }

    #[test]
    fn unknown_memory_serves_no_request_of_memory() {
        let asks = |memory_gib| {
            let milli = 1;
            [(ContainerKind::Main, AgentRequest { milli, memory_gib })]
        };
        let part = |gib| parts_of(&asks(gib), 0, vec![((), 500)], |()| 0);
        assert_eq!(part(0), Ok(vec![((), 1)]));
        assert_eq!(part(1), Err(PartError::TooLarge(())));
    }
}
