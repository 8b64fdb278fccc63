//! Defines the ways to choose nodes and cards that an experiment compares.

use std::{fmt, str::FromStr};

use tautline_gpu_placement::{
    NodeCapacity, Shape,
    policy::{PolicyName, PolicyNameError},
};

/// The name of [`Contender::DraFirstFit`].
const DRA_FIRST_FIT: &str = "dra-first-fit";

/// A way to choose a pod's node and card.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Contender {
    /// The policy chooses node and card.
    Policy(PolicyName),
    /// Tautline's policy chooses the node, and kube-scheduler's allocator of DRA the card: the first
    /// with enough left.
    DraFirstFit,
}

impl Contender {
    /// Returns all contenders, Tautline's policy first.
    pub fn all() -> impl Iterator<Item = Self> {
        let policies = PolicyName::ALL.into_iter().map(Self::Policy);
        policies.chain([Self::DraFirstFit])
    }

    /// Returns the name in options and reports, such as `best-fit`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Policy(policy) => policy.as_str(),
            Self::DraFirstFit => DRA_FIRST_FIT,
        }
    }

    /// Returns the policy that chooses the node.
    pub fn policy(self) -> PolicyName {
        match self {
            Self::Policy(policy) => policy,
            Self::DraFirstFit => PolicyName::Tautline,
        }
    }

    /// Returns the card that gives the share on the chosen node; `card` is the policy's choice.
    pub(crate) fn card(
        self,
        capacity: &NodeCapacity,
        shape: &Shape,
        card: Option<u16>,
    ) -> Option<u16> {
        if self != Self::DraFirstFit || shape.share == 0 || shape.whole > 0 {
            return card;
        }
        let mut cards = capacity.cards().iter();
        let first = cards.position(|left| *left >= shape.share)?;
        u16::try_from(first).ok()
    }
}

impl From<PolicyName> for Contender {
    fn from(policy: PolicyName) -> Self {
        Self::Policy(policy)
    }
}

impl fmt::Display for Contender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The error for a text that names no [`Contender`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}, {DRA_FIRST_FIT}")]
pub struct ContenderError(PolicyNameError);

impl FromStr for Contender {
    type Err = ContenderError;

    fn from_str(text: &str) -> Result<Self, ContenderError> {
        if text == DRA_FIRST_FIT {
            return Ok(Self::DraFirstFit);
        }
        text.parse().map(Self::Policy).map_err(ContenderError)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contenders_are_parsed_by_their_names() {
        for contender in Contender::all() {
            assert_eq!(contender.as_str().parse(), Ok(contender));
        }
        let error = "dra".parse::<Contender>().unwrap_err().to_string();
        let expected = "there is no policy \"dra\"; there are tautline, fgd, best-fit, packing, \
                        spread, dra-first-fit";
        assert_eq!(error, expected);
    }

    #[test]
    fn first_fit_takes_the_first_card_with_enough_left() {
        let capacity = NodeCapacity::new(1000, 1, 0, vec![100, 1000, 250]);
        let card = |contender: Contender, share, whole| {
            let shape = Shape {
                share,
                whole,
                ..Shape::default()
            };
            contender.card(&capacity, &shape, Some(2))
        };
        assert_eq!(card(Contender::DraFirstFit, 250, 0), Some(1));
        assert_eq!(card(Contender::DraFirstFit, 0, 1), Some(2));
        assert_eq!(card(PolicyName::Fgd.into(), 250, 0), Some(2));
    }
}
