//! The rule `bandwidth`: `request` is the wanted rate and `limit` the least accepted one, in bits
//! per second. The rate left for a pair of nodes is the least of its NICs and of the table's row,
//! each less the reservations of other bindings.

mod capacity;
mod quantity;
pub(crate) mod reservations;
mod rule;
mod transfers;

#[cfg(test)]
mod tests;

pub(crate) use quantity::RULE;
pub(crate) use rule::Bandwidth;
