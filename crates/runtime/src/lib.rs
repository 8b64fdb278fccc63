//! The parts that every Tautline process shares: servers, TLS, supervised tasks, logs, and (feature
//! `cluster`) watches that keep an index in step with a cluster.

#![warn(missing_docs)]

pub mod admin;
mod connection;
mod connections;
pub mod error_text;
pub mod http;
pub mod label_bound;
pub mod limits;
mod port;
mod port_metrics;
pub mod stream;
pub mod tasks;
pub mod telemetry;
pub mod tls;

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
pub mod lease;
#[cfg(feature = "cluster")]
pub mod manifest_files;
#[cfg(feature = "cluster")]
pub mod single_watch;
#[cfg(feature = "cluster")]
pub mod watch;
#[cfg(feature = "cluster")]
pub mod watch_changes;
