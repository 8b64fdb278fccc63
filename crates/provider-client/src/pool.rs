//! One HTTP/2 channel per provider address, with its circuit breaker.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use arc_swap::ArcSwapOption;
use dashmap::DashMap;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use prometheus_client::metrics::gauge::Gauge;
use tautline_core::providers::Address;
use tautline_runtime::tls::{ClientFiles, FileChanges};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tonic::{
    Status,
    transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity},
};

use crate::{breaker::Breaker, dial, error::CallError};

/// The time without use after which a channel is closed.
const IDLE_TIMEOUT: Duration = Duration::from_secs(300);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    address: Address,
    /// The name in the certificate; `None` without TLS.
    tls_name: Option<String>,
    remote_only: bool,
    /// True if the provider's namespace is trusted. A tenant's calls to the same address must not
    /// open the breaker for others.
    trusted: bool,
}

impl Key {
    fn new(address: &Address, candidates: &Candidates<'_>) -> Self {
        Self {
            address: address.clone(),
            tls_name: candidates.tls_name.map(str::to_owned),
            remote_only: candidates.remote_only,
            trusted: candidates.trusted,
        }
    }
}

pub(crate) type Probe =
    Arc<dyn Fn(Channel, Duration) -> BoxFuture<'static, Result<(), Status>> + Send + Sync>;

pub(crate) struct Candidates<'a> {
    pub addresses: &'a [Address],
    pub first: usize,
    pub tls_name: Option<&'a str>,
    pub remote_only: bool,
    pub trusted: bool,
    /// True if the call may be the probe of an open breaker.
    pub may_probe: bool,
}

pub(crate) struct Connection {
    pub address: Address,
    pub channel: Channel,
    breaker: Mutex<Breaker>,
    used: Mutex<Instant>,
    error: Mutex<String>,
    probing: AtomicBool,
    probe: Mutex<Option<Probe>>,
    open: Gauge,
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let breaker = &self.breaker;
        let mut out = f.debug_struct("Connection");
        out.field("address", &self.address)
            .field("breaker", breaker);
        out.finish_non_exhaustive()
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if self.breaker.get_mut().is_open() {
            self.open.dec();
        }
    }
}

impl Connection {
    /// Admits one call, unless the breaker is open; a probe may pass an open breaker after its
    /// pause.
    pub(crate) fn admit(self: &Arc<Self>, probe: bool) -> Option<CallGuard> {
        let now = Instant::now();
        let mut breaker = self.breaker.lock();
        let admitted = (probe || !breaker.is_open()) && breaker.admit(now);
        admitted.then(|| CallGuard {
            connection: Arc::clone(self),
            recorded: false,
        })
    }

    /// The time of the next probe; `None` if the breaker is closed or the address unused.
    pub(crate) fn probe_due(&self) -> Option<Instant> {
        let in_use = self.used.lock().elapsed() < IDLE_TIMEOUT;
        self.breaker.lock().open_until().filter(|_| in_use)
    }

    /// Returns whether the caller must start the probing task.
    pub(crate) fn set_probe(&self, probe: Probe) -> bool {
        *self.probe.lock() = Some(probe);
        !self.probing.swap(true, Ordering::Relaxed)
    }

    pub(crate) fn probe(&self) -> Option<Probe> {
        self.probe.lock().clone()
    }

    pub(crate) fn end_probing(&self) {
        *self.probe.lock() = None;
        self.probing.store(false, Ordering::Relaxed);
    }
}

/// One admitted call. A call that is dropped without a result has no effect on the breaker.
#[derive(Debug)]
pub(crate) struct CallGuard {
    pub connection: Arc<Connection>,
    recorded: bool,
}

impl CallGuard {
    /// Records the result of the call, and returns whether the breaker is open now.
    pub(crate) fn record(mut self, success: bool, error: Option<&CallError>) -> bool {
        self.recorded = true;
        let connection = &self.connection;
        if let Some(error) = error.filter(|_| !success) {
            *connection.error.lock() = error.to_string();
        }
        let mut breaker = connection.breaker.lock();
        let before = breaker.is_open();
        breaker.record(Instant::now(), success);
        let after = breaker.is_open();
        match (before, after) {
            (false, true) => {
                connection.open.inc();
                let (address, error) = (&connection.address, connection.error.lock());
                tracing::info!(%address, %error, "provider address is not called for a while");
            }
            (true, false) => {
                connection.open.dec();
                tracing::info!(address = %connection.address, "provider address answers again");
            }
            _ => {}
        }
        after
    }
}

