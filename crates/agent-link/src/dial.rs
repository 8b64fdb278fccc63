//! Connects to replicas, with TLS and a token from files that may be replaced at any time.

use std::{fmt, net::SocketAddr, path::PathBuf, str::FromStr, time::Duration};

use anyhow::{Context, Result, bail};
use http::Uri;
use tautline_runtime::tls::{ClientFiles, FileChanges};
use tokio::{sync::watch, time::sleep};
use tokio_util::sync::CancellationToken;
use tonic::{
    Request,
    metadata::{Ascii, MetadataValue},
    transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity},
};

use crate::tokens::MAX_TOKEN_BYTES;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// The longest wait of a stream before it reconnects after a change of a file. Each stream waits a
/// random part of this time.
const MAX_RENEWAL_DELAY: Duration = Duration::from_secs(5);

/// The URL of a provider: `http` or `https`, without a path; the default port is 5309.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Provider {
    uri: Uri,
    pub(crate) host: String,
    pub(crate) port: u16,
    tls: bool,
}

/// The error of a text that is not the URL of a provider.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}; write it as https://SERVICE.NAMESPACE:5309")]
pub struct ProviderUrlError(&'static str);

impl FromStr for Provider {
    type Err = ProviderUrlError;

    fn from_str(text: &str) -> Result<Self, ProviderUrlError> {
        let wrong = ProviderUrlError;
        let uri: Uri = text.parse().map_err(|_| wrong("not a URL"))?;
        let tls = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => return Err(wrong("it begins with neither https:// nor http://")),
        };
        if uri
            .path_and_query()
            .is_some_and(|path| path.as_str() != "/")
        {
            return Err(wrong("it has a path"));
        }
        let host = uri.host().filter(|host| !host.is_empty());
        let host = host.ok_or_else(|| wrong("it has no host"))?;
        // A URL has an IPv6 address in brackets, a look-up does not.
        let host = host
            .trim_start_matches('[')
            .trim_end_matches(']')
            .to_owned();
        let port = uri.port_u16().unwrap_or(tautline_proto::RULE_PROVIDER_PORT);
        Ok(Self {
            uri,
            host,
            port,
            tls,
        })
    }
}

impl fmt::Display for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.uri.fmt(f)
    }
}

/// A token that is sent to providers as `authorization: Bearer TOKEN`.
#[derive(Clone, Debug)]
pub struct Token {
    /// The token's file. It is read for each stream, and streams reconnect when it changes.
    pub file: PathBuf,
    /// True if the token may be sent over `http`, where others can read it.
    pub over_http: bool,
}

/// Opens connections to replicas.
#[derive(Debug)]
pub struct Dialer {
    tls: ClientFiles,
    token: Option<Token>,
    changed: watch::Sender<u64>,
}

impl Dialer {
    /// Creates a dialer. Fails if a provider's scheme does not fit the TLS files or the token, or
    /// if a file does not load.
    pub fn new(providers: &[Provider], tls: ClientFiles, token: Option<Token>) -> Result<Self> {
        let dialer = Self {
            tls,
            token,
            changed: watch::Sender::new(0),
        };
        for provider in providers {
            if provider.tls && dialer.tls.ca.is_none() {
                bail!("provider {provider} needs --provider-ca FILE");
            }
            if !provider.tls && dialer.token.as_ref().is_some_and(|t| !t.over_http) {
                bail!(
                    "provider {provider}: a token (--token-file) goes over https only; add \
                     --token-over-http if nobody else reads the way there"
                );
            }
        }
        dialer.client_tls()?;
        dialer.authorization()?;
        Ok(dialer)
    }

    /// Opens a new connection to one address of a provider.
    pub async fn channel(&self, provider: &Provider, address: SocketAddr) -> Result<Channel> {
        let scheme = if provider.tls { "https" } else { "http" };
        let mut endpoint = Endpoint::from_shared(format!("{scheme}://{address}"))?
            .origin(provider.uri.clone())
            .connect_timeout(CONNECT_TIMEOUT)
            .tcp_nodelay(true)
            .tcp_keepalive(Some(Duration::from_secs(30)))
            .http2_keep_alive_interval(Duration::from_secs(10))
            .keep_alive_timeout(Duration::from_secs(5))
            .keep_alive_while_idle(true);
        if provider.tls {
            let tls = self.client_tls()?.domain_name(&provider.host);
            endpoint = endpoint.tls_config(tls)?;
        }
        let connected = tokio::time::timeout(2 * CONNECT_TIMEOUT, endpoint.connect()).await;
        connected
            .context("no connection in time")?
            .context("no connection")
    }

    /// Returns a request with the message, and with the token if there is one.
    pub fn authorized<T>(&self, message: T) -> Result<Request<T>> {
        let mut request = Request::new(message);
        if let Some(token) = self.authorization()? {
            request.metadata_mut().insert("authorization", token);
        }
        Ok(request)
    }

