//! The election of the replica that grants: Lease, addresses, waits.

use std::time::Duration;

use tautline_runtime::{lease, tls::ClientFiles};
use tautline_sdk::MAX_HOLD;

/// The election of the replica that grants.
#[derive(Clone, Debug)]
pub struct Config {
    /// The Lease. Make it with [`Config::new`]: the identity holds the address.
    pub(super) lease: lease::LeaseConfig,
    /// TLS between replicas; `None`: clear text.
    pub(super) tls: Option<PeerTls>,
    /// The longest hold that is granted, and for how long a new holder waits.
    pub(super) hold: Duration,
}

/// TLS to other replicas.
#[derive(Clone, Debug)]
pub struct PeerTls {
    /// The CA, and the certificate to show.
    pub files: ClientFiles,
    /// The name in the replicas' certificates.
    pub name: String,
}

impl Config {
    /// An election by this Lease; the others reach this replica at `advertise` (HOST:PORT).
    /// `identity` must be unique, also among former processes.
    pub fn new(namespace: &str, name: &str, identity: &str, advertise: &str) -> Self {
        let identity = format!("{identity}@{advertise}");
        Self {
            lease: lease::LeaseConfig::new(namespace, name, identity),
            tls: None,
            hold: MAX_HOLD,
        }
    }

    /// Calls the others over TLS.
    #[must_use]
    pub fn with_tls(mut self, tls: PeerTls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// A holder that is silent for so long is replaced; it steps down by itself
    /// after two thirds of it.
    #[must_use]
    pub fn with_duration(mut self, duration: Duration) -> Self {
        self.lease.duration = duration.max(Duration::from_secs(3));
        self.lease.renew_deadline = self.lease.duration.mul_f64(2.0 / 3.0);
        self.lease.retry = self.lease.duration.div_f64(6.0);
        self
    }
}
