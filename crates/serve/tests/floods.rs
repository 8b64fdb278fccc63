//! A real server under floods of connections and of bodies.

// The lint does not count helpers of tests as tests.
#![allow(clippy::unwrap_used)]

use std::{
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use prometheus_client::{encoding::text::encode, registry::Registry};
use tautline_serve::{
    http::{Limits, Port, PortMetrics, read_body, respond, serve, text},
    tls::{ServerFiles, ServerTls},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::Semaphore,
};
use tokio_util::sync::CancellationToken;

const PATIENCE: Duration = Duration::from_secs(60);
const MIB: usize = 1 << 20;

struct Served {
    address: SocketAddr,
    registry: Registry,
    go: Arc<Semaphore>,
    stop: CancellationToken,
}

impl Drop for Served {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Served {
    /// Echoes bodies of up to 4 MiB.
    async fn start(limits: Limits, tls: Option<ServerTls>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (metrics, mut registry) = (PortMetrics::default(), Registry::default());
        metrics.connections.register("", &mut registry);
        metrics.register("", &mut registry);
        let (go, stop) = (Arc::new(Semaphore::new(0)), CancellationToken::new());
        let waits = Arc::clone(&go);
        let handle = move |request: hyper::Request<_>| {
            let waits = Arc::clone(&waits);
            async move {
                if request.uri().path() == "/livez" {
                    return text(200, "ok\n");
                }
                let wait = request.uri().path() == "/wait";
                match read_body(request, 4 * MIB).await {
                    Ok(body) => {
                        if wait {
                            _ = waits.acquire().await;
                        }
                        respond(200, "text/plain", body)
                    }
                    Err(refusal) => refusal,
                }
            }
        };
        let port = Port::new(limits, 4 * MIB, metrics);
        tokio::spawn(serve(listener, tls, handle, port, stop.clone()));
        Self {
            address,
            registry,
            go,
            stop,
        }
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// 0 without a label that it has not counted.
    fn metric(&self, name: &str) -> u64 {
        let mut text = String::new();
        encode(&mut text, &self.registry).unwrap();
        let line = text.lines().find_map(|l| l.strip_prefix(name));
        line.map_or(0, |value| value.trim().parse().unwrap())
    }

    fn closed(&self, reason: &str) -> u64 {
        self.metric(&format!("connections_closed_total{{reason=\"{reason}\"}}"))
    }

    async fn until(&self, what: &str, holds: impl Fn(&Self) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !holds(self) {
            let mut text = String::new();
            encode(&mut text, &self.registry).unwrap();
            assert!(Instant::now() < deadline, "{what}:\n{text}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

fn limits() -> Limits {
    Limits {
        connections: 16,
        handshakes: 8,
        handshake: PATIENCE,
        first_byte: PATIENCE,
        head: PATIENCE,
        idle: Some(PATIENCE),
        body: PATIENCE,
        response: PATIENCE,
        request_bytes: Some(8 * MIB),
    }
}

fn head(path: &str, length: usize) -> String {
    format!("POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n")
}

async fn answered(stream: &mut TcpStream) -> (String, Vec<u8>) {
    let mut all = Vec::new();
    loop {
        let end = all.windows(4).position(|w| w == b"\r\n\r\n");
        if let Some(end) = end {
            let head = String::from_utf8_lossy(&all[..end]).to_ascii_lowercase();
            let length = head
                .lines()
                .find_map(|l| l.strip_prefix("content-length: "));
            let length: usize = length.unwrap().parse().unwrap();
            while all.len() < end + 4 + length {
                assert!(stream.read_buf(&mut all).await.unwrap() > 0, "{head}");
            }
            return (head, all.split_off(end + 4));
        }
        assert!(stream.read_buf(&mut all).await.unwrap() > 0, "{all:?}");
    }
}

async fn call(stream: &mut TcpStream, path: &str, body: &[u8]) -> (String, Vec<u8>) {
    let head = head(path, body.len());
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(body).await.unwrap();
    answered(stream).await
}

async fn ended(mut stream: TcpStream) {
    let mut rest = Vec::new();
    // A reset is an end too.
    let read = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut rest));
    _ = read.await.unwrap();
}

#[tokio::test]
async fn port_survives_silent_connections() {
    let served = Served::start(limits(), None).await;
    let mut silent = Vec::new();
    for _ in 0..100 {
        silent.push(served.connect().await);
        let (head, body) = call(&mut served.connect().await, "/livez", b"").await;
        assert!(
            head.starts_with("http/1.1 200") && body == b"ok\n",
            "{head}"
        );
    }
    let mut stream = served.connect().await;
    let (head, body) = call(&mut stream, "/echo", b"hello").await;
    assert!(
        head.starts_with("http/1.1 200") && body == b"hello",
        "{head}"
    );
    assert!(served.metric("connections ") <= 16 + 1);
    assert!(served.closed("MadeRoom") > 0);
}

#[tokio::test]
async fn port_keeps_connections_with_requests_in_progress() {
    let served = Served::start(limits(), None).await;
    let mut busy = Vec::new();
    for _ in 0..4 {
        let mut stream = served.connect().await;
        let request = head("/wait", 2) + "hi";
        stream.write_all(request.as_bytes()).await.unwrap();
        busy.push(stream);
    }
    served
        .until("requests wait", |s| s.metric("request_bytes ") == 8)
        .await;
    let mut silent = Vec::new();
    for _ in 0..100 {
        silent.push(served.connect().await);
    }
    served
        .until("room is made", |s| s.closed("MadeRoom") >= 80)
        .await;
    served.go.add_permits(4);
    for mut stream in busy {
        let (head, body) = answered(&mut stream).await;
        assert!(head.starts_with("http/1.1 200") && body == b"hi", "{head}");
    }
}

#[tokio::test]
async fn port_closes_silent_and_slow_clients() {
    let short = Duration::from_millis(500);
    let limits = Limits {
        first_byte: short,
        head: short,
        ..limits()
    };
    let served = Served::start(limits, None).await;
    let mut keep_alive = served.connect().await;
    call(&mut keep_alive, "/echo", b"one").await;

    let silent = served.connect().await;
    ended(silent).await;
    assert_eq!(served.closed("Silent"), 1);

    let mut dribble = served.connect().await;
    let deadline = Instant::now() + PATIENCE;
    for byte in head("/echo", 0).bytes().cycle() {
        if dribble.write_all(&[byte]).await.is_err() || served.closed("SlowHeaders") == 1 {
            break;
        }
        assert!(Instant::now() < deadline, "still open");
        // Complete headers would be a request.
        if byte == b'\n' {
            dribble.write_all(b"x: ").await.ok();
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(served.closed("SlowHeaders"), 1);
    // Both timeouts have passed.
    let (head, body) = call(&mut keep_alive, "/echo", b"two").await;
    assert!(head.starts_with("http/1.1 200") && body == b"two", "{head}");
}

#[tokio::test]
async fn port_closes_idle_connections() {
    let limits = Limits {
        idle: Some(Duration::from_millis(100)),
        ..limits()
    };
    let served = Served::start(limits, None).await;
    let mut keep_alive = served.connect().await;
    call(&mut keep_alive, "/echo", b"one").await;
    ended(keep_alive).await;
    assert_eq!(served.closed("Idle"), 1);
}

#[tokio::test]
async fn unfinished_bodies_end_by_their_deadline() {
    let limits = Limits {
        body: Duration::from_secs(3),
        ..limits()
    };
    let served = Served::start(limits, None).await;
    let mut half = Vec::new();
    for _ in 0..10 {
        // Together four times the budget.
        let mut stream = served.connect().await;
        let request = head("/echo", 3 * MIB) + "some";
        stream.write_all(request.as_bytes()).await.unwrap();
        half.push(stream);
    }
    served
        .until("they are read", |s| s.metric("request_bytes ") == 40)
        .await;
    let whole = vec![7; 3 * MIB];
    let (head, body) = call(&mut served.connect().await, "/echo", &whole).await;
    assert!(head.starts_with("http/1.1 200") && body == whole, "{head}");
    for mut stream in half {
        let (head, _) = answered(&mut stream).await;
        assert!(head.starts_with("http/1.1 408"), "{head}");
    }
    assert_eq!(
        served.metric("requests_refused_total{reason=\"SlowBody\"}"),
        10
    );
    served
        .until("all is released", |s| s.metric("request_bytes ") == 0)
        .await;
}

#[tokio::test]
async fn request_memory_rejects_large_requests_only() {
    let served = Served::start(limits(), None).await;
    let whole = vec![7; 3 * MIB];
    let mut first = served.connect().await;
    let request = head("/wait", whole.len());
    first.write_all(request.as_bytes()).await.unwrap();
    first.write_all(&whole).await.unwrap();
    let body_bytes = 3 * MIB as u64;
    served
        .until("the body is in memory", |s| {
            s.metric("request_bytes ") == body_bytes
        })
        .await;
    // Does not fit into this address's half: known from its length.
    let mut second = served.connect().await;
    let request = head("/echo", whole.len());
    second.write_all(request.as_bytes()).await.unwrap();
    let (answer, _) = answered(&mut second).await;
    assert!(answer.starts_with("http/1.1 503"), "{answer}");
    assert!(answer.contains("retry-after: 1"), "{answer}");
    // Without a length: known once it has arrived.
    let mut third = served.connect().await;
    let request = "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";
    third.write_all(request.as_bytes()).await.unwrap();
    let chunk = [b"200000\r\n".as_slice(), &whole[..2 * MIB], b"\r\n"].concat();
    _ = third.write_all(&chunk).await;
    let (answer, _) = answered(&mut third).await;
    assert!(answer.starts_with("http/1.1 503"), "{answer}");
    assert_eq!(
        served.metric("requests_refused_total{reason=\"Memory\"}"),
        2
    );
    let (answer, body) = call(&mut served.connect().await, "/echo", b"small").await;
    assert!(answer.starts_with("http/1.1 200") && body == b"small");
    served.go.add_permits(1);
    let (answer, body) = answered(&mut first).await;
    assert!(answer.starts_with("http/1.1 200") && body == whole);
    served
        .until("all is released", |s| s.metric("request_bytes ") == 0)
        .await;
    let (answer, _) = call(&mut served.connect().await, "/echo", &whole).await;
    assert!(answer.starts_with("http/1.1 200"), "{answer}");
}

#[tokio::test]
async fn port_closes_clients_that_do_not_read() {
    let limits = Limits {
        response: Duration::from_millis(100),
        ..limits()
    };
    let served = Served::start(limits, None).await;
    let mut stream = served.connect().await;
    let whole = vec![7; 4 * MIB];
    for _ in 0..3 {
        let request = head("/echo", whole.len());
        if stream.write_all(request.as_bytes()).await.is_err()
            || stream.write_all(&whole).await.is_err()
        {
            break;
        }
        tokio::task::yield_now().await;
    }
    served
        .until("it is closed", |s| s.closed("SlowReader") == 1)
        .await;
    served
        .until("all is released", |s| s.metric("request_bytes ") == 0)
        .await;
}

#[tokio::test]
async fn port_survives_stalled_handshakes() {
    let dir = tempfile::tempdir().unwrap();
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let (cert, key) = (dir.path().join("crt"), dir.path().join("key"));
    std::fs::write(&cert, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let files = ServerFiles {
        cert,
        key,
        client_ca: None,
        alpn: vec!["http/1.1"],
    };
    let limits = Limits {
        first_byte: Duration::from_secs(2),
        ..limits()
    };
    let served = Served::start(limits, Some(ServerTls::load(files).unwrap())).await;
    let mut stalled = Vec::new();
    for _ in 0..100 {
        stalled.push(served.connect().await);
    }
    let mut roots = rustls::RootCertStore::empty();
    roots.add(made.cert.der().clone()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
    let name = rustls::pki_types::ServerName::try_from("localhost").unwrap();
    let connect = async || {
        let connecting = connector.connect(name.clone(), served.connect().await);
        tokio::time::timeout(PATIENCE, connecting)
            .await
            .unwrap()
            .unwrap()
    };
    let mut stream = connect().await;
    let request = "GET /livez HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut all = String::new();
    _ = stream.read_to_string(&mut all).await;
    assert!(all.starts_with("HTTP/1.1 200"), "{all}");
    assert!(served.closed("Handshake") > 0);
    drop((stream, stalled));
    // A silent one is closed after its handshake, even if no other comes.
    let mut silent = connect().await;
    _ = tokio::time::timeout(PATIENCE, silent.read_to_end(&mut Vec::new()))
        .await
        .unwrap();
    assert_eq!(served.closed("Silent"), 1);
    drop(silent);
    served
        .until("none is left", |s| s.metric("connections ") == 0)
        .await;
}
