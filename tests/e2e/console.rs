//! `tautline ui` of a cluster, with a user who may only read.

use kube::Client;
use serde_json::{Value, json};
use tautline_tests::{
    PATIENCE, control_plane::ControlPlane, eventually, loopback, objects, process::Process, root,
    servers::binary,
};

const SECTIONS: [&str; 6] = ["", "decisions", "bindings", "gpu", "latency", "policies"];

/// Lets users read these kinds, and do nothing else.
async fn may_read(client: &Client, user: &str, core: &[&str]) {
    let verbs = json!(["get", "list", "watch"]);
    let rules = json!([
        {"apiGroups": [""], "resources": core, "verbs": verbs},
        {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": verbs},
        {"apiGroups": ["resource.k8s.io"], "resources": ["resourceslices", "resourceclaims"], "verbs": verbs},
        {"apiGroups": ["constraint.ciena.com"], "resources": ["*"], "verbs": verbs},
    ]);
    let group = "rbac.authorization.k8s.io";
    let version = format!("{group}/v1");
    for object in [
        json!({"apiVersion": version, "kind": "ClusterRole", "metadata": {"name": user}, "rules": rules}),
        json!({"apiVersion": version, "kind": "ClusterRoleBinding", "metadata": {"name": user},
               "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": user},
               "subjects": [{"apiGroup": group, "kind": "User", "name": user}]}),
    ] {
        objects::apply_one(client, object).await.unwrap();
    }
}

struct Console {
    process: Process,
    url: String,
}

impl Console {
    async fn start(plane: &ControlPlane, user: &str) -> Self {
        let kubeconfig = plane.kubeconfig(user).display().to_string();
        let args = ["ui", "--listen", "127.0.0.1:0", "--kubeconfig", &kubeconfig];
        let args = args.map(str::to_owned);
        let name = format!("ui-{user}");
        let process = Process::start(&name, &binary().unwrap(), &args, plane.dir.path()).unwrap();
        let printed = async || {
            let log = process.log();
            let line = log.lines().find(|line| line.starts_with("http://"))?;
            Some(line.to_owned())
        };
        let url = eventually("the console's address", PATIENCE, printed, async || {
            process.log()
        });
        let url = url.await;
        Self { process, url }
    }

    async fn page(&self, path: &str) -> (u16, String) {
        let answer = loopback::get(&format!("{}/{path}", self.url)).await;
        answer.unwrap_or_else(|e| panic!("/{path}: {e:#}\n{}", self.process.log()))
    }

    /// Waits until a page has this text.
    async fn shows(&self, path: &str, text: &str) {
        let has = async || self.page(path).await.1.contains(text).then_some(());
        let state = async || format!("{}\n{}", self.page(path).await.1, self.process.log());
        eventually(&format!("/{path} shows {text}"), PATIENCE, has, state).await;
    }
}

#[tokio::test]
async fn console_needs_read_rights_alone() {
    let plane = ControlPlane::start().await.unwrap();
    let client = &plane.client;
    let crds = root().join("deploy/crds");
    objects::apply_kustomization(client, &crds).await.unwrap();
    objects::node(client, "edge-1", Value::Null).await.unwrap();
    objects::pod(client, "default", "web-0", "web")
        .await
        .unwrap();
    let rule = json!({"name": "latency", "limit": "20ms"});
    objects::policy(client, "default", "web", rule, json!({}))
        .await
        .unwrap();
    may_read(
        client,
        "ann",
        &["nodes", "namespaces", "pods", "services", "events"],
    )
    .await;
    may_read(client, "tina", &["nodes", "namespaces", "services"]).await;

    let console = Console::start(&plane, "author").await;
    console.shows("policies", "no Service answers it").await;
    console.shows("decisions/default/web-0", "web").await;
    for section in SECTIONS {
        let (status, body) = console.page(section).await;
        assert_eq!(status, 200, "/{section}: {body}");
        assert!(!body.contains("Not complete yet"), "/{section}: {body}");
    }
    // Followed, without another request for all.
    objects::node(client, "edge-2", Value::Null).await.unwrap();
    console.shows("?format=json", "\"nodes\":2").await;

    // Without the right to pods the rest is shown, and the page says what is missing.
    let less = Console::start(&plane, "tenant").await;
    less.shows("policies", "pods in all namespaces cannot be read")
        .await;
    less.shows("policies", "default/<wbr>web").await;
    // The first one still runs.
    console.shows("decisions/default/web-0", "web").await;
}
