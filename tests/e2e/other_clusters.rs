//! Peers in another cluster: pods follow them, faults of the Secret are named, and a cluster that is
//! away stops the pods that need it, after its grace, and no others.
//!
//! Two real API servers. No delay is measured: a table has the rows.

use std::{net::TcpListener, time::Instant};

use anyhow::Result;
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, Patch, PatchParams},
};
use serde_json::{Value, json};
use tautline_tests::{
    PATIENCE, control_plane::ControlPlane, eventually, objects, root, servers::Server, workloads,
};

use crate::{World, governed_cluster::compliance_of, manifests::may};

/// The namespace of the Secrets here.
const CLUSTERS: &str = "tautline-clusters";
const UNAVAILABLE: &str = "ClusterUnavailable";

/// This cluster, with the node `n1` near `east` and `n2` far from it, and `east`.
struct Clusters {
    world: World,
    controller: Server,
    provider: Server,
    east: ControlPlane,
    /// The kubeconfig for `east`.
    kubeconfig: String,
}

impl Clusters {
    async fn start() -> Result<Self> {
        let (here, east) = tokio::try_join!(ControlPlane::start(), ControlPlane::start())?;
        let shop = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}});
        for (client, file) in [(&here.client, "here.yaml"), (&east.client, "peer.yaml")] {
            let path = root().join("deploy/with-clusters").join(file);
            objects::apply(client, &std::fs::read_to_string(path)?).await?;
            objects::apply_one(client, shop.clone()).await?;
        }
        let flag = format!("--cluster-secrets={CLUSTERS}");
        let world = World::on(here, "all-pods.yaml", &["n1", "n2"], &[&flag]).await?;
        let (plane, system) = (&world.plane, "tautline-system");
        let labels = json!({"constraint.ciena.com/latency-table": "enabled"});
        let table = json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "table", "namespace": system, "labels": labels},
            "data": {"rows": "n1,east,3ms\nn2,east,50ms\n"}});
        objects::apply_one(&plane.client, table).await?;
        let provider = Server::start(plane, "latency", &["provider", "latency"]).await?;
        // They come before the Service of the manifests, which has no pods here.
        for namespace in ["default", "shop"] {
            objects::provider(&plane.client, namespace, "p", provider.port, &["latency"]).await?;
        }
        let controller = Server::controller(plane, "controller", &[&flag]).await?;
        Ok(Self {
            kubeconfig: east.kubeconfig_without_files("peer")?,
            world,
            controller,
            provider,
            east,
        })
    }

    fn client(&self) -> &Client {
        &self.world.plane.client
    }

    /// Lets the account read the pods of a namespace of `east`.
    async fn let_in(&self, namespace: &str) {
        let rbac = "rbac.authorization.k8s.io";
        let name = "tautline-peer-reader";
        let account = "tautline-peer";
        let account = json!({"kind": "ServiceAccount", "namespace": account, "name": account});
        let binding = json!({"apiVersion": format!("{rbac}/v1"), "kind": "RoleBinding",
            "metadata": {"name": name, "namespace": namespace}, "subjects": [account],
            "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": name}});
        let applied = objects::apply_one(&self.east.client, binding).await;
        applied.unwrap();
    }

    /// Creates the pod `db` in a namespace of `east`, on a node with an address.
    async fn database(&self, namespace: &str) {
        let client = &self.east.client;
        objects::pod(client, namespace, "db", "db").await.unwrap();
        let ip = "198.51.100.7";
        let patch = Patch::Merge(json!({"status": {"hostIP": ip, "hostIPs": [{"ip": ip}]}}));
        let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
        let params = PatchParams::default();
        pods.patch_status("db", &params, &patch).await.unwrap();
    }

    /// Writes an offer that keeps pods labelled `app` near the pods `db` of a cluster.
    async fn offer(&self, namespace: &str, app: &str, cluster: &str) {
        let selector = |app: &str| json!({"matchLabels": {"app": app}});
        let targets = json!([
            {"name": "db", "kind": "Pod", "cluster": cluster, "labelSelector": selector("db")},
            {"name": "web", "kind": "Pod", "labelSelector": selector(app)},
        ]);
        let rule = json!({"name": "latency", "request": "5ms", "limit": "10ms"});
        let offer = json!({"targets": targets, "period": "1s"});
        let applied = objects::policy(self.client(), namespace, app, rule, offer).await;
        applied.unwrap();
    }

    async fn put(&self, name: &str, cluster: &str, kubeconfig: &str, grace: &str) {
        let secret = json!({"apiVersion": "v1", "kind": "Secret",
            "metadata": {"name": name, "namespace": CLUSTERS,
                "labels": {"tautline.io/cluster": cluster},
                "annotations": {"tautline.io/grace": grace}},
            "stringData": {"kubeconfig": kubeconfig}});
        objects::apply_one(self.client(), secret).await.unwrap();
    }

    async fn create(&self, namespace: &str, name: &str, app: &str) {
        let created = objects::pod(self.client(), namespace, name, app).await;
        created.unwrap();
    }

    /// Waits until a pod is bound, and returns its node.
    async fn bound(&self, namespace: &str, name: &str) -> String {
        let state = async || self.state().await;
        objects::wait_until_bound(self.client(), namespace, name, state).await
    }

    /// Waits until the condition of `NAMESPACE/OFFER` and the plans for its pods name this fault;
    /// `""`: until neither has one.
    async fn has_fault(&self, of: &str, fault: &str) {
        let (namespace, offer) = of.split_once('/').unwrap();
        let text = format!(": {fault}: ");
        let status = async || workloads::offer_status(self.client(), namespace, offer).await;
        let is_named = async || {
            let ready = status().await.conditions.into_iter().next()?;
            let is_named = ready.reason == UNAVAILABLE && ready.message.contains(&text);
            let is_ready = fault.is_empty() && ready.status == "True";
            (is_named || is_ready).then_some(())
        };
        let what = format!("the condition of {of} has the fault {fault:?}");
        let state = async || format!("{:?}\n{}", status().await, self.state().await);
        eventually(&what, PATIENCE, is_named, state).await;
        let is_planned = |rule: &Value| {
            let error = rule["error"].as_str().unwrap_or_default();
            let is_named = rule["outcome"] == UNAVAILABLE && error.contains(&text);
            is_named || fault.is_empty() && rule["outcome"] == "OK"
        };
        let extender = &self.world.extender;
        extender.wait_for_rules(namespace, offer, is_planned).await;
    }

    /// Waits until `web` has so many bindings, all with this compliance, and returns their names.
    async fn wait_for_bindings(&self, count: usize, compliance: &str) -> Vec<String> {
        let all_are = async || {
            let all = workloads::bindings(self.client(), "default", "web").await;
            let is_so = all.iter().all(|binding| {
                let status = binding.status.clone().unwrap_or_default();
                let is_error = status.first_reason.starts_with(UNAVAILABLE);
                compliance_of(binding) == compliance && is_error == (compliance == "Error")
            });
            (is_so && all.len() == count).then_some(all)
        };
        let what = format!("{count} bindings of web are {compliance}");
        let state = async || self.state().await;
        let all = eventually(&what, PATIENCE, all_are, state).await;
        all.iter().map(ResourceExt::name_any).collect()
    }

    async fn state(&self) -> String {
        let mut out = String::new();
        for binding in workloads::bindings(self.client(), "default", "web").await {
            out += &format!("{}: {:?}\n", binding.name_any(), binding.status);
        }
        let servers = [&self.world.extender, &self.controller, &self.provider];
        out.extend(servers.map(|server| server.process.tail()));
        out + &self.world.plane.logs() + &self.east.logs()
    }
}

