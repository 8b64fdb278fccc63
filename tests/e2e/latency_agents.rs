//! Latency agents as processes, one for each node, on a network with set delays.

use std::{path::PathBuf, time::Duration};

use anyhow::{Context, Result};
use k8s_openapi::api::{
    authentication::v1::TokenRequest,
    core::v1::{Pod, ServiceAccount},
};
use kube::{Api, ResourceExt, api::PostParams};
use serde_json::json;
use tautline_tests::{
    control_plane::ControlPlane,
    objects,
    process::{Process, free_port},
    relay::Relay,
    servers::binary,
};

const NAMESPACE: &str = "tautline-system";
const ACCOUNT: &str = "tautline-latency-agent";

/// Nodes by name, their agents, and the network between them.
pub struct Fleet {
    pub relay: Relay,
    pub agents: Vec<Process>,
    nodes: Vec<String>,
}

impl Fleet {
    /// An agent for each node, with a token such as its DaemonSet's pod would have.
    pub async fn start(plane: &ControlPlane, nodes: &[&str], providers: &[u16]) -> Result<Self> {
        // One more address, for an agent with another node's token.
        let relay = Relay::start(nodes.len() + 1, 7)?;
        let mut fleet = Self {
            relay,
            agents: Vec::new(),
            nodes: nodes.iter().map(|&n| n.to_owned()).collect(),
        };
        for (number, node) in nodes.iter().enumerate() {
            let token = token_of(plane, node).await?;
            let agent = fleet.agent(plane, (number, node), node, &token, providers)?;
            fleet.agents.push(agent);
        }
        Ok(fleet)
    }

    /// An agent at the relay's address `number` that claims to be on `node`.
    pub fn agent(
        &self,
        plane: &ControlPlane,
        (number, node): (usize, &str),
        log: &str,
        token: &std::path::Path,
        providers: &[u16],
    ) -> Result<Process> {
        let port = free_port()?;
        self.relay.attach(number, ([127, 0, 0, 1], port).into());
        let mut args: Vec<String> = ["agent", "latency"].map(str::to_owned).into();
        args.extend([
            format!("--node={node}"),
            format!("--listen=127.0.0.1:{port}"),
            format!("--advertise={}", self.relay.address(number)?),
            "--admin=127.0.0.1:0".to_owned(),
            format!("--token-file={}", token.display()),
            "--token-over-http".to_owned(),
        ]);
        args.extend(
            providers
                .iter()
                .map(|p| format!("--provider=http://127.0.0.1:{p}")),
        );
        Process::start(&format!("agent-{log}"), &binary()?, &args, plane.dir.path())
    }

    /// Sets the round trip between all nodes whose names begin with `a` and `b`: nodes or zones.
    pub fn set(&self, a: &str, b: &str, round_trip: Duration) {
        self.pairs(a, b, |relay, i, j| relay.set_round_trip(i, j, round_trip));
    }

    /// Cuts or restores the links between them.
    pub fn cut(&self, a: &str, b: &str, cut: bool) {
        self.pairs(a, b, |relay, i, j| relay.cut(i, j, cut));
    }

    fn pairs(&self, a: &str, b: &str, change: impl Fn(&Relay, usize, usize)) {
        for (i, from) in self.nodes.iter().enumerate() {
            for (j, to) in self.nodes.iter().enumerate() {
                if i != j && from.starts_with(a) && to.starts_with(b) {
                    change(&self.relay, i, j);
                }
            }
        }
    }

    /// The logs and state for a failed test.
    pub fn state(&self) -> String {
        self.agents.iter().map(Process::tail).collect()
    }
}

/// The file of a token of the agents' account, bound to a pod on `node`.
pub async fn token_of(plane: &ControlPlane, node: &str) -> Result<PathBuf> {
    let client = &plane.client;
    let name = format!("agent-{node}");
    let pod = json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"serviceAccountName": ACCOUNT, "nodeName": node,
            "tolerations": [{"operator": "Exists"}],
            "securityContext": {"runAsNonRoot": true, "runAsUser": 65532,
                                "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [{"name": "main", "image": "example.com/agent:1",
                "securityContext": {"allowPrivilegeEscalation": false,
                                    "capabilities": {"drop": ["ALL"]}}}]}});
    objects::apply_one(client, pod).await?;
    let pods: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
    let uid = pods.get(&name).await?.uid();
    let request: TokenRequest = serde_json::from_value(json!({"metadata": {}, "spec": {
        "audiences": ["tautline-latency"], "expirationSeconds": 3600,
        "boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid}}}))?;
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), NAMESPACE);
    let made = accounts
        .create_token_request(ACCOUNT, &PostParams::default(), &request)
        .await?;
    let token = made.status.and_then(|s| s.token);
    let token = token.context("a TokenRequest without a token")?;
    let path = plane.dir.path().join(format!("{name}.token"));
    std::fs::write(&path, token)?;
    Ok(path)
}
