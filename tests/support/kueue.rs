//! Kueue, installed from its own manifest.

use std::{fs, path::Path};

use anyhow::Result;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use serde_json::{Value, json};

use crate::{
    PATIENCE,
    components::listening,
    control_plane::{self, ControlPlane},
    eventually, objects,
    process::{Process, free_port},
};

const NAMESPACE: &str = "kueue-system";
/// The kinds of the manifest that need a cluster: kueue runs as a process.
const SKIPPED: [&str; 2] = ["Deployment", "APIService"];

impl ControlPlane {
    /// Starts Kueue for Jobs, with its webhooks and these fields of its configuration.
    pub async fn start_kueue(&mut self, fields: Value) -> Result<()> {
        let binaries = control_plane::build(Some("--kueue"))?;
        let port = free_port()?;
        let manifest = fs::read_to_string(binaries.join("kueue.yaml"))?;
        for mut object in serde_saphyr::from_multiple::<Value>(&manifest)? {
            if !SKIPPED.iter().any(|kind| object["kind"] == *kind) {
                at_loopback(&mut object, port);
                objects::apply_one(&self.client, object).await?;
            }
        }
        let certificates = self.dir.path().join("kueue");
        fs::create_dir(&certificates)?;
        let mut config = json!({
            "apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration",
            "health": {"healthProbeBindAddress": "0"},
            "metrics": {"bindAddress": "0"},
            "webhook": {"host": "127.0.0.1", "port": port, "certDir": certificates},
            "leaderElection": {"leaderElect": false},
            "integrations": {"frameworks": ["batch/job"]},
            "featureGates": {"VisibilityOnDemand": false},
        });
        if let (Some(config), Value::Object(fields)) = (config.as_object_mut(), fields) {
            config.extend(fields);
        }
        let path = self.dir.path().join("kueue.json");
        fs::write(&path, config.to_string())?;
        let args = [
            format!("--config={}", path.display()),
            format!("--kubeconfig={}", self.kubeconfig("kueue").display()),
        ];
        let program = binaries.join("kueue");
        let process = Process::start("kueue", &program, &args, self.dir.path())?;
        self.components.insert("kueue", process);
        self.mount_certificate(&certificates).await?;
        listening(port, "kueue", async || self.logs()).await;
        Ok(())
    }

    /// Writes the certificate that Kueue makes for its webhooks where a kubelet would mount it.
    async fn mount_certificate(&self, dir: &Path) -> Result<()> {
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), NAMESPACE);
        let check = async || {
            let data = secrets.get("kueue-webhook-server-cert").await.ok()?.data?;
            (data.contains_key("tls.crt") && data.contains_key("tls.key")).then_some(data)
        };
        let what = "the certificate of Kueue's webhooks";
        let data = eventually(what, PATIENCE, check, async || self.logs()).await;
        // Kueue reads both when the certificate is there, so the key comes first.
        for (name, content) in data.into_iter().rev() {
            fs::write(dir.join(name), content.0)?;
        }
        Ok(())
    }
}

/// Directs the webhooks and their Service to a port on loopback.
fn at_loopback(object: &mut Value, port: u16) {
    if object["kind"] == "Service" {
        object["spec"] = json!({"type": "ExternalName", "externalName": "127.0.0.1"});
    }
    let conversion = object.pointer_mut("/spec/conversion/webhook/clientConfig/service");
    if let Some(service) = conversion {
        service["port"] = port.into();
    }
    let webhooks = object.get_mut("webhooks").and_then(Value::as_array_mut);
    for webhook in webhooks.into_iter().flatten() {
        webhook["clientConfig"]["service"]["port"] = port.into();
    }
}
