//! The state of an explained pod, which is read from the API server once per explanation.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client};
use serde::{Deserialize, Serialize};
use tautline_core::names::DEFAULT_SCHEDULER;
use tautline_runtime::{
    api_call::{self, ApiCallError},
    pods,
};
use tokio::sync::Semaphore;

const DEADLINE: Duration = Duration::from_secs(2);
/// The maximum number of concurrent reads, since the admin port has no login.
const MAX_READS: usize = 4;

#[derive(Debug)]
pub(crate) struct Reader(Semaphore);

impl Default for Reader {
    fn default() -> Self {
        Self(Semaphore::new(MAX_READS))
    }
}

/// The pod of that name, if it exists, or the error of reading it.
pub(crate) type Read = Result<Option<Box<Pod>>, ApiCallError>;

impl Reader {
    pub(crate) async fn read(&self, client: &Client, namespace: &str, name: &str) -> Read {
        let api: Api<Pod> = Api::namespaced(client.clone(), namespace);
        let reading = async {
            // The semaphore is never closed.
            let _permit = self.0.acquire().await;
            match pods::get(&api, name).await {
                Err(kube::Error::Api(status)) if status.is_not_found() => Ok(None),
                read => read.map(Some),
            }
        };
        let read = api_call::within(DEADLINE, reading).await;
        Ok(read?.map(Box::new))
    }
}

/// The pod's state at the API server when `/explain` is called.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state")]
pub enum PodNow {
    /// The pod has a node.
    Bound {
        /// The node's name.
        node: String,
    },
    /// The pod exists without a node.
    NotBound,
    /// There is no pod with this name.
    Deleted,
    /// Another pod has the name: the UID differs.
    Replaced,
    /// The API server did not answer within 2 s, or answered with an error.
    Unknown {
        /// The error, for people.
        error: String,
    },
}

pub(crate) fn now(read: &Read, uid: &str) -> PodNow {
    match read {
        Err(error) => PodNow::Unknown {
            error: error.to_string(),
        },
        Ok(None) => PodNow::Deleted,
        Ok(Some(pod)) if pod.metadata.uid.as_deref().is_some_and(|now| now != uid) => {
            PodNow::Replaced
        }
        Ok(Some(pod)) => match node(pod) {
            Some(node) => PodNow::Bound {
                node: node.to_owned(),
            },
            None => PodNow::NotBound,
        },
    }
}

