//! Authors of policies need read access to the parameters, as authors of the API server's own
//! policies do. The API server refuses each of these cases as well.

use tautline_tests::{
    control_plane::skipped_on_oldest,
    objects::{Response, post},
};

use super::{mutation_policies::*, *};

/// An account that may write policies, ours and the API server's.
struct Author<'a> {
    world: &'a AdmissionCluster,
    client: Client,
    /// Compares the responses with those to the API server's own policies.
    compares: bool,
}

impl Author<'_> {
    /// The response to a policy or binding of ours; its status is that of the API server's own.
    async fn writes(&self, binding: bool, name: &str, spec: &Value) -> Response {
        let suffix = if binding { "Binding" } else { "" };
        let plural = if binding {
            "policybindings"
        } else {
            "policies"
        };
        let of = |version: &str, kind: &str| {
            json!({"apiVersion": version, "kind": format!("{kind}{suffix}"),
                "metadata": {"name": name}, "spec": spec})
        };
        let ours = of("tautline.io/v1alpha1", "MutationPolicy");
        let path = format!("/apis/tautline.io/v1alpha1/mutation{plural}");
        let ours = post(&self.client, &path, &ours).await.unwrap();
        if self.compares {
            let theirs = of("admissionregistration.k8s.io/v1", "MutatingAdmissionPolicy");
            let path = format!("/apis/admissionregistration.k8s.io/v1/mutatingadmission{plural}");
            let theirs = post(&self.client, &path, &theirs).await.unwrap();
            let state = self.world.state();
            assert_eq!(ours.status, theirs.status, "{ours:?}\n{theirs:?}\n{state}");
        }
        ours
    }

    async fn refused(&self, binding: bool, name: &str, spec: &Value, text: &str) {
        let response = self.writes(binding, name, spec).await;
        assert_eq!(response.status, 422, "{response:?}");
        assert!(response.message().contains(text), "{text}\n{response:?}");
    }

    async fn taken(&self, binding: bool, name: &str, spec: &Value) {
        let response = self.writes(binding, name, spec).await;
        assert_eq!(response.status, 201, "{response:?}");
    }
}

/// Grants the author a rule, in one namespace or in all, and waits until it is effective.
async fn grant(world: &AdmissionCluster, name: &str, namespace: &str, rule: Value) {
    let subject = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "ann"});
    let kind = if namespace.is_empty() {
        "ClusterRole"
    } else {
        "Role"
    };
    let metadata = match namespace {
        "" => json!({"name": name}),
        namespace => json!({"name": name, "namespace": namespace}),
    };
    let api = "rbac.authorization.k8s.io/v1";
    let role = json!({"apiVersion": api, "kind": kind, "metadata": metadata, "rules": [rule]});
    let binding = json!({"apiVersion": api, "kind": format!("{kind}Binding"), "metadata": metadata,
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name},
        "subjects": [subject]});
    for object in [role, binding] {
        objects::apply_one(world.client(), object).await.unwrap();
    }
    let text = |field: &str| rule[field][0].as_str().unwrap_or_default();
    let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
        "spec": {"user": "ann", "resourceAttributes": {"verb": text("verbs"),
            "group": text("apiGroups"), "resource": text("resources"), "namespace": namespace}}});
    let check = async || {
        let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
        let response = post(world.client(), path, &review).await.ok()?;
        (response.body["status"]["allowed"] == true).then_some(())
    };
    let what = format!("ann may {rule}");
    eventually(&what, PATIENCE, check, async || world.state()).await;
}

fn rule(group: &str, resource: &str, verbs: &[&str]) -> Value {
    json!({"apiGroups": [group], "resources": [resource], "verbs": verbs})
}

/// A policy that matches no existing object.
fn spec(kind: Value) -> Value {
    let mut policy = policy("", "Object{}", json!({"paramKind": kind}));
    let rule = &mut policy["spec"]["matchConstraints"]["resourceRules"][0];
    rule["resourceNames"] = json!(["nobody"]);
    if kind.is_null() {
        policy["spec"].as_object_mut().unwrap().remove("paramKind");
    }
    policy["spec"].clone()
}

fn bound(policy: &str, reference: Value) -> Value {
    let mut spec = json!({"policyName": policy, "paramRef": reference});
    spec["paramRef"]["parameterNotFoundAction"] = "Allow".into();
    spec
}

