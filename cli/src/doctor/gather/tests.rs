use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use hyper::{Request, Response, StatusCode};
use kube::client::Body;
use serde_json::{Value, json};

use super::*;

const NAMESPACE: &str = "tautline-system";
const SLICES: &str = "/apis/resource.k8s.io/v1/resourceslices";

/// An API server that answers from a function of method and path; it counts requests by path.
struct Server {
    client: Client,
    seen: Arc<Mutex<BTreeMap<String, usize>>>,
}

impl Server {
    fn new(answer: impl Fn(&str) -> (u16, Value) + Send + Sync + 'static) -> Self {
        let seen = Arc::new(Mutex::new(BTreeMap::new()));
        let (count, answer) = (seen.clone(), Arc::new(answer));
        let service = tower::service_fn(move |request: Request<Body>| {
            let path = request.uri().path().to_owned();
            *count.lock().unwrap().entry(path.clone()).or_default() += 1;
            let (code, value) = answer(&path);
            let text = match &value {
                Value::String(text) => text.clone(),
                value => value.to_string(),
            };
            let mut response = Response::new(Body::from(text.into_bytes()));
            *response.status_mut() = StatusCode::from_u16(code).unwrap();
            async move { Ok::<_, tower::BoxError>(response) }
        });
        Self {
            client: Client::new(service, "default"),
            seen,
        }
    }

    async fn read(&self) -> Cluster {
        gather(self.client.clone(), NAMESPACE).await.unwrap().0
    }

    fn count(&self, path: &str) -> usize {
        self.seen.lock().unwrap().get(path).copied().unwrap_or(0)
    }
}

fn refusal(code: u16, message: &str) -> (u16, Value) {
    let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure",
                        "reason": "", "code": code, "message": message});
    (code, status)
}

fn list(items: Value) -> (u16, Value) {
    (
        200,
        json!({"apiVersion": "v1", "kind": "List", "metadata": {}, "items": items}),
    )
}

fn version() -> (u16, Value) {
    (
        200,
        json!({"major": "1", "minor": "36", "gitVersion": "v1.36.0", "gitCommit": "", "goVersion": "",
               "gitTreeState": "", "buildDate": "", "compiler": "", "platform": ""}),
    )
}

/// An extender with one running pod, and one offer among objects that do not parse.
fn installation(path: &str) -> (u16, Value) {
    let labels = json!({"app": "extender"});
    let spec = json!({"containers": [{"name": "tautline", "image": "tautline:1",
        "args": ["extender", "--tls-cert=/tls/tls.crt"],
        "ports": [{"name": "admin", "containerPort": 9191}],
        "volumeMounts": [{"name": "tls", "mountPath": "/tls"}]}],
        "volumes": [{"name": "tls", "secret": {"secretName": "cert"}}]});
    let offer = |name: &str, targets: Value| {
        json!({"apiVersion": "constraint.ciena.com/v1alpha1", "kind": "ConstraintPolicyOffer",
               "metadata": {"name": name, "namespace": "shop"}, "spec": {"targets": targets}})
    };
    match path {
        "/version" => version(),
        "/api/v1/namespaces/tautline-system" => (
            200,
            json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": {}}),
        ),
        "/apis/apps/v1/namespaces/tautline-system/deployments" => list(json!([{
            "metadata": {"name": "e"},
            "spec": {"selector": {"matchLabels": labels},
                     "template": {"metadata": {"labels": labels}, "spec": spec}}}])),
        "/api/v1/namespaces/tautline-system/pods" => list(json!([{
            "metadata": {"name": "e-1", "labels": labels}, "spec": spec,
            "status": {"phase": "Running"}}])),
        "/api/v1/namespaces/tautline-system/secrets/cert" => {
            (200, json!({"metadata": {"name": "cert"}, "data": {}}))
        }
        "/api/v1/namespaces/tautline-system/pods/e-1:9191/proxy/metrics" => (
            200,
            json!("tautline_extender_requests_total{verb=\"filter\",status=\"200\"} 3\n# EOF\n"),
        ),
        "/apis/constraint.ciena.com/v1alpha1/constraintpolicyoffers" => list(json!([
            offer("good", json!([])),
            offer("odd", json!("no list"))
        ])),
        "/apis/constraint.ciena.com/v1alpha1/constraintpolicies" => refusal(404, "unknown kind"),
        "/apis/authorization.k8s.io/v1/subjectaccessreviews" => {
            (201, json!({"spec": {}, "status": {"allowed": true}}))
        }
        _ => list(json!([])),
    }
}

