//! TLS with certificates from files or memory, replaced while running if the new ones load.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use arc_swap::ArcSwap;
use rustls::{
    RootCertStore, ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    server::WebPkiClientVerifier,
};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

const POLL_INTERVAL: Duration = Duration::from_secs(2);

/// The error of a file that TLS cannot use.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {what}")]
pub struct TlsError {
    path: PathBuf,
    what: String,
}

fn bad(path: &Path, what: impl std::fmt::Display) -> TlsError {
    TlsError {
        path: path.to_owned(),
        what: what.to_string(),
    }
}

/// The TLS files of a server.
#[derive(Clone, Debug)]
pub struct ServerFiles {
    /// The certificate chain, in PEM.
    pub cert: PathBuf,
    /// The certificate's private key, in PEM.
    pub key: PathBuf,
    /// The CA of the clients, in PEM; `None` if clients need no certificate.
    pub client_ca: Option<PathBuf>,
    /// The ALPN protocols, such as "h2" and "http/1.1".
    pub alpn: Vec<&'static str>,
}

/// The TLS files of a client.
#[derive(Clone, Debug, Default)]
pub struct ClientFiles {
    /// The CA of the servers, in PEM.
    pub ca: Option<PathBuf>,
    /// The client's certificate chain and key, in PEM.
    pub identity: Option<(PathBuf, PathBuf)>,
}

/// A server's certificate in memory.
#[derive(Clone, Copy, Debug)]
pub struct ServerPem<'a> {
    /// The certificate chain, in PEM.
    pub cert: &'a str,
    /// The certificate's private key, in PEM.
    pub key: &'a str,
    /// The CA of the clients, in PEM; `None` if clients need no certificate.
    pub client_ca: Option<&'a str>,
    /// The ALPN protocols, such as "h2" and "http/1.1".
    pub alpn: &'a [&'static str],
}

/// A server's TLS, from files or from memory.
#[derive(Clone)]
pub struct ServerTls {
    files: Option<Arc<ServerFiles>>,
    current: Arc<ArcSwap<ServerConfig>>,
}

impl ServerTls {
    /// Makes a server's TLS from files.
    ///
    /// # Errors
    /// A file cannot be read or used; the error has its path.
    pub fn load(files: ServerFiles) -> Result<Self, TlsError> {
        let config = build(&files)?;
        Ok(Self {
            files: Some(Arc::new(files)),
            current: Arc::new(ArcSwap::from_pointee(config)),
        })
    }

    /// Makes a server's TLS from a certificate in memory.
    ///
    /// # Errors
    /// The certificate or key is invalid.
    pub fn from_pem(pem: ServerPem<'_>) -> Result<Self, TlsError> {
        Ok(Self {
            files: None,
            current: Arc::new(ArcSwap::from_pointee(of_pem(pem)?)),
        })
    }

    /// Replaces the certificate for new connections.
    ///
    /// # Errors
    /// The certificate or key is invalid; the old one stays.
    pub fn replace_pem(&self, pem: ServerPem<'_>) -> Result<(), TlsError> {
        self.current.store(Arc::new(of_pem(pem)?));
        Ok(())
    }

    /// An acceptor with the current certificate; make one per connection.
    pub fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(self.current.load_full())
    }

    /// Reloads the files after changes, until `stop`.
    ///
    /// # Errors
    /// It never fails so far.
    pub async fn watch_files(self, stop: CancellationToken) -> anyhow::Result<()> {
        let Some(files) = &self.files else {
            stop.cancelled().await;
            return Ok(());
        };
        let mut paths = vec![files.cert.clone(), files.key.clone()];
        paths.extend(files.client_ca.clone());
        let mut changes = FileChanges::new(paths);
        while changes.next(&stop).await {
            match build(files) {
                Ok(config) => {
                    self.current.store(Arc::new(config));
                    tracing::info!(cert = %files.cert.display(), "TLS certificate reloaded");
                }
                Err(error) => {
                    tracing::warn!(%error, "TLS files changed and do not load; keeping the old")
                }
            }
        }
        Ok(())
    }
}

fn server_config(
    of: &Path,
    client_ca: Option<(&Path, Vec<CertificateDer<'static>>)>,
) -> Result<rustls::ConfigBuilder<ServerConfig, rustls::server::WantsServerCert>, TlsError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|e| bad(of, e))?;
    let Some((ca, certificates)) = client_ca else {
        return Ok(builder.with_no_client_auth());
    };
    let mut roots = RootCertStore::empty();
    for cert in certificates {
        roots.add(cert).map_err(|e| bad(ca, e))?;
    }
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
        .build()
        .map_err(|e| bad(ca, e))?;
    Ok(builder.with_client_cert_verifier(verifier))
}

fn of_pem(pem: ServerPem<'_>) -> Result<ServerConfig, TlsError> {
    let (cert, key, ca) = (
        Path::new("the certificate"),
        Path::new("the key"),
        Path::new("the clients' CA"),
    );
    let parse = |of: &Path, pem: &str| {
        CertificateDer::pem_slice_iter(pem.as_bytes())
            .collect::<Result<Vec<_>, _>>()
            .map_err(|e| bad(of, e))
    };
    let client_ca = match pem.client_ca {
        Some(pem) => Some((ca, parse(ca, pem)?)),
        None => None,
    };
    let private = PrivateKeyDer::from_pem_slice(pem.key.as_bytes()).map_err(|e| bad(key, e))?;
    let mut config = server_config(cert, client_ca)?
        .with_single_cert(parse(cert, pem.cert)?, private)
        .map_err(|e| bad(cert, e))?;
    config.alpn_protocols = pem.alpn.iter().map(|p| p.as_bytes().to_vec()).collect();
    Ok(config)
}

