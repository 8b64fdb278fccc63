//! A user who may edit one namespace cannot change the pods, bindings, placements and timing of
//! other namespaces.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{Ipv4Addr, TcpListener},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client};
use serde_json::{Value, json};
use tautline_runtime::tasks::Tasks;
use tautline_sdk::{
    Allocator, AllocatorError, CostAnswer, CostRequest, Evaluation, EvaluationRequest,
    ProviderError, ReservationRef, ReservationRequest, Reserved, RuleProvider,
    Server as ProviderServer, testkit,
};
use tautline_tests::{
    PATIENCE, control_plane::ControlPlane, eventually, objects, root, servers::Server, workloads,
};

use crate::{
    governed_cluster::{GovernedCluster, compliance_of, for_a_while},
    node_judge::NodeJudge,
};

const TENANT: &str = "tenant";
const TRUSTED: &str = "--provider-namespaces=tautline-system";
/// Number of the tenant's Services that accept connections and never answer.
const BLACK_HOLES: u8 = 60;

/// A provider with harmful answers, which records the namespaces in its requests.
#[derive(Clone, Default)]
struct HostileProvider(Arc<Mutex<Vec<String>>>);

impl HostileProvider {
    fn record(&self, namespace: String) {
        self.0.lock().unwrap().push(namespace);
    }
}

impl RuleProvider for HostileProvider {
    async fn endpoint_cost(&self, request: CostRequest) -> Result<CostAnswer, ProviderError> {
        self.record(request.source.namespace);
        let mut answer = CostAnswer::default();
        for node in request.eligible_nodes {
            match node.as_str() {
                "n1" => answer.unusable(node, "Mine", "", false),
                _ => answer.usable(node, 1, ""),
            }
        }
        Ok(answer)
    }

    async fn evaluate(&self, request: EvaluationRequest) -> Result<Evaluation, ProviderError> {
        request
            .targets
            .into_values()
            .for_each(|t| self.record(t.namespace));
        Ok(Evaluation::violation("move it"))
    }
}

impl Allocator for HostileProvider {
    async fn reserve(&self, request: ReservationRequest) -> Result<Reserved, AllocatorError> {
        self.record(request.workload.namespace);
        let annotations = [("team", "mine"), ("tautline.io/gpu-devices", "0:1000")];
        let annotations = annotations.map(|(k, v)| (k.to_owned(), v.to_owned()));
        Ok(Reserved {
            id: "r".into(),
            annotations: BTreeMap::from(annotations),
            expires: None,
        })
    }

    async fn confirm(&self, _: ReservationRef) -> Result<(), AllocatorError> {
        Ok(())
    }

    async fn release(&self, _: ReservationRef) -> Result<(), AllocatorError> {
        Ok(())
    }
}

/// Serves it while the test runs; returns its port.
async fn serve(hostile: &HostileProvider) -> u16 {
    let server = ProviderServer::bind(testkit::loopback()).await.unwrap();
    let port = server.address().port();
    let mut tasks = Tasks::default();
    let both = Arc::new(hostile.clone());
    let launched = server.spawn_with_allocator(Arc::clone(&both), both, &mut tasks);
    launched.unwrap();
    tokio::spawn(tasks.run(std::future::pending()));
    port
}

struct SharedCluster {
    plane: ControlPlane,
    extender: Server,
    controller: Server,
    latency: Server,
    /// Allowed to edit the namespace `tenant`, and to write policies there.
    tenant: Client,
}

