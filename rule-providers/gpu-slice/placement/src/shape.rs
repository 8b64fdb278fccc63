//! The shape of a request, and the kinds of cards that serve it.

use std::sync::Arc;

/// The thousandths of a whole card.
pub const CARD_MILLI: u16 = 1000;

/// The way in which pods share cards. Only cards of the requested mode serve a pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SharingMode {
    /// Thousandths of cards, which are assigned when a pod is bound. The same cards serve requests
    /// for whole cards and for shares.
    #[default]
    Milli,
    /// The node gives thousandths of cards, which an agent gives to containers that request them.
    Agent,
    /// Whole cards only, which a device plugin assigns.
    Whole,
    /// Units of equal size, which a device plugin with time-slicing or MPS assigns.
    Shared {
        /// Thousandths of a card in a unit: 333 for three units a card.
        unit_milli: u16,
    },
    /// Thousandths of cards, which kube-scheduler allocates to claims and an agent gives to their
    /// containers.
    Claim,
}

impl SharingMode {
    /// The size of a unit in thousandths; `None`: the mode has no units.
    pub fn unit_milli(self) -> Option<u16> {
        match self {
            Self::Shared { unit_milli } => Some(unit_milli),
            Self::Milli | Self::Agent | Self::Whole | Self::Claim => None,
        }
    }

    /// Returns whether the provider chooses and records the cards when a pod is bound.
    pub fn is_recorded(self) -> bool {
        matches!(self, Self::Milli | Self::Agent)
    }

    /// Rounds thousandths up to full units; without units, `milli` itself.
    pub fn round_up(self, milli: i64) -> i64 {
        match self.unit_milli().map(i64::from).filter(|unit| *unit > 0) {
            Some(unit) => units_milli((milli + unit - 1) / unit, unit as u16),
            None => milli,
        }
    }
}

/// A pod's request for CPU, memory and GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Shape {
    /// CPU in thousandths of a core.
    pub cpu_milli: i64,
    /// Main memory in bytes.
    pub memory_bytes: i64,
    /// Number of whole cards.
    pub whole: u16,
    /// Thousandths of one further card, below 1000; 0: no share.
    pub share: u16,
    /// Sharing mode that the cards must have; it has no effect without GPU.
    pub mode: SharingMode,
    /// Model names; empty: any card.
    pub models: Arc<[Arc<str>]>,
}

impl Shape {
    /// Creates a shape of whole cards and a share for the thousandths, without CPU and memory.
    pub fn from_milli(mode: SharingMode, milli: i64) -> Self {
        let card = i64::from(CARD_MILLI);
        Self {
            whole: u16::try_from(milli / card).unwrap_or(u16::MAX),
            share: u16::try_from(milli % card).unwrap_or(0),
            mode,
            ..Self::default()
        }
    }

    /// The thousandths of whole cards and share together.
    pub fn milli(&self) -> i64 {
        i64::from(self.whole) * i64::from(CARD_MILLI) + i64::from(self.share)
    }

    /// Returns whether the shape has whole cards or a share.
    pub fn needs_gpu(&self) -> bool {
        self.whole > 0 || self.share > 0
    }

    pub(crate) fn allows(&self, kind: &CardKind) -> bool {
        !self.needs_gpu()
            || self.mode == kind.mode
                && (self.models.is_empty()
                    || self.models.iter().any(|m| is_model(&kind.product, m)))
    }
}

/// Product and sharing mode: cards of one kind differ only in what is free.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct CardKind {
    /// Product name, such as `NVIDIA-A100-SXM4-40GB`; empty: unknown.
    pub product: Arc<str>,
    /// Way in which pods share the cards.
    pub mode: SharingMode,
}

/// Converts units to thousandths. Units that fill a card count as 1000: 3 units of 333 are 1000.
pub fn units_milli(units: i64, unit_milli: u16) -> i64 {
    let a_card = i64::from(CARD_MILLI / unit_milli.max(1)).max(1);
    let (whole, rest) = (units / a_card, units % a_card);
    whole
        .saturating_mul(i64::from(CARD_MILLI))
        .saturating_add(rest * i64::from(unit_milli))
}

/// Converts `bytes` of card memory to thousandths, rounded up; `None`: the card has less memory.
pub fn memory_milli(bytes: i64, card_bytes: i64) -> Option<i64> {
    let card = i128::from(card_bytes.max(1));
    let milli = (i128::from(bytes.max(0)) * i128::from(CARD_MILLI) + card - 1) / card;
    let milli = i64::try_from(milli).ok();
    milli.filter(|milli| *milli <= i64::from(CARD_MILLI))
}

/// Returns whether a product is of a model. Only whole words of the product name match: `L4` is not
/// in `NVIDIA-L40S`.
pub fn is_model(product: &str, model: &str) -> bool {
    let edge = |c: Option<char>| c.is_none_or(|c| !c.is_ascii_alphanumeric());
    product.match_indices(model).any(|(at, _)| {
        edge(product[..at].chars().next_back()) && edge(product[at + model.len()..].chars().next())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_model_matches_whole_words() {
        assert!(is_model("NVIDIA-A100-SXM4-40GB", "A100"));
        assert!(!is_model("NVIDIA-L40S", "L4"));
    }

    #[test]
    fn units_milli_counts_full_cards() {
        assert_eq!(units_milli(3, 333), 1000);
        assert_eq!(units_milli(4, 333), 1333);
        assert_eq!(units_milli(5, 250), 1250);
        assert_eq!(units_milli(i64::MAX, 1000), i64::MAX);
    }

    #[test]
    fn memory_milli_rounds_up() {
        assert_eq!(memory_milli(20 << 30, 80 << 30), Some(250));
        assert_eq!(memory_milli(1, 80 << 30), Some(1));
        assert_eq!(memory_milli(80 << 30, 80 << 30), Some(1000));
        assert_eq!(memory_milli((80 << 30) + 1, 80 << 30), None);
        assert_eq!(memory_milli(0, 0), Some(0));
        assert_eq!(memory_milli(i64::MAX, 1), None);
    }

    #[test]
    fn allows_compares_mode_and_model() {
        let kind = |product: &str, mode| CardKind {
            product: product.into(),
            mode,
        };
        let shape = Shape {
            share: 500,
            models: [Arc::from("T4")].into(),
            ..Shape::default()
        };
        assert!(shape.allows(&kind("Tesla-T4", SharingMode::Milli)));
        assert!(!shape.allows(&kind("Tesla-T4", SharingMode::Whole)));
        assert!(!shape.allows(&kind("A10", SharingMode::Milli)));
        assert!(Shape::default().allows(&kind("A10", SharingMode::Whole)));
    }
}