fn build(files: &ServerFiles) -> Result<ServerConfig, TlsError> {
    let client_ca = match &files.client_ca {
        Some(ca) => Some((ca.as_path(), certificates(ca)?)),
        None => None,
    };
    let key = PrivateKeyDer::from_pem_file(&files.key).map_err(|e| bad(&files.key, e))?;
    let mut config = server_config(&files.cert, client_ca)?
        .with_single_cert(certificates(&files.cert)?, key)
        .map_err(|e| bad(&files.cert, e))?;
    config.alpn_protocols = files.alpn.iter().map(|p| p.as_bytes().to_vec()).collect();
    Ok(config)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let list: Vec<_> = CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect)
        .map_err(|e| bad(path, e))?;
    if list.is_empty() {
        return Err(bad(
            path,
            "holds no certificate; expected PEM with BEGIN CERTIFICATE",
        ));
    }
    Ok(list)
}

/// Detects changed files by polling, since notifications miss the link of a mounted Secret, which
/// is in a parent folder.
pub struct FileChanges {
    paths: Vec<PathBuf>,
    seen: Vec<Option<Vec<u8>>>,
}

impl FileChanges {
    /// Reads the current contents.
    pub fn new(paths: Vec<PathBuf>) -> Self {
        let seen = paths.iter().map(|p| std::fs::read(p).ok()).collect();
        Self { paths, seen }
    }

    /// Waits for a change and returns true, or returns false after `stop`.
    pub async fn next(&mut self, stop: &CancellationToken) -> bool {
        loop {
            tokio::select! {
                () = stop.cancelled() => return false,
                () = tokio::time::sleep(POLL_INTERVAL) => {}
            }
            let mut now = Vec::with_capacity(self.paths.len());
            for path in &self.paths {
                now.push(tokio::fs::read(path).await.ok());
            }
            if now != self.seen {
                self.seen = now;
                return true;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(dir: &Path, name: &str) -> ServerFiles {
        let cert = rcgen::generate_simple_self_signed([name.to_owned()]).unwrap();
        std::fs::write(dir.join("tls.crt"), cert.cert.pem()).unwrap();
        std::fs::write(dir.join("tls.key"), cert.signing_key.serialize_pem()).unwrap();
        ServerFiles {
            cert: dir.join("tls.crt"),
            key: dir.join("tls.key"),
            client_ca: None,
            alpn: vec!["h2"],
        }
    }

    #[tokio::test(start_paused = true)]
    async fn watch_files_rejects_a_broken_certificate() {
        let dir = tempfile::tempdir().unwrap();
        let tls = ServerTls::load(files(dir.path(), "one")).unwrap();
        let stop = CancellationToken::new();
        let follower = tokio::spawn(tls.clone().watch_files(stop.clone()));
        tokio::task::yield_now().await;

        let first = tls.current.load_full();
        std::fs::write(dir.path().join("tls.crt"), "garbage").unwrap();
        tokio::time::sleep(POLL_INTERVAL * 2).await;
        assert!(Arc::ptr_eq(&first, &tls.current.load_full()));

        files(dir.path(), "two");
        let deadline = tokio::time::Instant::now() + POLL_INTERVAL * 20;
        while Arc::ptr_eq(&first, &tls.current.load_full()) {
            assert!(tokio::time::Instant::now() < deadline, "not reloaded");
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        stop.cancel();
        follower.await.unwrap().unwrap();
    }

    #[test]
    fn replace_pem_rejects_a_broken_certificate() {
        let made = rcgen::generate_simple_self_signed(["one".to_owned()]).unwrap();
        let (cert, key) = (made.cert.pem(), made.signing_key.serialize_pem());
        let pem = |cert| ServerPem {
            cert,
            key: &key,
            client_ca: None,
            alpn: &["http/1.1"],
        };
        let tls = ServerTls::from_pem(pem(&cert)).unwrap();
        let first = tls.current.load_full();
        let error = tls.replace_pem(pem("garbage")).unwrap_err().to_string();
        assert!(error.contains("the certificate"), "{error}");
        assert!(Arc::ptr_eq(&first, &tls.current.load_full()));
        tls.replace_pem(pem(&cert)).unwrap();
        assert!(!Arc::ptr_eq(&first, &tls.current.load_full()));
    }

    #[test]
    fn errors_name_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let good = files(dir.path(), "one");
        let absent = ServerFiles {
            key: dir.path().join("none.key"),
            ..good.clone()
        };
        assert!(
            ServerTls::load(absent)
                .err()
                .unwrap()
                .to_string()
                .contains("none.key")
        );
        let swapped = ServerFiles {
            cert: good.key.clone(),
            ..good
        };
        let error = ServerTls::load(swapped).err().unwrap().to_string();
        assert!(error.contains("holds no certificate"), "{error}");
    }
}
