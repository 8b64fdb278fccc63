//! `tautline dispatch` with the real MultiKueue: Jobs of a manager cluster go to the worker cluster
//! where the rules place their pods best.
//!
//! No pod runs: the outcome is the workload that a worker cluster has admitted, and its Job there.

use std::net::{IpAddr, UdpSocket};

use anyhow::Result;
use k8s_openapi::api::{
    batch::v1::Job,
    core::v1::{Event, Pod},
};
use kube::{
    Api, Client, ResourceExt,
    api::{DynamicObject, ListParams, Patch, PatchParams},
    core::{ApiResource, GroupVersionKind},
};
use serde_json::{Value, json};
use tautline_tests::{
    PATIENCE,
    control_plane::{ControlPlane, skipped_on_oldest},
    eventually, objects, root,
    servers::Server,
};

/// The name of the queues, and of MultiKueue's check and configuration.
const NAME: &str = "jobs";
/// The namespace of the dispatcher's own kubeconfigs.
const SECRETS: &str = "tautline-dispatch";
const SYSTEM: &str = "tautline-system";
const EXTENDER: &str = "tautline-extender";
/// The cost of 15 ms, in microseconds.
const COST_OF_WEST: i64 = 15_000;

fn resource(kind: &str) -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk("kueue.x-k8s.io", "v1beta2", kind))
}

/// Applies an object of Kueue, in the default namespace if it is in one.
async fn apply(client: &Client, kind: &str, name: &str, spec: Value) -> Result<()> {
    let object = json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind,
                        "metadata": {"name": name}, "spec": spec});
    objects::apply_one(client, object).await
}

async fn wait_until_active(plane: &ControlPlane, kind: &str, name: &str) {
    let api: Api<DynamicObject> = Api::all_with(plane.client.clone(), &resource(kind));
    let conditions = async || {
        let object = api.get(name).await.ok()?;
        object.data["status"]["conditions"].as_array().cloned()
    };
    let check = async || {
        let is_active = |of: &Value| of["type"] == "Active" && of["status"] == "True";
        conditions().await?.iter().any(is_active).then_some(())
    };
    let state = async || format!("{:?}\n{}", conditions().await, plane.logs());
    eventually(&format!("{kind} {name} is active"), PATIENCE, check, state).await;
}

/// Applies a queue with quota for so many CPUs, and fields of the ClusterQueue.
async fn queue(client: &Client, cpus: u32, fields: Value) -> Result<()> {
    let quota = json!([{"name": "cpu", "nominalQuota": cpus}]);
    let flavors = json!([{"name": NAME, "resources": quota}]);
    let group = json!({"coveredResources": ["cpu"], "flavors": flavors});
    let mut spec = json!({"namespaceSelector": {}, "resourceGroups": [group]});
    if let (Some(spec), Value::Object(fields)) = (spec.as_object_mut(), fields) {
        spec.extend(fields);
    }
    apply(client, "ResourceFlavor", NAME, json!({})).await?;
    apply(client, "ClusterQueue", NAME, spec).await?;
    apply(client, "LocalQueue", NAME, json!({"clusterQueue": NAME})).await
}

/// The roles of a file of `deploy/with-dispatch`.
fn roles(file: &str) -> Result<String> {
    Ok(std::fs::read_to_string(
        root().join("deploy/with-dispatch").join(file),
    )?)
}

/// Returns an address of this machine that is not on loopback, if it has one.
fn outer_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    // This sends nothing: it chooses the interface.
    socket.connect("192.0.2.1:9").ok()?;
    let ip = socket.local_addr().ok()?.ip();
    (!ip.is_loopback() && !ip.is_unspecified()).then_some(ip)
}

/// A worker cluster of two nodes, with an offer that keeps pods labelled `train` near the database.
struct Worker {
    name: &'static str,
    plane: ControlPlane,
    extender: Server,
    provider: Server,
}

