//! Runs the parts that every Tautline process shares: logs, the servers of `tautline-serve`, and
//! (feature `cluster`) watches, events and leases. The watches write one index of the cluster, and
//! its readers take immutable snapshots.
//!
//! ```text
//! API server ──▶ watch ──▶ convert (tautline-api) ──▶ ClusterStore ──▶ Snapshot of each reader
//! ```

#![warn(missing_docs)]

pub mod error_text;
pub mod label_bound;
pub mod telemetry;

pub use tautline_serve::{admin, http, limits, metrics, stream, tasks, tls};

#[cfg(feature = "cluster")]
pub mod api_call;
#[cfg(feature = "cluster")]
pub mod backoff;
#[cfg(feature = "cluster")]
pub mod cluster;
#[cfg(feature = "cluster")]
pub mod cluster_store;
#[cfg(feature = "cluster")]
pub mod dynamic_watch;
#[cfg(feature = "cluster")]
pub mod events;
#[cfg(feature = "cluster")]
pub mod finalizers;
#[cfg(feature = "cluster")]
pub mod history;
#[cfg(feature = "cluster")]
pub mod input_files;
#[cfg(feature = "cluster")]
pub mod kubeconfig;
#[cfg(feature = "cluster")]
pub mod lease;
#[cfg(feature = "cluster")]
pub mod manifest_files;
#[cfg(feature = "cluster")]
pub mod other_clusters;
#[cfg(feature = "cluster")]
pub mod pods;
#[cfg(feature = "cluster")]
pub mod single_watch;
#[cfg(feature = "cluster")]
pub mod watch;
#[cfg(feature = "cluster")]
pub mod watch_changes;
