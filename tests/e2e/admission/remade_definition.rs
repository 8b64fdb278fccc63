//! A CustomResourceDefinition that is deleted and created with another schema.

use kube::api::{DeleteParams, DynamicObject};
use tautline_tests::objects::{Response, post};

use super::{
    mutation_policies::{JOBS, bind, create, object},
    *,
};

const WIDGETS: &str = "/apis/example.com/v1/namespaces/default/widgets?dryRun=All";

/// A kind whose `spec.parts` is a map by `name`, or one value.
fn definition(by_name: bool) -> Value {
    let mut parts = json!({"type": "array", "items": {"type": "object", "required": ["name"],
        "properties": {"name": {"type": "string"}, "size": {"type": "integer"}}}});
    parts["x-kubernetes-list-type"] = json!(if by_name { "map" } else { "atomic" });
    if by_name {
        parts["x-kubernetes-list-map-keys"] = json!(["name"]);
    }
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object",
        "properties": {"parts": parts}}}});
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget"},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": schema}}]}})
}

/// Waits until the response to a new object passes `check`.
async fn until(world: &AdmissionCluster, what: &str, check: impl Fn(&Response) -> bool) {
    let widget = json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "a"},
        "spec": {"parts": [{"name": "own", "size": 1}]}});
    let check = async || {
        let response = post(world.client(), WIDGETS, &widget).await.ok()?;
        check(&response).then_some(())
    };
    eventually(what, PATIENCE, check, async || world.state()).await;
}

#[tokio::test]
async fn schema_of_a_remade_definition_is_used_at_once() {
    let world = AdmissionCluster::start(JOBS, &[]).await.unwrap();
    objects::apply_one(world.client(), definition(false))
        .await
        .unwrap();
    let add = "Object{spec: Object.spec{parts: [Object.spec.parts{name: \"added\", size: 2}]}}";
    let spec = json!({
        "matchConstraints": {"resourceRules": [{"apiGroups": ["example.com"],
            "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["widgets"]}]},
        "reinvocationPolicy": "Never",
        "mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": add}}],
    });
    create(
        &world,
        "mutationpolicies",
        &object("MutationPolicy", "parts", spec),
    )
    .await;
    bind(&world, "parts", Value::Null).await;
    // A policy may not change a part of an atomic list.
    until(&world, "the policy fails", |r| {
        r.message().contains("atomic")
    })
    .await;

    let types = kube::api::ApiResource::erase::<
        k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
    >(&());
    let definitions: Api<DynamicObject> = Api::all_with(world.client().clone(), &types);
    let name = "widgets.example.com";
    definitions
        .delete(name, &DeleteParams::default())
        .await
        .unwrap();
    let gone = async || matches!(definitions.get_opt(name).await, Ok(None)).then_some(());
    eventually("the definition is gone", PATIENCE, gone, async || {
        world.state()
    })
    .await;
    objects::apply_one(world.client(), definition(true))
        .await
        .unwrap();
    let back = std::time::Instant::now();
    let both = json!([{"name": "own", "size": 1}, {"name": "added", "size": 2}]);
    until(&world, "a list with keys is merged", |r| {
        r.body["spec"]["parts"] == both
    })
    .await;
    let took = back.elapsed();
    println!("merged by the new schema after {took:?}");
    // Before, the next look at the schemas was up to 20 s away.
    assert!(took < std::time::Duration::from_secs(6), "{took:?}");
}
