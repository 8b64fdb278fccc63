//! The rule `bandwidth`: `request` is the wanted rate and `limit` the least accepted, in bits per
//! second. A pair of nodes has left the least of its NICs and of the table's row, each less the
//! reservations of other bindings.

mod capacity;
mod quantity;
pub(crate) mod reservations;
mod rule;
mod transfers;

#[cfg(test)]
mod tests;

pub(crate) use quantity::RULE;
pub(crate) use rule::Bandwidth;
