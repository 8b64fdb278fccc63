//! The addresses of providers, and one HTTP/2 channel to each.

use std::{
    io,
    net::SocketAddr,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
    vec::IntoIter,
};

use arc_swap::ArcSwapOption;
use dashmap::DashMap;
use hyper_util::client::legacy::connect::{HttpConnector, dns::Name};
use prometheus_client::metrics::gauge::Gauge;
use tautline_core::{
    Snapshot,
    model::Service,
    providers::{self, Address, ExternalNames, PortPreference},
};
use tautline_runtime::tls::{ClientFiles, FileChanges};
use tokio_util::sync::CancellationToken;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};

use crate::{
    CallError, ClientConfig,
    connection::{CallGuard, Connection},
};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(30);

/// The addresses of a Service.
#[derive(Clone, Debug)]
pub(crate) struct Endpoints {
    pub addresses: Vec<Address>,
    via: Via,
    /// The reason why the addresses must not be called.
    forbidden: Option<String>,
}

/// The way to an address. Each way has a connection of its own.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Via {
    /// The name in the certificate; `None` without TLS.
    tls_name: Option<String>,
    remote_only: bool,
    /// True if the provider's namespace is trusted. A tenant's calls to the same address must not
    /// open the breaker for others.
    trusted: bool,
}

impl Endpoints {
    pub(crate) fn new(
        config: &ClientConfig,
        snapshot: &Snapshot,
        service: &Service,
        port: PortPreference,
    ) -> Self {
        let (namespace, name) = (&service.namespace, &service.name);
        let external = service.external_name.as_deref();
        let tls_name = || match external {
            Some(host) => host.trim_end_matches('.').to_owned(),
            None => format!("{name}.{namespace}.svc"),
        };
        let forbidden = external.and_then(|host| match config.external_names {
            ExternalNames::Any => None,
            ExternalNames::Off => Some(
                "is of type ExternalName; give it endpoints, or start with \
                 --external-name-providers remote",
            ),
            ExternalNames::Remote => {
                let is_local = host.parse().is_ok_and(providers::is_local);
                is_local.then_some("leads to a local address; give it endpoints")
            }
        });
        let slices = snapshot.endpoint_slices(namespace, name);
        Self {
            addresses: providers::addresses(service, slices, port),
            via: Via {
                tls_name: service.tls_required.then(tls_name),
                remote_only: external.is_some() && config.external_names != ExternalNames::Any,
                trusted: config.trusted.contains(namespace),
            },
            forbidden: forbidden.map(|what| format!("Service {namespace}/{name} {what}")),
        }
    }

    /// Returns whether a connection to `address`, made with `before`, may still be used.
    pub(crate) fn allow(&self, address: &Address, before: &Self) -> bool {
        self.addresses.contains(address) && self.forbidden.is_none() && self.via == before.via
    }
}

#[derive(Debug)]
pub(crate) struct Pool {
    connections: DashMap<(Address, Via), Arc<Connection>>,
    turn: AtomicUsize,
    tls: ArcSwapOption<ClientTlsConfig>,
    files: ClientFiles,
    open: Gauge,
}

impl Pool {
    pub(crate) fn new(files: ClientFiles, open: Gauge) -> Result<Self, io::Error> {
        let tls = client_tls(&files)?;
        Ok(Self {
            connections: DashMap::new(),
            turn: AtomicUsize::new(0),
            tls: ArcSwapOption::from_pointee(tls),
            files,
            open,
        })
    }

    pub(crate) fn next_turn(&self) -> usize {
        self.turn.fetch_add(1, Ordering::Relaxed)
    }

    /// Admits a call at the first address whose breaker allows it, with a different first one for
    /// each `turn`. The call may be the probe of an open breaker if `may_probe`. `skip` has just
    /// failed, so it is left out if there are other addresses.
    pub(crate) fn admit(
        &self,
        endpoints: &Endpoints,
        turn: usize,
        may_probe: bool,
        skip: Option<&Arc<Connection>>,
    ) -> Result<CallGuard, CallError> {
        if let Some(reason) = &endpoints.forbidden {
            return Err(CallError::NotAllowed(reason.clone()));
        }
        let count = endpoints.addresses.len();
        let skip = skip.filter(|_| count > 1);
        let mut error = CallError::NotReady;
        for i in 0..count {
            let address = &endpoints.addresses[turn.wrapping_add(i) % count];
            match self.connection(address, endpoints) {
                Err(unusable) => error = unusable,
                Ok(connection) if skip.is_some_and(|s| Arc::ptr_eq(s, &connection)) => {}
                Ok(connection) => {
                    if let Some(guard) = connection.admit(may_probe) {
                        return Ok(guard);
                    }
                    if matches!(error, CallError::NotReady) {
                        let last = connection.last_error();
                        error = CallError::BreakerOpen(format!(
                            "every address has failed repeatedly; the last time: {last}"
                        ));
                    }
                }
            }
        }
        Err(error)
    }

    /// The connection that calls have made to an address.
    pub(crate) fn known(&self, address: &Address, of: &Endpoints) -> Option<Arc<Connection>> {
        let found = self.connections.get(&(address.clone(), of.via.clone()))?;
        Some(Arc::clone(&found))
    }