    /// Returns a future that ends after the next change of a file, with a random delay. The caller
    /// must then open its stream again.
    pub fn renewal(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut changed = self.changed.subscribe();
        async move {
            // An error means that the dialer is gone, and then no stream is open.
            _ = changed.changed().await;
            sleep(MAX_RENEWAL_DELAY.mul_f64(fastrand::f64())).await;
        }
    }

    fn authorization(&self) -> Result<Option<MetadataValue<Ascii>>> {
        let Some(Token { file: path, .. }) = &self.token else {
            return Ok(None);
        };
        let name = || format!("--token-file {}", path.display());
        let token = std::fs::read_to_string(path).with_context(name)?;
        let token = token.trim();
        if token.is_empty() || token.len() > MAX_TOKEN_BYTES {
            bail!("{}: {} bytes are no token", name(), token.len());
        }
        let value: MetadataValue<Ascii> = format!("Bearer {token}").parse().with_context(name)?;
        Ok(Some(value))
    }

    /// Watches the files until `stop`. A change ends the futures of [`Self::renewal`].
    pub async fn follow(&self, stop: CancellationToken) -> Result<()> {
        let mut paths: Vec<PathBuf> = {
            let token = self.token.as_ref().map(|t| &t.file);
            self.tls.ca.iter().chain(token).cloned().collect()
        };
        if let Some((cert, key)) = &self.tls.identity {
            paths.extend([cert.clone(), key.clone()]);
        }
        let mut changes = FileChanges::new(paths);
        while changes.next(&stop).await {
            let loads = self.client_tls().map(|_| ());
            match loads.and_then(|()| self.authorization()) {
                Ok(_) => self.changed.send_modify(|n| *n += 1),
                Err(error) => tracing::warn!("{error:#}; streams go on with the old files"),
            }
        }
        Ok(())
    }

    fn client_tls(&self) -> Result<ClientTlsConfig> {
        let read = |path: &PathBuf| std::fs::read(path).with_context(|| path.display().to_string());
        let mut tls = ClientTlsConfig::new();
        if let Some(ca) = &self.tls.ca {
            tls = tls.ca_certificate(Certificate::from_pem(read(ca)?));
        }
        if let Some((cert, key)) = &self.tls.identity {
            tls = tls.identity(Identity::from_pem(read(cert)?, read(key)?));
        }
        Ok(tls)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn provider(url: &str) -> Provider {
        url.parse().unwrap()
    }

    #[test]
    fn a_provider_is_a_url_without_a_path() {
        let given = provider("https://latency.tautline-system:7000");
        assert_eq!(
            (&*given.host, given.port, given.tls),
            ("latency.tautline-system", 7000, true)
        );
        let given = provider("http://[::1]");
        assert_eq!((&*given.host, given.port, given.tls), ("::1", 5309, false));
        for bad in [
            "latency:5309",
            "ftp://latency",
            "https://",
            "https://a/b",
            "",
        ] {
            let error = bad.parse::<Provider>().unwrap_err().to_string();
            assert!(error.contains("write it as https://"), "{error}");
        }
    }

    #[test]
    fn impossible_settings_fail_at_the_start() {
        let dir = tempfile::tempdir().unwrap();
        let token = dir.path().join("token");
        let dial = |url: &str, tls: ClientFiles, file: Option<PathBuf>| {
            let over_http = false;
            let token = file.map(|file| Token { file, over_http });
            let dialer = Dialer::new(&[provider(url)], tls, token);
            dialer.map_err(|e| format!("{e:#}"))
        };
        let none = ClientFiles::default;
        let error = dial("https://p", none(), None).unwrap_err();
        assert!(error.contains("--provider-ca"), "{error}");
        let error = dial("http://p", none(), Some(token.clone())).unwrap_err();
        assert!(error.contains("https only"), "{error}");
        std::fs::write(&token, "abc").unwrap();
        let plain = Token {
            file: token.clone(),
            over_http: true,
        };
        assert!(Dialer::new(&[provider("http://p")], none(), Some(plain)).is_ok());
        std::fs::remove_file(&token).unwrap();
        let tls = ClientFiles {
            ca: Some(dir.path().join("ca.crt")),
            identity: None,
        };
        let error = dial("https://p", tls.clone(), None).unwrap_err();
        assert!(error.contains("ca.crt"), "{error}");
        std::fs::write(dir.path().join("ca.crt"), "pem").unwrap();
        let error = dial("https://p", tls.clone(), Some(token.clone())).unwrap_err();
        assert!(error.contains("token"), "{error}");
        std::fs::write(&token, " abc\n").unwrap();
        let dialer = dial("https://p", tls.clone(), Some(token.clone())).unwrap();
        assert_eq!(dialer.authorization().unwrap().unwrap(), "Bearer abc");
        std::fs::write(&token, "def").unwrap();
        assert_eq!(dialer.authorization().unwrap().unwrap(), "Bearer def");
        std::fs::write(&token, "").unwrap();
        assert!(dialer.authorization().is_err());
    }
}