impl Worker {
    /// Starts the cluster, with quota for so many CPUs and this endpoint of the database.
    async fn start(name: &'static str, at: IpAddr, cpus: u32, endpoint: Value) -> Result<Self> {
        let mut plane = ControlPlane::start().await?;
        let client = plane.client.clone();
        objects::apply_kustomization(&client, &root().join("deploy")).await?;
        for i in [1, 2] {
            objects::node(&client, &format!("{}{i}", &name[..1]), json!({})).await?;
        }
        let slice = json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": {"name": "db-1", "namespace": "default",
                "labels": {"kubernetes.io/service-name": "db", "app": "db"}},
            "addressType": "IPv4", "ports": [{"port": 5432}], "endpoints": [endpoint]});
        objects::apply_one(&client, slice).await?;
        let args = ["provider", "latency"];
        let provider = Server::start(&plane, "latency", &args).await?;
        objects::provider(&client, "default", "p", provider.port, &["latency"]).await?;
        let target = |name: &str, kind: &str| {
            json!({"name": name, "apiVersion": "v1", "kind": kind,
                   "labelSelector": {"matchLabels": {"app": name}}})
        };
        let near = json!({"targets": [target("train", "Pod"), target("db", "Endpoint")]});
        let rule = json!({"name": "latency", "request": "1ms", "limit": "20ms"});
        objects::policy(&client, "default", "train", rule, near).await?;
        let (extender, _) = Server::extender(&plane, &["--admin=0.0.0.0"]).await?;
        publish(&client, at, extender.admin).await?;
        plane.start_kueue(json!({})).await?;
        objects::apply(&client, &roles("worker.yaml")?).await?;
        queue(&client, cpus, json!({})).await?;
        let worker = Self {
            name,
            plane,
            extender,
            provider,
        };
        wait_until_active(&worker.plane, "ClusterQueue", NAME).await;
        Ok(worker)
    }

    /// Writes the latency table.
    async fn table(&self, rows: &str) {
        let table = json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "table", "namespace": "default",
                "labels": {"constraint.ciena.com/latency-table": "enabled"}},
            "data": {"rows": rows}});
        objects::apply_one(&self.plane.client, table).await.unwrap();
    }

    /// Waits until the best node for a pod labelled `train`, asked for as the dispatcher asks,
    /// passes `check`.
    async fn wait_for_best(&self, what: &str, check: impl Fn(&Value) -> bool) {
        // The dispatcher's account in this cluster.
        let client = self.plane.client_as("worker-dispatch").await.unwrap();
        let service = format!("services/http:{EXTENDER}:admin");
        let path = format!("/api/v1/namespaces/{SYSTEM}/{service}/proxy/what-if");
        let metadata = json!({"namespace": "default", "labels": {"app": "train"}});
        let question = json!({"pod": {"metadata": metadata, "spec": {"containers": []}}});
        let ask = async || objects::post(&client, &path, &question).await;
        let passes = async || {
            let answer = ask().await.ok()?.body;
            (answer["governed"] == true && check(&answer["nodes"][0])).then_some(())
        };
        let state = async || format!("{:?}\n{}", ask().await, self.state());
        eventually(&format!("{}: {what}", self.name), PATIENCE, passes, state).await;
    }

    /// The number of what-ifs that the extender has answered.
    async fn what_ifs(&self) -> f64 {
        let name = "tautline_extender_requests_total{verb=\"what-if\"";
        self.extender.metric(name).await
    }

    async fn has_job(&self, name: &str) -> bool {
        let jobs: Api<Job> = Api::default_namespaced(self.plane.client.clone());
        jobs.get_opt(name).await.unwrap().is_some()
    }

    fn state(&self) -> String {
        let servers = self.extender.process.tail() + &self.provider.process.tail();
        format!("=== {}\n{servers}{}", self.name, self.plane.logs())
    }
}

