//! The other components: kube-scheduler, kube-controller-manager, and kwok in place of
//! kubelets.

use std::{fs, path::Path};

use anyhow::Result;
use serde_json::{Value, json};

use crate::{
    control_plane::{ControlPlane, READY_TIMEOUT},
    eventually,
    process::{Process, free_port},
    root,
};

/// The controllers of kube-controller-manager that tests need.
const CONTROLLERS: [&str; 12] = [
    "clusterrole-aggregation-controller",
    "deployment-controller",
    "disruption-controller",
    "endpoints-controller",
    "endpointslice-controller",
    "garbage-collector-controller",
    "job-controller",
    "namespace-controller",
    "replicaset-controller",
    "resourceclaim-controller",
    "serviceaccount-controller",
    "serviceaccount-token-controller",
];

impl ControlPlane {
    /// Starts kube-scheduler with a configuration of `deploy/scheduler` whose extender is at
    /// `url` (verified by `ca`), or without an extender.
    pub async fn start_scheduler(&mut self, sample: Option<(&str, &str, &Path)>) -> Result<()> {
        let mut config = match sample {
            None => json!({
                "apiVersion": "kubescheduler.config.k8s.io/v1",
                "kind": "KubeSchedulerConfiguration",
            }),
            Some((file, url, ca)) => {
                let text = fs::read_to_string(root().join("deploy/scheduler").join(file))?;
                let mut config: Value = serde_saphyr::from_str(&text)?;
                config["extenders"][0]["urlPrefix"] = url.into();
                // The server's certificate serves as the client's too, where the sample has one.
                let key = ca.with_extension("key");
                let tls = &mut config["extenders"][0]["tlsConfig"];
                for (field, file) in [("caFile", ca), ("certFile", ca), ("keyFile", &key)] {
                    if tls.get(field).is_some() {
                        tls[field] = file.display().to_string().into();
                    }
                }
                config
            }
        };
        config["clientConnection"]["kubeconfig"] =
            self.kubeconfig("scheduler").display().to_string().into();
        config["leaderElection"]["leaderElect"] = false.into();
        let path = self.dir.path().join("scheduler.json");
        fs::write(&path, config.to_string())?;
        let port = free_port()?;
        self.run(
            "kube-scheduler",
            port,
            &[
                format!("--config={}", path.display()),
                "--bind-address=127.0.0.1".into(),
                format!("--secure-port={port}"),
                format!("--cert-dir={}", self.dir.path().join("scheduler").display()),
                "--authentication-skip-lookup=true".into(),
            ],
        )
        .await
    }

    /// Kills kube-scheduler.
    pub fn stop_scheduler(&mut self) {
        self.components.remove("kube-scheduler");
    }

    /// Starts kwok: nodes become ready, bound pods run, deleted pods go.
    pub async fn start_kwok(&mut self) -> Result<()> {
        let port = free_port()?;
        let stages = root().join("tests/control-plane/kwok/stages.yaml");
        self.run(
            "kwok",
            port,
            &[
                format!("--config={}", stages.display()),
                format!("--kubeconfig={}", self.kubeconfig("kwok").display()),
                "--manage-all-nodes=true".into(),
                format!("--server-address=127.0.0.1:{port}"),
                "--node-lease-duration-seconds=40".into(),
                // Addresses of pods, apart from those of services.
                "--cidr=10.64.0.1/12".into(),
            ],
        )
        .await
    }

    /// Starts kube-controller-manager with the controllers that tests need, each
    /// under its own account: pods of Deployments, budgets, garbage collection,
    /// endpoints, aggregated roles. Apply our CRDs before: the garbage collector looks for
    /// new kinds only every 30 seconds.
    pub async fn start_controller_manager(&mut self) -> Result<()> {
        let port = free_port()?;
        let kubeconfig = self.kubeconfig("manager").display().to_string();
        let at = |name: &str| self.dir.path().join(name).display().to_string();
        self.run(
            "kube-controller-manager",
            port,
            &[
                format!("--kubeconfig={kubeconfig}"),
                format!("--controllers={}", CONTROLLERS.join(",")),
                "--use-service-account-credentials=true".into(),
                format!("--service-account-private-key-file={}", at("sa.key")),
                format!("--root-ca-file={}", at("apiserver/apiserver.crt")),
                "--leader-elect=false".into(),
                "--bind-address=127.0.0.1".into(),
                format!("--secure-port={port}"),
                format!("--cert-dir={}", at("manager")),
                "--authentication-skip-lookup=true".into(),
                // Its defaults are low, for a shared API server.
                "--kube-api-qps=500".into(),
                "--kube-api-burst=1000".into(),
                "--concurrent-deployment-syncs=20".into(),
                "--concurrent-replicaset-syncs=20".into(),
            ],
        )
        .await
    }

    /// Starts a component; one of the same name ends.
    async fn run(&mut self, name: &'static str, port: u16, args: &[String]) -> Result<()> {
        let program = self.binaries.join(name);
        let process = Process::start(name, &program, args, self.dir.path())?;
        self.components.insert(name, process);
        listening(port, name, async || self.logs()).await;
        Ok(())
    }
}

pub(crate) async fn listening<S: std::fmt::Display>(
    port: u16,
    what: &str,
    state: impl AsyncFnOnce() -> S,
) {
    let check = async || {
        tokio::net::TcpStream::connect(("127.0.0.1", port))
            .await
            .is_ok()
            .then_some(())
    };
    eventually(&format!("{what} listens"), READY_TIMEOUT, check, state).await;
}
