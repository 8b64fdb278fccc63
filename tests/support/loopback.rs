//! Plain HTTP calls to servers on loopback, over TLS without verifying it.

use std::{net::Ipv4Addr, time::Duration};

use anyhow::{Result, bail};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// A paused process accepts connections but does not answer.
const DEADLINE: Duration = Duration::from_secs(10);

/// A plain HTTP GET on loopback.
pub async fn get(url: &str) -> Result<(u16, String)> {
    tokio::time::timeout(DEADLINE, get_now(url)).await?
}

async fn get_now(url: &str) -> Result<(u16, String)> {
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

/// A keep-alive connection without TLS for one post after another.
pub struct KeepAlive {
    stream: tokio::net::TcpStream,
    host: String,
}

impl KeepAlive {
    /// Connects to `host`, which is `ADDRESS:PORT`.
    pub async fn open(host: &str) -> Result<Self> {
        let stream = tokio::net::TcpStream::connect(host).await?;
        stream.set_nodelay(true)?;
        let host = host.to_owned();
        Ok(Self { stream, host })
    }

    /// The body of an answer of 200; anything else is an error.
    pub async fn post(&mut self, path: &str, body: &[u8]) -> Result<Vec<u8>> {
        let request = post_request(&self.host, path, body);
        let (mut answer, head) = exchange(&mut self.stream, &request).await?;
        Ok(answer.split_off(head))
    }
}

/// A post of JSON on a keep-alive connection, as it is sent.
pub fn post_request(host: &str, path: &str, body: &[u8]) -> Vec<u8> {
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

/// Sends a request, and returns an answer of 200 with the place where its body begins; anything
/// else is an error.
pub async fn exchange(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    request: &[u8],
) -> Result<(Vec<u8>, usize)> {
    stream.write_all(request).await?;
    let mut answer = Vec::with_capacity(64 << 10);
    let (mut head, mut length) = (0, usize::MAX);
    while answer.len() - head < length {
        if stream.read_buf(&mut answer).await? == 0 {
            bail!("the server closed the connection");
        }
        if head == 0
            && let Some(end) = answer.windows(4).position(|w| w == b"\r\n\r\n")
        {
            head = end + 4;
            let text = std::str::from_utf8(&answer[..end])?.to_ascii_lowercase();
            let of = |line: &str| line.strip_prefix("content-length: ")?.trim().parse().ok();
            match text.lines().find_map(of) {
                Some(found) if text.starts_with("http/1.1 200") => length = found,
                _ => bail!("answered {text}"),
            }
        }
    }
    Ok((answer, head))
}

/// Connects over TLS without verifying the server.
pub async fn insecure_connect(
    host: &str,
) -> Result<tokio_rustls::client::TlsStream<tokio::net::TcpStream>> {
    insecure_connect_from(Ipv4Addr::LOCALHOST, host).await
}

/// The same from an address of the machine.
async fn insecure_connect_from(
    source: Ipv4Addr,
    host: &str,
) -> Result<tokio_rustls::client::TlsStream<tokio::net::TcpStream>> {
    let socket = tokio::net::TcpSocket::new_v4()?;
    socket.bind((source, 0).into())?;
    let stream = socket.connect(host.parse()?).await?;
    let connector = tokio_rustls::TlsConnector::from(std::sync::Arc::new(insecure::config()?));
    let name = rustls::pki_types::ServerName::try_from("localhost")?;
    Ok(connector.connect(name, stream).await?)
}

/// Posts over TLS without verifying the server; an answer other than 200 is an
/// error that names the status.
pub async fn insecure_post(url: &str, body: &[u8]) -> Result<String> {
    insecure_post_from(Ipv4Addr::LOCALHOST, url, body).await
}

/// The same from an address of the machine.
pub async fn insecure_post_from(source: Ipv4Addr, url: &str, body: &[u8]) -> Result<String> {
    let rest = url.strip_prefix("https://").unwrap_or(url);
    let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
    let stream = insecure_connect_from(source, host).await?;
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

/// The certificate (DER) of a port for new connections.
pub async fn certificate(port: u16) -> Result<Vec<u8>> {
    let stream = tokio::net::TcpStream::connect(("127.0.0.1", port)).await?;
    let connector = tokio_rustls::TlsConnector::from(std::sync::Arc::new(insecure::config()?));
    let name = rustls::pki_types::ServerName::try_from("localhost")?;
    let stream = connector.connect(name, stream).await?;
    let (_, session) = stream.get_ref();
    let shown = session.peer_certificates().and_then(|all| all.first());
    shown.map_or_else(|| bail!("no certificate"), |c| Ok(c.to_vec()))
}

/// A client that accepts any certificate.
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
    struct AcceptAny(Arc<CryptoProvider>);

    impl ServerCertVerifier for AcceptAny {
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
            .with_custom_certificate_verifier(Arc::new(AcceptAny(provider)))
            .with_no_client_auth())
    }
}
