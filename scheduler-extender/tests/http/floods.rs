//! Half-sent bodies and silent connections, more than the extender accepts.

use std::time::{Duration, Instant};

use serde_json::json;
use tautline_runtime::{cluster_store::ClusterStore, http::Limits};
use tautline_scheduler_extender::Config;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::served::{Served, http};

const MIB: usize = 1 << 20;
/// Far above the duration of any step here.
const PATIENCE: Duration = Duration::from_secs(60);

async fn filter(served: &Served) {
    let body = json!({"Pod": {"metadata": {"name": "p", "uid": "u"}}, "NodeNames": ["a"]});
    let body = body.to_string();
    let response = http(served.port, "POST", "/filter", &body);
    let (status, answer) = tokio::time::timeout(PATIENCE, response).await.unwrap();
    assert_eq!((status, &*answer), (200, r#"{"nodenames":["a"]}"#));
}

async fn send(port: u16, length: usize, sent: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    let head = format!("POST /filter HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    // The server may have refused it already.
    _ = stream.write_all(sent).await;
    stream
}

async fn value(served: &Served, name: &str) -> u64 {
    let (_, text) = http(served.admin, "GET", "/metrics", "").await;
    let line = text.lines().find_map(|l| l.strip_prefix(name));
    line.map_or(0, |value| value.trim().parse().unwrap())
}

async fn until(served: &Served, name: &str, holds: impl Fn(u64) -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds(value(served, name).await) {
        assert!(Instant::now() < deadline, "{name}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn half_sent_bodies_take_no_permit() {
    let config = Config {
        concurrency: 2,
        deadline: PATIENCE,
        limits: Limits {
            body: PATIENCE,
            ..Limits::default()
        },
        ..Config::default()
    };
    let served = Served::start(config, ClusterStore::default()).await;
    let mut half = Vec::new();
    for _ in 0..64 {
        half.push(send(served.port, 1000, b"{").await);
    }
    until(&served, "tautline_extender_request_bytes ", |n| n == 64).await;
    filter(&served).await;
    // The others are answered too, once they have sent the rest.
    let rest = format!(r#""Pod":{{}},"NodeNames":[]{:>1$}"#, "}", 1000 - 1 - 23);
    let mut last = half.pop().unwrap();
    last.write_all(rest.as_bytes()).await.unwrap();
    let mut answer = [0; 12];
    last.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"HTTP/1.1 400", "no metadata, and read as a whole");
}

#[tokio::test]
async fn silent_connections_block_no_port() {
    let limits = Limits {
        connections: 32,
        ..Limits::default()
    };
    let config = Config {
        limits,
        ..Config::default()
    };
    let served = Served::start(config, ClusterStore::default()).await;
    let mut silent = Vec::new();
    for _ in 0..100 {
        for port in [served.port, served.admin] {
            silent.push(TcpStream::connect(("127.0.0.1", port)).await.unwrap());
        }
    }
    filter(&served).await;
    let (status, answer) = http(served.admin, "GET", "/livez", "").await;
    assert_eq!((status, &*answer), (200, "ok\n"));
    let closed = r#"tautline_extender_connections_closed_total{reason="MadeRoom"} "#;
    until(&served, closed, |n| n > 0).await;
    let closed = r#"tautline_admin_connections_closed_total{reason="MadeRoom"} "#;
    until(&served, closed, |n| n > 0).await;
}

#[tokio::test]
async fn large_requests_stay_within_the_memory_budget() {
    let config = Config {
        max_body_bytes: 4 * MIB,
        limits: Limits {
            request_bytes: Some(8 * MIB),
            ..Limits::default()
        },
        ..Config::default()
    };
    let served = Served::start(config, ClusterStore::default()).await;
    let names = vec![r#""node-1""#; 3 * MIB / 9].join(",");
    let body =
        format!(r#"{{"Pod":{{"metadata":{{"name":"p"}}}},"Nodes":null,"NodeNames":[{names}]}}"#);
    let one = async || {
        let mut stream = send(served.port, body.len(), body.as_bytes()).await;
        let mut status = [0; 12];
        _ = stream.read_exact(&mut status).await;
        let mut rest = Vec::new();
        if status.ends_with(b"200") {
            let taken = stream.read_buf(&mut rest).await.unwrap();
            assert!(taken > 0);
        }
        String::from_utf8_lossy(&status[9..]).into_owned()
    };
    let mut all = Vec::new();
    for _ in 0..16 {
        all.push(one());
    }
    let statuses = futures::future::join_all(all).await;
    assert!(statuses.iter().any(|s| s == "200"), "{statuses:?}");
    let refused = r#"tautline_extender_requests_refused_total{reason="Memory"} "#;
    until(&served, refused, |n| n > 0).await;
    until(&served, "tautline_extender_request_bytes ", |n| n == 0).await;
    assert_eq!(one().await, "200");
    filter(&served).await;
}
