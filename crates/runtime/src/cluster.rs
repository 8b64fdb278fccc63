//! The cluster that a process works with.

use std::{fmt, time::Duration};

use kube::{Client, Config};

/// A connection that brings nothing for so long, an answer being due, is dead. Watches may
/// be silent for almost as long.
const SILENCE: Duration = Duration::from_secs(300);

/// How its API server is reached. Cheap to clone.
#[derive(Clone)]
pub struct Cluster {
    client: Client,
    config: Option<Config>,
}

impl Cluster {
    /// # Errors
    /// TLS files or a token that cannot be used.
    pub fn new(mut config: Config) -> kube::Result<Self> {
        config.read_timeout.get_or_insert(SILENCE);
        config.reset_reader_on_write = true;
        Ok(Self {
            client: Client::try_from(config.clone())?,
            config: Some(config),
        })
    }

    /// All that is done here goes through this client.
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

    /// A client whose connections live on the runtime that calls this: what they bring
    /// wakes no other.
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
