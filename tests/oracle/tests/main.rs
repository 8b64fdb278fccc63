//! Comparisons with Kubernetes' own code, which `tests/oracle` builds into programs.

mod filtering;
mod merging;
