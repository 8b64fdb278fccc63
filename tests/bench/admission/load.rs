//! Reviews over persistent TLS connections at a steady rate, and the server's CPU and memory.

use std::{
    ffi::OsStr,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use rustls::{ClientConfig, RootCertStore, pki_types::ServerName};
use tautline_bench::{Role, Times};
use tautline_tests::{
    loopback::{exchange, post_request},
    process::{cpu_seconds, resident_bytes},
};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::policies;

/// The connections of an API server with a few hundred pods a second.
const CONNECTIONS: usize = 16;

/// The figures of a run.
pub struct Figures {
    pub path: &'static str,
    pub rate: usize,
    pub seconds: f64,
    pub cpu: f64,
    /// Bytes at the start, in the middle and at the end.
    pub resident: [u64; 3],
    pub times: Times,
}

pub struct Server {
    role: Role,
    tls: TlsConnector,
}

impl Server {
    pub fn start(dir: &Path) -> Result<Self> {
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()])?;
        std::fs::write(dir.join("cert.pem"), made.cert.pem())?;
        std::fs::write(dir.join("key.pem"), made.signing_key.serialize_pem())?;
        let mut roots = RootCertStore::empty();
        roots.add(made.cert.der().clone())?;
        let config = ClientConfig::builder()
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Self {
            role: Role::start(&[OsStr::new("server"), dir.as_os_str()])?,
            tls: TlsConnector::from(Arc::new(config)),
        })
    }

    /// Sends `rate` requests a second. A request that a late answer delays is timed from when it
    /// was due; one that only this process's timer (whole milliseconds) delays, from when it is sent.
    pub async fn hold(&self, path: &'static str, rate: usize, window: Duration) -> Result<Figures> {
        // Warm-up: caches fill, threads start.
        self.send(path, rate, Duration::from_secs(2)).await?;
        let server = self.role.id();
        let (cpu, first, start) = (cpu_seconds(server), resident_bytes(server), Instant::now());
        let middle = async {
            tokio::time::sleep(window / 2).await;
            resident_bytes(server)
        };
        let (times, middle) = tokio::join!(self.send(path, rate, window), middle);
        Ok(Figures {
            path,
            rate,
            seconds: start.elapsed().as_secs_f64(),
            cpu: cpu_seconds(server) - cpu,
            resident: [first, middle, resident_bytes(server)],
            times: Times::new(times?),
        })
    }

    async fn send(
        &self,
        path: &'static str,
        rate: usize,
        window: Duration,
    ) -> Result<Vec<Duration>> {
        let gap = Duration::from_secs(1) * CONNECTIONS as u32 / rate as u32;
        let start = Instant::now();
        let with_timeout = format!("{path}?timeout=10s");
        let one = async |i: usize| -> Result<Vec<Duration>> {
            let stream = TcpStream::connect(("127.0.0.1", self.role.port)).await?;
            stream.set_nodelay(true)?;
            let name = ServerName::try_from("localhost")?;
            let mut stream = self.tls.connect(name, stream).await?;
            let mut due = start + gap * i as u32 / CONNECTIONS as u32;
            let mut times = Vec::new();
            while due.duration_since(start) < window {
                // Making the request and reading the answer are not the server's time.
                let review = policies::review(times.len());
                let request = post_request("localhost", &with_timeout, &review);
                let mut from = due;
                if due > Instant::now() {
                    tokio::time::sleep_until(due.into()).await;
                    from = Instant::now();
                }
                let (answer, _) = exchange(&mut stream, &request).await?;
                times.push(from.elapsed());
                patched(&answer)?;
                due += gap;
            }
            Ok(times)
        };
        let all = futures::future::try_join_all((0..CONNECTIONS).map(one)).await?;
        Ok(all.into_iter().flatten().collect())
    }
}

fn patched(answer: &[u8]) -> Result<()> {
    let text = String::from_utf8_lossy(answer);
    ensure!(text.contains("\"patch\""), "no patch: {text}");
    Ok(())
}
