use std::time::Duration;

use tautline_runtime::{lease, tls::ClientFiles};
use tautline_sdk::MAX_HOLD;

/// The Lease of the replicas, and TLS between them.
#[derive(Clone, Debug)]
pub struct Config {
    /// The settings of the Lease, whose identity has this replica's address.
    pub(super) lease: lease::LeaseConfig,
    pub(super) tls: Option<PeerTls>,
    /// The longest hold of a reservation, which is also the time that a new holder waits.
    pub(super) hold: Duration,
}

/// TLS of calls to the replica that holds the Lease.
#[derive(Clone, Debug)]
pub struct PeerTls {
    /// The CA of the replicas and this replica's client certificate, which are reloaded when they
    /// change.
    pub files: ClientFiles,
    /// The name that the server certificate of each replica must have.
    pub name: String,
}

impl Config {
    /// Returns the configuration with a Lease. The other replicas call this replica at `advertise`
    /// (HOST:PORT). `identity` must be unique over time.
    pub fn new(namespace: &str, name: &str, identity: &str, advertise: &str) -> Self {
        let identity = format!("{identity}@{advertise}");
        Self {
            lease: lease::LeaseConfig::new(namespace, name, identity),
            tls: None,
            hold: MAX_HOLD,
        }
    }

    /// Calls the holder over TLS, which the holder must serve. Without this setting, calls are in
    /// plain text.
    #[must_use]
    pub fn with_tls(mut self, tls: PeerTls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// Sets the duration of the Lease, at least 3 s. A silent holder is replaced after this
    /// duration, and steps down after two thirds of the duration.
    #[must_use]
    pub fn with_duration(mut self, duration: Duration) -> Self {
        self.lease.duration = duration.max(Duration::from_secs(3));
        self.lease.renew_deadline = self.lease.duration.mul_f64(2.0 / 3.0);
        self.lease.retry = self.lease.duration.div_f64(6.0);
        self
    }
}
