//! The reports on a cluster's GPUs that `tautline gpu` prints and the console shows.

pub mod format;
mod fragmentation;
mod top;
mod uses;
mod what_if;

pub use fragmentation::{
    Class, ClassFit, Counted, Fragmentation, Given, NodeCounts, Product, class_fit, copies_on,
};
pub use top::{
    Amounts, CardSums, CardTop, CountedTop, HolderTop, NodeTop, Order, PoolTop, Top, Total,
    UsedTop, has_gpus, warnings,
};
pub use uses::{
    CardUse, IDLE_BUSY_MILLI, IDLE_MEMORY_PERCENT, NodeUse, PodUse, UseAnswer, Uses, UsesError,
};
pub use what_if::{MAX_PODS, Placed, WhatIf, WhatIfError, WhatIfPod};

#[cfg(test)]
mod tests;