    fn connection(&self, address: &Address, of: &Endpoints) -> Result<Arc<Connection>, CallError> {
        if let Some(connection) = self.known(address, of) {
            return Ok(connection);
        }
        let channel = self.channel(address, of)?;
        let key = (address.clone(), of.via.clone());
        self.connections.retain(|_, known| known.is_used());
        let new = Connection::new(address.clone(), channel, self.open.clone());
        // The first of concurrent callers wins.
        Ok(Arc::clone(
            &self.connections.entry(key).or_insert(Arc::new(new)),
        ))
    }

    /// A new connection, made when it is first used.
    pub(crate) fn channel(&self, address: &Address, of: &Endpoints) -> Result<Channel, CallError> {
        let via = &of.via;
        let unusable =
            |e: tonic::transport::Error| CallError::Failed(format!("address {address}: {e}"));
        let tls = via.tls_name.is_some();
        let scheme = if tls { "https" } else { "http" };
        let endpoint = Endpoint::from_shared(format!("{scheme}://{address}"))
            .map_err(unusable)?
            .connect_timeout(CONNECT_TIMEOUT)
            .http2_keep_alive_interval(Duration::from_secs(10))
            .keep_alive_timeout(Duration::from_secs(5))
            .initial_stream_window_size(1 << 20)
            .initial_connection_window_size(4 << 20);
        let endpoint = match &via.tls_name {
            None => endpoint,
            Some(name) => {
                let Some(tls) = self.tls.load_full() else {
                    let what = "the provider requires TLS and no CA is configured; \
                                start with --provider-ca FILE";
                    return Err(CallError::Failed(what.to_owned()));
                };
                endpoint
                    .tls_config((*tls).clone().domain_name(name))
                    .map_err(unusable)?
            }
        };
        Ok(endpoint.connect_with_connector_lazy(connector(via.remote_only)))
    }

    /// Reloads the TLS files after changes, until `stop`. New files mean new channels.
    pub(crate) async fn watch_tls_files(&self, stop: CancellationToken) {
        let identity = self.files.identity.iter();
        let identity = identity.flat_map(|(cert, key)| [cert, key]);
        let paths = self.files.ca.iter().chain(identity).cloned();
        let mut changes = FileChanges::new(paths.collect());
        while changes.next(&stop).await {
            match client_tls(&self.files) {
                Ok(tls) => {
                    self.tls.store(tls.map(Arc::new));
                    // Calls in progress keep their channel until they end.
                    self.connections
                        .retain(|(_, via), _| via.tls_name.is_none());
                    tracing::info!("TLS files for providers reloaded");
                }
                Err(error) => tracing::warn!(%error, "TLS files for providers do not load"),
            }
        }
    }
}

/// Reads the files of TLS; returns `None` without a CA.
///
/// # Errors
/// A file cannot be read; the error names it.
pub fn client_tls(files: &ClientFiles) -> Result<Option<ClientTlsConfig>, io::Error> {
    let read = |path: &std::path::Path| {
        std::fs::read(path)
            .map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", path.display())))
    };
    let Some(ca) = &files.ca else { return Ok(None) };
    let mut tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(read(ca)?));
    if let Some((cert, key)) = &files.identity {
        tls = tls.identity(Identity::from_pem(read(cert)?, read(key)?));
    }
    Ok(Some(tls))
}

/// A connector. The author of an ExternalName Service chooses the address through DNS, so such
/// connections can be forbidden to reach this machine and its link.
fn connector(remote_only: bool) -> HttpConnector<Resolver> {
    let mut connector = HttpConnector::new_with_resolver(Resolver { remote_only });
    connector.enforce_http(false);
    connector.set_nodelay(true);
    connector.set_keepalive(Some(KEEPALIVE_INTERVAL));
    connector.set_connect_timeout(Some(CONNECT_TIMEOUT));
    connector
}

/// Resolves names, optionally to remote addresses only; `Endpoints` checks literal addresses.
#[derive(Clone, Copy, Debug)]
struct Resolver {
    remote_only: bool,
}

impl tower::Service<Name> for Resolver {
    type Response = IntoIter<SocketAddr>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let remote_only = self.remote_only;
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            let mut addresses: Vec<SocketAddr> = found.collect();
            if remote_only {
                addresses.retain(|address| !providers::is_local(address.ip()));
            }
            if addresses.is_empty() {
                let what = format!(
                    "{} resolves to no address that may be called",
                    name.as_str()
                );
                return Err(io::Error::new(io::ErrorKind::PermissionDenied, what));
            }
            Ok(addresses.into_iter())
        })
    }
}

#[cfg(test)]
mod tests {
    use tower::Service as _;

    use super::*;

    async fn resolve(remote_only: bool) -> io::Result<Vec<SocketAddr>> {
        let name = "localhost".parse().unwrap();
        let addresses = Resolver { remote_only }.call(name).await?;
        Ok(addresses.collect())
    }

    #[tokio::test]
    async fn resolver_rejects_local_addresses_if_remote_only() {
        assert!(!resolve(false).await.unwrap().is_empty());
        let error = resolve(true).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
    }
}
