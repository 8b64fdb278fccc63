//! The reports on a cluster's GPUs that `tautline gpu` prints and the console shows.

pub mod format;
mod fragmentation;
mod top;
mod what_if;

pub use fragmentation::{
    Class, ClassFit, Counted, Fragmentation, Given, NodeCounts, Product, class_fit, copies_on,
};
pub use top::{
    Amounts, CardSums, CardTop, CountedTop, HolderTop, NodeTop, Order, PoolTop, Top, Total,
    has_gpus, warnings,
};
pub use what_if::{MAX_PODS, Placed, WhatIf, WhatIfError, WhatIfPod};

pub use crate::uses::{
    IDLE_BUSY_MILLI, IDLE_MEMORY_PERCENT, NodeUse, UseAnswer, UsedTop, Uses, UsesError,
};

/// Counts the nodes of the parts, which are sorted by node.
fn node_count<T>(parts: &[(&str, T)]) -> usize {
    parts.chunk_by(|a, b| a.0 == b.0).count()
}

#[cfg(test)]
mod tests;
