//! What every Tautline process needs around its work: an HTTP server with TLS
//! that reloads, an admin port, supervised tasks and shutdown, telemetry, and
//! (feature `cluster`) the feeds that keep an index in step with a cluster or a
//! folder of manifests.

pub mod admin;
pub mod connection;
pub mod connections;
pub mod http;
pub mod label_bound;
pub mod limits;
pub mod port;
pub mod port_metrics;
pub mod stream;
pub mod tasks;
pub mod telemetry;
pub mod tls;

#[cfg(feature = "cluster")]
pub mod api_call;
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