impl SharedCluster {
    /// Victims in `default` with a rule of the trusted `judge` and the real `latency`.
    async fn start() -> Self {
        let mut plane = ControlPlane::start().await.unwrap();
        let client = plane.client.clone();
        let deploy = root().join("deploy");
        let applied = objects::apply_kustomization_except(&client, &deploy, &["Deployment"]).await;
        applied.unwrap();
        let role = std::fs::read_to_string(deploy.join("with-bind/role.yaml")).unwrap();
        objects::apply(&client, &role).await.unwrap();
        plane.start_kwok().await.unwrap();
        plane.start_controller_manager().await.unwrap();
        for node in ["n1", "n2", "s1"] {
            objects::node(&client, node, json!({})).await.unwrap();
        }
        let latency = Server::start(&plane, "latency", &["provider", "latency"]).await;
        let latency = latency.unwrap();
        let ours = "tautline-system";
        // Before the Service of deploy, which has no pods here.
        let table = json!({"apiVersion": "v1", "kind": "Service",
            "metadata": {"name": "table", "namespace": ours,
                "labels": {"constraint.ciena.com/constraint-latency": "enabled"},
                "annotations": {"constraint.ciena.com/priority": "1"}},
            "spec": {"type": "ExternalName", "externalName": "127.0.0.1",
                "ports": [{"name": "ruleprovider", "port": latency.port}]}});
        objects::apply_one(&client, table).await.unwrap();
        self::table(&client, ours, "n1,s1,1ms\nn2,s1,9ms\ns1,s1,1ms\n").await;
        let tenant = plane.client_as("tenant").await.unwrap();
        let (extender, ca) = Server::extender(&plane, &["--bind", TRUSTED])
            .await
            .unwrap();
        let url = format!("https://127.0.0.1:{}", extender.port);
        let sample = Some(("all-pods.yaml", url.as_str(), ca.as_path()));
        plane.start_scheduler(sample).await.unwrap();
        let controller = Server::controller(&plane, "controller", &[TRUSTED])
            .await
            .unwrap();
        let shared = Self {
            plane,
            extender,
            controller,
            latency,
            tenant,
        };
        shared.let_the_tenant_in().await;
        shared
    }

    fn client(&self) -> &Client {
        &self.plane.client
    }

    fn state(&self) -> String {
        self.extender.process.tail()
            + &self.controller.process.tail()
            + &self.latency.process.tail()
            + &self.plane.logs()
    }

    async fn let_the_tenant_in(&self) {
        let rbac = "rbac.authorization.k8s.io";
        let api = format!("{rbac}/v1");
        let tina = json!([{"apiGroup": rbac, "kind": "User", "name": "tina"}]);
        let bound = |role: &str, kind: &str| {
            json!({"apiVersion": api, "kind": "RoleBinding",
                "metadata": {"name": role, "namespace": TENANT}, "subjects": tina,
                "roleRef": {"apiGroup": rbac, "kind": kind, "name": role}})
        };
        for object in [
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": TENANT}}),
            json!({"apiVersion": api, "kind": "Role",
                "metadata": {"name": "policies", "namespace": TENANT},
                "rules": [{"apiGroups": ["constraint.ciena.com"], "verbs": ["*"],
                    "resources": ["constraintpolicies", "constraintpolicyoffers"]}]}),
            bound("policies", "Role"),
            bound("edit", "ClusterRole"),
        ] {
            objects::apply_one(self.client(), object).await.unwrap();
        }
        let services: Api<k8s_openapi::api::core::v1::Service> =
            Api::namespaced(self.tenant.clone(), TENANT);
        let may = async || services.list(&Default::default()).await.ok();
        let state = async || self.state();
        eventually("the tenant may edit their namespace", PATIENCE, may, state).await;
        let elsewhere: Api<Pod> = Api::default_namespaced(self.tenant.clone());
        assert!(elsewhere.list(&Default::default()).await.is_err());
    }

    /// Places ungoverned pods one after the other; returns the mean time.
    async fn ungoverned(&self, prefix: &str) -> Duration {
        const PODS: u32 = 60;
        let pods: Api<Pod> = Api::default_namespaced(self.client().clone());
        let begun = Instant::now();
        for i in 0..PODS {
            let name = format!("{prefix}-{i}");
            objects::pod(self.client(), "default", &name, "plain")
                .await
                .unwrap();
            let deadline = Instant::now() + PATIENCE * 3;
            while pods
                .get(&name)
                .await
                .unwrap()
                .spec
                .unwrap()
                .node_name
                .is_none()
            {
                assert!(
                    Instant::now() < deadline,
                    "{name} has no node\n{}",
                    self.state()
                );
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        }
        begun.elapsed() / PODS
    }

    /// Places a governed pod; returns its node and annotations.
    async fn governed(&self, name: &str) -> (String, BTreeMap<String, String>) {
        objects::pod(self.client(), "default", name, "web")
            .await
            .unwrap();
        let node =
            objects::wait_until_bound(self.client(), "default", name, async || self.state()).await;
        let pods: Api<Pod> = Api::default_namespaced(self.client().clone());
        let pod = pods.get(name).await.unwrap();
        (node, pod.metadata.annotations.unwrap_or_default())
    }

    async fn compliant(&self) {
        let condition = async || {
            let bindings = workloads::bindings(self.client(), "default", "web").await;
            let stand = bindings.iter().all(|b| compliance_of(b) == "Compliant");
            (!bindings.is_empty() && stand).then_some(())
        };
        let state = async || {
            let bindings = workloads::bindings(self.client(), "default", "web").await;
            let status = bindings.iter().map(|b| format!("{:?}\n", b.status));
            status.collect::<String>() + &self.state()
        };
        eventually("the victims are compliant", PATIENCE, condition, state).await;
    }
}

async fn table(client: &Client, namespace: &str, lines: &str) {
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "far", "namespace": namespace,
            "labels": {"constraint.ciena.com/latency-table": "enabled"}},
        "data": {"t": lines}});
    objects::apply_one(client, map).await.unwrap();
}

