//! Which of equally good nodes is taken.

use std::str::FromStr;

/// Which of equally good nodes is taken.
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

/// The choice, with the randomness that it needs.
#[derive(Debug)]
pub struct TieBreaker(Option<fastrand::Rng>);

impl TieBreaker {
    pub fn new(ties: Ties, seed: u64) -> Self {
        Self(match ties {
            Ties::First => None,
            Ties::Random => Some(fastrand::Rng::with_seed(seed)),
        })
    }

    /// Whether the `nth` of equals so far takes the place of the one held: each
    /// ends up with the same chance.
    pub fn replaces(&mut self, nth: u32) -> bool {
        match &mut self.0 {
            None => false,
            Some(random) => random.u32(..nth) == 0,
        }
    }
}