impl Drop for CallGuard {
    fn drop(&mut self) {
        if !self.recorded {
            self.connection.breaker.lock().forget();
        }
    }
}

#[derive(Debug)]
pub(crate) struct Pool {
    connections: DashMap<Key, Arc<Connection>>,
    turn: AtomicUsize,
    tls: ArcSwapOption<ClientTlsConfig>,
    files: ClientFiles,
    open: Gauge,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum PoolError {
    /// The breakers of all addresses are open.
    #[error("{why}")]
    BreakerOpen {
        connections: Vec<Arc<Connection>>,
        why: String,
    },
    #[error("{0}")]
    Unusable(String),
}

impl Pool {
    pub(crate) fn new(files: ClientFiles, open: Gauge) -> Result<Self, std::io::Error> {
        let tls = client_tls(&files)?;
        Ok(Self {
            connections: DashMap::new(),
            turn: AtomicUsize::new(0),
            tls: ArcSwapOption::from_pointee(tls),
            files,
            open,
        })
    }

    pub(crate) fn next_index(&self) -> usize {
        self.turn.fetch_add(1, Ordering::Relaxed)
    }

    /// Admits a call at the first address whose breaker allows it. `skip` has just failed, so it is
    /// left out if there are other addresses.
    pub(crate) fn admit_call(
        &self,
        candidates: &Candidates<'_>,
        skip: Option<&Arc<Connection>>,
    ) -> Result<CallGuard, PoolError> {
        let (mut unusable, mut connections) = (None, Vec::new());
        let count = candidates.addresses.len();
        for i in 0..count {
            let address = &candidates.addresses[(candidates.first.wrapping_add(i)) % count];
            match self.connection(address, candidates) {
                Err(error) => unusable = Some(error),
                Ok(connection) => {
                    *connection.used.lock() = Instant::now();
                    let same = skip.is_some_and(|s| Arc::ptr_eq(s, &connection));
                    if same && count > 1 {
                        continue;
                    }
                    match connection.admit(candidates.may_probe) {
                        Some(guard) => return Ok(guard),
                        None => connections.push(connection),
                    }
                }
            }
        }
        Err(unusable.unwrap_or_else(|| {
            let error = connections
                .first()
                .map(|connection| connection.error.lock().clone());
            let last = error.filter(|e| !e.is_empty()).unwrap_or_default();
            let why = format!("every address has failed repeatedly; the last time: {last}");
            PoolError::BreakerOpen { connections, why }
        }))
    }

    /// The end of the pause of an address whose breaker is open.
    pub(crate) fn open_until(
        &self,
        address: &Address,
        candidates: &Candidates<'_>,
    ) -> Option<Instant> {
        let connection = self.connections.get(&Key::new(address, candidates))?;
        connection.breaker.lock().open_until()
    }

    fn connection(
        &self,
        address: &Address,
        candidates: &Candidates<'_>,
    ) -> Result<Arc<Connection>, PoolError> {
        let key = Key::new(address, candidates);
        if let Some(connection) = self.connections.get(&key) {
            return Ok(Arc::clone(&connection));
        }
        let now = Instant::now();
        self.connections
            .retain(|_, connection| now.duration_since(*connection.used.lock()) < IDLE_TIMEOUT);
        let connection = Arc::new(Connection {
            address: address.clone(),
            channel: self.channel(&key)?,
            breaker: Mutex::default(),
            used: Mutex::new(now),
            error: Mutex::default(),
            probing: AtomicBool::new(false),
            probe: Mutex::default(),
            open: self.open.clone(),
        });
        // The first of concurrent callers wins.
        Ok(Arc::clone(
            &self.connections.entry(key).or_insert(connection),
        ))
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
            .connect_timeout(dial::CONNECT_TIMEOUT)
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
        Ok(endpoint.connect_with_connector_lazy(dial::connector(key.remote_only)))
    }

    /// Reloads the TLS files after changes, until `stop`. New files mean new channels.
    pub(crate) async fn watch_tls_files(&self, stop: CancellationToken) {
        let mut paths: Vec<_> = self.files.ca.iter().cloned().collect();
        if let Some((cert, key)) = &self.files.identity {
            paths.extend([cert.clone(), key.clone()]);
        }
        let mut changes = FileChanges::new(paths);
        while changes.next(&stop).await {
            match client_tls(&self.files) {
                Ok(tls) => {
                    self.tls.store(tls.map(Arc::new));
                    // Calls in progress keep their channel until they end.
                    self.connections.retain(|key, _| key.tls_name.is_none());
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