/// A Service of the tenant with every label and annotation that could attract calls.
fn service(name: &str, host: &str, port: u16, rules: &[&str]) -> Value {
    let label = |rule: &&str| (format!("constraint.ciena.com/constraint-{rule}"), "enabled");
    let mut labels: BTreeMap<String, &str> = rules.iter().map(label).collect();
    labels.insert("constraint.ciena.com/underlay-controller".into(), "enabled");
    json!({"apiVersion": "v1", "kind": "Service",
        "metadata": {"name": name, "namespace": TENANT, "labels": labels, "annotations": {
            "constraint.ciena.com/priority": i64::MAX.to_string(),
            "constraint.ciena.com/allocator": "enabled"}},
        "spec": {"type": "ExternalName", "externalName": host,
            "ports": [{"name": "ruleprovider", "port": port}]}})
}

/// Pods of the tenant that wait for a rule without a provider, so that kube-scheduler tries
/// them again and again.
async fn waiting_pods(tenant: &Client) {
    for i in 1..=BLACK_HOLES {
        let name = format!("hole-{i}");
        let offer = json!({"providerUnavailable": "Reject"});
        let made = objects::policy(tenant, TENANT, &name, json!({"name": name}), offer).await;
        made.unwrap();
        objects::pod(tenant, TENANT, &name, &name).await.unwrap();
    }
}