#[tokio::test]
async fn pods_follow_pods_of_another_cluster_and_outlive_it_for_its_grace() {
    let mut clusters = Clusters::start().await.unwrap();
    pod_lands_near_the_other_cluster(&clusters).await;
    roles_allow_nothing_else(&clusters).await;
    faults_are_named_and_mended(&clusters).await;
    one_namespace_without_rights_stops_no_other(&clusters).await;
    outage_stops_no_other_pods(&mut clusters).await;
    silent_cluster_stops_no_start(&mut clusters).await;
}

async fn pod_lands_near_the_other_cluster(clusters: &Clusters) {
    clusters.let_in("default").await;
    clusters.database("default").await;
    clusters.offer("default", "web", "east").await;
    clusters.has_fault("default/web", "NoSecret").await;
    let kubeconfig = &clusters.kubeconfig;
    clusters.put("east", "east", kubeconfig, "1s").await;
    clusters.has_fault("default/web", "").await;
    // The pod has the name of its peer.
    clusters.create("default", "db", "web").await;
    assert_eq!(clusters.bound("default", "db").await, "n1");
    let names = clusters.wait_for_bindings(1, "Compliant").await;
    // FNV-1a of `east:default:v1:Pod:db:default:v1:Pod:db`.
    assert_eq!(names, ["web-75b88d75b8"]);
}

async fn roles_allow_nothing_else(clusters: &Clusters) {
    for account in ["extender", "controller"] {
        for (verb, name) in [
            ("get", ""),
            ("list", ""),
            ("watch", ""),
            ("get", "tautline-latency-echo"),
        ] {
            let what = format!("{verb} secrets tautline-system/{name}");
            let is_allowed = may(clusters.client(), account, &what).await;
            assert!(!is_allowed, "{account}: {what}");
        }
    }
    let peer = clusters.east.client_as("peer").await.unwrap();
    let pods: Api<Pod> = Api::all(peer.clone());
    let is_forbidden = |error: kube::Error| matches!(error, kube::Error::Api(e) if e.code == 403);
    let error = pods.list(&Default::default()).await.unwrap_err();
    assert!(is_forbidden(error));
    let secrets: Api<Secret> = Api::default_namespaced(peer);
    let error = secrets.list(&Default::default()).await.unwrap_err();
    assert!(is_forbidden(error));
}