/// Makes the extender's admin port known as that of a pod: the API server's proxy takes only
/// addresses of pods, and none on loopback.
async fn publish(client: &Client, at: IpAddr, port: u16) -> Result<()> {
    let replica = "tautline-extender-0";
    let container = json!({"name": "tautline", "image": "example.com/tautline:1",
        "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}}});
    let profile = json!({"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}});
    let pod = json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": replica, "namespace": SYSTEM},
        "spec": {"securityContext": profile, "automountServiceAccountToken": false,
                 "containers": [container]}});
    objects::apply_one(client, pod).await?;
    let status = json!({"phase": "Running", "podIP": at, "podIPs": [{"ip": at}],
                        "conditions": [{"type": "Ready", "status": "True"}]});
    let patch = Patch::Merge(json!({"status": status}));
    let pods: Api<Pod> = Api::namespaced(client.clone(), SYSTEM);
    let params = PatchParams::default();
    pods.patch_status(replica, &params, &patch).await?;
    let reference = json!({"kind": "Pod", "namespace": SYSTEM, "name": replica});
    let subset = json!({"addresses": [{"ip": at, "targetRef": reference}],
                        "ports": [{"name": "admin", "port": port}]});
    let endpoints = json!({"apiVersion": "v1", "kind": "Endpoints",
        "metadata": {"name": EXTENDER, "namespace": SYSTEM}, "subsets": [subset]});
    objects::apply_one(client, endpoints).await
}

/// Starts the manager cluster, with the dispatcher's roles.
async fn start_manager() -> Result<ControlPlane> {
    let mut plane = ControlPlane::start().await?;
    let kueue = json!({"multiKueue": {"dispatcherName": "tautline.io/dispatcher",
                                      "gcInterval": "1s"}});
    plane.start_kueue(kueue).await?;
    for name in [SYSTEM, SECRETS] {
        let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        objects::apply_one(&plane.client, object).await?;
    }
    // Kueue's Secrets have more rights in the workers, so the dispatcher reads Secrets of its own.
    let own = format!("namespace: {SECRETS}");
    let roles = roles("manager.yaml")?.replace("namespace: kueue-system", &own);
    objects::apply(&plane.client, &roles).await?;
    Ok(plane)
}

async fn put_kubeconfig(client: &Client, namespace: &str, of: &str, text: &str) -> Result<()> {
    let secret = json!({"apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": format!("{of}-kubeconfig"), "namespace": namespace},
        "stringData": {"kubeconfig": text}});
    objects::apply_one(client, secret).await
}

/// Connects MultiKueue and the dispatcher to the workers, each with an account of its own.
async fn connect(manager: &ControlPlane, workers: [&Worker; 2]) -> Result<()> {
    let client = &manager.client;
    for worker in workers {
        let secret = format!("{}-kubeconfig", worker.name);
        for (namespace, user) in [("kueue-system", "admin"), (SECRETS, "worker-dispatch")] {
            let kubeconfig = worker.plane.kubeconfig_without_files(user)?;
            put_kubeconfig(client, namespace, worker.name, &kubeconfig).await?;
        }
        let source = json!({"kubeConfig": {"location": secret, "locationType": "Secret"}});
        let spec = json!({"clusterSource": source});
        apply(client, "MultiKueueCluster", worker.name, spec).await?;
    }
    let names = workers.map(|worker| worker.name);
    apply(client, "MultiKueueConfig", NAME, json!({"clusters": names})).await?;
    let config = json!({"apiGroup": "kueue.x-k8s.io", "kind": "MultiKueueConfig", "name": NAME});
    let check = json!({"controllerName": "kueue.x-k8s.io/multikueue", "parameters": config});
    apply(client, "AdmissionCheck", NAME, check).await?;
    let checks = json!({"admissionChecksStrategy": {"admissionChecks": [{"name": NAME}]}});
    queue(client, 1000, checks).await?;
    for name in names {
        wait_until_active(manager, "MultiKueueCluster", name).await;
    }
    wait_until_active(manager, "AdmissionCheck", NAME).await;
    wait_until_active(manager, "ClusterQueue", NAME).await;
    Ok(())
}

struct Clusters {
    manager: ControlPlane,
    dispatcher: Server,
    east: Worker,
    west: Worker,
}

impl Clusters {
    /// Starts all. East has quota for one Job, and the database at a node; West is far from it.
    async fn start(at: IpAddr) -> Result<Self> {
        let at_node = json!({"addresses": ["10.0.0.1"], "nodeName": "e1"});
        let outside = json!({"addresses": ["198.51.100.7"]});
        let (manager, east, west) = tokio::try_join!(
            start_manager(),
            Worker::start("east", at, 2, at_node),
            Worker::start("west", at, 1000, outside),
        )?;
        east.table("e1,e2,5ms\n").await;
        let is_near = |best: &Value| best["node"] == "e1" && best["costs"][0]["cost"].is_number();
        east.wait_for_best("the best node is e1", is_near).await;
        west.table("w1,db,15ms\nw2,db,15ms\n").await;
        let is_far =
            |best: &Value| best["usable"] == true && best["costs"][0]["cost"] == COST_OF_WEST;
        west.wait_for_best("15 ms to the database", is_far).await;
        connect(&manager, [&east, &west]).await?;
        let secrets = format!("--secret-namespace={SECRETS}");
        let args = ["--round=10s", "--retry=2s", &secrets];
        let dispatcher = Server::dispatcher(&manager, &args).await?;
        Ok(Self {
            manager,
            dispatcher,
            east,
            west,
        })
    }

    /// Creates a Job of two pods labelled `app` in the manager's queue.
    async fn submit(&self, name: &str, app: &str) {
        let container = json!({"name": "main", "image": "example.com/app:1",
                               "resources": {"requests": {"cpu": "1"}}});
        let template = json!({"metadata": {"labels": {"app": app}},
            "spec": {"restartPolicy": "Never", "automountServiceAccountToken": false,
                     "containers": [container]}});
        let job = json!({"apiVersion": "batch/v1", "kind": "Job",
            "metadata": {"name": name, "namespace": "default",
                         "labels": {"kueue.x-k8s.io/queue-name": NAME}},
            "spec": {"parallelism": 2, "completions": 2, "template": template,
                     "managedBy": "kueue.x-k8s.io/multikueue"}});
        objects::apply_one(&self.manager.client, job).await.unwrap();
    }

    /// The workload of a Job in the manager.
    async fn workload(&self, job: &str) -> Option<DynamicObject> {
        let client = self.manager.client.clone();
        let api: Api<DynamicObject> = Api::default_namespaced_with(client, &resource("Workload"));
        let all = api.list(&ListParams::default()).await.ok()?;
        all.items.into_iter().find(|workload| {
            let mut owners = workload.owner_references().iter();
            owners.any(|owner| owner.name == job)
        })
    }

    /// Waits until the workload of a Job passes `check`, and returns its status.
    async fn wait_for(&self, job: &str, what: &str, check: impl Fn(&Value) -> bool) -> Value {
        let passes = async || {
            let status = self.workload(job).await?.data["status"].take();
            check(&status).then_some(status)
        };
        let what = format!("the Job {job} {what}");
        let state = async || self.state(job).await;
        eventually(&what, PATIENCE, passes, state).await
    }

    /// Waits until a Job has gone to a worker cluster, and only there.
    async fn goes_to(&self, job: &str, cluster: &str) {
        let there = |status: &Value| status["clusterName"] == cluster;
        let what = format!("goes to {cluster}");
        let status = self.wait_for(job, &what, there).await;
        assert!(status["nominatedClusterNames"].is_null(), "{status}");
        let (there, elsewhere) = match cluster == self.east.name {
            true => (&self.east, &self.west),
            false => (&self.west, &self.east),
        };
        let created = async || there.has_job(job).await.then_some(());
        let what = format!("the Job {job} is created in {cluster}");
        eventually(&what, PATIENCE, created, async || self.state(job).await).await;
        assert!(!elsewhere.has_job(job).await, "{job} in {}", elsewhere.name);
    }

    /// Waits for an event that says why no cluster takes a Job.
    async fn waits_because(&self, job: &str, parts: &[&str]) {
        let client = self.manager.client.clone();
        let events: Api<Event> = Api::default_namespaced(client);
        let params = ListParams::default().fields("reason=NoCluster,type=Warning");
        let check = async || {
            let workload = self.workload(job).await?.metadata.name;
            let all = events.list(&params).await.ok()?;
            let mut of_job = all.items.into_iter();
            of_job.find(|event| {
                let text = event.message.as_deref().unwrap_or_default();
                let tells = parts.iter().all(|part| text.contains(part));
                tells && event.involved_object.name == workload
            })
        };
        let what = format!("an event says why the Job {job} waits");
        let state = async || self.state(job).await;
        eventually(&what, PATIENCE, check, state).await;
    }

    /// The state for a failed step about a Job.
    async fn state(&self, job: &str) -> String {
        let found = self.workload(job).await;
        let workload = found.map(|of| (of.name_any(), of.data.to_string()));
        let (name, data) = workload.unwrap_or_default();
        let events = objects::events(&self.manager.client, "default", &name).await;
        [
            format!("{name}: {data}\n{events}"),
            self.dispatcher.process.tail(),
            self.manager.logs(),
            self.east.state(),
            self.west.state(),
        ]
        .concat()
    }
}

#[tokio::test]
async fn jobs_go_to_the_cluster_where_the_rules_place_them_best() {
    if skipped_on_oldest("Kueue") {
        return;
    }
    let Some(address) = outer_address() else {
        println!("skipped: the API server's proxy needs an address that is not on loopback");
        return;
    };
    let mut clusters = Clusters::start(address).await.unwrap();
    clusters.submit("first", "train").await;
    clusters.goes_to("first", "east").await;

    // East is full now, so West gets its chance after the round.
    clusters.submit("second", "train").await;
    clusters.goes_to("second", "west").await;

    // Beyond the limit, West gets none, and the Job waits for East.
    let west = &clusters.west;
    west.table("w1,db,80ms\nw2,db,80ms\n").await;
    let is_beyond = |best: &Value| best["reason"] == "latency/OverLimit";
    west.wait_for_best("beyond the limit", is_beyond).await;
    clusters.submit("third", "train").await;
    let only_east = |status: &Value| status["nominatedClusterNames"] == json!(["east"]);
    let what = "is nominated for East";
    clusters.wait_for("third", what, only_east).await;
    let answered = west.what_ifs().await;
    let again = async || (west.what_ifs().await >= answered + 2.0).then_some(());
    let state = async || clusters.state("third").await;
    eventually("West is asked again", PATIENCE, again, state).await;
    let still = "is nominated for East only";
    clusters.wait_for("third", still, only_east).await;
    let east = &clusters.east.plane.client;
    queue(east, 1000, json!({})).await.unwrap();
    clusters.goes_to("third", "east").await;

    // East does not answer, and West refuses: the event has both reasons.
    clusters.east.extender.process.kill();
    clusters.submit("fourth", "train").await;
    let reasons = ["east: NotReady", "OverLimit"];
    clusters.waits_because("fourth", &reasons).await;
    // The account in West expires, then its kubeconfig is broken; both are named.
    let client = clusters.manager.client.clone();
    let good = clusters
        .west
        .plane
        .kubeconfig_without_files("worker-dispatch");
    let good = good.unwrap();
    let mut expired: Value = serde_json::from_str(&good).unwrap();
    expired["users"][0]["user"] = json!({"token": "expired"});
    for (text, reason) in [
        (expired.to_string().as_str(), "west: Unauthorized"),
        ("no kubeconfig", "west: BadKubeconfig"),
    ] {
        put_kubeconfig(&client, SECRETS, "west", text)
            .await
            .unwrap();
        clusters
            .waits_because("fourth", &["east: NotReady", reason])
            .await;
    }
    put_kubeconfig(&client, SECRETS, "west", &good)
        .await
        .unwrap();

    // Pods without an offer need no rule's consent.
    clusters.submit("fifth", "other").await;
    clusters.goes_to("fifth", "west").await;
    clusters.east.extender.restart().await.unwrap();
    clusters.goes_to("fourth", "east").await;
}
