//! Our servers as processes of the real binary.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use serde_json::{Value, json};

use crate::{
    PATIENCE,
    control_plane::ControlPlane,
    eventually,
    process::{Process, free_port},
};

/// The binary, which `cargo test --workspace` builds beside the tests.
pub fn binary() -> Result<PathBuf> {
    let exe = std::env::current_exe()?;
    let found = exe
        .ancestors()
        .skip(1)
        .map(|d| d.join("tautline"))
        .find(|p| p.is_file());
    match found {
        Some(path) => Ok(path),
        None => {
            bail!("the binary tautline is not built; run cargo test --workspace, or cargo build")
        }
    }
}

/// A server with its ports.
pub struct Server {
    pub process: Process,
    pub port: u16,
    pub admin: u16,
    name: String,
    args: Vec<String>,
    dir: PathBuf,
}

impl Server {
    /// Starts `tautline ARGS` with the account of `user` and waits until ready.
    pub async fn start(plane: &ControlPlane, user: &str, args: &[&str]) -> Result<Self> {
        let (port, admin) = (free_port()?, free_port()?);
        let mut all: Vec<String> = args.iter().map(|a| (*a).to_owned()).collect();
        all.extend([
            format!("--kubeconfig={}", plane.kubeconfig(user).display()),
            format!("--listen=127.0.0.1:{port}"),
            format!("--admin=127.0.0.1:{admin}"),
        ]);
        let dir = plane.dir.path().to_owned();
        let process = Process::start(user, &binary()?, &all, &dir)?;
        let server = Self {
            process,
            port,
            admin,
            name: user.to_owned(),
            args: all,
            dir,
        };
        server.ready().await;
        Ok(server)
    }

    /// The extender over TLS, with a certificate made here; gives the CA's file.
    pub async fn extender(plane: &ControlPlane, args: &[&str]) -> Result<(Self, PathBuf)> {
        let (cert, key) = certificate(plane.dir.path())?;
        let (cert_arg, key_arg) = (
            format!("--tls-cert={}", cert.display()),
            format!("--tls-key={}", key.display()),
        );
        let mut all = vec!["extender", &cert_arg, &key_arg];
        all.extend(args);
        Ok((Self::start(plane, "extender", &all).await?, cert))
    }

    /// Starts the same again, on the same ports.
    pub async fn restart(&mut self) -> Result<()> {
        self.process.kill();
        self.process = Process::start(&self.name, &binary()?, &self.args, &self.dir)?;
        self.ready().await;
        Ok(())
    }

    async fn ready(&self) {
        let url = format!("http://127.0.0.1:{}/readyz", self.admin);
        let check = async || {
            get(&url)
                .await
                .ok()
                .filter(|(status, _)| *status == 200)
                .map(|_| ())
        };
        let what = format!("{} is ready", self.name);
        eventually(&what, PATIENCE, check, async || self.process.tail()).await;
    }

    /// A page of the admin port.
    pub async fn admin(&self, path: &str) -> Result<(u16, String)> {
        get(&format!("http://127.0.0.1:{}{path}", self.admin)).await
    }

    /// Waits until the extender plans for pods labelled `app`, and every rule of
    /// the plan is as `enough` wants it.
    pub async fn knows(&self, namespace: &str, app: &str, enough: impl Fn(&Value) -> bool) {
        let name = format!("probe-{app}");
        let check = async || {
            let body = json!({"Pod": {"metadata": {"name": name, "namespace": namespace,
                              "uid": name, "labels": {"app": app}}}, "NodeNames": []});
            let url = format!("https://127.0.0.1:{}/filter", self.port);
            insecure_post(&url, body.to_string().as_bytes())
                .await
                .ok()?;
            let (_, text) = self
                .admin(&format!("/explain/{namespace}/{name}"))
                .await
                .ok()?;
            let records: Value = serde_json::from_str(&text).ok()?;
            let rules = records[0]["rules"].as_array()?;
            (!rules.is_empty() && rules.iter().all(&enough)).then_some(())
        };
        let what = format!("the extender knows what governs {namespace}/{app}");
        eventually(&what, PATIENCE, check, async || self.process.tail()).await;
    }