#[tokio::test]
async fn authors_need_read_access_to_parameters() {
    let world = AdmissionCluster::start(JOBS, &["--authorizer"])
        .await
        .unwrap();
    let client = world.plane.client_as("author").await.unwrap();
    let compares = !skipped_on_oldest("the API server's own policies, of Kubernetes 1.36");
    let ann = Author {
        world: &world,
        client,
        compares,
    };
    for (name, group) in [
        ("ours", "tautline.io"),
        ("theirs", "admissionregistration.k8s.io"),
    ] {
        grant(&world, name, "", rule(group, "*", &["create"])).await;
    }
    let broken = policy("broken", "nothing.of(", json!({}));
    let check = async || {
        let response = create(&world, "mutationpolicies", &broken).await;
        (response.status == 422).then_some(())
    };
    let what = "policies are looked at";
    eventually(what, PATIENCE, check, async || world.state()).await;

    let maps = json!({"apiVersion": "v1", "kind": "ConfigMap"});
    ann.taken(false, "none", &spec(Value::Null)).await;
    let text =
        "spec.paramKind: user \"ann\" must be allowed to get all configmaps in all namespaces:";
    ann.refused(false, "maps", &spec(maps.clone()), text).await;
    let unserved = json!({"apiVersion": "example.com/v1", "kind": "Limits"});
    let text = "get all *.example.com in all namespaces (example.com/v1 Limits is not known";
    ann.refused(false, "limits", &spec(unserved), text).await;

    // Access to some parameters is not enough for a policy, but it is for a binding.
    grant(&world, "maps", "default", rule("", "configmaps", &["get"])).await;
    let text = "get all configmaps in all namespaces";
    ann.refused(false, "maps", &spec(maps.clone()), text).await;
    let admin = Author {
        world: &world,
        client: world.client().clone(),
        compares,
    };
    admin.taken(false, "maps", &spec(maps.clone())).await;
    let named = |namespace: &str| bound("maps", json!({"name": "team", "namespace": namespace}));
    let text = "spec.paramRef: user \"ann\" must be allowed to get configmaps \"team\" in namespace kube-system:";
    ann.refused(true, "there", &named("kube-system"), text)
        .await;
    let text = "get configmaps \"team\" in all namespaces";
    ann.refused(
        true,
        "anywhere",
        &bound("maps", json!({"name": "team"})),
        text,
    )
    .await;
    let selected = json!({"selector": {"matchLabels": {"a": "b"}}, "namespace": "default"});
    let text = "list all configmaps in namespace default";
    ann.refused(true, "some", &bound("maps", selected.clone()), text)
        .await;
    let text = "get * \"team\" in namespace default (MutationPolicy nobodys cannot be read";
    let nobodys = bound("nobodys", json!({"name": "team", "namespace": "default"}));
    ann.refused(true, "nobodys", &nobodys, text).await;
    ann.taken(true, "here", &named("default")).await;
    ann.taken(true, "none", &json!({"policyName": "maps"}))
        .await;

    grant(
        &world,
        "all-maps",
        "",
        rule("", "configmaps", &["get", "list"]),
    )
    .await;
    ann.taken(false, "all-maps", &spec(maps.clone())).await;
    ann.taken(true, "some", &bound("maps", selected)).await;

    policies_ask_the_authorizer(&world, &ann.client).await;

    // Without access reviews her request is refused with the reason.
    let roles: Api<k8s_openapi::api::rbac::v1::ClusterRole> = Api::all(world.client().clone());
    let mut role = roles.get("tautline-admission").await.unwrap();
    let resource = "subjectaccessreviews".to_owned();
    if let Some(rules) = &mut role.rules {
        rules.retain(|r| {
            !r.resources
                .as_ref()
                .is_some_and(|all| all.contains(&resource))
        });
    }
    roles
        .replace("tautline-admission", &Default::default(), &role)
        .await
        .unwrap();
    let another = object("MutationPolicy", "another", spec(maps));
    let check = async || {
        let path = "/apis/tautline.io/v1alpha1/mutationpolicies?dryRun=All";
        let response = post(&ann.client, path, &another).await.ok()?;
        response
            .message()
            .contains("cannot check")
            .then_some(response)
    };
    let what = "the server cannot check access";
    let response = eventually(what, PATIENCE, check, async || world.state()).await;
    assert_eq!(response.status, 422, "{response:?}");
}

/// `authorizer` in expressions returns the API server's decisions for the requesting user.
async fn policies_ask_the_authorizer(world: &AdmissionCluster, ann: &Client) {
    grant(world, "pods", "default", rule("", "pods", &["create"])).await;
    let expressions = [
        (
            "create",
            "authorizer.requestResource.check(\"create\").allowed()",
        ),
        (
            "delete",
            "authorizer.group(\"\").resource(\"pods\").namespace(\"default\").check(\"delete\").allowed()",
        ),
        (
            "path",
            "authorizer.path(\"/metrics\").check(\"get\").allowed()",
        ),
        (
            "account",
            "authorizer.serviceAccount(\"tautline-system\", \"tautline-admission\")\
            .group(\"\").resource(\"pods\").check(\"list\").allowed()",
        ),
    ];
    let mutation = |(label, question): (&str, &str)| {
        let labels = format!(
            "Object{{metadata: Object.metadata{{labels: {{\"{label}\": string({question})}}}}}}"
        );
        json!({"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": labels}})
    };
    let mutations = json!({"mutations": expressions.map(mutation)});
    let policy = policy("may", "", mutations);
    let response = create(world, "mutationpolicies", &policy).await;
    assert_eq!(response.status, 201, "{response:?}");
    bind(world, "may", Value::Null).await;
    let response = until(world, "the authorizer is called", |response| {
        response.body["metadata"]["labels"]["delete"] == "true"
    })
    .await;
    let all = json!({"create": "true", "delete": "true", "path": "true", "account": "true"});
    assert_eq!(response.body["metadata"]["labels"], all, "{response:?}");
    let response = post(
        ann,
        "/api/v1/namespaces/default/pods?dryRun=All",
        &small_pod("default"),
    )
    .await;
    let response = response.unwrap();
    let hers = json!({"create": "true", "delete": "false", "path": "false", "account": "true"});
    assert_eq!(response.body["metadata"]["labels"], hers, "{response:?}");
}
