//! The choice between equally good nodes.

use std::str::FromStr;

use crate::files::Error;

/// The choice between equally good nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ties {
    /// Takes the first node in the order of the seed.
    #[default]
    First,
    /// Takes a random node, as kube-scheduler does.
    Random,
}

impl FromStr for Ties {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        match text {
            "first" => Ok(Self::First),
            "random" => Ok(Self::Random),
            _ => Err(Error::Invalid("write first or random".to_owned())),
        }
    }
}

/// Chooses one of several equally good nodes, which it receives one after the other.
#[derive(Debug)]
pub struct TieBreaker(Option<fastrand::Rng>);

impl TieBreaker {
    /// Creates a tie breaker. Only [`Ties::Random`] uses `seed`.
    pub fn new(ties: Ties, seed: u64) -> Self {
        Self(match ties {
            Ties::First => None,
            Ties::Random => Some(fastrand::Rng::with_seed(seed)),
        })
    }

    /// Returns whether the `nth` of equally good nodes replaces the one chosen before. With
    /// [`Ties::Random`] all these nodes have the same chance.
    pub fn replaces(&mut self, nth: u32) -> bool {
        match &mut self.0 {
            None => false,
            Some(random) => random.u32(..nth) == 0,
        }
    }
}
