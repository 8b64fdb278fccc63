//! The underlay's offers. If the rules leave no node, Discover returns what the underlay
//! could allocate to make nodes usable; bind allocates it.

mod discover;
mod offers;
mod result;

pub(crate) use self::{
    discover::Discovery,
    offers::CheckedOffer,
    result::{UnderlayResult, code},
};
