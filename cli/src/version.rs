//! Implements `tautline version`, which shows the versions of this program, the API server and
//! Tautline's servers.

use anyhow::Result;
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use kube::{Api, api::ListParams};
use serde::Serialize;

use crate::{
    cluster::ClusterArgs,
    doctor::{version_of, workload::Workload},
    output::{self, Output},
    scope,
    table::{field, section},
};

#[derive(clap::Args)]
#[command(after_help = "Examples:\n  tautline version\n  tautline version -o json")]
pub(crate) struct Args {
    #[command(flatten)]
    own: scope::OwnNamespace,
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
    #[command(flatten)]
    cluster: ClusterArgs,
}

#[derive(Debug, Serialize)]
struct Versions {
    client: &'static str,
    kubernetes: String,
    servers: Vec<Server>,
}

/// A Deployment or DaemonSet of a server.
#[derive(Debug, Serialize)]
struct Server {
    component: &'static str,
    object: String,
    /// The image's tag; empty if it has a digest alone.
    version: String,
    image: String,
}

impl Server {
    fn new(workload: &Workload<'_>) -> Self {
        let image = workload.container.image.clone().unwrap_or_default();
        Self {
            component: workload.role.title(),
            object: workload.object(),
            version: version_of(&image).unwrap_or_default().to_owned(),
            image,
        }
    }
}

fn servers(deployments: &[Deployment], daemon_sets: &[DaemonSet]) -> Vec<Server> {
    let deployments = deployments.iter().filter_map(Workload::of_deployment);
    let daemon_sets = daemon_sets.iter().filter_map(Workload::of_daemon_set);
    let mut all: Vec<Workload<'_>> = deployments.chain(daemon_sets).collect();
    all.sort_by_key(|workload| (workload.role, workload.object()));
    all.iter().map(Server::new).collect()
}

impl Versions {
    fn text(&self) -> String {
        field("Client", self.client)
            + &field("Kubernetes", &self.kubernetes)
            + &section(
                "Servers",
                &self.servers,
                &[
                    ("COMPONENT", &|server| server.component.to_owned()),
                    ("VERSION", &|server| server.version.clone()),
                    ("OBJECT", &|server| server.object.clone()),
                    ("IMAGE", &|server| server.image.clone()),
                ],
            )
    }
}

pub(crate) async fn run(args: Args) -> Result<()> {
    let client = args.cluster.client().await?;
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), &args.own.namespace);
    let daemon_sets: Api<DaemonSet> = Api::namespaced(client.clone(), &args.own.namespace);
    let all = ListParams::default();
    let (kubernetes, deployments, daemon_sets) = tokio::try_join!(
        client.apiserver_version(),
        deployments.list(&all),
        daemon_sets.list(&all)
    )?;
    let versions = Versions {
        client: env!("CARGO_PKG_VERSION"),
        kubernetes: kubernetes.git_version,
        servers: servers(&deployments.items, &daemon_sets.items),
    };
    output::print(args.output, &versions, Versions::text)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn workload<K: serde::de::DeserializeOwned>(name: &str, image: &str, args: Value) -> K {
        let labels = json!({"app": name, "app.kubernetes.io/part-of": "tautline"});
        serde_json::from_value(json!({
            "metadata": {"name": name, "labels": labels},
            "spec": {"selector": {"matchLabels": labels},
                     "template": {"metadata": {"labels": labels},
                                  "spec": {"containers": [{"name": "c", "image": image, "args": args}]}}},
        }))
        .unwrap()
    }

    #[test]
    fn servers_with_their_images() {
        let digest = "r.example:5000/tautline@sha256:00";
        let deployments = [
            workload("c", "r.example:5000/tautline:0.2.0", json!(["controller"])),
            workload("e", "tautline:0.1.0", json!(["extender"])),
            workload("other", "nginx:1", json!(["serve"])),
        ];
        let agents = [workload("a", digest, json!(["agent", "latency"]))];
        let versions = Versions {
            client: "0.1.0",
            kubernetes: "v1.36.3".to_owned(),
            servers: servers(&deployments, &agents),
        };
        assert_eq!(
            versions.text(),
            "Client:            0.1.0\n\
             Kubernetes:        v1.36.3\n\
             Servers:\n  \
             COMPONENT       VERSION   OBJECT         IMAGE\n  \
             extender        0.1.0     Deployment e   tautline:0.1.0\n  \
             controller      0.2.0     Deployment c   r.example:5000/tautline:0.2.0\n  \
             latency agent   -         DaemonSet a    r.example:5000/tautline@sha256:00\n"
        );
    }
}
