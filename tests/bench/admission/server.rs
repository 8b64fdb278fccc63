//! The process under test: the real server with certificate files.

use std::{net::Ipv4Addr, path::Path};

use anyhow::Result;
use serde_json::json;
use tautline_admission::{App, Config, config::Certificate};
use tautline_bench::parent_gone;
use tautline_runtime::{cluster::Cluster, tasks::Tasks, tls::ServerFiles};

use crate::{cluster, policies};

/// Serves as a role.
pub async fn run(dir: &Path) -> Result<()> {
    let mut objects = policies::manifests()?;
    objects.push(policies::namespace());
    objects.push(json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "cast-slice-policy", "namespace": "tautline-system", "uid": "c", "resourceVersion": "1"},
        "data": {"policy.json": policies::slices()}}));
    let loopback = (Ipv4Addr::LOCALHOST, 0).into();
    let config = Config {
        listen: loopback,
        admin: loopback,
        certificate: Certificate::Files(ServerFiles {
            cert: dir.join("cert.pem"),
            key: dir.join("key.pem"),
            client_ca: None,
            alpn: Vec::new(),
        }),
        ..Config::new("tautline-system", "tautline-admission")
    };
    let app = App::build(config, Cluster::from_client(cluster::client(objects))).await?;
    let (port, readiness) = (app.address()?.port(), app.readiness());
    let mut tasks = Tasks::default();
    app.spawn(&mut tasks)?;
    let shutdown = async move {
        readiness.wait().await;
        println!("{port}");
        parent_gone().await;
    };
    tasks.run(shutdown).await
}