/// The grace is short here, so each fault counts soon.
async fn faults_are_named_and_mended(clusters: &Clusters) {
    let good = &clusters.kubeconfig;
    let with_user = |user: Value| {
        let mut kubeconfig: Value = serde_json::from_str(good).unwrap();
        kubeconfig["users"][0]["user"] = user;
        kubeconfig.to_string()
    };
    let exec = json!({"apiVersion": "client.authentication.k8s.io/v1", "command": "/bin/true",
                      "interactiveMode": "Never"});
    let expired = with_user(json!({"token": "expired"}));
    let program = with_user(json!({"exec": exec}));
    let secrets: Api<Secret> = Api::namespaced(clusters.client().clone(), CLUSTERS);
    let params = DeleteParams::default();
    for (name, text, fault) in [
        ("east", Some(&expired), "Unauthorized"),
        ("east", Some(&program), "BadSecret"),
        ("twin", Some(good), "SeveralSecrets"),
        ("east", None, "NoSecret"),
    ] {
        match text {
            Some(text) => clusters.put(name, "east", text, "1s").await,
            None => _ = secrets.delete(name, &params).await.unwrap(),
        }
        clusters.has_fault("default/web", fault).await;
        if name == "twin" {
            secrets.delete(name, &params).await.unwrap();
        }
        clusters.put("east", "east", good, "1s").await;
        clusters.has_fault("default/web", "").await;
    }
}

async fn one_namespace_without_rights_stops_no_other(clusters: &Clusters) {
    clusters.database("shop").await;
    clusters.offer("shop", "web", "east").await;
    clusters.has_fault("shop/web", "Forbidden").await;
    clusters.has_fault("default/web", "").await;
    clusters.create("shop", "web-0", "web").await;
    clusters.let_in("shop").await;
    assert_eq!(clusters.bound("shop", "web-0").await, "n1");
}

async fn outage_stops_no_other_pods(clusters: &mut Clusters) {
    let kubeconfig = clusters.kubeconfig.clone();
    clusters.put("east", "east", &kubeconfig, "1h").await;
    let rule = json!({"name": "latency", "limit": "10ms"});
    let local = objects::policy(clusters.client(), "default", "local", rule, json!({})).await;
    local.unwrap();
    clusters.has_fault("default/local", "").await;
    clusters.has_fault("default/web", "").await;

    // Within the grace pods land as before.
    clusters.east.stop_apiserver();
    let away = r#"tautline_other_cluster_state{cluster="east",state="last_known"}"#;
    // Of the namespaces `default` and `shop`.
    clusters.world.extender.wait_for_metric(away, 2.0).await;
    clusters.controller.wait_for_metric(away, 2.0).await;
    clusters.create("default", "web-1", "web").await;
    assert_eq!(clusters.bound("default", "web-1").await, "n1");
    let before = clusters.wait_for_bindings(2, "Compliant").await;

    clusters.put("east", "east", &kubeconfig, "20s").await;
    clusters.has_fault("default/web", "Unreachable").await;
    clusters.create("default", "web-2", "web").await;
    let start = Instant::now();
    for (name, app) in [("plain", "plain"), ("local", "local")] {
        clusters.create("default", name, app).await;
        clusters.bound("default", name).await;
    }
    println!("two other pods are bound within {:?}", start.elapsed());
    let events = async || objects::events(clusters.client(), "default", "web-2").await;
    let waits = async || {
        let text = format!("2 latency/{UNAVAILABLE}");
        events().await.contains(&text).then_some(())
    };
    let state = async || events().await + &clusters.state().await;
    eventually("the event has the reason", PATIENCE, waits, state).await;
    let during = clusters.wait_for_bindings(3, "Error").await;
    assert!(before.iter().all(|name| during.contains(name)));

    clusters.east.start_apiserver().await.unwrap();
    assert_eq!(clusters.bound("default", "web-2").await, "n1");
    assert_eq!(clusters.wait_for_bindings(3, "Compliant").await, during);
    let pods: Api<Pod> = Api::default_namespaced(clusters.east.client.clone());
    pods.delete("db", &Default::default()).await.unwrap();
    clusters.wait_for_bindings(0, "Compliant").await;
}

/// An address takes connections, and never answers.
async fn silent_cluster_stops_no_start(clusters: &mut Clusters) {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut kubeconfig: Value = serde_json::from_str(&clusters.kubeconfig).unwrap();
    let server = format!("https://{}", silent.local_addr().unwrap());
    kubeconfig["clusters"][0]["cluster"]["server"] = json!(server);
    let kubeconfig = kubeconfig.to_string();
    clusters.put("west", "west", &kubeconfig, "1h").await;
    clusters.offer("default", "far", "west").await;
    clusters.world.extender.restart().await.unwrap();
    clusters.has_fault("default/far", "Unreachable").await;
    clusters.create("shop", "web-1", "web").await;
    assert_eq!(clusters.bound("shop", "web-1").await, "n1");
    // Its peer in `default` is gone.
    clusters.create("default", "web-3", "web").await;
    clusters.bound("default", "web-3").await;
}
