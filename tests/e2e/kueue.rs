//! Jobs that the real Kueue admits are placed as groups.

use k8s_openapi::api::{
    apps::v1::{DaemonSet, Deployment},
    batch::v1::Job,
    core::v1::{Node, Pod},
};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, DynamicObject, Patch, PatchParams},
    core::{ApiResource, GroupVersionKind},
};
use serde_json::{Value, json};
use tautline_tests::{
    PATIENCE, control_plane::skipped_on_oldest, eventually, objects, servers::Server,
};

use crate::{
    World,
    admission::rendered,
    groups::{Sites, assert_on_free_site, cluster, pods, site_of, wait_until_all_are_bound},
};

/// A node with room for four pods, outside the flavors' nodes.
const OUTSIDE: &str = "n0";
const SITE: &str = "example.com/site";

fn of_kueue(kind: &str) -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk("kueue.x-k8s.io", "v1beta2", kind))
}

/// A queue with quota for four pods, on the nodes of the pool `train`. With `topology`, Kueue
/// chooses the nodes.
async fn queue(client: &Client, name: &str, topology: bool) {
    let object = |kind: &str, spec: Value| {
        json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind,
               "metadata": {"name": name, "namespace": "default"}, "spec": spec})
    };
    let mut flavor = json!({"nodeLabels": {"pool": "train"}});
    let mut all = Vec::new();
    if topology {
        let levels = json!([{"nodeLabel": SITE}, {"nodeLabel": "kubernetes.io/hostname"}]);
        all.push(object("Topology", json!({"levels": levels})));
        flavor["topologyName"] = name.into();
    }
    let quota = json!([{"name": "cpu", "nominalQuota": 60}]);
    let group =
        json!({"coveredResources": ["cpu"], "flavors": [{"name": name, "resources": quota}]});
    all.push(object("ResourceFlavor", flavor));
    let spec = json!({"namespaceSelector": {}, "resourceGroups": [group]});
    all.push(object("ClusterQueue", spec));
    all.push(object("LocalQueue", json!({"clusterQueue": name})));
    for object in all {
        objects::apply_one(client, object).await.unwrap();
    }
}

/// A pod of the offer, without the resource by which kube-scheduler calls the extender.
fn template() -> Value {
    json!({
        "metadata": {"labels": {"app": "train"}},
        "spec": {"restartPolicy": "Never", "automountServiceAccountToken": false,
            "containers": [{"name": "main", "image": "example.com/app:1",
                            "resources": {"requests": {"cpu": "15"}}}]}})
}

/// Starts the admission server that adds this resource, and waits until the API server calls it.
async fn start_gate(world: &World) -> Server {
    let client = &world.plane.client;
    let server = Server::admission(&world.plane, "admission", &["--governed"]).await;
    let server = server.unwrap();
    let url = format!("https://127.0.0.1:{}", server.port);
    for document in rendered(&["tautline-governed"], &url).unwrap() {
        objects::apply_one(client, document).await.unwrap();
    }
    let mut pod = template();
    pod["metadata"]["name"] = "probe".into();
    let path = "/api/v1/namespaces/default/pods?dryRun=All";
    let check = async || {
        let made = objects::post(client, path, &pod).await.ok()?.body;
        made.to_string()
            .contains("constraint.ciena.com/governed")
            .then_some(())
    };
    let what = "pods are marked as governed";
    eventually(what, PATIENCE, check, async || server.process.tail()).await;
    server
}

/// Creates a Job of four pods in a queue, with these annotations of its pods.
async fn job(client: &Client, name: &str, queue: &str, annotations: Value) {
    let mut template = template();
    template["metadata"]["annotations"] = annotations;
    let job = json!({"apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": name, "namespace": "default",
                     "labels": {"kueue.x-k8s.io/queue-name": queue}},
        "spec": {"parallelism": 4, "completions": 4, "template": template}});
    objects::apply_one(client, job).await.unwrap();
}