/// Providers for these rules that accept connections and never answer.
async fn black_holes(tenant: &Client) -> Vec<TcpListener> {
    let mut listeners = Vec::new();
    for i in 1..=BLACK_HOLES {
        let host = Ipv4Addr::new(127, 0, 1, i);
        let listener = TcpListener::bind((host, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        listeners.push(listener);
        let name = format!("hole-{i}");
        let mut hole = service(&name, &host.to_string(), port, &[&name]);
        hole["metadata"]["annotations"] = json!({});
        objects::apply_one(tenant, hole).await.unwrap();
    }
    listeners
}

#[tokio::test]
async fn tenant_cannot_affect_other_namespaces() {
    let shared = SharedCluster::start().await;
    let client = shared.client();
    let judge = NodeJudge::new(client, &[("n1", 1), ("n2", 5), ("s1", 9)]);
    let running = testkit::start(judge.clone()).await.unwrap();
    let port = running.address.port();
    let made = objects::provider(client, "tautline-system", "judge", port, &["near"]).await;
    made.unwrap();
    let peer = json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "server", "namespace": "default", "labels": {"app": "server"}},
        "spec": {"nodeName": "s1", "containers": [{"name": "main", "image": "example.com/app:1"}]}});
    objects::apply_one(client, peer).await.unwrap();
    let target = |name: &str, app: &str| {
        json!({"name": name, "apiVersion": "v1", "kind": "Pod",
            "labelSelector": {"matchLabels": {"app": app}}})
    };
    let offer = json!({"targets": [target("client", "web"), target("server", "server")],
        "period": "1s", "violationPolicy": "Evict"});
    let made = objects::policy(client, "default", "web", json!({"name": "near"}), offer).await;
    made.unwrap();
    let policy = json!({"apiVersion": "constraint.ciena.com/v1alpha1", "kind": "ConstraintPolicy",
        "metadata": {"name": "web", "namespace": "default"}, "spec": {"rules": [
            {"name": "near"}, {"name": "latency", "request": "5ms", "limit": "20ms"}]}});
    objects::apply_one(client, policy).await.unwrap();
    let both = |rule: &Value| rule["provider"].is_string();
    shared.extender.wait_for_rules("default", "web", both).await;

    assert_eq!(shared.governed("before").await.0, "n1");
    shared.compliant().await;
    let quiet = shared.ungoverned("quiet").await;

    let hostile = HostileProvider::default();
    let port = serve(&hostile).await;
    let loud = service("loud", "127.0.0.1", port, &["near", "latency", "mine"]);
    objects::apply_one(&shared.tenant, loud).await.unwrap();
    table(&shared.tenant, TENANT, "n1,s1,500ms\nn2,s1,1us\n").await;
    waiting_pods(&shared.tenant).await;
    let waiting = shared.ungoverned("waiting").await;
    let holes = black_holes(&shared.tenant).await;
    // All of them are retried at once, as their reasons change.
    let begun = shared.ungoverned("begun").await;
    let attacked = shared.ungoverned("attacked").await;
    println!(
        "an ungoverned pod: {quiet:?}, {waiting:?} with {BLACK_HOLES} waiting pods, {begun:?} \
         as black holes begin to answer for them, {attacked:?} from then on"
    );
    // Twice is the goal; a loaded machine may take longer. It was 30 s.
    let most = quiet * 4 + Duration::from_secs(1);
    assert!(
        attacked < most,
        "{attacked:?}, {quiet:?} before\n{}",
        shared.state()
    );

    for name in ["after-0", "after-1", "after-2"] {
        let (node, annotations) = shared.governed(name).await;
        assert_eq!(node, "n1", "{name}\n{}", shared.state());
        assert!(annotations.is_empty(), "{name}: {annotations:?}");
    }
    for_a_while(Duration::from_secs(4), async || {
        let bindings = workloads::bindings(client, "default", "web").await;
        for binding in &bindings {
            let stands = compliance_of(binding);
            let fine = ["Compliant", "Pending"].contains(&stands.as_str());
            assert!(fine, "{stands}: {:?}\n{}", binding.status, shared.state());
        }
    })
    .await;
    shared.compliant().await;
    let pods = workloads::pods_of(client, "default", "web").await;
    assert_eq!(pods.len(), 4, "no pod was evicted");
    let namespaces = hostile.0.lock().unwrap().clone();
    assert!(
        namespaces.iter().all(|namespace| namespace == TENANT),
        "{namespaces:?}"
    );

    binds(&shared).await;
    paths(&shared).await;
    drop(holes);
}

/// A target's apiVersion becomes a request of the controller: a path in it is refused.
async fn paths(shared: &SharedCluster) {
    let url =
        format!("/apis/constraint.ciena.com/v1alpha1/namespaces/{TENANT}/constraintpolicyoffers");
    for version in ["v1/namespaces/kube-system/secrets?x=", "../../v1", "v1/x/y"] {
        let offer = json!({"apiVersion": "constraint.ciena.com/v1alpha1",
            "kind": "ConstraintPolicyOffer", "metadata": {"name": "oracle"},
            "spec": {"policies": ["hole-1"], "targets": [{"kind": "NetworkService",
                "apiVersion": version, "labelSelector": {}}]}});
        let response = objects::post(&shared.tenant, &url, &offer).await.unwrap();
        assert_eq!(response.status, 422, "{version}: {response:?}");
    }
}

/// A client other than kube-scheduler cannot bind a pod to a node that filter did not return, nor
/// reach another path.
async fn binds(shared: &SharedCluster) {
    let (_, uid) = {
        let pods: Api<Pod> = Api::default_namespaced(shared.client().clone());
        shared.governed("late").await;
        let pod = pods.get("late").await.unwrap();
        (pod.metadata.name, pod.metadata.uid.unwrap())
    };
    let url = format!("https://127.0.0.1:{}/bind", shared.extender.port);
    let bind = async |pod: &str, node: &str| {
        let body = json!({"PodName": pod, "PodNamespace": "default", "PodUID": uid, "Node": node});
        tautline_tests::servers::insecure_post(&url, body.to_string().as_bytes()).await
    };
    let answer = bind("late", "n9").await.unwrap();
    assert!(
        answer.contains("node n9 is not in filter's answer"),
        "{answer}"
    );
    let answer = bind("../../secrets", "n1").await;
    let answer = answer.unwrap_or_else(|e| e.to_string());
    assert!(
        answer.contains("400") || answer.contains("is not the name"),
        "{answer}"
    );
}

