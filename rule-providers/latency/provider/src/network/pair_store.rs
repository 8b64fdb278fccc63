//! The store of the pairs that agents report; sparse and synchronous. All times are durations since
//! the start of the store.

mod changes;
mod pair;
mod read;
mod store;
mod sweep;

#[cfg(test)]
mod tests;

pub(crate) use changes::Changes;
pub(crate) use pair::PAIR_RETENTION;
pub(crate) use store::{Directory, Instance, InstanceId, PairStore, Refusal};
pub(crate) use sweep::PairCounts;
