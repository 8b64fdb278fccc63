//! Opens connections to providers. The author of an ExternalName Service chooses the address
//! through DNS, so such connections can be forbidden to reach this machine and its link.

use std::{
    io,
    net::SocketAddr,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
    vec::IntoIter,
};

use hyper_util::client::legacy::connect::{HttpConnector, dns::Name};
use tautline_core::providers::is_local;
use tower::Service;

pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(30);

pub(crate) fn connector(remote_only: bool) -> HttpConnector<Resolver> {
    let mut connector = HttpConnector::new_with_resolver(Resolver { remote_only });
    connector.enforce_http(false);
    connector.set_nodelay(true);
    connector.set_keepalive(Some(KEEPALIVE_INTERVAL));
    connector.set_connect_timeout(Some(CONNECT_TIMEOUT));
    connector
}

/// Resolves names, optionally to remote addresses only; `Endpoints` checks literal addresses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Resolver {
    remote_only: bool,
}

impl Service<Name> for Resolver {
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
                addresses.retain(|address| !is_local(address.ip()));
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