#[tokio::test]
async fn installation_is_read() {
    let server = Server::new(installation);
    let cluster = server.read().await;
    assert_eq!(cluster.namespace_exists, Some(true));
    assert_eq!(cluster.filter_requests["e-1"].as_ref().unwrap().count, 3);
    assert!(cluster.secrets["cert"].is_some());
    assert!(cluster.rights.unwrap().len() > 5);
    assert_eq!(
        cluster.policies.unwrap().len(),
        0,
        "an unknown kind has no objects"
    );
    assert_eq!(cluster.offers.unwrap().len(), 1);
    assert_eq!(server.count("/api/v1/namespaces/shop/pods"), 1);
    assert_eq!(cluster.kubernetes, "v1.36.0");
    assert!(cluster.resource_slices.is_none() && cluster.device_classes.is_none());
    assert_eq!(server.count(SLICES), 0, "no GPU agent runs");
    let [odd] = &cluster.unread[..] else {
        panic!("{:?}", cluster.unread);
    };
    assert_eq!(odd.object, "odd of constraintpolicyoffers");
    assert!(
        odd.text
            .contains("could not be checked: it cannot be parsed"),
        "{odd:?}"
    );
}

#[tokio::test]
async fn slices_and_classes_are_read_with_gpu_agents() {
    let server = Server::new(|path| match path {
        "/apis/apps/v1/namespaces/tautline-system/daemonsets" => list(json!([{
            "metadata": {"name": "a"},
            "spec": {"selector": {}, "template": {"spec": {"containers": [
                {"name": "a", "image": "tautline:1", "args": ["agent", "gpu"]}]}}}}])),
        SLICES => list(json!([{"metadata": {"name": "s"}, "spec": {
            "driver": "gpu.tautline.io", "pool": {"name": "n", "generation": 1,
                                                  "resourceSliceCount": 1}}}])),
        "/apis/resource.k8s.io/v1/deviceclasses" => refusal(404, "unknown kind"),
        path => installation(path),
    });
    let cluster = server.read().await;
    assert_eq!(cluster.resource_slices.unwrap().len(), 1);
    assert_eq!(cluster.device_classes.unwrap().len(), 0);
}

#[tokio::test]
async fn refused_parts_are_noted_once() {
    let server = Server::new(|path| match path {
        "/api/v1/nodes" => refusal(403, "nodes is forbidden"),
        "/apis/authorization.k8s.io/v1/subjectaccessreviews" => refusal(403, "no reviews"),
        path if path.ends_with("/proxy/metrics") => refusal(403, "no proxy"),
        path if path.contains("/secrets/") => refusal(403, "no secrets"),
        path => installation(path),
    });
    let cluster = server.read().await;
    assert!(cluster.nodes.is_none() && cluster.rights.is_none() && cluster.secrets.is_empty());
    let reviews = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
    assert_eq!(server.count(reviews), 1, "one refusal is enough");
    assert_eq!(cluster.filter_requests["e-1"], Err("no proxy".to_owned()));
    let notes: Vec<(&str, &str)> = cluster
        .unread
        .iter()
        .map(|f| (&*f.object, &*f.text))
        .collect();
    assert!(
        notes.contains(&("nodes", "could not be checked: nodes is forbidden")),
        "{notes:?}"
    );
    assert!(
        notes.contains(&(
            "Secret tautline-system/cert",
            "could not be checked: no secrets"
        )),
        "{notes:?}"
    );
    assert!(
        notes.contains(&(
            "rights of the components' accounts",
            "could not be checked: no reviews"
        )),
        "{notes:?}"
    );
}

#[tokio::test]
async fn an_unusable_api_server_is_an_error() {
    for (code, expected) in [
        (401, "does not take these credentials"),
        (400, "the API server cannot be asked: no (400)"),
    ] {
        let server = Server::new(move |_| refusal(code, "no"));
        let error = gather(server.client.clone(), NAMESPACE).await.unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
    }
}
