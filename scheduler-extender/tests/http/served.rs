//! An extender on loopback for one test, and calls to it.

use std::net::Ipv4Addr;

use tautline_core::providers::ExternalNames;
use tautline_runtime::{cluster_store::ClusterStore, tasks::Tasks};
use tautline_scheduler_extender::{App, Config};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use tokio_util::sync::CancellationToken;

/// Serves until it is dropped.
pub struct Served {
    pub port: u16,
    pub admin: u16,
    stop: CancellationToken,
}

impl Drop for Served {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Served {
    pub async fn start(config: Config, store: ClusterStore) -> Self {
        let loopback = (Ipv4Addr::LOCALHOST, 0).into();
        let mut config = Config {
            listen: loopback,
            admin: loopback,
            ..config
        };
        config.providers.external_names = ExternalNames::Any;
        let app = App::build(config, store, None).await.unwrap();
        let (port, admin) = (
            app.address().unwrap().port(),
            app.admin_address().unwrap().port(),
        );
        let mut tasks = Tasks::default();
        let stop = tasks.stop_token();
        app.spawn(&mut tasks);
        tokio::spawn(tasks.run(std::future::pending()));
        Self { port, admin, stop }
    }
}

/// Sends a request; returns the answer's status and body.
pub async fn http(port: u16, method: &str, path: &str, body: &str) -> (u16, String) {
    http_with(port, method, path, "", body).await
}

/// `headers` are lines.
pub async fn http_with(
    port: u16,
    method: &str,
    path: &str,
    headers: &str,
    body: &str,
) -> (u16, String) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {}\r\n{headers}\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(body.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
    (status, answer.split_once("\r\n\r\n").unwrap().1.to_owned())
}
