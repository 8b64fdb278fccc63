use std::time::Duration;

use tautline_runtime::{lease, tls::ClientFiles};
use tautline_sdk::MAX_HOLD;

/// The Lease of the replicas, and TLS between them.
#[derive(Clone, Debug)]
pub struct Config {
    /// Its identity has the address.
    pub(super) lease: lease::LeaseConfig,
    pub(super) tls: Option<PeerTls>,
    /// The longest hold, and the wait of a new holder.
    pub(super) hold: Duration,
}

/// TLS of calls to the replica that holds the Lease.
#[derive(Clone, Debug)]
pub struct PeerTls {
    /// CA of the replicas and this replica's client certificate; reloaded when they change.
    pub files: ClientFiles,
    /// Name that the server certificate of each replica must have.
    pub name: String,
}

impl Config {
    /// `advertise` (HOST:PORT) is for the other replicas. `identity` must be unique over time.
    pub fn new(namespace: &str, name: &str, identity: &str, advertise: &str) -> Self {
        let identity = format!("{identity}@{advertise}");
        Self {
            lease: lease::LeaseConfig::new(namespace, name, identity),
            tls: None,
            hold: MAX_HOLD,
        }
    }

    /// Calls the holder over TLS, which it must serve; without this call, in plain text.
    #[must_use]
    pub fn with_tls(mut self, tls: PeerTls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// A silent holder is replaced after this time; it steps down itself after two thirds of it.
    #[must_use]
    pub fn with_duration(mut self, duration: Duration) -> Self {
        self.lease.duration = duration.max(Duration::from_secs(3));
        self.lease.renew_deadline = self.lease.duration.mul_f64(2.0 / 3.0);
        self.lease.retry = self.lease.duration.div_f64(6.0);
        self
    }
}
