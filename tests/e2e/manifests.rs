//! Our manifests, and those made for Turnbuckle, on the real API server.

use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use kube::{Api, Client, api::PostParams};
use serde_json::{Value, json};
use tautline_tests::{PATIENCE, control_plane::ControlPlane, eventually, objects, root};

/// The five examples of Turnbuckle's README.
const TURNBUCKLE: &str = include_str!("../turnbuckle-manifests.yaml");

#[tokio::test]
async fn api_server_takes_our_manifests_and_refuses_bad_ones() {
    let plane = ControlPlane::start().await.unwrap();
    let client = &plane.client;
    objects::apply_kustomization(client, &root().join("deploy"))
        .await
        .unwrap();
    objects::apply(client, TURNBUCKLE).await.unwrap();
    let files = ["3-policies.yaml", "2-providers.yaml"];
    objects::apply_one(
        client,
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "vision"}}),
    )
    .await
    .unwrap();
    for file in files {
        let path = root().join("examples/edge-inference").join(file);
        objects::apply(client, &std::fs::read_to_string(path).unwrap())
            .await
            .unwrap();
    }

    roles(&plane).await;

    let offer = |spec: Value| {
        json!({"apiVersion": "constraint.ciena.com/v1alpha1", "kind": "ConstraintPolicyOffer",
               "metadata": {"name": "bad", "namespace": "default"}, "spec": spec})
    };
    let target = |name: Value| json!({"name": name, "apiVersion": "v1", "kind": "Pod"});
    let refused = [
        (
            offer(json!({"targets": [target(json!("a"))], "policies": ["p"], "grace": "10"})),
            "must be a duration",
        ),
        (
            offer(json!({"targets": [target(json!("a"))], "policies": ["p"], "period": "-5s"})),
            "must be a duration",
        ),
        (
            offer(json!({"targets": [target(json!("a")), target(json!("a"))]})),
            "target names must be unique",
        ),
        (
            offer(json!({"targets": [{"kind": "Pod"}, target(json!("default"))]})),
            "target names must be unique",
        ),
        (
            offer(json!({"targets": [{"name": "a", "kind": "Podd"}]})),
            "Unsupported value",
        ),
        (
            offer(
                json!({"targets": [{"kind": "Cluster", "apiVersion": "v1/namespaces/kube-system"}]}),
            ),
            "should match",
        ),
        (offer(json!({"targets": []})), "at least 1"),
        (
            offer(json!({"targets": [target(json!("a"))], "violationPolicy": "Punish"})),
            "Unsupported value",
        ),
        (
            json!({"apiVersion": "constraint.ciena.com/v1alpha1", "kind": "ConstraintPolicy",
                   "metadata": {"name": "bad", "namespace": "default"}, "spec": {"rules": []}}),
            "at least 1",
        ),
    ];
    for (object, expected) in refused {
        let error = objects::apply_one(client, object.clone())
            .await
            .unwrap_err();
        let text = format!("{error:#}");
        assert!(
            text.contains(expected),
            "{object}\nwas refused with: {text}"
        );
    }
    let good = ["0", "1h30m", "500us", "1.5h", "10m"];
    for grace in good {
        let spec = json!({"targets": [target(json!("a"))], "grace": grace});
        objects::apply_one(client, offer(spec)).await.unwrap();
    }
}

/// True if our account may do `what`: "VERB RESOURCE.GROUP NAMESPACE/NAME"; namespace and name
/// are optional.
pub async fn may(client: &Client, account: &str, what: &str) -> bool {
    let mut words = what.split(' ');
    let (verb, resource) = (words.next().unwrap(), words.next().unwrap());
    let (resource, group) = resource.split_once('.').unwrap_or((resource, ""));
    let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
    let (namespace, name) = words.next().unwrap_or("/").split_once('/').unwrap();
    let user = format!("system:serviceaccount:tautline-system:tautline-{account}");
    let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
        "metadata": {}, "spec": {"user": user, "resourceAttributes": {
            "verb": verb, "group": group, "resource": resource, "subresource": subresource,
            "namespace": namespace, "name": name}}});
    let review: SubjectAccessReview = serde_json::from_value(review).unwrap();
    let answer = Api::all(client.clone())
        .create(&PostParams::default(), &review)
        .await;
    answer.unwrap().status.unwrap().allowed
}