    /// The value of a metric whose line begins with `name`, summed over labels.
    pub async fn metric(&self, name: &str) -> f64 {
        let (_, text) = self.admin("/metrics").await.unwrap_or_default();
        let lines = text.lines().filter(|l| l.starts_with(name));
        lines
            .filter_map(|l| l.rsplit(' ').next()?.parse::<f64>().ok())
            .sum()
    }
}

/// A self-signed certificate for loopback; it is its own CA.
fn certificate(dir: &Path) -> Result<(PathBuf, PathBuf)> {
    let names = ["127.0.0.1".to_owned(), "localhost".to_owned()];
    let made = rcgen::generate_simple_self_signed(names)?;
    let (cert, key) = (dir.join("extender.crt"), dir.join("extender.key"));
    std::fs::write(&cert, made.cert.pem())?;
    std::fs::write(&key, made.signing_key.serialize_pem())?;
    Ok((cert, key))
}

/// A plain HTTP GET on loopback.
pub async fn get(url: &str) -> Result<(u16, String)> {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let rest = url.strip_prefix("http://").unwrap_or(url);
    let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
    let mut stream = tokio::net::TcpStream::connect(host).await?;
    let request = format!("GET /{path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    let status = answer
        .split(' ')
        .nth(1)
        .and_then(|s| s.parse().ok())
        .unwrap_or(0);
    let body = answer
        .split_once("\r\n\r\n")
        .map_or("", |(_, body)| body)
        .to_owned();
    Ok((status, body))
}

/// Posts over TLS without verifying the server; an answer other than 200 is an
/// error that names the status.
pub async fn insecure_post(url: &str, body: &[u8]) -> Result<String> {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let rest = url.strip_prefix("https://").unwrap_or(url);
    let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
    let stream = tokio::net::TcpStream::connect(host).await?;
    let connector = tokio_rustls::TlsConnector::from(std::sync::Arc::new(insecure::config()?));
    let name = rustls::pki_types::ServerName::try_from("localhost")?;
    let stream = connector.connect(name, stream).await?;
    let (mut read, mut write) = tokio::io::split(stream);
    let head = format!(
        "POST /{path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    let send = async {
        // The server may refuse before it has read everything.
        _ = write.write_all(head.as_bytes()).await;
        _ = write.write_all(body).await;
        _ = write.flush().await;
        std::future::pending::<()>().await;
    };
    let mut answer = Vec::new();
    tokio::select! {
        () = send => {}
        _ = read.read_to_end(&mut answer) => {}
    }
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let status = answer.split(' ').nth(1).unwrap_or("no answer").to_owned();
    let body = answer
        .split_once("\r\n\r\n")
        .map_or("", |(_, b)| b)
        .to_owned();
    if status == "200" {
        Ok(body)
    } else {
        bail!("status {status}: {body}")
    }
}

/// A client that takes any certificate: tests know whom they call.
mod insecure {
    use std::sync::Arc;

    use anyhow::Result;
    use rustls::{
        ClientConfig, DigitallySignedStruct, SignatureScheme,
        client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        crypto::CryptoProvider,
        pki_types::{CertificateDer, ServerName, UnixTime},
    };

    #[derive(Debug)]
    struct Anyone(Arc<CryptoProvider>);

    impl ServerCertVerifier for Anyone {
        fn verify_server_cert(
            &self,
            _: &CertificateDer<'_>,
            _: &[CertificateDer<'_>],
            _: &ServerName<'_>,
            _: &[u8],
            _: UnixTime,
        ) -> Result<ServerCertVerified, rustls::Error> {
            Ok(ServerCertVerified::assertion())
        }
        fn verify_tls12_signature(
            &self,
            _: &[u8],
            _: &CertificateDer<'_>,
            _: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, rustls::Error> {
            Ok(HandshakeSignatureValid::assertion())
        }
        fn verify_tls13_signature(
            &self,
            _: &[u8],
            _: &CertificateDer<'_>,
            _: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, rustls::Error> {
            Ok(HandshakeSignatureValid::assertion())
        }
        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            self.0.signature_verification_algorithms.supported_schemes()
        }
    }

    pub(super) fn config() -> Result<ClientConfig> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        Ok(ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Anyone(provider)))
            .with_no_client_auth())
    }
}