fn node(pod: &Pod) -> Option<&str> {
    let node = pod.spec.as_ref()?.node_name.as_deref();
    node.filter(|n| !n.is_empty())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Governed {
    ExemptNamespace,
    NoOffer,
    Yes,
}

/// The reason why no round of a pod is known. `governed` is used if the pod was read.
pub(crate) fn no_round(
    namespace: &str,
    name: &str,
    read: Option<&Read>,
    governed: Governed,
) -> String {
    const FORGOTTEN: &str = "too long ago, before the extender was restarted, or by another \
                             replica (ask each one's admin port)";
    let reason = match read {
        Some(Ok(None)) => return format!("there is no pod {namespace}/{name}\n"),
        None => format!("it is not governed, or it was planned {FORGOTTEN}"),
        Some(Err(error)) => format!(
            "it does not exist, is not governed, or was planned {FORGOTTEN}; the pod cannot be \
             read: {error}"
        ),
        Some(Ok(Some(pod))) => {
            let place = match node(pod) {
                Some(node) => format!("it is bound to {node}"),
                None => "it is not bound".to_owned(),
            };
            format!("{}; {place}", not_planned(namespace, pod, governed))
        }
    };
    format!("no round of pod {namespace}/{name} is known: {reason}\n")
}

fn not_planned(namespace: &str, pod: &Pod, governed: Governed) -> String {
    let spec = pod.spec.as_ref();
    let gates = spec.and_then(|s| s.scheduling_gates.as_ref());
    let gates: Vec<&str> = gates.into_iter().flatten().map(|g| &*g.name).collect();
    let scheduler = spec.and_then(|s| s.scheduler_name.as_deref());
    let conditions = pod.status.as_ref().and_then(|s| s.conditions.as_ref());
    let message = conditions
        .into_iter()
        .flatten()
        .filter(|c| c.type_ == "PodScheduled")
        .find_map(|c| c.message.as_deref());
    match governed {
        Governed::ExemptNamespace => {
            format!("pods of namespace {namespace} are never governed (--exempt-namespaces)")
        }
        Governed::NoOffer => format!("no offer of namespace {namespace} selects its labels"),
        Governed::Yes if node(pod).is_some() => {
            "it was planned too long ago, before the extender was restarted, by another replica \
             (ask each one's admin port), or it was bound without this extender"
                .to_owned()
        }
        Governed::Yes if !gates.is_empty() => format!(
            "kube-scheduler does not look at it before its schedulingGates are removed ({})",
            gates.join(", ")
        ),
        Governed::Yes => {
            let scheduler = scheduler.unwrap_or(DEFAULT_SCHEDULER);
            let mut text = match scheduler {
                DEFAULT_SCHEDULER => "kube-scheduler has not called this extender for it".into(),
                other => format!(
                    "its spec.schedulerName is {other}, and that scheduler has not called this \
                     extender for it"
                ),
            };
            text += ": the scheduler may be configured without the extender, another replica may \
                     have been asked (ask each one's admin port), the scheduler found no node \
                     before it asked, or the pod waits for the node of a peer that is being bound \
                     (its events say so)";
            if let Some(message) = message {
                text += &format!(" (it says: {message})");
            }
            text
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use kube::client::Body;
    use serde_json::{Value, json};

    use super::*;

    fn pod(spec: Value) -> Pod {
        let pod = json!({
            "metadata": {"name": "web-0", "namespace": "shop", "uid": "u1"}, "spec": spec,
            "status": {"conditions": [{"type": "PodScheduled", "status": "False",
                "message": "0/3 nodes are available"}]},
        });
        serde_json::from_value(pod).unwrap()
    }

    fn read(spec: Value) -> Read {
        Ok(Some(Box::new(pod(spec))))
    }

    #[test]
    fn now_checks_the_uid() {
        let bound = read(json!({"containers": [], "nodeName": "n1"}));
        let node = "n1".to_owned();
        assert_eq!(now(&bound, "u1"), PodNow::Bound { node });
        assert_eq!(now(&bound, "u0"), PodNow::Replaced);
        assert_eq!(
            now(&read(json!({"containers": []})), "u1"),
            PodNow::NotBound
        );
        assert_eq!(now(&Ok(None), "u1"), PodNow::Deleted);
        let late = ApiCallError::Timeout(DEADLINE);
        let error = late.to_string();
        assert_eq!(now(&Err(late), "u1"), PodNow::Unknown { error });
    }

    #[test]
    fn no_round_text_names_the_reason() {
        use Governed::{ExemptNamespace, NoOffer, Yes};
        let waiting = || read(json!({"containers": []}));
        let other = || read(json!({"containers": [], "schedulerName": "batch"}));
        let gated = || read(json!({"containers": [], "schedulingGates": [{"name": "quota"}]}));
        let bound = || read(json!({"containers": [], "nodeName": "n1"}));
        for (read, governed, parts) in [
            (None, Yes, &["not governed", "another replica"][..]),
            (Some(Ok(None)), Yes, &["there is no pod shop/web-0\n"]),
            (
                Some(Err(ApiCallError::Timeout(DEADLINE))),
                Yes,
                &["cannot be read: the API server did not answer within 2s"],
            ),
            (
                Some(waiting()),
                ExemptNamespace,
                &["--exempt-namespaces", "it is not bound"],
            ),
            (
                Some(bound()),
                NoOffer,
                &["no offer of namespace shop", "it is bound to n1"],
            ),
            (
                Some(waiting()),
                Yes,
                &[
                    "kube-scheduler has not called this extender",
                    "0/3 nodes",
                    "it is not bound",
                ],
            ),
            (Some(other()), Yes, &["spec.schedulerName is batch"]),
            (Some(gated()), Yes, &["schedulingGates", "quota"]),
            (
                Some(bound()),
                Yes,
                &["bound without this extender", "it is bound to n1"],
            ),
        ] {
            let text = no_round("shop", "web-0", read.as_ref(), governed);
            for part in parts {
                assert!(text.contains(part), "{part}: {text}");
            }
            assert_eq!(text.lines().count(), 1, "{text}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn read_times_out() {
        let silent = tower::service_fn(|_: http::Request<Body>| {
            std::future::pending::<Result<http::Response<Body>, Infallible>>()
        });
        let client = Client::new(silent, "default");
        let start = tokio::time::Instant::now();
        let read = Reader::default().read(&client, "shop", "web-0").await;
        assert!(
            matches!(read, Err(ApiCallError::Timeout(DEADLINE))),
            "{read:?}"
        );
        assert_eq!(start.elapsed(), DEADLINE);
    }

    #[tokio::test]
    async fn read_finds_the_pod_or_none() {
        let server = tower::service_fn(|request: http::Request<Body>| async move {
            let (code, body) = match request.uri().path() {
                "/api/v1/namespaces/shop/pods/web-0" => {
                    let pod = pod(json!({"containers": [], "nodeName": "n1"}));
                    (200, serde_json::to_vec(&pod).unwrap())
                }
                _ => {
                    let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure",
                        "reason": "NotFound", "code": 404, "message": "not found"});
                    (404, status.to_string().into_bytes())
                }
            };
            let answer = http::Response::builder().status(code);
            Ok::<_, Infallible>(answer.body(Body::from(body)).unwrap())
        });
        let client = Client::new(server, "default");
        let reader = Reader::default();
        let read = reader.read(&client, "shop", "web-0").await;
        assert!(matches!(now(&read, "u1"), PodNow::Bound { .. }), "{read:?}");
        let read = reader.read(&client, "shop", "web-1").await;
        assert!(matches!(read, Ok(None)), "{read:?}");
    }
}
