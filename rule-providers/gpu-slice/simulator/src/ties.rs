//! The choice between equally good nodes.

use std::str::FromStr;

/// The choice between equally good nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ties {
    /// The first in the order of the seed.
    #[default]
    First,
    /// Any, as kube-scheduler does.
    Random,
}

impl FromStr for Ties {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "first" => Ok(Self::First),
            "random" => Ok(Self::Random),
            _ => Err("write first or random".into()),
        }
    }
}

/// Chooses one of equally good nodes, which it gets one after the other.
#[derive(Debug)]
pub struct TieBreaker(Option<fastrand::Rng>);

impl TieBreaker {
    /// `seed` is only for [`Ties::Random`].
    pub fn new(ties: Ties, seed: u64) -> Self {
        Self(match ties {
            Ties::First => None,
            Ties::Random => Some(fastrand::Rng::with_seed(seed)),
        })
    }

    /// Gives the `nth` of equally good nodes the same chance as those before.
    pub fn replaces(&mut self, nth: u32) -> bool {
        match &mut self.0 {
            None => false,
            Some(random) => random.u32(..nth) == 0,
        }
    }
}