/// The roles allow the calls of our processes, and no others.
async fn roles(plane: &ControlPlane) {
    const LEASES: &str = "leases.coordination.k8s.io";
    let lease = |verb: &str| format!("{verb} {LEASES} tautline-system/tautline-controller");
    let ours = |verb: &str, kind: &str| format!("{verb} {kind}.constraint.ciena.com default/x");
    let secret = |verb: &str, name: &str| format!("{verb} secrets tautline-system/{name}");
    let hook = |verb: &str, name: &str| {
        format!("{verb} mutatingwebhookconfigurations.admissionregistration.k8s.io /{name}")
    };
    let allowed = [
        ("controller", ours("create", "constraintpolicybindings")),
        ("controller", ours("patch", "constraintpolicyoffers/status")),
        (
            "controller",
            ours("update", "constraintpolicyoffers/finalizers"),
        ),
        ("controller", "create pods/eviction default/x".into()),
        (
            "controller",
            "list poddisruptionbudgets.policy default/".into(),
        ),
        ("controller", "get persistentvolumeclaims default/x".into()),
        ("controller", "get persistentvolumes /x".into()),
        ("controller", format!("create {LEASES} tautline-system/")),
        ("controller", lease("update")),
        ("extender", lease("get")),
        ("extender", secret("create", "")),
        (
            "extender",
            secret("update", "tautline-extender-generated-tls"),
        ),
        ("admission", secret("get", "tautline-admission-tls")),
        ("admission", secret("update", "tautline-admission-tls")),
        ("admission", hook("patch", "tautline-gpu-slices")),
        (
            "admission",
            "create subjectaccessreviews.authorization.k8s.io".into(),
        ),
        (
            "admission",
            "get configmaps tautline-system/cast-slice-policy".into(),
        ),
        ("latency", ours("list", "constraintpolicybindings")),
        ("gpu-slice", format!("create {LEASES} tautline-system/")),
        (
            "gpu-slice",
            format!("update {LEASES} tautline-system/tautline-gpu-slice"),
        ),
    ];
    for (account, what) in &allowed {
        let check = async || may(&plane.client, account, what).await.then_some(());
        let what = format!("{account} may {what}");
        eventually(&what, PATIENCE, check, async || plane.logs()).await;
    }
    let refused = [
        ("controller", ours("patch", "constraintpolicyoffers")),
        ("controller", "delete pods default/x".into()),
        ("controller", "get secrets tautline-system/x".into()),
        (
            "controller",
            format!("get {LEASES} kube-system/tautline-controller"),
        ),
        (
            "controller",
            format!("update {LEASES} tautline-system/other"),
        ),
        (
            "admission",
            secret("get", "tautline-extender-generated-tls"),
        ),
        ("extender", secret("get", "tautline-admission-tls")),
        ("admission", secret("delete", "tautline-admission-tls")),
        (
            "admission",
            "get secrets default/tautline-admission-tls".into(),
        ),
        ("admission", hook("patch", "somebody-elses")),
        ("admission", hook("delete", "tautline-gpu-slices")),
        ("admission", "get configmaps default/x".into()),
        ("admission", "patch pods default/x".into()),
        (
            "admission",
            "create tokenreviews.authentication.k8s.io".into(),
        ),
        ("extender", lease("update")),
        ("extender", format!("get {LEASES} tautline-system/other")),
        ("latency", ours("patch", "constraintpolicybindings/status")),
        ("gpu-slice", lease("update")),
    ];
    for (account, what) in &refused {
        assert!(
            !may(&plane.client, account, what).await,
            "{account}: {what}"
        );
    }
}
