//! Gives containers their GPUs ("cards") on a node, as the agent of the rule provider `gpu-slice`.
//! A container gets exactly the cards that its ResourceClaims were allocated, or else that an
//! annotation of its pod (the pod's "record") names.
//!
//! ```text
//! tautline-nvml ── readings ──▶ inventory ──▶ annotation of the Node ──▶ provider
//! record of the pod ──▶ assignment, limits ──▶ device plugin, CDI ──▶ container
//! inventory ── dra ──▶ ResourceSlices; ResourceClaim ── limits ── dra ──▶ CDI ──▶ container
//! processes on the cards ──▶ usage ── stream ──▶ provider
//! ```

#![warn(missing_docs)]

mod app;
mod assignment;
mod backoff;
mod cards;
mod cdi;
mod cgroup;
mod channels;
mod device_plugin;
mod dra;
mod giver;
mod inventory;
mod kubelet;
pub mod limits;
mod metrics;
mod mig;
mod node;
mod occupancy;
mod pods;
mod reader;
mod stream;
mod usage;
mod whole_file;

pub use app::{App, Config, example_metrics};
pub use dra::Delivery;
pub use reader::ReaderCommand;
