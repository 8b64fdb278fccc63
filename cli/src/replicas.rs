//! Calls the admin ports of a component: one port by its URL, or the ports of all replicas,
//! forwarded through the API server.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use futures::future::join_all;
use http_body_util::{BodyExt, Full, Limited};
use hyper::{Request, StatusCode, header::HOST};
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client, ResourceExt, api::ListParams};
use tautline_console::source::AdminAnswer;
use tautline_core::trust::OWN_NAMESPACE;

use crate::{
    cluster::ClusterArgs,
    cluster_fault,
    http::{Http, MAX_BODY_BYTES},
    scope,
};

const DEADLINE: Duration = Duration::from_secs(10);
const DEFAULT_PORT: u16 = 9090;

#[derive(clap::Args)]
pub(crate) struct ReplicaArgs {
    /// Tautline's namespace
    #[arg(long, value_name = "NS", default_value = OWN_NAMESPACE, value_parser = scope::name)]
    pub(crate) tautline_namespace: String,
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
}

impl ReplicaArgs {
    /// Returns the answers to a GET of `path` by `url`, or by every replica: the pods whose label
    /// `app.kubernetes.io/name` is one of `components`. It names replicas without an answer on
    /// standard error, and fails if no replica answers.
    pub(crate) async fn get(
        &self,
        url: Option<&str>,
        components: &[&str],
        path: &str,
    ) -> Result<Vec<AdminAnswer>> {
        if let Some(url) = url.filter(|url| !url.is_empty()) {
            let from = format!("{}{path}", url.trim_end_matches('/'));
            let got = Http::default().get(&from).await;
            let (status, body) =
                got.context("leave out --url to ask every replica, through the API server")?;
            let status = status.as_u16();
            return Ok(vec![AdminAnswer { from, status, body }]);
        }
        let (client, namespace) = (self.cluster.client().await?, &self.tautline_namespace);
        let (answers, failed) = each_pod(client, namespace, components, (path, DEADLINE)).await?;
        for error in failed {
            note!("warning: {error}");
        }
        Ok(answers)
    }

    /// Returns the answer to a POST of JSON to `path` by `url`, or by the first replica that
    /// answers. Any status but 200 is an error.
    pub(crate) async fn post(
        &self,
        url: Option<&str>,
        components: &[&str],
        path: &str,
        body: Vec<u8>,
    ) -> Result<Bytes> {
        if let Some(url) = url.filter(|url| !url.is_empty()) {
            let url = format!("{}{path}", url.trim_end_matches('/'));
            return Http::default().post(&url, body).await;
        }
        let (client, namespace) = (self.cluster.client().await?, &self.tautline_namespace);
        let pods: Api<Pod> = Api::namespaced(client, namespace);
        let (body, mut failed) = (Bytes::from(body), Vec::new());
        for pod in running(&pods, namespace, components).await? {
            let name = pod.name_any();
            let request = Request::post(path).header(HOST, "localhost");
            let request = request.body(Full::new(body.clone()))?;
            match send(&pods, (&name, admin_port(&pod)), request, DEADLINE).await {
                Ok((StatusCode::OK, answer)) => return Ok(answer),
                Ok((status, text)) => {
                    let text = String::from_utf8_lossy(&text);
                    failed.push(format!(
                        "pod {name} {path} answered {status}: {}",
                        text.trim()
                    ));
                }
                Err(error) => failed.push(cluster_fault::text(&error)),
            }
        }
        bail!("{}", failed.join("; "))
    }
}

/// Returns the running pods of the components, at least one.
async fn running(pods: &Api<Pod>, namespace: &str, components: &[&str]) -> Result<Vec<Pod>> {
    let selector = format!("app.kubernetes.io/name in ({})", components.join(","));
    let listed = pods
        .list(&ListParams::default().labels(&selector))
        .await
        .with_context(|| format!("pods of namespace {namespace}"))?;
    let running: Vec<Pod> = listed.items.into_iter().filter(is_running).collect();
    if running.is_empty() {
        bail!(
            "no pod of {} runs in namespace {namespace}; set --tautline-namespace, or --url",
            components.join(" or ")
        );
    }
    Ok(running)
}

