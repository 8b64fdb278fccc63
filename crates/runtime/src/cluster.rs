//! The connection of a process to its cluster.

use std::{fmt, time::Duration};

use kube::{Client, Config};

/// The time without data after which a connection is dead; watches may be silent for almost as
/// long.
const READ_TIMEOUT: Duration = Duration::from_secs(300);

/// Access to the API server. Cheap to clone.
#[derive(Clone)]
pub struct Cluster {
    client: Client,
    config: Option<Config>,
}

impl Cluster {
    /// Makes the access that `config` describes.
    ///
    /// # Errors
    /// The TLS files or the token cannot be used.
    pub fn new(mut config: Config) -> kube::Result<Self> {
        config.read_timeout.get_or_insert(READ_TIMEOUT);
        config.reset_reader_on_write = true;
        Ok(Self {
            client: Client::try_from(config.clone())?,
            config: Some(config),
        })
    }

    /// Makes an access through this client only, also for watches.
    pub fn from_client(client: Client) -> Self {
        Self {
            client,
            config: None,
        }
    }

    /// The client that the process's tasks share.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Returns a client on the current tokio runtime, whose data wakes no other thread. Without a
    /// configuration it returns the shared client.
    pub(crate) fn client_here(&self) -> kube::Result<Client> {
        match &self.config {
            Some(config) => Client::try_from(config.clone()),
            None => Ok(self.client.clone()),
        }
    }
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster").finish_non_exhaustive()
    }
}
