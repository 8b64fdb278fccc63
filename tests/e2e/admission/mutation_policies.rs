//! Mutation policies: the API server calls the webhook for objects that policies match, and no
//! others.

use tautline_tests::objects::{Response, post};

use super::*;

pub const JOBS: &[&str] = &["tautline-own-resources", "tautline-mutation-policies"];

pub fn object(kind: &str, name: &str, spec: Value) -> Value {
    json!({"apiVersion": "tautline.io/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec})
}

/// Labels pods from the parameter.
pub fn policy(name: &str, expression: &str, more: Value) -> Value {
    let rule = json!({"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]});
    let mut spec = json!({
        "matchConstraints": {"resourceRules": [rule]}, "reinvocationPolicy": "Never",
        "mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}}],
    });
    if let (Some(spec), Some(more)) = (spec.as_object_mut(), more.as_object()) {
        spec.extend(more.clone());
    }
    object("MutationPolicy", name, spec)
}

pub async fn create(world: &AdmissionCluster, plural: &str, object: &Value) -> Response {
    let path = format!("/apis/tautline.io/v1alpha1/{plural}");
    post(world.client(), &path, object).await.unwrap()
}

pub fn small_pod(namespace: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": namespace},
        "spec": {"automountServiceAccountToken": false,
                 "containers": [{"name": "main", "image": "example.com/app:1"}]}})
}

pub async fn pod(world: &AdmissionCluster, namespace: &str) -> Response {
    super::gpu_sharing::create(world, &small_pod(namespace), true).await
}

pub async fn until(
    world: &AdmissionCluster,
    what: &str,
    check: impl Fn(&Response) -> bool,
) -> Response {
    let condition = async || {
        let response = pod(world, "default").await;
        check(&response).then_some(response)
    };
    eventually(what, PATIENCE, condition, async || world.state()).await
}

/// Allows the server to list and watch parameters of a kind: without a controller manager roles
/// are not aggregated.
pub async fn lets_read_params(client: &Client, group: &str, resource: &str) {
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": "tautline-admission-params"}, "rules": [
            {"apiGroups": [group], "resources": [resource], "verbs": ["get", "list", "watch"]}]});
    objects::apply_one(client, role).await.unwrap();
}

/// A policy with failurePolicy Fail that labels pods from a ConfigMap.
pub fn team() -> Value {
    let label = "Object{metadata: Object.metadata{labels: {\"team\": params.data.team}}}";
    let kind = json!({"paramKind": {"apiVersion": "v1", "kind": "ConfigMap"}});
    policy("team", label, kind)
}

/// The parameter of that policy.
pub fn map(team: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "team", "namespace": "default"}, "data": {"team": team}})
}

/// The reference to that parameter.
pub fn team_map() -> Value {
    json!({"name": "team", "parameterNotFoundAction": "Allow"})
}

/// Creates that policy with its binding, and waits until it is active.
pub async fn in_force(world: &AdmissionCluster) {
    lets_read_params(world.client(), "", "configmaps").await;
    objects::apply_one(world.client(), map("vision"))
        .await
        .unwrap();
    create(world, "mutationpolicies", &team()).await;
    bind(world, "team", team_map()).await;
    labelled(world, "vision").await;
}

/// Waits until pods get this label.
pub async fn labelled(world: &AdmissionCluster, team: &str) {
    let what = format!("pods get the label {team}");
    until(world, &what, |response| {
        response.body["metadata"]["labels"]["team"] == team
    })
    .await;
}

/// Binds a policy, with its parameter if any.
pub async fn bind(world: &AdmissionCluster, name: &str, params: Value) {
    let mut spec = json!({"policyName": name});
    if !params.is_null() {
        spec["paramRef"] = params;
    }
    let binding = object("MutationPolicyBinding", name, spec);
    let response = create(world, "mutationpolicybindings", &binding).await;
    assert_eq!(response.status, 201, "{response:?}");
}

#[tokio::test]
async fn policies_mutate_pods_and_bad_ones_are_refused() {
    let world = AdmissionCluster::start(JOBS, &[]).await.unwrap();
    let client = world.client();
    lets_read_params(client, "", "configmaps").await;

    let broken = policy("broken", "Object{\n  spec: nothing.of(\n}", json!({}));
    let check = async || {
        let path = "/apis/tautline.io/v1alpha1/mutationpolicies?dryRun=All";
        let response = post(client, path, &broken).await.ok()?;
        (response.status == 422).then_some(response)
    };
    let what = "a policy that does not compile is refused";
    let response = eventually(what, PATIENCE, check, async || world.state()).await;
    assert!(
        response
            .message()
            .contains("spec.mutations[0].applyConfiguration.expression"),
        "{response:?}"
    );

    let response = create(&world, "mutationpolicies", &team()).await;
    assert_eq!(response.status, 201, "{response:?}");
    // Without a binding the webhook is not called.
    assert_eq!(
        pod(&world, "default").await.body["metadata"]["labels"],
        Value::Null
    );
    objects::apply_one(client, map("vision")).await.unwrap();
    bind(&world, "team", team_map()).await;
    labelled(&world, "vision").await;

    objects::apply_one(client, map("speech")).await.unwrap();
    labelled(&world, "speech").await;
    assert_eq!(
        pod(&world, "kube-system").await.body["metadata"]["labels"],
        Value::Null
    );

    // An error in a policy refuses the object, unless failurePolicy is Ignore.
    let fails =
        "Object{metadata: Object.metadata{labels: {\"x\": object.metadata.labels.nothing}}}";
    create(&world, "mutationpolicies", &policy("zz", fails, json!({}))).await;
    bind(&world, "zz", Value::Null).await;
    let response = until(&world, "the failing policy refuses", |response| {
        response.status >= 400
    })
    .await;
    assert!(
        response
            .message()
            .contains("policy 'zz' with binding 'zz' denied request"),
        "{response:?}"
    );
    let ignore = policy("zz", fails, json!({"failurePolicy": "Ignore"}));
    objects::apply_one(client, ignore).await.unwrap();
    labelled(&world, "speech").await;
    world
        .wait_for_metric("tautline_mutation_faults_total{policy=\"zz\"", 2.0)
        .await;
}
