//! Reviews over persistent TLS connections at a steady rate, and the server's CPU and memory.

use std::{
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, ChildStdin, Command, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use rustls::{ClientConfig, RootCertStore, pki_types::ServerName};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use tokio_rustls::{TlsConnector, client::TlsStream};

use crate::policies;

/// The connections of an API server with a few hundred pods a second.
const CONNECTIONS: usize = 16;

/// The figures of a run.
pub struct Figures {
    pub path: &'static str,
    pub rate: usize,
    pub asked: usize,
    pub seconds: f64,
    pub cpu: f64,
    /// Kilobytes at the start, in the middle and at the end.
    pub resident: [u64; 3],
    pub p50: Duration,
    pub p99: Duration,
}

/// The server, a child that ends when its standard input closes.
pub struct Server {
    child: Child,
    stdin: Option<ChildStdin>,
    port: u16,
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
        let mut child = Command::new(std::env::current_exe()?)
            .arg("server")
            .arg(dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let out = child.stdout.take().context("no output")?;
        let line = BufReader::new(out)
            .lines()
            .next()
            .context("the server ended early")??;
        let stdin = child.stdin.take();
        let tls = TlsConnector::from(Arc::new(config));
        Ok(Self {
            child,
            stdin,
            port: line.trim().parse()?,
            tls,
        })
    }

    /// CPU time so far, in seconds; proc_pid_stat(5), clock ticks of 10 ms.
    fn cpu(&self) -> Result<f64> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id()))?;
        let after = stat.rsplit_once(')').context("no stat")?.1;
        let fields: Vec<&str> = after.split_whitespace().collect();
        let ticks: u64 = fields[11].parse::<u64>()? + fields[12].parse::<u64>()?;
        Ok(ticks as f64 / 100.0)
    }

    fn resident(&self) -> Result<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        crate::kilobytes(&status, "VmRSS:").context("no VmRSS")
    }

    /// Sends `rate` requests a second. A request that a late answer delays is timed from when it
    /// was due; one that only this process's timer (whole milliseconds) delays, from when it is sent.
    pub async fn hold(&self, path: &'static str, rate: usize, window: Duration) -> Result<Figures> {
        // Warm-up: caches fill, threads start.
        self.send(path, rate, Duration::from_secs(2)).await?;
        let (cpu, first, start) = (self.cpu()?, self.resident()?, Instant::now());
        let sending = self.send(path, rate, window);
        let middle = async {
            tokio::time::sleep(window / 2).await;
            self.resident()
        };
        let (times, middle) = tokio::try_join!(sending, middle)?;
        let mut times = times;
        times.sort();
        Ok(Figures {
            path,
            rate,
            asked: times.len(),
            seconds: start.elapsed().as_secs_f64(),
            cpu: self.cpu()? - cpu,
            resident: [first, middle, self.resident()?],
            p50: times[times.len() / 2],
            p99: times[times.len() * 99 / 100],
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
        let one = async |i: usize| -> Result<Vec<Duration>> {
            let stream = TcpStream::connect(("127.0.0.1", self.port)).await?;
            stream.set_nodelay(true)?;
            let name = ServerName::try_from("localhost")?;
            let mut stream = self.tls.connect(name, stream).await?;
            let mut due = start + gap * i as u32 / CONNECTIONS as u32;
            let mut times = Vec::new();
            while due.duration_since(start) < window {
                // Making the request and reading the answer are not the server's time.
                let request = request(path, &policies::review(times.len()));
                let mut from = due;
                if due > Instant::now() {
                    tokio::time::sleep_until(due.into()).await;
                    from = Instant::now();
                }
                let answer = exchange(&mut stream, &request).await?;
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

impl Drop for Server {
    fn drop(&mut self) {
        self.stdin.take();
        _ = self.child.wait();
    }
}

fn request(path: &str, body: &[u8]) -> Vec<u8> {
    let head = format!(
        "POST {path}?timeout=10s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

async fn exchange(stream: &mut TlsStream<TcpStream>, request: &[u8]) -> Result<Vec<u8>> {
    stream.write_all(request).await?;
    let mut answer = Vec::with_capacity(16 << 10);
    loop {
        if stream.read_buf(&mut answer).await? == 0 {
            bail!("the server closed the connection");
        }
        let Some(head) = answer.windows(4).position(|w| w == b"\r\n\r\n") else {
            continue;
        };
        let text = std::str::from_utf8(&answer[..head])?.to_ascii_lowercase();
        ensure!(text.starts_with("http/1.1 200"), "answered {text}");
        let length = text
            .lines()
            .find_map(|l| l.strip_prefix("content-length: "));
        let length: usize = length.context("no content-length")?.trim().parse()?;
        while answer.len() < head + 4 + length {
            ensure!(
                stream.read_buf(&mut answer).await? > 0,
                "the answer broke off"
            );
        }
        return Ok(answer);
    }
}

fn patched(answer: &[u8]) -> Result<()> {
    let text = String::from_utf8_lossy(answer);
    ensure!(text.contains("\"patch\""), "no patch: {text}");
    Ok(())
}