async fn end(client: &Client, job: &str) {
    let jobs: Api<Job> = Api::default_namespaced(client.clone());
    jobs.delete(job, &DeleteParams::foreground()).await.unwrap();
}

fn label_of(job: &str) -> String {
    format!("batch.kubernetes.io/job-name={job}")
}

/// Waits until Kueue says why it does not admit the Job.
async fn wait_until_queued(world: &World, job: &str) {
    let workloads: Api<DynamicObject> =
        Api::default_namespaced_with(world.plane.client.clone(), &of_kueue("Workload"));
    let text = async || {
        let all = workloads.list(&Default::default()).await;
        let all = all.map(|list| list.items).unwrap_or_default();
        let of_job = all.into_iter().find(|w| {
            let mut owners = w.owner_references().iter();
            owners.any(|owner| owner.name == job)
        });
        of_job.map(|w| w.data["status"]["conditions"].to_string())
    };
    let check = async || {
        let conditions = text().await?;
        conditions
            .contains("insufficient unused quota")
            .then_some(())
    };
    let state = async || format!("{:?}\n{}", text().await, world.state());
    let what = format!("the Job {job} waits for quota");
    eventually(&what, PATIENCE, check, state).await;
}

/// Labels nodes for Kueue, and lets only Jobs make pods.
async fn prepare(world: &mut World) {
    let client = world.plane.client.clone();
    let nodes: Api<Node> = Api::all(client.clone());
    for node in nodes.list(&Default::default()).await.unwrap() {
        let name = node.name_any();
        let site = format!("site-{}", site_of(&name));
        let mut labels = json!({SITE: site, "kubernetes.io/hostname": name});
        if site_of(&name) != site_of(OUTSIDE) {
            labels["pool"] = "train".into();
        }
        let patch = Patch::Merge(json!({"metadata": {"labels": labels}}));
        let params = PatchParams::default();
        nodes.patch(&name, &params, &patch).await.unwrap();
    }
    let all: Api<Pod> = Api::default_namespaced(client.clone());
    let taken = format!("taken-{OUTSIDE}");
    all.delete(&taken, &DeleteParams::default()).await.unwrap();
    let (none, every) = (DeleteParams::default(), Default::default());
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), "tautline-system");
    deployments.delete_collection(&none, &every).await.unwrap();
    let daemons: Api<DaemonSet> = Api::namespaced(client, "tautline-system");
    daemons.delete_collection(&none, &every).await.unwrap();
    world.plane.start_kueue(json!({})).await.unwrap();
    world.plane.start_controller_manager().await.unwrap();
}

#[tokio::test]
async fn jobs_that_kueue_admits_are_placed_as_groups() {
    if skipped_on_oldest("Kueue") {
        return;
    }
    let (mut world, provider) = cluster(&Sites::default(), json!({})).await;
    prepare(&mut world).await;
    let _gate = start_gate(&world).await;
    let client = world.plane.client.clone();
    queue(&client, "train", false).await;
    let check_nodes = async |job: &str| {
        assert_on_free_site(&wait_until_all_are_bound(&world, &label_of(job)).await);
    };
    // The site outside the flavor's nodes has room too.
    job(&client, "first", "train", json!({})).await;
    check_nodes("first").await;
    job(&client, "second", "train", json!({})).await;
    wait_until_queued(&world, "second").await;
    assert!(pods(&client, &label_of("second")).await.is_empty());
    end(&client, "first").await;
    check_nodes("second").await;

    // Kueue chooses the node of each pod itself.
    end(&client, "second").await;
    queue(&client, "topology", true).await;
    let within = json!({"kueue.x-k8s.io/podset-required-topology": SITE});
    job(&client, "third", "topology", within).await;
    check_nodes("third").await;
    for (name, pod) in pods(&client, &label_of("third")).await {
        let spec = pod.spec.unwrap_or_default();
        let chosen = spec.node_selector.unwrap_or_default();
        let node = spec.node_name.unwrap_or_default();
        assert_eq!(chosen["kubernetes.io/hostname"], node, "{name}");
    }
    provider.stop().await;
}
