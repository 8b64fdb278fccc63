//! Compares placement policies on a recorded trace: the utilization of the cluster's GPUs.
//!
//! The experiment of Weng et al., "Beware of Fragmentation: Scheduling GPU-Sharing Workloads
//! with Fragmentation Gradient Descent" (USENIX ATC 2023), on Alibaba's openb trace or one of
//! the same layout: pods arrive one by one and never leave; one that fits nowhere is dropped.

pub mod arrivals;
pub mod batch;
pub mod churn;
pub mod curve;
pub mod error;
mod files;
pub mod fill;
pub mod published;
pub mod report;
pub mod run;
pub mod ties;
pub mod trace;

pub use arrivals::Arrivals;
pub use batch::{Experiment, Figures, RunResult};
pub use error::Error;
pub use published::PublishedCurves;
pub use ties::Ties;
pub use trace::{Trace, Workload};
