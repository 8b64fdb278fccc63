//! The control plane, the nodes and policies, and our processes.

use std::{net::SocketAddr, path::Path};

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Service;
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, Patch, PatchParams},
    core::GroupVersionKind,
};
use serde_json::{Value, json};
use tautline_bench::cluster::{create, deploy};
use tautline_tests::{
    balancer::Balancer,
    control_plane::ControlPlane,
    objects, root,
    servers::{Server, certificate},
};
use tokio::sync::Mutex;

use crate::{
    kinds::{self, GPU, KINDS, LATENCY, ZONE},
    liar::Liar,
    processes::{ClockProcess, ManagedProcess},
};

pub struct Cluster {
    pub plane: Mutex<ControlPlane>,
    pub client: Client,
    pub members: Vec<ManagedProcess>,
    pub to_extenders: Balancer,
    pub to_gpus: Balancer,
    pub liar: Liar,
}

/// Two of each, as deployed; the clocks are bound to their rule in turn.
pub const EXTENDERS: [&str; 2] = ["extender-a", "extender-b"];
pub const GPUS: [&str; 2] = ["gpu-slice-a", "gpu-slice-b"];
pub const CLOCKS: [&str; 2] = ["clock-a", "clock-b"];
pub const SCRIPTED: &str = "scripted";

impl Cluster {
    pub async fn start(bin: &Path, seed: u64) -> Result<Self> {
        let mut plane = ControlPlane::start().await?;
        let client = plane.client.clone();
        deploy(&client).await?;
        let role = std::fs::read_to_string(root().join("deploy/with-bind/role.yaml"))?;
        objects::apply(&client, &role).await?;
        plane.start_kwok().await?;
        for i in 0..kinds::NODES {
            create(&client, "/api/v1/nodes", &kinds::node(i)).await?;
        }
        for kind in KINDS.iter().filter(|k| !k.rules.is_empty()) {
            for object in kind.policy() {
                objects::apply_one(&client, object).await?;
            }
        }
        script(&client).await?;

        let mut members = Vec::new();
        let dir = plane.dir.path().to_owned();
        for (name, letter) in CLOCKS.into_iter().zip(['a', 'b']) {
            let clock = ClockProcess::start(seed, letter, &dir).await?;
            let rules: &[&str] = if letter == 'a' { &[LATENCY] } else { &[] };
            objects::provider(&client, "default", name, clock.port, rules).await?;
            members.push(ManagedProcess::clock(name, clock));
        }
        let args = ["provider", SCRIPTED];
        let scripted = Server::start_binary(&plane, bin, SCRIPTED, &args).await?;
        objects::provider(&client, "default", SCRIPTED, scripted.port, &[ZONE]).await?;
        members.push(ManagedProcess::server(SCRIPTED, scripted));
        for name in GPUS {
            let args = [
                "provider",
                GPU,
                "--lease=tautline-system/tautline-gpu-slice",
            ];
            let server = Server::replica_of_binary(&plane, bin, (GPU, name), &args).await?;
            members.push(ManagedProcess::server(name, server));
        }
        let to_gpus = balancer(&members, &GPUS).await?;
        let liar = Liar::start(to_gpus.address).await?;
        gpu_service(&client, liar.address.port()).await?;

        let (cert, key) = certificate(&dir)?;
        let tls = [("--tls-cert", &cert), ("--tls-key", &key)]
            .map(|(flag, file)| format!("{flag}={}", file.display()));
        for name in EXTENDERS {
            // A small /explain memory is full soon, and stops growing.
            let args = ["extender", "--bind", "--explain-memory=1", &tls[0], &tls[1]];
            let server = Server::start_named(&plane, bin, ("extender", name), &args).await?;
            for kind in KINDS.iter().filter(|k| !k.rules.is_empty()) {
                let known = |rule: &Value| rule["provider"].is_string();
                server.wait_for_rules("default", kind.name, known).await;
            }
            members.push(ManagedProcess::server(name, server));
        }
        let to_extenders = balancer(&members, &EXTENDERS).await?;
        let url = format!("https://{}", to_extenders.address);
        let sample = ("gated-gpu.yaml", &*url, &*cert);
        plane.start_scheduler(Some(sample)).await?;
        Ok(Self {
            client,
            plane: Mutex::new(plane),
            members,
            to_extenders,
            to_gpus,
            liar,
        })
    }

