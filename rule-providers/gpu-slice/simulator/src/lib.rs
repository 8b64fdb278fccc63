//! Simulates GPU placement policies on a recorded cluster, to compare how much of its GPUs each
//! policy fills.
//!
//! The experiment follows Weng et al., "Beware of Fragmentation: Scheduling GPU-Sharing Workloads
//! with Fragmentation Gradient Descent" (USENIX ATC 2023), on Alibaba's openb trace or a trace with
//! the same layout: pods arrive one by one and never leave; a pod that fits nowhere is dropped.

#![warn(missing_docs)]

mod arrivals;
mod batch;
pub mod churn;
mod contender;
mod curve;
mod files;
pub mod fill;
pub mod report;
pub mod run;
pub mod ties;
mod trace;

pub use arrivals::Arrivals;
pub use batch::{Experiment, Figures, RunResult, SeedRun};
pub use contender::Contender;
pub use curve::Curve;
pub use files::Error;
pub use report::PublishedCurves;
pub use ties::Ties;
pub use trace::{Node, Pod, Trace, Workload};
