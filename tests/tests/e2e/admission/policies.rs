//! Mutation policies: the API server asks us about what policies match, and only
//! about that.

use tautline_tests::objects::{Said, post};

use super::*;

const JOBS: &[&str] = &["tautline-own-resources", "tautline-mutation-policies"];

fn object(kind: &str, name: &str, spec: Value) -> Value {
    json!({"apiVersion": "tautline.io/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec})
}

/// Labels pods with what the parameter says.
fn policy(name: &str, expression: &str, more: Value) -> Value {
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

async fn create(world: &Admitting, plural: &str, object: &Value) -> Said {
    let path = format!("/apis/tautline.io/v1alpha1/{plural}");
    post(world.client(), &path, object).await.unwrap()
}

async fn pod(world: &Admitting, namespace: &str) -> Said {
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": namespace},
        "spec": {"automountServiceAccountToken": false,
                 "containers": [{"name": "main", "image": "example.com/app:1"}]}});
    super::slices::create(world, &pod, true).await
}

async fn until(world: &Admitting, what: &str, check: impl Fn(&Said) -> bool) -> Said {
    let look = async || {
        let said = pod(world, "default").await;
        check(&said).then_some(said)
    };
    eventually(what, PATIENCE, look, async || world.state()).await
}

#[tokio::test]
async fn policies_change_pods_with_parameters_and_bad_ones_are_refused() {
    let world = Admitting::start(JOBS, &["--authorizer"]).await.unwrap();
    let client = world.client();
    // Without a controller manager nobody aggregates roles.
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": "tautline-admission-params"},
        "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "watch"]}]});
    objects::apply_one(client, role).await.unwrap();

    let broken = policy("broken", "Object{\n  spec: nothing.of(\n}", json!({}));
    let check = async || {
        let path = "/apis/tautline.io/v1alpha1/mutationpolicies?dryRun=All";
        let said = post(client, path, &broken).await.ok()?;
        (said.status == 422).then_some(said)
    };
    let what = "a policy that does not compile is refused";
    let said = eventually(what, PATIENCE, check, async || world.state()).await;
    assert!(
        said.message()
            .contains("spec.mutations[0].applyConfiguration.expression"),
        "{said:?}"
    );

    let team = "Object{metadata: Object.metadata{labels: {\"team\": params.data.team}}}";
    let kind = json!({"paramKind": {"apiVersion": "v1", "kind": "ConfigMap"}});
    let said = create(&world, "mutationpolicies", &policy("team", team, kind)).await;
    assert_eq!(said.status, 201, "{said:?}");
    // No binding: nothing is asked yet.
    assert_eq!(
        pod(&world, "default").await.body["metadata"]["labels"],
        Value::Null
    );
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "team", "namespace": "default"}, "data": {"team": "vision"}});
    objects::apply_one(client, map.clone()).await.unwrap();
    let binding = json!({"policyName": "team", "paramRef": {"name": "team", "parameterNotFoundAction": "Allow"}});
    let said = create(
        &world,
        "mutationpolicybindings",
        &object("MutationPolicyBinding", "team", binding),
    )
    .await;
    assert_eq!(said.status, 201, "{said:?}");
    until(&world, "pods get the label", |said| {
        said.body["metadata"]["labels"]["team"] == "vision"
    })
    .await;

    let mut other = map;
    other["data"]["team"] = "speech".into();
    objects::apply_one(client, other).await.unwrap();
    until(&world, "the parameter's change counts", |said| {
        said.body["metadata"]["labels"]["team"] == "speech"
    })
    .await;
    assert_eq!(
        pod(&world, "kube-system").await.body["metadata"]["labels"],
        Value::Null
    );

    // What the user may do is asked of the API server.
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": "tautline-admission-delegator"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:auth-delegator"},
        "subjects": [{"kind": "ServiceAccount", "name": "tautline-admission", "namespace": "tautline-system"}]});
    objects::apply_one(client, binding).await.unwrap();
    let may = "Object{metadata: Object.metadata{labels: {\"may\": string(authorizer.group(\"\")\
               .resource(\"pods\").namespace(\"default\").check(\"delete\").allowed())}}}";
    create(&world, "mutationpolicies", &policy("may", may, json!({}))).await;
    let binding = object("MutationPolicyBinding", "may", json!({"policyName": "may"}));
    create(&world, "mutationpolicybindings", &binding).await;
    until(&world, "the authorizer is asked", |said| {
        said.body["metadata"]["labels"]["may"] == "true"
    })
    .await;

    // A policy that fails refuses, until failurePolicy says otherwise.
    let fails =
        "Object{metadata: Object.metadata{labels: {\"x\": object.metadata.labels.nothing}}}";
    create(&world, "mutationpolicies", &policy("zz", fails, json!({}))).await;
    let binding = object("MutationPolicyBinding", "zz", json!({"policyName": "zz"}));
    create(&world, "mutationpolicybindings", &binding).await;
    let said = until(&world, "the failing policy refuses", |said| {
        said.status >= 400
    })
    .await;
    assert!(
        said.message()
            .contains("policy 'zz' with binding 'zz' denied request"),
        "{said:?}"
    );
    let ignore = policy("zz", fails, json!({"failurePolicy": "Ignore"}));
    objects::apply_one(client, ignore).await.unwrap();
    until(&world, "and is left out", |said| {
        said.body["metadata"]["labels"]["team"] == "speech"
    })
    .await;
    world
        .metric_reaches("tautline_mutation_faults_total{policy=\"zz\"", 2.0)
        .await;
}
