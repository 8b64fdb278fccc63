//! One kept HTTP/2 channel for each provider address.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use arc_swap::ArcSwapOption;
use dashmap::DashMap;
use parking_lot::Mutex;
use prometheus_client::metrics::gauge::Gauge;
use tautline_core::providers::Address;
use tautline_runtime::tls::{ClientFiles, FileChanges};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};

use crate::breaker::Breaker;

/// Channels that nobody used for so long are closed.
const IDLE: Duration = Duration::from_secs(300);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    address: Address,
    /// The name that the certificate must have; `None`: no TLS.
    tls_name: Option<String>,
}

/// A channel with its breaker.
#[derive(Debug)]
pub(crate) struct Link {
    pub address: Address,
    pub channel: Channel,
    breaker: Mutex<Breaker>,
    used: Mutex<Instant>,
    open: Gauge,
}

impl Drop for Link {
    fn drop(&mut self) {
        if self.breaker.get_mut().is_open() {
            self.open.dec();
        }
    }
}

impl Link {
    /// A permit for one call, unless the breaker is open.
    pub(crate) fn admit(self: &Arc<Self>) -> Option<Permit> {
        *self.used.lock() = Instant::now();
        self.breaker.lock().admit(Instant::now()).then(|| Permit {
            link: Arc::clone(self),
            recorded: false,
        })
    }
}

/// One admitted call; dropped without an outcome it counts for nothing.
#[derive(Debug)]
pub(crate) struct Permit {
    pub link: Arc<Link>,
    recorded: bool,
}

impl Permit {
    pub(crate) fn record(mut self, success: bool) {
        self.recorded = true;
        let mut breaker = self.link.breaker.lock();
        let before = breaker.is_open();
        breaker.record(Instant::now(), success);
        match (before, breaker.is_open()) {
            (false, true) => _ = self.link.open.inc(),
            (true, false) => _ = self.link.open.dec(),
            _ => {}
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if !self.recorded {
            self.link.breaker.lock().forget();
        }
    }
}

#[derive(Debug)]
pub(crate) struct Pool {
    links: DashMap<Key, Arc<Link>>,
    turn: AtomicUsize,
    tls: ArcSwapOption<ClientTlsConfig>,
    files: ClientFiles,
    open: Gauge,
}

/// The pool cannot reach an address at all.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PoolError {
    #[error("every address of the provider is left alone after repeated failures")]
    BreakerOpen,
    #[error("{0}")]
    Unusable(String),
}

impl Pool {
    pub(crate) fn new(files: ClientFiles, open: Gauge) -> Result<Self, std::io::Error> {
        let tls = client_tls(&files)?;
        Ok(Self {
            links: DashMap::new(),
            turn: AtomicUsize::new(0),
            tls: ArcSwapOption::from_pointee(tls),
            files,
            open,
        })
    }

    /// The number of a call, so that calls go to addresses in turn.
    pub(crate) fn turn(&self) -> usize {
        self.turn.fetch_add(1, Ordering::Relaxed)
    }

    /// A permit on the first of `addresses`, from number `first` on, whose breaker
    /// admits a call. `skip` leaves out the address of a call that has just failed,
    /// if there is another.
    pub(crate) fn pick(
        &self,
        addresses: &[Address],
        first: usize,
        tls_name: Option<&str>,
        skip: Option<&Arc<Link>>,
    ) -> Result<Permit, PoolError> {
        let mut unusable = None;
        for i in 0..addresses.len() {
            let address = &addresses[(first.wrapping_add(i)) % addresses.len()];
            match self.link(address, tls_name) {
                Err(error) => unusable = Some(error),
                Ok(link) => {
                    let same = skip.is_some_and(|s| Arc::ptr_eq(s, &link));
                    if same && addresses.len() > 1 {
                        continue;
                    }
                    if let Some(permit) = link.admit() {
                        return Ok(permit);
                    }
                }
            }
        }
        Err(unusable.unwrap_or(PoolError::BreakerOpen))
    }

    fn link(&self, address: &Address, tls_name: Option<&str>) -> Result<Arc<Link>, PoolError> {
        let key = Key {
            address: address.clone(),
            tls_name: tls_name.map(str::to_owned),
        };
        if let Some(link) = self.links.get(&key) {
            return Ok(Arc::clone(&link));
        }
        let now = Instant::now();
        self.links
            .retain(|_, link| now.duration_since(*link.used.lock()) < IDLE);
        let link = Arc::new(Link {
            address: address.clone(),
            channel: self.channel(&key)?,
            breaker: Mutex::default(),
            used: Mutex::new(now),
            open: self.open.clone(),
        });
        // Two callers at once: the first one's channel stays.
        Ok(Arc::clone(&self.links.entry(key).or_insert(link)))
    }

    fn channel(&self, key: &Key) -> Result<Channel, PoolError> {
        let unusable = |e: tonic::transport::Error| {
            PoolError::Unusable(format!("address {}: {e}", key.address))
        };
        let scheme = if key.tls_name.is_some() {
            "https"
        } else {
            "http"
        };
        let endpoint = Endpoint::from_shared(format!("{scheme}://{}", key.address))
            .map_err(unusable)?
            .connect_timeout(Duration::from_secs(2))
            .tcp_nodelay(true)
            .tcp_keepalive(Some(Duration::from_secs(30)))
            .http2_keep_alive_interval(Duration::from_secs(10))
            .keep_alive_timeout(Duration::from_secs(5))
            .initial_stream_window_size(1 << 20)
            .initial_connection_window_size(4 << 20);
        let endpoint = match &key.tls_name {
            None => endpoint,
            Some(name) => {
                let Some(tls) = self.tls.load_full() else {
                    let what = "the provider requires TLS and no CA is configured; \
                                start with --provider-ca FILE";
                    return Err(PoolError::Unusable(what.to_owned()));
                };
                endpoint
                    .tls_config((*tls).clone().domain_name(name))
                    .map_err(unusable)?
            }
        };
        Ok(endpoint.connect_lazy())
    }

    /// Follows the TLS files until told to stop; new files mean new channels.
    pub(crate) async fn follow_tls(&self, stop: CancellationToken) {
        let mut paths: Vec<_> = self.files.ca.iter().cloned().collect();
        if let Some((cert, key)) = &self.files.identity {
            paths.extend([cert.clone(), key.clone()]);
        }
        let mut changes = FileChanges::new(paths);
        while changes.next(&stop).await {
            match client_tls(&self.files) {
                Ok(tls) => {
                    self.tls.store(tls.map(Arc::new));
                    // Calls under way keep their channel alive until they end.
                    self.links.retain(|key, _| key.tls_name.is_none());
                    tracing::info!("TLS files for providers reloaded");
                }
                Err(error) => tracing::warn!(%error, "TLS files for providers do not load"),
            }
        }
    }
}

fn client_tls(files: &ClientFiles) -> Result<Option<ClientTlsConfig>, std::io::Error> {
    let read = |path: &std::path::Path| {
        std::fs::read(path)
            .map_err(|e| std::io::Error::new(e.kind(), format!("{}: {e}", path.display())))
    };
    let Some(ca) = &files.ca else { return Ok(None) };
    let mut tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(read(ca)?));
    if let Some((cert, key)) = &files.identity {
        tls = tls.identity(Identity::from_pem(read(cert)?, read(key)?));
    }
    Ok(Some(tls))
}
