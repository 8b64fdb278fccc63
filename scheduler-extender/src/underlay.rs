//! Gets the underlay's offers. If the rules leave no node, Discover returns allocations that would
//! make nodes usable, and bind makes them.

mod discover;
mod offers;
mod result;

pub(crate) use self::{
    discover::Discovery,
    offers::CheckedOffer,
    result::{UnderlayResult, code},
};
