//! Random choices.

use fastrand::Rng;

/// Returns one of the texts.
pub fn pick<'a>(rng: &mut Rng, from: &[&'a str]) -> &'a str {
    from[rng.usize(..from.len())]
}

/// Returns true in `percent` of a hundred cases.
pub fn chance(rng: &mut Rng, percent: u32) -> bool {
    rng.u32(..100) < percent
}
