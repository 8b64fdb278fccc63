//! `tautline check mutation` compared with the API server: what an object from a file is after
//! defaults, built-in admission and policies, without a cluster and on a real one.

use tautline_tests::control_plane::ControlPlane;

use super::{generated::admitted, *};

const CLUSTER: &str = include_str!("offline-cluster.yaml");
const OBJECTS: &str = include_str!("offline-objects.yaml");

fn documents(text: &str) -> Vec<Value> {
    let options = serde_saphyr::options! { strict_booleans: true };
    serde_saphyr::from_multiple_with_options(text, options).unwrap()
}

/// The result without a cluster, as `tautline check mutation` has it.
fn offline(object: Value, policies: &Policies, cluster: &StaticCluster) -> End {
    let created = cluster.create(object, policies, &Settings::default());
    let created = created.unwrap();
    assert_eq!(created.notes, Vec::<String>::new());
    end(created.outcome, &created.request)
}

/// The object that the API server stores, or for other kinds than pods shows to webhooks: what it
/// does to those after admission is not compared.
async fn online(client: &Client, object: &Value) -> End {
    let kind = object["kind"].as_str().unwrap_or_default();
    let group = match object["apiVersion"].as_str() {
        Some("v1") => "/api/v1".to_owned(),
        version => format!("/apis/{}", version.unwrap_or_default()),
    };
    let plural = format!("{}s", kind.to_lowercase());
    let path = match object["metadata"]["namespace"].as_str() {
        Some(namespace) => format!("{group}/namespaces/{namespace}/{plural}"),
        None => format!("{group}/{plural}"),
    };
    match ask(client, Method::POST, &format!("{path}?dryRun=All"), object).await {
        Err((admitted::CODE, text)) => Ok(admitted::object(&text).expect("an object")),
        end => end,
    }
}

/// The object without what differs: times, the status, and the random end of a name.
fn comparable(object: &Value) -> Value {
    let mut object = generated::normalized(object);
    // Policies change no status, and that of a node has required fields.
    if let Some(fields) = object.as_object_mut()
        && ["Pod", "Node"].iter().any(|kind| fields["kind"] == *kind)
    {
        fields.remove("status");
    }
    if let Some(meta) = object["metadata"].as_object_mut() {
        meta.remove("resourceVersion");
        meta.remove("generation");
    }
    let volumes = object["spec"]["volumes"].as_array().into_iter().flatten();
    let names = volumes.filter_map(|volume| volume["name"].as_str());
    let token = names
        .into_iter()
        .find(|name| name.starts_with("kube-api-access-"));
    match token.map(str::to_owned) {
        Some(token) => {
            let text = object.to_string().replace(&token, "kube-api-access-xxxxx");
            serde_json::from_str(&text).unwrap()
        }
        None => object,
    }
}

#[tokio::test]
async fn objects_are_admitted_offline_as_by_the_api_server() {
    if skipped_on_oldest("the API server's own policies, of Kubernetes 1.36") {
        return;
    }
    // All plugins that are on by default.
    let all = |_: &std::path::Path| Ok(vec!["--disable-admission-plugins=".to_owned()]);
    let plane = ControlPlane::start_with(all).await.unwrap();
    let client = plane.client_as("admin").await.unwrap();
    objects::apply(&client, CLUSTER).await.unwrap();
    let rule = json!({"apiGroups": ["", "apps", "batch"], "apiVersions": ["v1"],
        "operations": ["CREATE"], "resources": ["deployments", "statefulsets", "daemonsets",
            "replicasets", "replicationcontrollers", "jobs", "cronjobs", "services",
            "persistentvolumeclaims", "persistentvolumes", "secrets", "nodes"]});
    let objects = documents(OBJECTS);
    put(&client, &canary(&Group::Theirs)).await.unwrap();
    canary_sings(&client, Some("sings")).await;
    let _seen = admitted::serve(&client, "offline", rule).await.unwrap();
    let last = objects.last().unwrap();
    let check = async || {
        let seen = online(&client, last).await.ok()?;
        seen["metadata"].get("uid").is_none().then_some(())
    };
    eventually("the webhook is called", PATIENCE, check, async || {
        plane.logs()
    })
    .await;

    let given = documents(CLUSTER);
    let (policies, report) = Policies::load(&given);
    assert!(report.faults.is_empty(), "{:?}", report.faults);
    let cluster = StaticCluster::from_iter(given).with_built_in_admission();
    let mut wrong = Vec::new();
    for object in objects {
        let theirs = online(&client, &object).await;
        let ours = offline(object.clone(), &policies, &cluster);
        let same = match (&ours, &theirs) {
            (Ok(ours), Ok(theirs)) => comparable(ours) == comparable(theirs),
            (ours, theirs) => ours == theirs,
        };
        let shown = |end: &End| match end {
            Ok(object) => comparable(object).to_string(),
            Err(refusal) => format!("{refusal:?}"),
        };
        if !same {
            let (kind, name) = (&object["kind"], &object["metadata"]["name"]);
            let (ours, theirs) = (shown(&ours), shown(&theirs));
            wrong.push(format!(
                "{kind} {name}:\n  ours   {ours}\n  theirs {theirs}"
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