/// A provider whose answer about a binding is each time the other one than before, however busy the
/// machine is.
#[derive(Clone, Default)]
struct FlappingProvider(Arc<Mutex<BTreeSet<String>>>);

impl RuleProvider for FlappingProvider {
    async fn endpoint_cost(&self, request: CostRequest) -> Result<CostAnswer, ProviderError> {
        let mut answer = CostAnswer::default();
        for node in request.eligible_nodes {
            answer.usable(node, 1, "");
        }
        Ok(answer)
    }

    async fn evaluate(&self, request: EvaluationRequest) -> Result<Evaluation, ProviderError> {
        let targets = format!("{:?}", request.targets);
        let mut good = self.0.lock().unwrap();
        if good.remove(&targets) {
            return Ok(Evaluation::violation("now it is bad"));
        }
        good.insert(targets);
        Ok(Evaluation::compliant("now it is good"))
    }
}

/// The tenant's provider flaps on over a thousand bindings. Others' changes are seen meanwhile, with
/// their events, and the tenant's bindings back off.
#[tokio::test]
async fn tenant_whose_provider_flaps_delays_and_drops_nothing_of_others() {
    let world = GovernedCluster::start(&[("n1", 1), ("n2", 5)], &[])
        .await
        .unwrap();
    let client = world.client();
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": TENANT}});
    objects::apply_one(client, namespace).await.unwrap();
    let flapping = testkit::start(FlappingProvider::default()).await.unwrap();
    let port = flapping.address.port();
    let made = objects::provider(client, TENANT, "flapper", port, &["flap"]).await;
    made.unwrap();
    let policy = json!({"apiVersion": "constraint.ciena.com/v1alpha1", "kind": "ConstraintPolicy",
        "metadata": {"name": "flap", "namespace": TENANT}, "spec": {"rules": [{"name": "flap"}]}});
    objects::apply_one(client, policy).await.unwrap();
    let target = |app: &str| {
        json!({"name": app, "apiVersion": "v1", "kind": "Pod",
            "labelSelector": {"matchLabels": {"app": app}}})
    };
    for i in 0..34 {
        for app in ["a", "b"] {
            let name = format!("{app}-{i}");
            objects::pod(client, TENANT, &name, app).await.unwrap();
        }
    }
    world.offer("web", json!({})).await;
    objects::pod(client, "default", "web-0", "web")
        .await
        .unwrap();
    world.wait_for_compliance("web", 1, "Compliant").await;
    let loud = json!({"targets": [target("a"), target("b")], "policies": ["flap"],
        "period": "500ms"});
    workloads::offer(client, TENANT, "loud", loud)
        .await
        .unwrap();
    let backing_off = "tautline_controller_bindings_backing_off";
    world.wait_for_metric(backing_off, 100.0).await;

    let victim = &workloads::bindings(client, "default", "web").await[0];
    let victim = victim.metadata.name.clone().unwrap();
    for (cost, compliance, event) in [
        (-1, "Violation", "Compliant became Violation"),
        (1, "Compliant", "Violation became Compliant"),
    ] {
        let begun = Instant::now();
        world.judge.set(&[("n1", cost), ("n2", 5)]);
        world.wait_for_compliance("web", 1, compliance).await;
        let seen = begun.elapsed();
        world.wait_for_event(&victim, event).await;
        println!(
            "{compliance} after {seen:?}, its event after {:?}",
            begun.elapsed()
        );
    }
    let begun = Instant::now();
    objects::pod(client, "default", "web-1", "web")
        .await
        .unwrap();
    world.wait_for_compliance("web", 2, "Compliant").await;
    println!("a new binding is judged after {:?}", begun.elapsed());

    // Each step has a deadline of its own, since a busy machine needs minutes for all bindings.
    for bindings in (200..1_156).step_by(100).chain([1_156]) {
        world
            .wait_for_metric(backing_off, f64::from(bindings))
            .await;
    }
}
