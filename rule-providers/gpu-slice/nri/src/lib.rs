//! A client of NRI, the plugin interface of container runtimes (containerd, CRI-O).
//!
//! The plugin connects to the runtime's socket, on which two ttrpc connections share one stream:
//! on the first the runtime calls the plugin, on the second the plugin registers.
//! <https://github.com/containerd/nri>

#![warn(missing_docs)]

mod calls;
mod error;
mod mux;
mod plugin;
mod serve;
mod ttrpc;

#[cfg(test)]
mod serve_tests;

pub use error::Error;
pub use plugin::{Identity, Plugin, Request};
pub use serve::serve;
pub use tautline_node_proto::nri as messages;
