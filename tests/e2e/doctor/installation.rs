//! `deploy/` on three nodes, as healthy as it is without its processes.

use std::net::{IpAddr, SocketAddr, UdpSocket};

use k8s_openapi::{
    api::{apps::v1::DaemonSet, core::v1::Pod},
    jiff::Timestamp,
};
use kube::{
    Api, ResourceExt,
    api::{ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams},
    core::GroupVersionKind,
};
use serde_json::{Value, json};
use tautline_tests::{
    PATIENCE, control_plane::ControlPlane, eventually, objects, root, servers::Server,
};
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
};

pub const NAMESPACE: &str = "tautline-system";
const WEBHOOKS: &str = "admissionregistration.k8s.io/v1";
pub const DEPLOYMENT: (&str, &str) = ("apps/v1", "Deployment");
pub const EXTENDER: &str = "tautline-extender.tautline-system.svc";

pub struct Installation {
    pub plane: ControlPlane,
    pub extender: Server,
    pub extender_ca: std::path::PathBuf,
    /// This machine's address, where the API server reaches the extender's metrics.
    address: Option<IpAddr>,
}

impl Installation {
    /// kube-scheduler does not call the extender yet.
    pub async fn start() -> Self {
        let mut plane = ControlPlane::start().await.unwrap();
        let client = plane.client.clone();
        objects::apply_kustomization(&client, &root().join("deploy"))
            .await
            .unwrap();
        plane.start_kwok().await.unwrap();
        plane.start_controller_manager().await.unwrap();
        plane.start_scheduler(None).await.unwrap();
        for name in ["n1", "n2", "n3"] {
            objects::node(&client, name, json!({})).await.unwrap();
        }
        let (extender, extender_ca) = Server::extender(&plane, &[]).await.unwrap();
        let this = Self {
            address: own_address(),
            plane,
            extender,
            extender_ca,
        };
        this.use_files().await;
        this.publish_metrics().await;
        for node in ["n1", "n2", "n3"] {
            this.agent(node).await;
        }
        this.certificate(EXTENDER, 2100).await;
        for lease in ["tautline-controller", "tautline-gpu-slice"] {
            this.lease(lease, Timestamp::now()).await;
        }
        this
    }

    /// Findings that this machine cannot avoid.
    pub fn unchecked(&self) -> u32 {
        u32::from(self.address.is_none())
    }

    /// The extender serves with the files of a Secret, which the tests break.
    async fn use_files(&self) {
        let container = "/spec/template/spec/containers/0";
        let args = [
            "extender",
            "--tls-cert=/tls/tls.crt",
            "--tls-key=/tls/tls.key",
        ];
        let volume = json!({"name": "tls", "secret": {"secretName": "tautline-extender-tls"}});
        let patch = json!([
            {"op": "replace", "path": format!("{container}/args"), "value": args},
            {"op": "add", "path": format!("{container}/volumeMounts"),
             "value": [{"name": "tls", "mountPath": "/tls"}]},
            {"op": "add", "path": "/spec/template/spec/volumes", "value": [volume]},
        ]);
        self.json_patch("apps/v1", "Deployment", "tautline-extender", patch)
            .await;
    }