    pub fn member(&self, name: &str) -> Result<&ManagedProcess> {
        let found = self.members.iter().find(|m| m.name == name);
        found.with_context(|| format!("no process is called {name}"))
    }

    /// The replica of gpu-slice that reserves, if one does.
    pub async fn granting(&self) -> Option<&'static str> {
        for name in GPUS {
            let runs = self.member(name).ok()?.program.lock().await;
            if runs.metric("tautline_allocator_granting").await > 0.0 {
                return Some(name);
            }
        }
        None
    }

    /// The reservations of all gpu-slice replicas; `None` if one does not answer.
    pub async fn reserved(&self) -> Option<f64> {
        let mut sum = 0.0;
        for name in GPUS {
            let admin = self.member(name).ok()?.admin;
            let url = format!("http://127.0.0.1:{admin}/metrics");
            let (_, text) = tautline_tests::servers::get(&url).await.ok()?;
            let mut lines = text
                .lines()
                .filter(|l| l.starts_with("tautline_gpu_reservations{"))
                .peekable();
            lines.peek()?;
            for line in lines {
                sum += line.rsplit(' ').next()?.parse::<f64>().ok()?;
            }
        }
        Some(sum)
    }

    /// The ends of all logs.
    pub async fn state(&self) -> String {
        let mut state = self.plane.lock().await.logs();
        for member in &self.members {
            state += &member.program.lock().await.process().tail();
        }
        state
    }
}

async fn balancer(members: &[ManagedProcess], names: &[&str]) -> Result<Balancer> {
    let of = members.iter().filter(|m| names.contains(&m.name));
    let backends = of.map(|m| SocketAddr::from(([127, 0, 0, 1], m.port)));
    Balancer::start(backends.collect()).await
}

async fn gpu_service(client: &Client, port: u16) -> Result<()> {
    let service = json!({"apiVersion": "v1", "kind": "Service",
        "metadata": {"name": GPU, "namespace": "default",
                     "labels": {"constraint.ciena.com/constraint-gpu-slice": "enabled"},
                     "annotations": {"constraint.ciena.com/allocator": "enabled"}},
        "spec": {"type": "ExternalName", "externalName": "localhost",
                 "ports": [{"name": "ruleprovider", "port": port}]}});
    objects::apply_one(client, service).await
}

/// Creates the script that [`zones`] changes.
async fn script(client: &Client) -> Result<()> {
    let object = json!({"apiVersion": "constraint.ciena.com/v1", "kind": "CostProvider",
        "metadata": {"name": ZONE, "namespace": "default"},
        "spec": {"rule": ZONE, "target": ".*", "values": [{"node": "n", "cost": 1}]}});
    objects::apply_one(client, object).await
}

/// Has the scripted provider refuse these nodes.
pub async fn zones(client: &Client, refused: &[String]) -> Result<()> {
    let values = json!([{"node": format!("({})$", refused.join("|")), "cost": -1},
                        {"node": "n", "cost": 1}]);
    let gvk = GroupVersionKind::gvk("constraint.ciena.com", "v1", "CostProvider");
    let resource = ApiResource::from_gvk(&gvk);
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), "default", &resource);
    let patch = Patch::Merge(json!({"spec": {"values": values}}));
    api.patch(ZONE, &PatchParams::default(), &patch).await?;
    Ok(())
}

/// Binds the rule of the clocks to `to`: one of them has it at any time.
pub async fn bind(client: &Client, to: &str, from: &str) -> Result<()> {
    let services: Api<Service> = Api::namespaced(client.clone(), "default");
    for (name, value) in [(to, json!("enabled")), (from, Value::Null)] {
        let label = format!("constraint.ciena.com/constraint-{LATENCY}");
        let patch = Patch::Merge(json!({"metadata": {"labels": {label: value}}}));
        services
            .patch(name, &PatchParams::default(), &patch)
            .await?;
    }
    Ok(())
}
