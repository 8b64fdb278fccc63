//! Why a connection to the runtime ended.

use std::time::Duration;

/// Why a connection to the runtime ended.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The runtime closed the connection.
    #[error("the runtime closed the connection")]
    Closed,
    /// Reading or writing failed.
    #[error("the connection to the runtime failed: {0}")]
    Io(#[from] std::io::Error),
    /// What the runtime sent is not NRI.
    #[error("the runtime sent what is not NRI: {0}")]
    Protocol(String),
    /// The runtime refused the plugin.
    #[error("the runtime refused the plugin: {0}")]
    Refused(String),
    /// The runtime did not configure and synchronize the plugin in time, or reads nothing.
    #[error("the runtime was silent for {0:?}")]
    Silent(Duration),
}