    /// Gives the extender's pods the address of the real one, whose admin port is on loopback: the
    /// API server proxies to no loopback address.
    async fn publish_metrics(&self) {
        let Some(address) = self.address else {
            println!("skipped: this machine has only a loopback address, so no pod's metrics");
            return;
        };
        let listener = TcpListener::bind((address, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let admin = SocketAddr::from(([127, 0, 0, 1], self.extender.admin));
        tokio::spawn(async move {
            while let Ok((mut inbound, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let mut outbound = TcpStream::connect(admin).await?;
                    copy_bidirectional(&mut inbound, &mut outbound).await
                });
            }
        });
        let ports = json!([{"op": "replace", "value": port,
            "path": "/spec/template/spec/containers/0/ports/1/containerPort"}]);
        self.json_patch("apps/v1", "Deployment", "tautline-extender", ports)
            .await;
        let pods: Api<Pod> = Api::namespaced(self.plane.client.clone(), NAMESPACE);
        let of_extender = ListParams::default().labels("app.kubernetes.io/name=tautline-extender");
        let check = async || {
            let list = pods.list(&of_extender).await.ok()?.items;
            let new = |p: &&Pod| {
                let value = serde_json::to_value(p).unwrap_or_default();
                value["spec"]["containers"][0]["ports"][1]["containerPort"] == port
                    && value["status"]["phase"] == "Running"
            };
            (list.len() == 2 && list.iter().all(|p| new(&p))).then_some(list)
        };
        let what = "the pods of the extender run";
        let list = eventually(what, PATIENCE, check, async || self.plane.logs()).await;
        for pod in list {
            let ip = address.to_string();
            let status = json!({"status": {"podIP": ip, "podIPs": [{"ip": ip}]}});
            let params = PatchParams::default();
            pods.patch_status(&pod.name_any(), &params, &Patch::Merge(&status))
                .await
                .unwrap();
        }
    }

    /// The DaemonSet's pod on a node: its controller does not run here.
    pub async fn agent(&self, node: &str) {
        let sets: Api<DaemonSet> = Api::namespaced(self.plane.client.clone(), NAMESPACE);
        let template = sets
            .get("tautline-latency-agent")
            .await
            .unwrap()
            .spec
            .unwrap()
            .template;
        let mut spec = json!(template.spec);
        spec["nodeName"] = node.into();
        let pod = json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": format!("tautline-latency-agent-{node}"),
                         "labels": template.metadata.unwrap().labels},
            "spec": spec});
        let pods: Api<Pod> = Api::namespaced(self.plane.client.clone(), NAMESPACE);
        let pod = serde_json::from_value(pod).unwrap();
        pods.create(&PostParams::default(), &pod).await.unwrap();
    }

    /// The extender's Secret with a new certificate for `name`, valid until a new year.
    pub async fn certificate(&self, name: &str, year: i32) {
        let (cert, key) = certificate(name, year, 1, 1);
        self.secret(json!({"tls.crt": cert, "tls.key": key})).await;
    }

    /// Replaces the extender's Secret.
    pub async fn secret(&self, data: Value) {
        self.delete("v1", "Secret", "tautline-extender-tls").await;
        let secret = json!({"apiVersion": "v1", "kind": "Secret",
            "metadata": {"name": "tautline-extender-tls", "namespace": NAMESPACE},
            "stringData": data});
        objects::apply_one(&self.plane.client, secret)
            .await
            .unwrap();
    }

    /// A held Lease; an hour old it has not expired yet.
    pub async fn lease(&self, name: &str, renewed: Timestamp) {
        let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": {"holderIdentity": "a_1", "leaseDurationSeconds": 1200,
                     "renewTime": renewed.strftime("%Y-%m-%dT%H:%M:%S.000000Z").to_string()}});
        objects::apply_one(&self.plane.client, lease).await.unwrap();
    }

    /// Applies a manifest below `deploy`.
    pub async fn apply(&self, file: &str) {
        let text = std::fs::read_to_string(root().join("deploy").join(file)).unwrap();
        objects::apply(&self.plane.client, &text).await.unwrap();
    }

    fn api(&self, api_version: &str, kind: &str) -> Api<DynamicObject> {
        let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
        let mut resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        let client = self.plane.client.clone();
        match group {
            "rbac.authorization.k8s.io"
            | "apiextensions.k8s.io"
            | "admissionregistration.k8s.io" => Api::all_with(client, &resource),
            _ => {
                resource.plural = format!("{}s", kind.to_lowercase());
                Api::namespaced_with(client, NAMESPACE, &resource)
            }
        }
    }

    /// Deletes an object, in Tautline's namespace if its kind has one, and waits until it is gone.
    pub async fn delete(&self, api_version: &str, kind: &str, name: &str) {
        let api = self.api(api_version, kind);
        let check = async || match api.delete(name, &DeleteParams::background()).await {
            Err(kube::Error::Api(status)) if status.code == 404 => Some(()),
            _ => None,
        };
        let what = format!("{kind} {name} is deleted");
        eventually(&what, PATIENCE, check, async || self.plane.logs()).await;
    }

    /// The caBundle of a configuration's first webhook, in base64.
    pub async fn ca_bundle(&self, kind: &str, name: &str) -> Value {
        let configuration = self.api(WEBHOOKS, kind).get(name).await.unwrap();
        configuration.data["webhooks"][0]["clientConfig"]["caBundle"].clone()
    }

    pub async fn set_ca_bundle(&self, kind: &str, name: &str, bundle: Value) {
        let path = "/webhooks/0/clientConfig/caBundle";
        let patch = json!([{"op": "replace", "path": path, "value": bundle}]);
        self.json_patch(WEBHOOKS, kind, name, patch).await;
    }

    pub async fn merge_patch(&self, api_version: &str, kind: &str, name: &str, patch: Value) {
        let api = self.api(api_version, kind);
        let patch = Patch::Merge(&patch);
        api.patch(name, &PatchParams::default(), &patch)
            .await
            .unwrap();
    }

    /// An RFC 6902 patch.
    pub async fn json_patch(&self, api_version: &str, kind: &str, name: &str, patch: Value) {
        let api = self.api(api_version, kind);
        let patch = Patch::<Value>::Json(serde_json::from_value(patch).unwrap());
        api.patch(name, &PatchParams::default(), &patch)
            .await
            .unwrap();
    }
}

/// The address of this machine that has a route to others; `None` if there is only loopback.
fn own_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    // No packet is sent.
    socket.connect("198.51.100.1:9").ok()?;
    let address = socket.local_addr().ok()?.ip();
    (!address.is_loopback() && !address.is_unspecified()).then_some(address)
}

/// A self-signed certificate and its key, in PEM.
pub fn certificate(name: &str, year: i32, month: u8, day: u8) -> (String, String) {
    let mut params = rcgen::CertificateParams::new([name.to_owned()]).unwrap();
    params.not_before = rcgen::date_time_ymd(2020, 1, 1);
    params.not_after = rcgen::date_time_ymd(year, month, day);
    let key = rcgen::KeyPair::generate().unwrap();
    (params.self_signed(&key).unwrap().pem(), key.serialize_pem())
}
