//! Reports of agents, by pair: sparse, synchronous. Times are durations since the store began.

mod changes;
mod pair;
mod read;
mod store;
mod sweep;

#[cfg(test)]
mod tests;

pub(crate) use changes::Changes;
pub(crate) use pair::RETENTION;
pub(crate) use store::{Directory, Instance, InstanceId, PairStore, Refusal};
pub(crate) use sweep::PairCounts;