/// Returns the answers of the replicas within the deadline, at least one, and the errors of the
/// remaining replicas.
pub(crate) async fn each_pod(
    client: Client,
    namespace: &str,
    components: &[&str],
    (path, deadline): (&str, Duration),
) -> Result<(Vec<AdminAnswer>, Vec<String>)> {
    let pods: Api<Pod> = Api::namespaced(client, namespace);
    let running = running(&pods, namespace, components).await?;
    let calls = running.iter().map(async |pod| {
        let name = pod.name_any();
        let answer = forward(&pods, (&name, admin_port(pod)), path, deadline).await;
        answer.map(|(status, body)| AdminAnswer {
            from: format!("pod {name} {path}"),
            status: status.as_u16(),
            body,
        })
    });
    let mut answers = Vec::new();
    let mut failed = Vec::new();
    for answer in join_all(calls).await {
        match answer {
            Ok(answer) => answers.push(answer),
            Err(error) => failed.push(cluster_fault::text(&error)),
        }
    }
    if answers.is_empty() {
        bail!("{}", failed.join("; "));
    }
    Ok((answers, failed))
}

pub(crate) fn is_running(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|s| s.phase.as_deref());
    phase == Some("Running") && pod.metadata.deletion_timestamp.is_none()
}

/// Returns the container port `admin`, or the default port.
pub(crate) fn admin_port(pod: &Pod) -> u16 {
    let containers = pod.spec.iter().flat_map(|s| &s.containers);
    let mut ports = containers.flat_map(|c| c.ports.iter().flatten());
    let admin = ports.find(|p| p.name.as_deref() == Some("admin"));
    admin
        .and_then(|p| u16::try_from(p.container_port).ok())
        .unwrap_or(DEFAULT_PORT)
}

/// Returns the answer of a pod's port to a GET.
pub(crate) async fn forward(
    pods: &Api<Pod>,
    port: (&str, u16),
    path: &str,
    deadline: Duration,
) -> Result<(StatusCode, Bytes)> {
    let request = Request::get(path).header(HOST, "localhost");
    send(pods, port, request.body(Full::default())?, deadline).await
}

/// Returns the answer of a pod's port. The kubelet opens the connection inside the pod, so no
/// NetworkPolicy blocks it.
async fn send(
    pods: &Api<Pod>,
    (name, port): (&str, u16),
    request: Request<Full<Bytes>>,
    deadline: Duration,
) -> Result<(StatusCode, Bytes)> {
    let call = async {
        let mut forwarded = pods.portforward(name, &[port]).await?;
        let stream = forwarded.take_stream(port).context("no stream")?;
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        let connection = tokio::spawn(connection);
        let (head, body) = sender.send_request(request).await?.into_parts();
        let read = Limited::new(body, MAX_BODY_BYTES).collect().await;
        let body = read.map_err(anyhow::Error::from_boxed)?.to_bytes();
        connection.abort();
        anyhow::Ok((head.status, body))
    };
    tokio::time::timeout(deadline, call)
        .await
        .with_context(|| format!("pod {name} did not answer within {deadline:?}"))?
        .with_context(|| format!("pod {name}: port {port} cannot be forwarded"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn admin_port_is_the_named_one() {
        let pod = |ports: serde_json::Value| -> Pod {
            serde_json::from_value(json!({"metadata": {"name": "p"}, "spec": {"containers": [
                {"name": "kube-scheduler", "ports": [{"containerPort": 10259}]},
                {"name": "tautline", "ports": ports}]}}))
            .unwrap()
        };
        let admin = json!([{"name": "admin", "containerPort": 9191}]);
        assert_eq!(admin_port(&pod(admin)), 9191);
        assert_eq!(admin_port(&pod(json!([]))), DEFAULT_PORT);
    }
}
