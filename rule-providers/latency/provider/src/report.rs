//! The JSON reports about round-trip times on the admin port. Names are in camelCase; durations are
//! whole microseconds, and their names end in `Micros`; unknown values are absent. A wrong request
//! gets a line of text: 400 with the fix, 404 with similar names.

mod facts;
mod matrix;
mod model;
mod pages;
mod pair;
mod query;
pub mod scale;
mod top;
pub mod units;
pub mod words;

pub use matrix::{By, Cell, MatrixReport, NO_ZONE};
pub use model::{Basis, Direction, EffectiveRtt, End, Estimated, State};
pub use pages::Pages;
pub use pair::{ActiveRule, PairReport};
pub use top::{TopPair, TopReport};

#[cfg(test)]
mod dashboard_tests;
#[cfg(test)]
mod tests;
